//! Requests to a node.

use std::sync::Arc;
use std::time::Duration;

use crate::moment::Moment;
use crate::namespace::{Namespace, NodeKeys};
use crate::token::{FencingToken, OwnerToken};

/// The settings on which all processes that share the nodes must agree. A node remembers them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
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
    pub const FORMAT: u32 = 2;

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

    /// The same for a process that lets nodes vote that may have lost data.
    #[must_use]
    pub const fn unguarded(mut self) -> Self {
        self.guarded = false;
        self
    }
}

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
#[non_exhaustive]
pub struct Fence {
    /// In an acquire: what the client proposes. Else: the fencing token of the lock.
    pub token: FencingToken,
    /// How long a counter is kept after its last use.
    pub keep: Duration,
}

impl Fence {
    /// A fence of `token`, kept for `keep`.
    #[must_use]
    pub const fn new(token: FencingToken, keep: Duration) -> Self {
        Self { token, keep }
    }
}

/// A request to acquire a lock on one node.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AcquireRequest {
    /// What to lock.
    pub keys: NodeKeys,
    /// The owner.
    pub token: OwnerToken,
    /// For how long.
    pub ttl: Duration,
    /// The config that the node must have; `None`: it grants under any.
    pub config: Option<Arc<ClusterConfig>>,
    /// The proposed fencing token; `None`: no fencing.
    pub fence: Option<Fence>,
}

impl AcquireRequest {
    /// A request for `keys` as `token` for `ttl`, without a config and a fence.
    #[must_use]
    pub fn new(keys: impl Into<NodeKeys>, token: OwnerToken, ttl: Duration) -> Self {
        Self {
            keys: keys.into(),
            token,
            ttl,
            config: None,
            fence: None,
        }
    }

    /// The same under `config`.
    #[must_use]
    pub fn under(mut self, config: Option<Arc<ClusterConfig>>) -> Self {
        self.config = config;
        self
    }

    /// The same with a fence.
    #[must_use]
    pub const fn fenced(mut self, fence: Option<Fence>) -> Self {
        self.fence = fence;
        self
    }
}

/// A request to extend one lock on one node.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ExtendRequest {
    /// What is locked.
    pub keys: NodeKeys,
    /// The owner.
    pub token: OwnerToken,
    /// For how long from now on.
    pub ttl: Duration,
    /// Whether to set keys where they are absent, unless the owner has a [tombstone](ReleaseRequest::since).
    pub refill: bool,
    /// As for an acquire. A node in quarantine is written all the same, and says so.
    pub config: Option<Arc<ClusterConfig>>,
    /// The fencing token of the lock: lower counters are raised to it.
    pub fence: Option<Fence>,
    /// Whether the expiry of counters that need not be raised begins anew.
    pub touch: bool,
}

impl ExtendRequest {
    /// A request to extend `keys` of `token` to `ttl`, and to set them where they are absent if `refill`.
    #[must_use]
    pub fn new(keys: impl Into<NodeKeys>, token: OwnerToken, ttl: Duration, refill: bool) -> Self {
        Self {
            keys: keys.into(),
            token,
            ttl,
            refill,
            config: None,
            fence: None,
            touch: true,
        }
    }

    /// The same, which leaves the expiry of counters alone unless it `touch`es them.
    #[must_use]
    pub const fn touching(mut self, touch: bool) -> Self {
        self.touch = touch;
        self
    }

    /// The same under `config`.
    #[must_use]
    pub fn under(mut self, config: Option<Arc<ClusterConfig>>) -> Self {
        self.config = config;
        self
    }

    /// The same with a fence.
    #[must_use]
    pub const fn fenced(mut self, fence: Option<Fence>) -> Self {
        self.fence = fence;
        self
    }
}

/// A request to release a lock on one node.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReleaseRequest {
    /// What is locked.
    pub keys: NodeKeys,
    /// The owner.
    pub token: OwnerToken,
    /// Whether the release is announced: not that of a lost round, or contenders would wake each other for nothing.
    pub announce: bool,
    /// When the first command of this owner was sent. A node whose connection is younger leaves a *tombstone*, which
    /// voids commands in the old connection's socket.
    pub since: Option<Moment>,
}

impl ReleaseRequest {
    /// A request to release `keys` of `token`, and to announce it if `announce`.
    #[must_use]
    pub fn new(keys: impl Into<NodeKeys>, token: OwnerToken, announce: bool) -> Self {
        Self {
            keys: keys.into(),
            token,
            announce,
            since: None,
        }
    }

    /// The same for an owner whose first command was sent at `since`.
    #[must_use]
    pub const fn since(mut self, since: Moment) -> Self {
        self.since = Some(since);
        self
    }
}

/// A request to write the fencing token of a lock back to one node.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RaiseRequest {
    /// What is locked.
    pub keys: NodeKeys,
    /// The owner.
    pub token: OwnerToken,
    /// The fencing token of the lock.
    pub fence: Fence,
    /// As for an acquire: a node that may have lost data does not raise, for the lock may be one that it had before.
    pub config: Option<Arc<ClusterConfig>>,
}

impl RaiseRequest {
    /// A request to raise the counters of `keys` of `token` to the token of `fence`.
    #[must_use]
    pub fn new(keys: impl Into<NodeKeys>, token: OwnerToken, fence: Fence) -> Self {
        Self {
            keys: keys.into(),
            token,
            fence,
            config: None,
        }
    }

    /// The same, to be refused by a node that may not vote under `config`.
    #[must_use]
    pub fn under(mut self, config: Option<Arc<ClusterConfig>>) -> Self {
        self.config = config;
        self
    }
}

/// A request to tell whether a node may vote.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CheckInRequest {
    /// The namespace of the locks.
    pub namespace: Namespace,
    /// The config that the node must have.
    pub config: Arc<ClusterConfig>,
    /// The length of this node's quarantines under the config.
    pub quarantine: Duration,
    /// A random name for the quarantine that begins with this, if one does.
    pub fresh: String,
    /// What to do about a node that has another config or none.
    pub mode: CheckInMode,
}

/// What a check-in does about a node that has another config or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CheckInMode {
    /// One without a config is put into quarantine (if the config is [guarded](ClusterConfig::guarded)); one with
    /// another is left alone.
    Normal,
    /// Both are put into quarantine: the list is being changed.
    Adopt {
        /// At least so long, as an operator says.
        former: Duration,
    },
}

impl CheckInRequest {
    /// A check-in of a process with `config` for its locks in `namespace`.
    #[must_use]
    pub const fn new(
        namespace: Namespace,
        config: Arc<ClusterConfig>,
        quarantine: Duration,
        fresh: String,
        mode: CheckInMode,
    ) -> Self {
        Self {
            namespace,
            config,
            quarantine,
            fresh,
            mode,
        }
    }
}

/// The end of a node's quarantine.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PromoteRequest {
    /// The namespace of the locks.
    pub namespace: Namespace,
    /// The config that the node must have.
    pub config: Arc<ClusterConfig>,
    /// The name of the quarantine that ends. If the node is in another one by now, nothing is done.
    pub quarantine: String,
    /// Its high-water mark is raised to this, and no counter counts for less from then on: restored data may hold old
    /// ones.
    pub floor: Option<FencingToken>,
}

impl PromoteRequest {
    /// The end of `quarantine`, with fencing tokens above `floor`.
    #[must_use]
    pub const fn new(
        namespace: Namespace,
        config: Arc<ClusterConfig>,
        quarantine: String,
        floor: Option<FencingToken>,
    ) -> Self {
        Self {
            namespace,
            config,
            quarantine,
            floor,
        }
    }
}
