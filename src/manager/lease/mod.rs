//! One lock that this process holds, from its grant to its end.

pub(crate) mod clocks;
pub(crate) mod held;
pub(crate) mod lost;
pub(crate) mod registry;
pub(crate) mod state;
