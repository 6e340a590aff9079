//! The nodes of a manager: sending to them, and which of them vote.

pub(crate) mod counting;
pub(crate) mod fanout;
pub(crate) mod node_set;
mod quorum;
pub(crate) mod repeats;
pub(crate) mod retry;
pub(crate) mod voting;
