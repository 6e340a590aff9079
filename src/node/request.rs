//! What a node can be asked for.

use std::sync::Arc;
use std::time::Duration;

use crate::moment::Moment;
use crate::namespace::{Namespace, NodeKeys};
use crate::token::{Claim, FencingToken, OwnerHash, OwnerToken};

/// What all processes that share the nodes must agree on, and what a node remembers of it.
///
/// Two processes with different lists of nodes would both get a majority of their own, and two that write different
/// [formats](Self::FORMAT) to the nodes would not understand each other.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClusterConfig {
    /// A hash of [`text`](Self::text), to be compared.
    pub digest: String,
    /// The format, the nodes' names, the quorum and whatever else is agreed, as shown to people.
    pub text: String,
    /// The longest lease that this process takes.
    pub max_lease: Duration,
    /// Whether nodes that may have forgotten something must not vote. Else a node only sees to it that it is under no
    /// other config.
    pub guarded: bool,
}

impl ClusterConfig {
    /// The version of what is written to the nodes. It is part of every config.
    pub const FORMAT: u32 = 1;

    /// The config of this text, which is put behind the format. Nodes that may have forgotten something do not vote
    /// under it.
    #[must_use]
    pub fn new(agreed: &str, max_lease: Duration) -> Self {
        let text = format!("format {}; {agreed}", Self::FORMAT);
        let digest = sha1_smol::Sha1::from(&text).digest().to_string();
        Self {
            digest,
            text,
            max_lease,
            guarded: true,
        }
    }

    /// The same for a process that does not mind what nodes may have forgotten.
    #[must_use]
    pub const fn unguarded(mut self) -> Self {
        self.guarded = false;
        self
    }
}

/// A number for the holder of a lock, and how long its counters are kept.
///
/// Each key has a counter on each node. A grant sets the counters of all its keys to one value: the least that is at
/// least [`token`](Self::token) and at least [`FencingToken::STEP`] above each of them. A counter that is missing
/// counts as the *high-water mark*, the highest value that any counter of the node and namespace ever had, and so does
/// one that is no number. None counts for less than the floor of the node's last [promotion](PromoteRequest::floor). A
/// token that is more than an hour ahead both of the mark and of the node's clock is taken for a mistake and not looked
/// at.
///
/// A raise or an extension sets a counter to the number of the lock, or leaves it where it is higher; a missing one
/// counts as the mark here, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fence {
    /// In an acquire: what the client proposes. Else: the number of the lock.
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

/// A request to take a lock on one node.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AcquireRequest {
    /// What to lock.
    pub keys: NodeKeys,
    /// Who locks.
    pub token: OwnerToken,
    /// For how long.
    pub ttl: Duration,
    /// What the node must agree to; `None`: it grants whatever it may have forgotten, and whoever else it serves.
    pub config: Option<Arc<ClusterConfig>>,
    /// Which number is proposed; `None`: holders are not numbered.
    pub fence: Option<Fence>,
}

impl AcquireRequest {
    /// A request for `keys` as `token` for `ttl`, without a config and a number.
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

    /// The same with a number.
    #[must_use]
    pub const fn numbered(mut self, fence: Option<Fence>) -> Self {
        self.fence = fence;
        self
    }
}

/// A request to lengthen one lock on one node.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ExtendRequest {
    /// What is locked.
    pub keys: NodeKeys,
    /// Who locks.
    pub token: OwnerToken,
    /// For how long from now on.
    pub ttl: Duration,
    /// Whether to set keys where they are absent. Not where a [tombstone](ReleaseRequest::since) says that the owner
    /// is gone.
    pub refill: bool,
    /// As for an acquire. A node in quarantine is written all the same, and says so.
    pub config: Option<Arc<ClusterConfig>>,
    /// The number of the lock: lower counters are raised to it.
    pub fence: Option<Fence>,
}

impl ExtendRequest {
    /// A request to extend `keys` of `token` to `ttl`, and to set them where they are absent if `refill`; without a
    /// config and a number.
    #[must_use]
    pub fn new(keys: impl Into<NodeKeys>, token: OwnerToken, ttl: Duration, refill: bool) -> Self {
        Self {
            keys: keys.into(),
            token,
            ttl,
            refill,
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

    /// The same with a number.
    #[must_use]
    pub const fn numbered(mut self, fence: Option<Fence>) -> Self {
        self.fence = fence;
        self
    }
}

/// A request to give a lock back on one node.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReleaseRequest {
    /// What is locked.
    pub keys: NodeKeys,
    /// Who locks.
    pub token: OwnerToken,
    /// Whether those who wait are told. Not when a contender takes back what it got of a lock that it did not win:
    /// contenders would wake each other for nothing.
    pub announce: bool,
    /// When the first command of this owner was sent. A node whose connection is younger must leave a *tombstone*:
    /// commands that still stand in the old connection's socket must find it and do nothing.
    pub since: Option<Moment>,
    /// Whether the lock was ever lent. Then the node keeps it while it knows of a borrower at work.
    pub lent: bool,
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
            lent: false,
        }
    }

    /// The same for a lock that was lent, if so.
    #[must_use]
    pub const fn lent(mut self, lent: bool) -> Self {
        self.lent = lent;
        self
    }

    /// The same for an owner whose first command was sent at `since`.
    #[must_use]
    pub const fn since(mut self, since: Moment) -> Self {
        self.since = Some(since);
        self
    }
}

