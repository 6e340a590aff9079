//! Giving locks back, with or without a record of what the work under them came to.

pub(crate) mod command;
pub(crate) mod completion;
pub(crate) mod releaser;
pub(crate) mod settlement;
