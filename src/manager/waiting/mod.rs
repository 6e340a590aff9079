//! Callers that wait, the holders that they wait for, and the keys that this process lets others have first.

pub(crate) mod cooldown;
pub(crate) mod holder;
pub(crate) mod wait_times;
