//! Which nodes vote, as last observed.

pub(crate) mod state;
pub(crate) mod status;
pub(crate) mod statuses;
