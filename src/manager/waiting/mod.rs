//! Callers that wait: whose turn it is, and when they go.

pub(in crate::manager) mod cooldown;
pub(in crate::manager) mod holder;
pub(in crate::manager) mod pauses;
pub(in crate::manager) mod turns;
pub(in crate::manager) mod waiters;
