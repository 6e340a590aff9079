//! [`Record`]: the result of an idempotent request, as the nodes store it.

use std::fmt;

use bytes::Bytes;

use crate::token::FencingToken;

/// The result of a request, stored by the nodes beside the lock of its idempotency key.
///
/// The nodes agree on one record for each key as in single-decree Paxos: a grant is a promise to store nothing under a
/// lower ballot, the [ballot](Self::ballot) is the fencing token of the lock under which the record was written, and a
/// record that a quorum holds under one ballot is *chosen* and never changes. Source: L. Lamport, "Paxos Made Simple"
/// (2001).
#[derive(Clone, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_structs,
    reason = "of this crate, and tests make some"
)]
pub struct Record {
    /// The fencing token of the lock under which it was written. Of two records the one with the higher ballot counts.
    pub ballot: FencingToken,
    /// The content, which means nothing to the nodes.
    pub body: Bytes,
    /// When it ends, in milliseconds since 1970. The first writer decides it once; it stays the same on every node that
    /// gets the record later, under a higher ballot too. Each node compares it with its own clock.
    pub until: u64,
}

// By hand: the body is private to its client.
impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("ballot", &self.ballot)
            .field("len", &self.body.len())
            .field("until", &self.until)
            .finish_non_exhaustive()
    }
}
