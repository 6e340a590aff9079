//! [`NodeEffect`]: what the reply of a node says about a lease there.

use std::time::Duration;

use crate::manager::nodes::node_set::NodeSet;
use crate::moment::Moment;
use crate::node::{AcquireReply, ExtendReply, NodeError, VerifyReply};
use crate::protocol::renewal::LeaseNodes;

/// What a reply of a node, or the lack of one, says of the lease there. Moments are those at which the command was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::manager) enum NodeEffect {
    /// The node has our token, for a full ttl.
    Confirmed(Moment),
    /// The node has the token of the lender of a borrowed lock, for so long.
    Vouched(Moment, Duration),
    /// The node has another's token.
    Foreign(Moment),
    /// The node has no token.
    Absent(Moment),
    /// The node may have our token, and does not count.
    Unknown,
    /// What was known before still holds.
    None,
}

impl NodeEffect {
    /// That of a command which may have set our token, and failed.
    pub(in crate::manager) const fn of(error: &NodeError) -> Self {
        if error.outcome_unknown() {
            Self::Unknown
        } else {
            Self::None
        }
    }

    /// Takes this in for `node`.
    pub(in crate::manager) fn apply(self, nodes: &mut LeaseNodes, node: usize) {
        match self {
            Self::Confirmed(sent) => nodes.confirm(node, sent),
            Self::Vouched(sent, remaining) => nodes.vouch(node, sent, remaining),
            Self::Foreign(sent) => nodes.foreign(node, sent),
            Self::Absent(sent) => nodes.absent(node, sent),
            Self::Unknown => nodes.unknown(node),
            Self::None => {}
        }
    }
}

/// These also take in what the reply, which came just now, says about the node itself.
impl NodeSet {
    pub(in crate::manager) fn after_acquire(
        &self,
        node: usize,
        sent: Moment,
        reply: &Result<AcquireReply, NodeError>,
    ) -> NodeEffect {
        match reply {
            Ok(AcquireReply::Granted { .. } | AcquireReply::Promised { .. }) => {
                self.after_set(sent)
            }
            Ok(AcquireReply::Held(_)) => NodeEffect::Foreign(sent),
            Ok(AcquireReply::Recorded(_)) => NodeEffect::None,
            Err(error) => {
                self.heard(node, error);
                NodeEffect::of(error)
            }
        }
    }

    pub(in crate::manager) fn after_extend(
        &self,
        node: usize,
        sent: Moment,
        reply: &Result<ExtendReply, NodeError>,
    ) -> NodeEffect {
        match reply {
            Ok(ExtendReply::Extended | ExtendReply::Refilled) => self.after_set(sent),
            Ok(ExtendReply::Quarantined) => {
                // Our token is there, to be carried when the node votes again or knows of leases as long.
                self.voting.recheck(node);
                NodeEffect::Unknown
            }
            Ok(ExtendReply::Absent) => NodeEffect::Absent(sent),
            Ok(ExtendReply::Held(_)) => NodeEffect::Foreign(sent),
            Err(error) => {
                self.heard(node, error);
                self.log_refusal(node, "extend", error);
                NodeEffect::of(error)
            }
        }
    }

    /// The effect, or why the node does not count.
    pub(in crate::manager) fn after_verify(
        &self,
        node: usize,
        sent: Moment,
        reply: Result<VerifyReply, NodeError>,
    ) -> Result<NodeEffect, NodeError> {
        match reply {
            Ok(VerifyReply::Owner { remaining }) if self.in_time(sent) => {
                Ok(NodeEffect::Vouched(sent, remaining))
            }
            Ok(VerifyReply::Owner { .. }) => Err(self.too_late()),
            Ok(VerifyReply::NotOwner | VerifyReply::Taken) => Ok(NodeEffect::Foreign(sent)),
            Err(error) => {
                self.heard(node, &error);
                Err(error)
            }
        }
    }

    fn after_set(&self, sent: Moment) -> NodeEffect {
        if self.in_time(sent) {
            NodeEffect::Confirmed(sent)
        } else {
            NodeEffect::Unknown
        }
    }
}
