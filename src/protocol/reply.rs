//! What a node answers to a command, in the protocol's own terms.

use std::time::Duration;

/// A node's answer to an acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AcquireReply {
    /// The key was free (or held this very token) and now holds our token for a full ttl.
    Granted,
    /// The key holds another token. Nothing was changed.
    Held(Holder),
}

/// A node's answer to one lock of an extend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExtendReply {
    /// The key held our token and its ttl was set anew.
    Extended,
    /// The key was absent and, as asked for, now holds our token for a full ttl.
    Refilled,
    /// The key was absent and was left so.
    Absent,
    /// The key holds another token. Nothing was changed.
    Held(Holder),
}

/// A node's answer to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReleaseReply {
    /// The key held our token and is gone; so many subscribers were told.
    Released {
        /// How many connections listened for this release.
        listeners: u32,
    },
    /// The key was absent or held another token. Nothing was changed.
    NotOwner,
}

/// Who holds a key on one node, as far as another contender may know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// Tells holders apart without naming their tokens: equal tokens give equal tags.
    pub tag: u64,
    /// How long the node will keep the key unless it is extended or released; `None` for a key without expiry.
    pub remaining: Option<Duration>,
}

impl Holder {
    /// A holder known by `tag`, whose key has `remaining` to live.
    #[must_use]
    pub const fn new(tag: u64, remaining: Option<Duration>) -> Self {
        Self { tag, remaining }
    }
}
