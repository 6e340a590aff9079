//! [`NodeEffect`]: what the reply of a node says about a lease there.

use std::time::Duration;

use crate::manager::nodes::node_set::NodeSet;
use crate::moment::Moment;
use crate::node::{AcquireReply, ExtendReply, NodeError, VerifyReply};
use crate::protocol::renewal::LeaseNodes;

/// What is known of a lease on one node once a command sent at the moment `sent` was answered, or given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::manager) enum NodeEffect {
    /// The node has our token, for a full ttl from then on.
    Confirmed { sent: Moment },
    /// The node has the lender's token, for so long from then on.
    ConfirmedFor { sent: Moment, remaining: Duration },
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
    pub(in crate::manager) fn apply(self, node: usize, lease: &mut LeaseNodes) {
        match self {
            Self::Confirmed { sent } => lease.confirm(node, sent),
            Self::ConfirmedFor { sent, remaining } => lease.vouch(node, sent, remaining),
            Self::Foreign { sent } => lease.foreign(node, sent),
            Self::Absent { sent } => lease.absent(node, sent),
            Self::Unknown => lease.unknown(node),
            Self::Unchanged => {}
        }
    }

    /// The effect of a command that may have set our token and was not answered.
    pub(in crate::manager) const fn of_error(error: &NodeError) -> Self {
        if error.outcome_unknown() {
            Self::Unknown
        } else {
            Self::Unchanged
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
            Ok(AcquireReply::Held(_)) => NodeEffect::Foreign { sent },
            Ok(AcquireReply::Recorded(_)) => NodeEffect::Unchanged,
            Err(error) => {
                self.heard(node, error);
                NodeEffect::of_error(error)
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
                self.voting.suspect(node);
                NodeEffect::Unknown
            }
            Ok(ExtendReply::Absent) => NodeEffect::Absent { sent },
            Ok(ExtendReply::Held(_)) => NodeEffect::Foreign { sent },
            Err(error) => {
                self.heard(node, error);
                self.log_refusal(node, "extend", error);
                NodeEffect::of_error(error)
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
                Ok(NodeEffect::ConfirmedFor { sent, remaining })
            }
            Ok(VerifyReply::Owner { .. }) => Err(self.too_late()),
            Ok(VerifyReply::NotOwner | VerifyReply::Taken) => Ok(NodeEffect::Foreign { sent }),
            Err(error) => {
                self.heard(node, &error);
                Err(error)
            }
        }
    }

    fn after_set(&self, sent: Moment) -> NodeEffect {
        if self.in_time(sent) {
            NodeEffect::Confirmed { sent }
        } else {
            NodeEffect::Unknown
        }
    }
}
