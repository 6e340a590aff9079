//! Why a lock was not acquired.

use std::fmt;
use std::time::Duration;

use crate::key_error::KeyError;
use crate::manager::error::loss::LossReason;
use crate::node::NodeError;

/// Why a lock was not acquired. Nothing is held: the keys that the attempt set are being released.
///
/// It is no response. A handler returns a [`Rejection`](crate::layer::Rejection), which `?` makes of it: the
/// response that a layer would give.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AcquireError {
    /// The key cannot be a lock key.
    InvalidKey(KeyError),
    /// Another holder has the lock.
    Contended(Contended),
    /// Another holder had the lock until the end of the wait.
    WaitTimeout(WaitTimeout),
    /// As many callers of this process wait already as the settings allow.
    QueueFull(QueueFull),
    /// Too many nodes cannot vote, or a node serves processes with another list.
    NoQuorum(NoQuorum),
    /// The lock was granted, and by then its validity was over.
    TooSlow(TooSlow),
    /// The work holds a lock on the key already, which is lost. Only where locks are shared within a
    /// [`LockScope`](crate::LockScope).
    Lost(LossReason),
    /// The manager is shutting down.
    ShuttingDown(ShuttingDown),
    /// The operating system gave no random bytes for an owner token.
    NoEntropy(NoEntropy),
}

impl AcquireError {
    /// Its label in metrics.
    pub(crate) const fn word(&self) -> &'static str {
        match self {
            Self::InvalidKey(_) => "invalid-key",
            Self::Contended(_) => "contended",
            Self::WaitTimeout(_) => "wait-timeout",
            Self::QueueFull(_) => "queue-full",
            Self::NoQuorum(_) => "no-quorum",
            Self::TooSlow(_) => "too-slow",
            Self::Lost(_) => "lost",
            Self::ShuttingDown(_) => "shutting-down",
            Self::NoEntropy(_) => "no-entropy",
        }
    }
}

impl fmt::Display for AcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidKey(error) => error.fmt(f),
            Self::Contended(error) => error.fmt(f),
            Self::WaitTimeout(error) => error.fmt(f),
            Self::QueueFull(error) => error.fmt(f),
            Self::NoQuorum(error) => error.fmt(f),
            Self::TooSlow(error) => error.fmt(f),
            Self::Lost(reason) => {
                write!(f, "the lock that this work holds already is lost: {reason}")
            }
            Self::ShuttingDown(error) => error.fmt(f),
            Self::NoEntropy(error) => error.fmt(f),
        }
    }
}

// Each variant's text is that of its content, so the content is not a source: a chain would print it twice.
impl std::error::Error for AcquireError {}

impl From<KeyError> for AcquireError {
    fn from(error: KeyError) -> Self {
        Self::InvalidKey(error)
    }
}

/// Another holder has the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Contended {
    pub(crate) remaining: Option<Duration>,
}

impl Contended {
    /// The rest of the holder's lease, as far as the nodes told. A holder that renews goes on longer; one
    /// that releases ends earlier. `None` if the key has no expiry, or if that is not known yet: another caller of
    /// this process is asking the nodes at this moment.
    #[must_use]
    pub const fn remaining(&self) -> Option<Duration> {
        self.remaining
    }
}

impl fmt::Display for Contended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.remaining {
            Some(remaining) => write!(
                f,
                "the lock is held by another; its lease ends in {remaining:?} unless renewed"
            ),
            None => f.write_str("the lock is held or being taken by another"),
        }
    }
}

impl std::error::Error for Contended {}

/// Another holder had the lock until the end of the wait.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitTimeout {
    pub(crate) remaining: Option<Duration>,
    pub(crate) waited: Duration,
}

impl WaitTimeout {
    /// As [`Contended::remaining`], when last asked.
    #[must_use]
    pub const fn remaining(&self) -> Option<Duration> {
        self.remaining
    }

    /// How long the wait was.
    #[must_use]
    pub const fn waited(&self) -> Duration {
        self.waited
    }
}

impl fmt::Display for WaitTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the lock was still held by another after a wait of {:?}",
            self.waited
        )
    }
}

impl std::error::Error for WaitTimeout {}

