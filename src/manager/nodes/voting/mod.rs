//! Which nodes vote, and how a node that may have lost its data gets its vote back.
//!
//! ```text
//!   unknown ──► voting ◄────────────────────────────┐
//!      │           │ it lost its data (a reply)      │ promoted: every lease that it may have
//!      └───────────┴──────────► quarantined ─────────┘ forgotten has ended; then the fencing tokens
//!                                                      of the nodes that vote are learnt
//! ```
//!
//! The rule is that of a delayed restart, timed by the clients' own clocks:
//!
//! * A node that is asked whether it votes (a *check-in*, once a second) and may have lost data puts itself into
//!   quarantine, under a name that nothing else has: its identity, the digest of the config, a random number.
//! * Each process waits on its own clock, from its first sight of that name, for the one
//!   [length](crate::protocol::quarantine) of all quarantines. A process that starts meanwhile waits anew.
//! * Then it reads the high-water marks of the nodes that vote and ends the quarantine of that name with the highest of
//!   them, below which no fencing token is counted on. If fewer than a quorum vote, its clock and the skew of clocks
//!   stand in for them, and the log says so.
//!
//! A *list* of nodes grants nothing before each of its nodes has accepted it once, nor while any node is known to serve
//! another: until then one of them may serve processes with another list. `bootstrap` says that no lock is held;
//! `adopt_nodes` takes the nodes of others over.

mod list;
pub(crate) mod monitor;
pub(crate) mod replies;
pub(crate) mod state;
pub(crate) mod statuses;
