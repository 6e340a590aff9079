//! Callers that wait: whose turn it is, which callers wait, and which keys this process lets others have first.

pub(crate) mod cooldown;
pub(crate) mod holder;
pub(crate) mod turns;
pub(crate) mod waiters;
