use std::fmt;
use std::time::Duration;

use crate::key_error::KeyError;
use crate::node::{NodeError, NodeErrorKind};
use crate::settings::error::ConfigError;

/// Why a lock was not acquired. Keys that the attempt set are being released. `?` turns it into the
/// [`Rejection`](crate::layer::Rejection) with which a layer would respond.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AcquireError {
    /// The keys cannot be locked.
    InvalidKey(KeyError),
    /// Another holder has the lock.
    #[non_exhaustive]
    Contended {
        /// The rest of the holder's lease, which it may extend or release early. `None` if that is unknown.
        remaining: Option<Duration>,
    },
    /// Another holder still had the lock at the end of the wait.
    #[non_exhaustive]
    WaitTimeout {
        /// How long the wait was.
        waited: Duration,
        /// The rest of the holder's lease, when the nodes were last asked.
        remaining: Option<Duration>,
    },
    /// Too many callers of this process already wait.
    #[non_exhaustive]
    QueueFull {
        /// How many callers may wait.
        limit: usize,
        /// Whether the key's queue is full, rather than all queues together.
        of_key: bool,
    },
    /// Too many nodes cannot vote, or a node serves processes with another list.
    NoQuorum(NoQuorum),
    /// A quorum granted the lock, but the validity had ended by then.
    #[non_exhaustive]
    TooSlow {
        /// How long the round took.
        elapsed: Duration,
        /// The time to live of the lock.
        ttl: Duration,
    },
    /// The work already holds a lock on the key in its [`LockScope`](crate::LockScope), and that lock is lost.
    Lost(LossReason),
    /// The manager is shutting down and grants no new locks.
    ShuttingDown,
    /// The operating system gave no random bytes, for this reason.
    NoEntropy(String),
}

impl AcquireError {
    /// Its label in metrics.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::InvalidKey(_) => "invalid-key",
            Self::Contended { .. } => "contended",
            Self::WaitTimeout { .. } => "wait-timeout",
            Self::QueueFull { .. } => "queue-full",
            Self::NoQuorum(error) if error.is_full() => "nodes-full",
            Self::NoQuorum(_) => "no-quorum",
            Self::TooSlow { .. } => "too-slow",
            Self::Lost(_) => "lost",
            Self::ShuttingDown => "shutting-down",
            Self::NoEntropy(_) => "no-entropy",
        }
    }

    pub(crate) const fn remaining(&self) -> Option<Duration> {
        match self {
            Self::Contended { remaining } | Self::WaitTimeout { remaining, .. } => *remaining,
            _ => None,
        }
    }
}

impl fmt::Display for AcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidKey(error) => error.fmt(f),
            Self::Contended {
                remaining: Some(remaining),
            } => write!(
                f,
                "the lock is held by another; its lease ends in {remaining:?} unless renewed; wait for it, or try again then"
            ),
            Self::Contended { remaining: None } => {
                f.write_str("the lock is held or being taken by another; wait for it, or try again")
            }
            Self::WaitTimeout { waited, .. } => write!(
                f,
                "the lock was still held by another after a wait of {waited:?}; wait longer, or try again later"
            ),
            Self::QueueFull {
                limit,
                of_key: true,
            } => write!(
                f,
                "{limit} callers wait for the lock already, as many as `max_waiters_per_key` allows; raise it, or turn the caller away"
            ),
            Self::QueueFull { limit, .. } => write!(
                f,
                "{limit} callers wait for locks already, as many as `max_waiters` allows; raise it, or turn the caller away"
            ),
            Self::NoQuorum(error) => error.fmt(f),
            Self::TooSlow { elapsed, ttl } => write!(
                f,
                "a quorum granted the lock, but after {elapsed:?} of a ttl of {ttl:?} no validity was left; use a longer ttl"
            ),
            Self::Lost(reason) => write!(
                f,
                "the lock that this work holds already is lost, so stop the work: {reason}"
            ),
            Self::ShuttingDown => {
                f.write_str("the lock manager is shutting down; ask another process")
            }
            Self::NoEntropy(detail) => write!(
                f,
                "the operating system gave no random bytes for an owner token: {detail}"
            ),
        }
    }
}

// The inner error is not the `source`, because the text of each variant contains the inner text. A reporter that prints
// the chain of sources would print it twice.
impl std::error::Error for AcquireError {}

impl From<KeyError> for AcquireError {
    fn from(error: KeyError) -> Self {
        Self::InvalidKey(error)
    }
}

/// Too many nodes cannot vote, or a node serves processes with another list of nodes or other settings. The text names
/// these nodes, so it is for logs and not for clients.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NoQuorum {
    pub(crate) needed: usize,
    pub(crate) nodes: usize,
    pub(crate) failures: Vec<NodeFailure>,
    pub(crate) retry_after: Option<Duration>,
    // A node serves processes with another list. Then nothing is granted, no matter how many nodes vote.
    pub(crate) disagreed: bool,
}

