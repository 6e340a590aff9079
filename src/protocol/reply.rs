//! What a node answers to a command, in the protocol's own terms.

use std::time::Duration;

use crate::record::Record;
use crate::token::FencingToken;

/// A node's answer to an acquire or a recall.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AcquireReply {
    /// The keys were free (or held this very token) and now hold our token for a full ttl.
    Granted {
        /// What the counters of the keys were set to; `None` if no number was asked for.
        fence: Option<FencingToken>,
    },
    /// A key holds another token. Nothing was changed.
    Held(Holder),
    /// To a recall alone: the key has a record that has not ended. Nothing was changed.
    Recorded(Record),
    /// To a recall alone: granted, and the node will take no record of anybody who was granted it before.
    Promised {
        /// As for a grant.
        fence: Option<FencingToken>,
        /// The record that the key has, if the recall [adopts](crate::node::RecallRequest::adopt): one that has not
        /// ended, and stays until it does or is overwritten.
        record: Option<Record>,
        /// What the node's clock showed then, in milliseconds since 1970. What ends later by it has not ended there.
        now: u64,
    },
}

/// A node's answer to a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CompleteReply {
    /// The node has the record now, or had it; with nothing to record, it has forgotten the grant. The lock is not
    /// ours there any more.
    Stored {
        /// How many connections listened for the release, if there was one.
        listeners: u32,
    },
    /// The node granted the lock to another since, or has a record of a higher ballot, or may not vote, or the record
    /// has ended by its clock: nothing was stored. The lock is not ours there any more.
    Refused,
}

/// A node's answer to a raise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RaiseReply {
    /// The keys hold our token and their counters are at least at the number.
    Raised,
    /// A key was absent or held another token. Nothing was changed.
    NotOwner,
}

/// A node's answer to a verify.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum VerifyReply {
    /// The owner holds all keys, for at least so long yet unless it extends or releases them.
    Owner {
        /// How long yet.
        remaining: Duration,
    },
    /// A key is absent or held by another.
    NotOwner,
    /// The owner holds all keys, and the loan that was claimed is or was another borrower's.
    Taken,
}

/// Whether a node may vote.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CheckInReply {
    /// It has forgotten nothing since it was promoted.
    Voting {
        /// The longest lease that it was told of.
        max_lease: Duration,
        /// The highest value that any of its counters ever had; `None` if there was none.
        high_water: Option<FencingToken>,
        /// The digests of the configs that it was under before, as far as it remembers.
        replaced: Vec<String>,
    },
    /// It may have forgotten something.
    Quarantined {
        /// What its present quarantine is called.
        id: String,
        /// The longest lease that it was told of, as far as it remembers.
        max_lease: Duration,
        /// The longest lease under the config that ours has replaced, if locks under that may not have ended yet.
        earlier: Duration,
        /// Whether it has voted under our config: then all nodes had accepted that.
        accepted: bool,
        /// Whether it has nothing to forget, for it never granted anything.
        unused: bool,
        /// The digests of the configs that it was under before, as far as it remembers.
        replaced: Vec<String>,
    },
    /// It serves processes that agreed on something else.
    Foreign {
        /// What they agreed on, as shown to people.
        config: String,
        /// The digest of that.
        digest: String,
        /// The digests of the configs that theirs has replaced, as far as the node remembers.
        replaced: Vec<String>,
    },
}

/// A node's answer to one lock of an extend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExtendReply {
    /// The keys held our token and their ttl was set anew.
    Extended,
    /// A key was absent and, as asked for, now holds our token for a full ttl.
    Refilled,
    /// The same as either on a node in quarantine, or on one that knows only of shorter leases: the lock is there and
    /// does not count.
    Quarantined,
    /// A key was absent and was left so.
    Absent,
    /// A key holds another token. Nothing was changed.
    Held(Holder),
}

/// A node's answer to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReleaseReply {
    /// A key held our token at least, and none does any more; so many subscribers were told.
    Released {
        /// How many connections listened for this release.
        listeners: u32,
    },
    /// No key held our token. Nothing was changed.
    NotOwner,
    /// A [borrower](crate::node::ReleaseRequest::lent) is at work. Nothing was changed.
    Lent,
}

/// Who holds a key on one node, as far as another contender may know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// Tells holders apart without naming their tokens: equal tokens give equal tags.
    pub tag: u64,
    /// How long the node will keep the key unless it is extended or released; `None` for a key without expiry.
    pub remaining: Option<Duration>,
    /// To an acquire: which of the keys that were asked for it holds, by its place in their order from 0; `None` if the
    /// node does not tell. While the caller waits for that key, its process lets others have the rest.
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

    /// The same, of the key at the place `key` of those that were asked for.
    #[must_use]
    pub const fn of_key(mut self, key: usize) -> Self {
        self.key = Some(key);
        self
    }
}
