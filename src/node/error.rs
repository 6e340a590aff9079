//! [`NodeError`]: why a node did not do what was asked.

use std::borrow::Cow;
use std::fmt;

use serde::Serialize;

use crate::node::request::ClusterConfig;

/// Why a node did not do what was asked.
#[derive(Clone, PartialEq, Eq)]
pub struct NodeError {
    kind: NodeErrorKind,
    detail: Cow<'static, str>,
    // The digest of the config that the node is under, if that is the reason.
    config: Option<Box<str>>,
}

impl fmt::Debug for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeError")
            .field("kind", &self.kind)
            .field("detail", &self.detail)
            .finish_non_exhaustive()
    }
}

impl NodeError {
    /// An error of `kind`; `detail` says what happened and must not hold secrets.
    pub fn new(kind: NodeErrorKind, detail: impl Into<Cow<'static, str>>) -> Self {
        Self {
            kind,
            detail: detail.into(),
            config: None,
        }
    }

    /// The error of a node that is under the config `theirs` with this digest.
    pub(crate) fn foreign(theirs: &str, digest: String, ours: &ClusterConfig) -> Self {
        Self {
            config: Some(digest.into()),
            ..Self::new(NodeErrorKind::Foreign, foreign_config(theirs, &ours.text))
        }
    }

    /// The digest of the config that the node is under, where another than ours is the reason and it is known.
    pub(crate) fn config(&self) -> Option<&str> {
        self.config.as_deref()
    }

    /// What kind of error it is.
    #[must_use]
    pub const fn kind(&self) -> NodeErrorKind {
        self.kind
    }

    /// Whether the command may have taken effect, or may still do so.
    #[must_use]
    pub const fn outcome_unknown(&self) -> bool {
        matches!(
            self.kind,
            NodeErrorKind::Interrupted
                | NodeErrorKind::TimedOut
                | NodeErrorKind::Garbled
                | NodeErrorKind::NotReplicated
        )
    }
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl std::error::Error for NodeError {}

/// As its text.
impl Serialize for NodeError {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The kinds of [`NodeError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NodeErrorKind {
    /// There is no connection, or the server at its end does not count at this time; the command was not sent.
    Unavailable,
    /// The connection broke while the command was under way.
    Interrupted,
    /// No answer came in time.
    TimedOut,
    /// The server refused the command; it had no effect.
    Rejected,
    /// The server has the lock, but too few of its replicas acknowledged it in time: it does not count.
    NotReplicated,
    /// The server's answer made no sense.
    Garbled,
    /// The server cannot serve as a node: wrong role, eviction, missing rights, listed twice.
    Misconfigured,
    /// It serves processes with another [`ClusterConfig`]: another list of nodes, other settings, or another format. It
    /// had no effect.
    Foreign,
    /// It may have forgotten locks that it granted, and does not grant before those have ended. It had no effect.
    Quarantined,
    /// The node was closed.
    Closed,
}

/// Says that a node's numbers cannot be counted on from: somebody wrote to its marker.
pub(crate) fn unmarked() -> NodeError {
    NodeError::new(
        NodeErrorKind::Rejected,
        "what its key `..!node` says of the numbers of holders is none, or leaves no room for more; remove that key: the node learns them from the others then",
    )
}

/// Says that a node is under another config than ours.
pub(crate) fn foreign_config(theirs: &str, ours: &str) -> String {
    let theirs: String = theirs
        .chars()
        .filter(|c| !c.is_control())
        .take(LONGEST_CHARTER)
        .collect();
    format!(
        "it serves processes that agreed on [{theirs}], and this one has [{ours}]; nothing is granted before they agree: give all processes the same nodes and settings, or change the list by `adopt_nodes` (`docs::rolling_out`)"
    )
}

/// How much of a config is shown that came from a node.
const LONGEST_CHARTER: usize = 1_000;
