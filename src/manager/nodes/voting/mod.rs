//! Which nodes vote, as last observed.

pub(in crate::manager) mod overrides;
pub(in crate::manager) mod state;
pub(in crate::manager) mod status;
pub(in crate::manager) mod statuses;
pub(in crate::manager) mod summary;
