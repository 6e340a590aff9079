//! Releasing locks, with or without a record of the result of the work under them.

pub(crate) mod command;
pub(crate) mod completion;
pub(crate) mod releaser;
pub(crate) mod settlement;
