//! What replies of a node say about a lease there, and about the node itself.

use crate::manager::nodes::effect::NodeEffect;
use crate::manager::nodes::node_set::NodeSet;
use crate::moment::Moment;
use crate::node::{AcquireReply, ExtendReply, NodeError, VerifyReply};

/// The reply came just now. These also store what it says about the node itself.
impl NodeSet {
    pub(crate) fn after_acquire(
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

    pub(crate) fn after_extend(
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
    pub(crate) fn after_verify(
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
