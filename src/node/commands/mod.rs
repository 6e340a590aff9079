//! The commands of a node, by subject: the requests and replies, the scripts for Redis (`on_redis`), and the code of
//! memory nodes. The pieces of scripts are in `lua/`.

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

/// The settings on which all processes that share nodes must agree. Each node stores them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterConfig {
    /// A hash of [`text`](Self::text), for comparison.
    pub digest: String,
    /// The agreed settings as shown to people.
    pub text: String,
    /// Whether nodes that may have lost data must not vote.
    pub guarded: bool,
}

impl ClusterConfig {
    /// The version of the format of keys. It is part of every config.
    pub(crate) const FORMAT: u32 = 2;

    /// A config for nodes that the nodes of `successor` replaced.
    #[must_use]
    pub(crate) fn retired(successor: &str) -> Self {
        Self::new(&format!("{RETIRED}{successor}"))
    }

    /// The nodes that replaced these, if `text` is a retired config.
    pub(crate) fn successor(text: &str) -> Option<&str> {
        Some(text.split_once(RETIRED)?.1)
    }

    /// A guarded config with this text after the format.
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

/// A fencing token, and how long nodes keep the counters of its keys.
///
/// A grant sets the counters of all its keys to one value. It is the least value that is at least
/// [`token`](Self::token) and exceeds each counter by at least [`FencingToken::STEP`]. A counter that is missing or not
/// a number counts as the *high-water mark*, the highest value that any counter of the node and namespace ever had. A
/// counter below the floor of the node's last promotion counts as the floor. A node ignores a proposal that is more
/// than an hour ahead of both its mark and its clock.
///
/// A raise or an extension sets each counter to the lock's token unless the counter is higher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence {
    /// The proposal of an acquire; otherwise the fencing token of the lock.
    pub token: FencingToken,
    /// How long the node keeps a counter after the last write.
    pub keep: Duration,
}

/// The stored result of a request with an idempotency key.
///
/// The nodes agree on one record per key as in single-decree Paxos. A grant promises to store nothing under a lower
/// ballot. The [ballot](Self::ballot) is the fencing token of the lock under which the record was written. A record
/// that a quorum has under one ballot is *chosen* and never changes. Source: L. Lamport, "Paxos Made Simple" (2001).
#[derive(Clone, PartialEq, Eq)]
pub struct Record {
    /// The fencing token of the lock under which the record was written. The record with the highest ballot counts.
    pub ballot: FencingToken,
    /// The content, which nodes do not interpret.
    pub body: Bytes,
    /// When the record ends, in milliseconds since 1970, which each node compares with its own clock. The first writer
    /// decides the end, and later writes do not change it.
    pub until: u64,
}

// Without the body, which is private to the client.
impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("ballot", &self.ballot)
            .field("len", &self.body.len())
            .field("until", &self.until)
            .finish_non_exhaustive()
    }
}
