//! What several requests say besides keys and owner: the config on which processes agree, and fencing tokens.

use std::time::Duration;

use crate::token::FencingToken;

/// The settings on which all processes that share the nodes must agree. A node remembers them.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    pub(crate) const FORMAT: u32 = 2;

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
pub struct Fence {
    /// In an acquire: what the client proposes. Else: the fencing token of the lock.
    pub token: FencingToken,
    /// How long a counter is kept after it was last written.
    pub keep: Duration,
}
