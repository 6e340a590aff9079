//! The nodes of a manager: sending to them, and which of them vote.

pub(in crate::manager) mod fanout;
pub(in crate::manager) mod fences;
pub(in crate::manager) mod quarantine;
pub(in crate::manager) mod random;
pub(in crate::manager) mod retry;
pub(in crate::manager) mod seconds;
