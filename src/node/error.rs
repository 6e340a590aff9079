use std::borrow::Cow;
use std::fmt;

use serde::Serialize;

/// Why a node did not do what was asked.
#[derive(Clone, PartialEq, Eq)]
pub struct NodeError {
    kind: NodeErrorKind,
    detail: Cow<'static, str>,
    // The digest of the node's config, if another config is the reason.
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

    pub(crate) fn foreign(theirs: &str, digest: String, ours: &str) -> Self {
        Self {
            config: Some(digest.into()),
            ..Self::new(NodeErrorKind::Foreign, foreign_config(theirs, ours))
        }
    }

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
    /// There is no connection, or its server is not confirmed at this time; the command was not sent.
    Unavailable,
    /// The connection broke while the command was under way.
    Interrupted,
    /// No reply came in time.
    TimedOut,
    /// The server refused the command; it had no effect.
    Rejected,
    /// What the key holds, or what stands beside it, is not ours: another type, of another program. The command had no
    /// effect, and that says nothing of other keys.
    WrongType,
    /// The server has the lock, but too few of its replicas acknowledged it in time: it does not count.
    NotReplicated,
    /// The server's reply made no sense.
    Garbled,
    /// The server cannot serve as a node: wrong role, eviction, missing rights, listed twice.
    Misconfigured,
    /// It serves processes with another config: another list of nodes, other settings, or another format. It
    /// had no effect.
    Foreign,
    /// The node may have lost locks that it granted, and does not grant before those have ended. The command had no
    /// effect.
    Quarantined,
    /// The node was closed.
    Closed,
}

pub(crate) fn unmarked() -> NodeError {
    NodeError::new(
        NodeErrorKind::Rejected,
        "the highest fencing token in its key `..!node` is missing, no number, or the last possible one; delete that key: the node learns it from the others",
    )
}

pub(crate) fn quarantined() -> NodeError {
    let detail = "it may have forgotten locks and does not vote before those have ended";
    NodeError::new(NodeErrorKind::Quarantined, detail)
}

pub(crate) fn foreign_config(theirs: &str, ours: &str) -> String {
    let theirs: String = theirs
        .chars()
        .filter(|c| !c.is_control())
        .take(LONGEST_CONFIG)
        .collect();
    format!(
        "it serves processes that agreed on [{theirs}], and this one has [{ours}]; nothing is granted before they agree: give all processes the same nodes and settings, or change the list by `adopt_nodes` (`docs::runbook`)"
    )
}

const LONGEST_CONFIG: usize = 1_000;
