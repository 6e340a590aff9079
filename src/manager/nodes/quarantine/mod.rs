//! Which nodes vote, and how a node that lost its data gets its vote back.

pub(in crate::manager) mod census;
pub(in crate::manager) mod list;
pub(in crate::manager) mod standing;
pub(in crate::manager) mod state;
pub(in crate::manager) mod warden;
