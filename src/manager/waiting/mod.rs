//! Callers that wait: whose turn it is, which callers wait, and which keys this process lets others have first.

pub(in crate::manager) mod cooldown;
pub(in crate::manager) mod holder;
pub(in crate::manager) mod turns;
pub(in crate::manager) mod waiters;
