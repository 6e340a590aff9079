//! Giving locks back, with or without a record of what the work under them came to.

pub(in crate::manager) mod command;
pub(in crate::manager) mod completion;
pub(in crate::manager) mod releaser;
pub(in crate::manager) mod rest;
pub(in crate::manager) mod settlement;
