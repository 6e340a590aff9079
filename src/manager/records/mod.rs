//! Records: the results of idempotent work, stored on the nodes beside the locks under which it was done.
//!
//! A second protocol over the rounds of the first. [`recall`] asks the nodes for the record of a key, or else for its
//! lock; [`complete`] writes the record in the step that gives the lock back, and brings it to nodes that lack it;
//! [`run`] has the calls of users. The rules of a record (which one counts, when it ends) are pure, in
//! `protocol::recall` and `protocol::retention`.

pub(crate) mod complete;
pub(crate) mod recall;
pub(crate) mod run;
