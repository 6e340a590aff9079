//! The commands of a node by subject: the requests and replies, how a Redis server is asked by the script beside the
//! file (`on_redis`), and what a memory node does.
//!
//! Here is what several requests say: the config on which processes agree, fencing tokens, and records. On Redis, `script`
//! runs the scripts, of which `lua/` has the parts that several share, and reads the parts of replies.

#![allow(
    clippy::exhaustive_enums,
    clippy::exhaustive_structs,
    reason = "of this crate, and tests make some"
)]

pub(crate) mod acquire;
pub(crate) mod extend;
pub(crate) mod holders;
pub(crate) mod raise;
pub(crate) mod readers;
#[cfg(feature = "idempotency")]
pub(crate) mod records;
pub(crate) mod release;
#[cfg(feature = "redis")]
pub(crate) mod script;
pub(crate) mod voting;

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use crate::token::FencingToken;

/// The settings on which all processes that share the nodes must agree. A node remembers them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterConfig {
    /// A hash of [`text`](Self::text), for comparison.
    pub digest: String,
    /// The format, the nodes' names, the quorum and whatever else is agreed, as shown to people.
    pub text: String,
    /// Whether nodes that may have lost data must not vote. If not, a node only checks that it has the same config.
    pub guarded: bool,
}

impl ClusterConfig {
    /// The version of what is written to the nodes. It is part of every config.
    pub(crate) const FORMAT: u32 = 2;

    /// The config of nodes that nobody is to use any more, in favour of `successor`.
    #[must_use]
    pub(crate) fn retired(successor: &str) -> Self {
        Self::new(&format!("{RETIRED}{successor}"))
    }

    /// What the nodes with the config of this text were retired in favour of, if they were.
    pub(crate) fn successor(text: &str) -> Option<&str> {
        Some(text.split_once(RETIRED)?.1)
    }

    /// The config with this text after the format. Nodes that may have lost data do not vote under it.
    #[must_use]
    pub fn new(agreed: &str) -> Self {
        let text = format!("format {}; {agreed}", Self::FORMAT);
        let digest = sha1_smol::Sha1::from(&text).digest().to_string();
        Self {
            digest,
            text,
            guarded: true,
        }
    }
}

const RETIRED: &str = "retired in favour of ";

/// A fencing token for the holder of a lock, and how long its counters are kept.
///
/// A grant sets the counters of all keys of the lock to one value: the least that is at least [`token`](Self::token)
/// and at least [`FencingToken::STEP`] above each of them. A counter that is missing or no number counts as the
/// *high-water mark*, the highest value that any counter of the node and namespace ever had. None counts for less than
/// the floor of the node's last promotion. A token more than an hour ahead of the mark and of the node's clock is taken
/// for a mistake.
///
/// A raise or an extension sets a counter to the token of the lock, or leaves it where it is higher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence {
    /// In an acquire: what the client proposes. Else: the fencing token of the lock.
    pub token: FencingToken,
    /// How long a counter is kept after it was last written.
    pub keep: Duration,
}

/// The result of a request, stored by the nodes beside the lock of its idempotency key.
///
/// The nodes agree on one record for each key as in single-decree Paxos: a grant is a promise to store nothing under a
/// lower ballot, the [ballot](Self::ballot) is the fencing token of the lock under which the record was written, and a
/// record that a quorum holds under one ballot is *chosen* and never changes. Source: L. Lamport, "Paxos Made Simple"
/// (2001).
#[derive(Clone, PartialEq, Eq)]
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
