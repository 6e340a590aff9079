//! The nodes of a manager: sending to them, and which of them vote.

pub(in crate::manager) mod effect;
pub(in crate::manager) mod fanout;
pub(in crate::manager) mod fences;
#[cfg(feature = "metrics")]
pub(in crate::manager) mod gauge;
pub(in crate::manager) mod node_set;
pub(in crate::manager) mod quarantine;
pub(in crate::manager) mod quorum;
pub(in crate::manager) mod random;
pub(in crate::manager) mod replies;
pub(in crate::manager) mod retry;
pub(in crate::manager) mod seconds;
pub(in crate::manager) mod voting;
