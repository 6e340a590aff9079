//! The errors of a manager.

pub(crate) mod acquire;
pub(crate) mod connect;
pub(crate) mod loss;
pub(crate) mod release;
