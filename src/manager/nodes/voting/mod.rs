//! Which nodes vote, and how a node that may have lost its data gets its vote back.
//!
//! ```text
//!   unknown ─────► voting, quarantined, foreign    by its first answer
//!   voting ──────► quarantined                     a reply shows that it may have lost data
//!   quarantined ─► voting                          promoted: all leases that it may have forgotten have ended
//!   any ─────────► foreign                         it serves processes with another list
//!   foreign ─────► voting, quarantined             it accepts ours, as when it was adopted
//! ```
//!
//! The rule is that of a delayed restart, timed by the clocks of the clients:
//!
//! * A *check-in* asks a node whether it votes: once a second, 50 ms after one without an answer, 200 ms after a
//!   refusal. A node that may have lost data answers by a quarantine, under a name that nothing else has: its identity,
//!   the digest of the config, a random number.
//! * Each process waits on its own clock, from its first sight of that name. A process that starts meanwhile waits
//!   anew. The [length](crate::protocol::quarantine) is that of `max_ttl`; longer for a server that witnesses confirm,
//!   and where a node was taken over from a list whose quarantines lasted longer.
//! * Then it reads the high-water marks of the nodes that vote, and ends the quarantine of that name with the highest
//!   as the floor of later fencing tokens. If fewer than a quorum vote, its clock and the skew of clocks give the
//!   floor, and the log says so.
//!
//! A *list* of nodes grants nothing before each of its nodes has accepted it once, nor while any node is known to serve
//! another list. `bootstrap` says that no lock is held; `adopt_nodes` takes the nodes of others over.

mod list;
pub(crate) mod monitor;
pub(crate) mod replies;
pub(crate) mod state;
pub(crate) mod statuses;
