//! From the call to the lock: the queue of this process, then rounds over the nodes.

pub(in crate::manager) mod call;
pub(in crate::manager) mod contender;
pub(in crate::manager) mod enter;
pub(in crate::manager) mod notices;
pub(in crate::manager) mod outcome;
pub(in crate::manager) mod round;
pub(in crate::manager) mod seat;
pub(in crate::manager) mod wait;
