//! The settings of a manager, and what they must be.

pub(in crate::manager) mod fencing;
pub(in crate::manager) mod hand_off;
pub(in crate::manager) mod options;
pub(in crate::manager) mod restart_guard;
