//! One lock that this process holds, from its grant to its end.

pub(in crate::manager) mod clocks;
pub(in crate::manager) mod held;
pub(in crate::manager) mod loans;
pub(in crate::manager) mod lost;
pub(in crate::manager) mod registry;
pub(in crate::manager) mod share;
pub(in crate::manager) mod state;
pub(in crate::manager) mod view;
