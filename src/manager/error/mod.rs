//! The errors of a manager.

pub(in crate::manager) mod acquire;
pub(in crate::manager) mod borrow;
pub(in crate::manager) mod config;
pub(in crate::manager) mod connect;
pub(in crate::manager) mod loss;
pub(in crate::manager) mod release;
