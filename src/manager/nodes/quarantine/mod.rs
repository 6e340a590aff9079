//! How a node that may have lost its data gets its vote back.
//!
//! ```text
//!   unknown ──► voting ◄────────────────────────────┐
//!      │           │ it lost its data (a reply)      │ promoted: every lease that it may have
//!      └───────────┴──────────► quarantined ─────────┘ forgotten has ended; then the fencing tokens
//!                                                      of a quorum that remembers are learnt
//! ```
//!
//! The rule is that of a delayed restart ("unavailable for at least a bit more than the max TTL", as the documentation
//! of Redis has it), timed by the clients' own clocks from the first sight of the quarantine's random name, and
//! followed by a read of the others' high-water marks: before the wait is over such a read would prove nothing.
//!
//! * `monitor`: one task per node, which asks whether the node votes, again and again.
//! * `observe`: a node that says it is quarantined: when that began and how long it lasts.
//! * `check_in`: asking a node whether it votes.
//! * `census`: what the other nodes know meanwhile.
//! * `end`: the end of a quarantine.

pub(crate) mod census;
pub(crate) mod check_in;
pub(crate) mod end;
pub(crate) mod monitor;
pub(crate) mod observe;
