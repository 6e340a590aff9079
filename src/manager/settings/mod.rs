//! The settings of a manager, and their checks.

mod checks;
pub(crate) mod fencing;
pub(crate) mod hand_off;
pub(crate) mod options;
pub(crate) mod restart_guard;
pub(crate) mod times;
