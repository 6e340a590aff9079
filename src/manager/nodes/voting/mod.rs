//! Which nodes vote, and how a node that may have lost its data gets its vote back.
//!
//! ```text
//!   unknown ──► voting ◄────────────────────────────┐
//!      │           │ it lost its data (a reply)      │ promoted: every lease that it may have
//!      └───────────┴──────────► quarantined ─────────┘ forgotten has ended; then the fencing tokens
//!                                                      of the nodes that vote are learnt
//! ```
//!
//! The rule is that of a delayed restart ("unavailable for at least a bit more than the max TTL", as the documentation
//! of Redis has it), timed by the clients' own clocks:
//!
//! * A node that is asked whether it votes (a *check-in*, once a second) and may have lost data puts itself into
//!   quarantine, under a name that nothing else has: its identity, the digest of the config, a random number.
//! * Each process waits on its own clock, from its first sight of that name, for the one
//!   [length](crate::protocol::quarantine) of all quarantines. A process that starts meanwhile waits anew.
//! * Then it reads the high-water marks of the nodes that vote (before that such a read would prove nothing) and ends
//!   the quarantine of that name with the highest of them, below which no fencing token is counted on. If fewer than a
//!   quorum vote, its clock and the skew that clocks may have stand in for them, and the log says so.
//!
//! A *list* of nodes, with what else all processes agree on, grants nothing before each of its nodes has accepted it
//! once: until then one of them may serve processes with another list. For the same reason nothing is granted or
//! extended while any node is known to serve others. An operator overrides either: `bootstrap` says that no lock is
//! held, so no node has to wait; `adopt_nodes` takes the nodes of others over, and the nodes then wait for the longer
//! of the two lists' quarantines.
//!
//! * `monitor`: one task per node, which asks it and ends its quarantine.
//! * `statuses`: what is known, behind a mutex, for all who ask or tell.
//! * `list`: what is known of all nodes, and what follows from it; `state`: of one.
//! * `replies`: whether a node answers; `status`: whether it votes, for users.

mod list;
pub(crate) mod monitor;
pub(crate) mod replies;
mod state;
pub(crate) mod status;
pub(crate) mod statuses;
