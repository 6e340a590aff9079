//! [`Command`]: the command by which a lock is released.

use crate::namespace::NodeKeys;
use crate::node::{
    CompleteReply, CompleteRequest, Node, NodeError, NodeFuture, ReleaseReply, ReleaseRequest,
};
use crate::record::Record;

/// The command by which a lock is released.
#[derive(Clone, Debug)]
pub(crate) enum Command {
    Release(ReleaseRequest),
    /// A release together with a record, or with a note that there will be none.
    Complete(CompleteRequest),
    /// The release of what a lost round for a run has set: the node forgets the grant, too, which it remembers for a
    /// result that will not come. Unlike a completion it need not reach a quorum, and no config can stand against it.
    Forget(CompleteRequest),
}

impl Command {
    pub(crate) const fn keys(&self) -> &NodeKeys {
        match self {
            Self::Release(request) => &request.keys,
            Self::Complete(request) | Self::Forget(request) => &request.release.keys,
        }
    }

    /// Its name in the log.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Release(_) | Self::Forget(_) => "release",
            Self::Complete(_) => "complete",
        }
    }

    pub(crate) const fn is_completion(&self) -> bool {
        matches!(self, Self::Complete(_))
    }

    pub(crate) const fn record(&self) -> Option<&Record> {
        match self {
            Self::Complete(request) => request.record.as_ref(),
            Self::Release(_) | Self::Forget(_) => None,
        }
    }

    /// Sends it to `node`. The reply of a node that refused a record is [`ReleaseReply::NotOwner`].
    pub(crate) fn send(&self, node: &dyn Node) -> NodeFuture<Result<ReleaseReply, NodeError>> {
        match self {
            Self::Release(request) => node.release(request.clone()),
            Self::Complete(request) | Self::Forget(request) => {
                let reply = node.complete(request.clone());
                Box::pin(async move {
                    reply.await.map(|reply| match reply {
                        CompleteReply::Stored { listeners } => ReleaseReply::Released { listeners },
                        CompleteReply::Refused => ReleaseReply::NotOwner,
                    })
                })
            }
        }
    }
}
