//! [`NodeEffect`]: what the reply of a node says about a lease there.

use crate::moment::Moment;
use crate::node::NodeError;
use crate::protocol::renewal::LeaseNodes;

/// What is known of a lease on one node once a command sent at the moment `sent` was answered or abandoned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeEffect {
    /// The node has our token, for a full ttl from then on.
    Confirmed { sent: Moment },
    /// The node has our token, for a full ttl from then on, and is in quarantine, says a reply that came at `now`.
    Kept { sent: Moment, now: Moment },
    /// The node has another's token.
    Foreign { sent: Moment },
    /// The node has no token.
    Absent { sent: Moment },
    /// The node may have our token, and does not count.
    Unknown,
    /// What was known before still holds.
    Unchanged,
}

impl NodeEffect {
    pub(crate) fn apply(self, node: usize, lease: &mut LeaseNodes) {
        match self {
            Self::Confirmed { sent } => lease.confirm(node, sent),
            Self::Kept { sent, now } => lease.keep(node, sent, now),
            Self::Foreign { sent } => lease.foreign(node, sent),
            Self::Absent { sent } => lease.absent(node, sent),
            Self::Unknown => lease.unknown(node),
            Self::Unchanged => {}
        }
    }

    /// The effect of a command that may have set our token and was not answered.
    pub(crate) const fn of_error(error: &NodeError) -> Self {
        if error.outcome_unknown() {
            Self::Unknown
        } else {
            Self::Unchanged
        }
    }
}