impl NoQuorum {
    /// How long until a quorum of nodes should vote again, if quarantines prevent it now; `None` if that is unknown.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Whether a node serves processes with another list or other settings.
    pub(crate) fn names_another_list(&self) -> bool {
        let is_foreign = |failure: &NodeFailure| failure.error.kind() == NodeErrorKind::Foreign;
        self.disagreed || self.failures.iter().any(is_foreign)
    }

    /// Whether a lack of memory is the reason: enough nodes would vote if the full nodes had room.
    pub(crate) fn is_full(&self) -> bool {
        use NodeErrorKind::{Full, FullForRecords};
        let is_full =
            |failure: &&NodeFailure| matches!(failure.error.kind(), Full | FullForRecords);
        let full = self.failures.iter().filter(is_full).count();
        !self.disagreed
            && full > 0
            && self.nodes.saturating_sub(self.failures.len() - full) >= self.needed
    }

    /// The nodes that do not vote or that block all grants, and why.
    #[must_use]
    pub fn failures(&self) -> &[NodeFailure] {
        &self.failures
    }
}

#[cfg(tower_redlock_tests)]
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

    /// Whether nothing is granted because a node serves processes with another list.
    #[must_use]
    pub const fn is_disagreement(&self) -> bool {
        self.disagreed
    }
}

impl fmt::Display for NoQuorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_full() {
            write!(
                f,
                "{} of {} nodes must vote and have room, and these do not: ",
                self.needed, self.nodes
            )?;
        } else if self.disagreed {
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

/// Why a manager could not be made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectError {
    /// A setting is invalid. Nothing was connected.
    Config(ConfigError),
    /// These nodes reply but cannot serve as they are configured.
    Misconfigured(Vec<NodeFailure>),
    /// Fewer nodes than a quorum replied within the connect time-out.
    NoQuorum(NoQuorum),
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Misconfigured(failures) => {
                f.write_str("these nodes cannot serve: ")?;
                list(f, failures)
            }
            Self::NoQuorum(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ConnectError {}

impl From<ConfigError> for ConnectError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

/// Why a lock ended before its guard did. `?` turns it into a [`Rejection`](crate::layer::Rejection): 503 `lock-lost`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossReason {
    /// Its validity ended without a successful extension.
    Expired,
    /// Other owners have it on so many nodes that it cannot have a quorum any more.
    Taken,
    /// It was held for `max_hold`.
    MaxHold,
    /// The manager was shut down, or the runtime on which it was built has ended.
    Shutdown,
    /// The guard has released it. Only a handle that outlives its guard sees this.
    Released,
}

impl LossReason {
    /// Its label in metrics.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Taken => "taken",
            Self::MaxHold => "max-hold",
            Self::Shutdown => "shutdown",
            Self::Released => "released",
        }
    }
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its validity ended without a successful extension",
            Self::Taken => "another holder has taken too many nodes",
            Self::MaxHold => "it was held for as long as max_hold allows",
            Self::Shutdown => "the lock manager was shut down",
            Self::Released => "it was released",
        })
    }
}

impl std::error::Error for LossReason {}

/// Why [`LockManager::run`](crate::LockManager::run) did not run the work to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunError {
    /// The lock was not acquired; the work did not begin.
    Acquire(AcquireError),
    /// The lock was lost; the work was dropped half-way and its result is unknown.
    Lost(LossReason),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Acquire(error) => error.fmt(f),
            Self::Lost(reason) => write!(
                f,
                "the lock was lost while the work ran, and the work was dropped: {reason}; find out how far it came \
                 before it runs again"
            ),
        }
    }
}

impl std::error::Error for RunError {}

impl From<AcquireError> for RunError {
    fn from(error: AcquireError) -> Self {
        Self::Acquire(error)
    }
}

/// Why a release may not have freed the lock. Keys that are left on nodes end with their ttl.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReleaseError {
    /// The lock had been lost before it was released. The work may have run without it.
    Lost(LossReason),
    /// Fewer nodes than a quorum confirmed within the node time-out. The release goes on in the background.
    #[non_exhaustive]
    Unconfirmed {
        /// How many nodes confirmed.
        confirmed: usize,
        /// How many must confirm.
        needed: usize,
    },
}

impl fmt::Display for ReleaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(reason) => write!(
                f,
                "the lock had been lost before it was released, and part of the work may have run without it: {reason}"
            ),
            Self::Unconfirmed { confirmed, needed } => write!(
                f,
                "the release was confirmed by {confirmed} nodes where {needed} are needed; it goes on in the background, and the lock may stay until its ttl ends"
            ),
        }
    }
}

impl std::error::Error for ReleaseError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_an_error_of_a_handler_that_names_none() {
        let held = || Err::<(), Box<dyn std::error::Error>>(LossReason::Taken.into());
        let text = held().unwrap_err().to_string();
        assert!(text.contains("another holder"), "{text}");
    }
}
