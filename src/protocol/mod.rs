//! The lock protocol as pure functions and folds: no I/O, no clock, no randomness.

pub(crate) mod reply;