/// A request to write the number of a lock back to one node.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RaiseRequest {
    /// What is locked.
    pub keys: NodeKeys,
    /// Who locks.
    pub token: OwnerToken,
    /// The number of the lock.
    pub fence: Fence,
}

impl RaiseRequest {
    /// A request to raise the counters of `keys` of `token` to the number of `fence`.
    #[must_use]
    pub fn new(keys: impl Into<NodeKeys>, token: OwnerToken, fence: Fence) -> Self {
        Self {
            keys: keys.into(),
            token,
            fence,
        }
    }
}

/// A question for the owner of keys, and the claim of a borrower to a loan of theirs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct VerifyRequest {
    /// What is locked.
    pub keys: NodeKeys,
    /// Who should hold all of it.
    pub owner: OwnerHash,
    /// As for an acquire: a node that may have forgotten something cannot tell.
    pub config: Option<Arc<ClusterConfig>>,
    /// Who wants to run under it. The first to claim a loan at a node has it there, and the node remembers that.
    pub claim: Option<Claim>,
}

impl VerifyRequest {
    /// The question whether `owner` holds `keys`.
    #[must_use]
    pub fn new(
        keys: impl Into<NodeKeys>,
        owner: OwnerHash,
        config: Option<Arc<ClusterConfig>>,
    ) -> Self {
        Self {
            keys: keys.into(),
            owner,
            config,
            claim: None,
        }
    }

    /// The same with a claim, if they do.
    #[must_use]
    pub const fn claiming(mut self, claim: Claim) -> Self {
        self.claim = Some(claim);
        self
    }
}

/// The end of a borrower's [claim](VerifyRequest::claim).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EndClaim {
    /// What was borrowed.
    pub keys: NodeKeys,
    /// From whom.
    pub owner: OwnerHash,
    /// What was claimed.
    pub claim: Claim,
    /// Whether the borrower ran. Then nobody else is to have the loan; else it is as if it had never been claimed.
    pub ran: bool,
}

impl EndClaim {
    /// The end of a claim to a loan of `keys` by `owner`.
    #[must_use]
    pub fn new(keys: impl Into<NodeKeys>, owner: OwnerHash, claim: Claim, ran: bool) -> Self {
        Self {
            keys: keys.into(),
            owner,
            claim,
            ran,
        }
    }
}

/// The question whether a node may vote.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CheckInRequest {
    /// Whose locks.
    pub namespace: Namespace,
    /// What the node must agree to. It remembers the longest `max_lease` it was told of under it.
    pub config: Arc<ClusterConfig>,
    /// What a quarantine is called that begins with this: random.
    pub fresh: String,
    /// How a node is met that knows another config or none.
    pub entry: CheckInMode,
}

/// How a node is met that knows another config or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CheckInMode {
    /// One without a config is put into quarantine (if the config is [guarded](ClusterConfig::guarded)); one with
    /// another is left alone.
    Normal,
    /// Both are put into quarantine: the members are being changed. The node remembers which config was replaced.
    Adopt,
}

impl CheckInRequest {
    /// The question of a process under `config` for its locks in `namespace`.
    #[must_use]
    pub const fn new(
        namespace: Namespace,
        config: Arc<ClusterConfig>,
        fresh: String,
        entry: CheckInMode,
    ) -> Self {
        Self {
            namespace,
            config,
            fresh,
            entry,
        }
    }
}

/// The end of a node's quarantine.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PromoteRequest {
    /// Whose locks.
    pub namespace: Namespace,
    /// What the node must agree to.
    pub config: Arc<ClusterConfig>,
    /// The quarantine that ends. If it is another by now, nothing is done.
    pub quarantine: String,
    /// The least that its high-water mark becomes, and that each of its counters counts for from then on: the node may
    /// have come back with counters of long ago. A lower one than before changes nothing.
    pub floor: Option<FencingToken>,
    /// The least that the longest lease becomes that it knows of.
    pub max_lease: Duration,
}

impl PromoteRequest {
    /// The end of `quarantine`, with numbers above `floor`.
    #[must_use]
    pub fn new(
        namespace: Namespace,
        config: Arc<ClusterConfig>,
        quarantine: String,
        floor: Option<FencingToken>,
    ) -> Self {
        let max_lease = config.max_lease;
        Self {
            namespace,
            config,
            quarantine,
            floor,
            max_lease,
        }
    }

    /// The same for a node that from then on knows of leases as long as this, if it does not know of longer ones.
    #[must_use]
    pub fn knowing(mut self, max_lease: Duration) -> Self {
        self.max_lease = self.max_lease.max(max_lease);
        self
    }
}
