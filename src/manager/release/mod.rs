//! Giving locks back, with or without a result.

pub(in crate::manager) mod completion;
pub(in crate::manager) mod releaser;