/// As many callers of this process wait already as the settings allow, for the key or in total.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueFull {
    pub(crate) limit: usize,
    pub(crate) of_key: bool,
}

impl QueueFull {
    /// How many may wait.
    #[must_use]
    pub const fn limit(&self) -> usize {
        self.limit
    }

    /// Whether the key's queue is full, rather than all queues together.
    #[must_use]
    pub const fn is_of_key(&self) -> bool {
        self.of_key
    }
}

impl fmt::Display for QueueFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = self.limit;
        if self.of_key {
            write!(
                f,
                "{limit} callers wait for the lock already, as many as `max_waiters_per_key` allows"
            )
        } else {
            write!(
                f,
                "{limit} callers wait for locks already, as many as `max_waiters` allows"
            )
        }
    }
}

impl std::error::Error for QueueFull {}

/// Too many nodes cannot vote, or a node serves processes with another list (see
/// [`RestartGuard`](crate::settings::RestartGuard)), and then nothing is granted. The text names each of them: it is
/// for logs, not for clients.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NoQuorum {
    pub(crate) needed: usize,
    pub(crate) nodes: usize,
    pub(crate) failures: Vec<NodeFailure>,
    pub(crate) retry_after: Option<Duration>,
    // Some nodes serve processes with another list, however many vote.
    pub(crate) disagreed: bool,
}

impl NoQuorum {
    /// How many nodes must vote.
    #[must_use]
    pub const fn needed(&self) -> usize {
        self.needed
    }

    /// How many nodes there are.
    #[must_use]
    pub const fn nodes(&self) -> usize {
        self.nodes
    }

    /// After how long a quorum of nodes should vote again, if quarantines keep them from it (see
    /// [`RestartGuard`](crate::settings::RestartGuard)); `None` if that is unknown.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Whether nothing is granted because some nodes serve processes with another list or other settings, however many
    /// vote.
    #[must_use]
    pub const fn is_disagreement(&self) -> bool {
        self.disagreed
    }

    /// The nodes that do not vote, or block all grants, and why.
    #[must_use]
    pub fn failures(&self) -> &[NodeFailure] {
        &self.failures
    }
}

impl fmt::Display for NoQuorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.disagreed {
            f.write_str("nothing is granted while a node serves processes with another list or other settings: ")?;
        } else {
            write!(
                f,
                "no quorum: {} of {} nodes must vote and these do not: ",
                self.needed, self.nodes
            )?;
        }
        list(f, &self.failures)
    }
}

impl std::error::Error for NoQuorum {}

/// Writes `name (reason), name (reason)`.
pub(crate) fn list(f: &mut fmt::Formatter<'_>, failures: &[NodeFailure]) -> fmt::Result {
    for (index, failure) in failures.iter().enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        write!(f, "{comma}{failure}")?;
    }
    Ok(())
}

/// One node that failed, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeFailure {
    /// The node's name.
    pub node: String,
    /// Why it failed.
    pub error: NodeError,
}

impl NodeFailure {
    pub(crate) fn new(node: &str, error: NodeError) -> Self {
        Self {
            node: node.to_owned(),
            error,
        }
    }
}

impl fmt::Display for NodeFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.node, self.error)
    }
}

/// A quorum granted the lock, and by then its validity was over: the ttl is too short for these nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TooSlow {
    pub(crate) elapsed: Duration,
    pub(crate) ttl: Duration,
}

impl TooSlow {
    /// How long the round took.
    #[must_use]
    pub const fn elapsed(&self) -> Duration {
        self.elapsed
    }
}

impl fmt::Display for TooSlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a quorum granted the lock, but after {:?} of a ttl of {:?} no validity was left; use a longer ttl",
            self.elapsed, self.ttl
        )
    }
}

impl std::error::Error for TooSlow {}

/// The manager is shutting down and takes no new locks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShuttingDown;

impl fmt::Display for ShuttingDown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the lock manager is shutting down")
    }
}

impl std::error::Error for ShuttingDown {}

/// The operating system gave no random bytes, so no owner token could be made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NoEntropy {
    pub(crate) detail: String,
}

impl fmt::Display for NoEntropy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the operating system gave no random bytes for an owner token: {}",
            self.detail
        )
    }
}

impl std::error::Error for NoEntropy {}
