//! Which nodes vote, as last observed.

mod list;
pub(crate) mod replies;
pub(crate) mod state;
pub(crate) mod status;
pub(crate) mod statuses;
