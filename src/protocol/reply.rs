//! A node's replies to commands, in the protocol's own terms.

use std::time::Duration;

use crate::record::Record;
use crate::token::FencingToken;

/// A node's reply to an acquire or a recall.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AcquireReply {
    /// The keys were free (or held this very token) and now hold our token for a full ttl.
    Granted {
        /// What the counters of the keys were set to; `None` if the request had no fence.
        fence: Option<FencingToken>,
    },
    /// A key holds another token. Nothing was changed.
    Held(Holder),
    /// Only to a recall: the key has a record that has not ended. Nothing was changed.
    Recorded(Record),
    /// Only to a recall: granted, and the node will store no record of an earlier owner.
    Promised {
        /// As for a grant.
        fence: Option<FencingToken>,
        /// The record that the key has, if the recall [adopts](crate::node::RecallRequest::adopt).
        record: Option<Record>,
        /// The node's clock at that time, in milliseconds since 1970. A record that ends later has not ended there.
        now: u64,
    },
}

/// A node's reply to a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CompleteReply {
    /// The node has the record now, or had it; without a record, it has forgotten the grant. The lock is not ours there
    /// any more.
    Stored {
        /// How many connections listened for the release, if there was one.
        listeners: u32,
    },
    /// The node granted the lock to another owner since, or has a record of a higher ballot, or may not vote, or the
    /// record has ended: nothing was stored, and the lock is not ours there.
    Refused,
}

/// A node's reply to a raise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RaiseReply {
    /// The keys hold our token and no counter is below the fencing token.
    Raised,
    /// A key was absent or held another token. Nothing was changed.
    NotOwner,
}

/// Whether a node may vote.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CheckInReply {
    /// It has lost no data since it was promoted.
    Voting {
        /// The highest value that any of its counters ever had; `None` if there was none.
        high_water: Option<FencingToken>,
    },
    /// It may have lost data.
    Quarantined {
        /// The name of its present quarantine.
        id: String,
        /// How long quarantines lasted under the config that ours has replaced there; zero if it has replaced none
        /// since the node voted last.
        former: Duration,
        /// Whether it has voted under our config: then all nodes had accepted the config.
        accepted: bool,
        /// Whether it has nothing to lose, because it never granted anything.
        unused: bool,
    },
    /// It has another config.
    Foreign {
        /// That config, as shown to people.
        config: String,
        /// The digest of that.
        digest: String,
    },
}

/// A node's reply to one lock of an extend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExtendReply {
    /// The keys held our token and their ttl was set again.
    Extended,
    /// A key was absent and, as asked for, now holds our token for a full ttl.
    Refilled,
    /// Either of these on a node in quarantine: the lock is there, and counts at most while its last vote there does.
    Quarantined,
    /// A key was absent and was left so.
    Absent,
    /// A key holds another token. Nothing was changed.
    Held(Holder),
}

/// A node's reply to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReleaseReply {
    /// At least one key held our token, and none does any more.
    Released {
        /// How many connections were listening for this release.
        listeners: u32,
    },
    /// No key held our token. Nothing was changed.
    NotOwner,
}

/// The holder of a key on one node, as another contender may know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// Tells holders apart without naming their tokens: equal tokens give equal tags.
    pub tag: u64,
    /// How long the node will keep the key unless it is extended or released; `None` for a key without expiry.
    pub remaining: Option<Duration>,
    /// In reply to an acquire: the index of the held key among the requested ones; `None` if the node does not tell.
    /// While the caller waits for that key, its process lets other callers have the rest.
    pub key: Option<usize>,
}

impl Holder {
    /// A holder known by `tag`, whose key has `remaining` to live.
    #[must_use]
    pub const fn new(tag: u64, remaining: Option<Duration>) -> Self {
        Self {
            tag,
            remaining,
            key: None,
        }
    }

    /// The same, with the index of the key among the requested ones.
    #[must_use]
    pub const fn of_key(mut self, key: usize) -> Self {
        self.key = Some(key);
        self
    }
}
