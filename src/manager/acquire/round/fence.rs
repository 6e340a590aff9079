//! The fencing token of a granted round.

use std::sync::Arc;

use tokio::time::sleep;

use crate::manager::acquire::round::attempt::{Attempt, Purpose};
use crate::manager::error::acquire::AcquireError;
use crate::mutant::{self, Mutant};
use crate::node::{Fence, NodeError, NodeErrorKind, RaiseReply, RaiseRequest};
use crate::protocol::fence::{FenceVerdict, agree, highest};
use crate::token::FencingToken;

impl Attempt {
    /// Settles the fencing token of a granted round. If the nodes do not agree on one, the highest is written back,
    /// which takes a second round trip.
    ///
    /// # Errors
    ///
    /// [`AcquireError::NoQuorum`] if too few nodes confirmed it within the node time-out.
    pub(crate) async fn settle_fence(&mut self) -> Result<(), AcquireError> {
        let Some(keep) = self.keep_fence else {
            return Ok(());
        };
        let tokens = self.round.fences().map(|(_, token)| token);
        let needed = self.shared.terms.quorum.needed();
        let verdict = match self.purpose {
            Purpose::Lock => agree(tokens, needed),
            Purpose::Idempotent { .. } => highest(tokens, needed),
        };
        match verdict {
            FenceVerdict::Agreed(token) => {
                self.fence = Some(token);
                self.shared.fences.count(true);
                Ok(())
            }
            FenceVerdict::Open(token) if mutant::is(Mutant::FenceNotWrittenBack) => {
                self.fence = Some(token);
                Ok(())
            }
            FenceVerdict::Open(token) => {
                self.shared.fences.count(false);
                self.write_back(Fence::new(token, keep)).await
            }
            // No round is granted without fencing tokens.
            FenceVerdict::None => Err(self.no_quorum()),
        }
    }

    async fn write_back(&mut self, fence: Fence) -> Result<(), AcquireError> {
        let (shared, token) = (Arc::clone(&self.shared), fence.token);
        let needed = shared.terms.quorum.needed();
        let request = RaiseRequest::new(self.keys.clone(), self.token, fence)
            .under(Some(Arc::clone(&shared.config)));
        let granted: Vec<(usize, FencingToken)> = self.round.fences().collect();
        let lower = granted.iter().filter(|(_, number)| *number < token);
        let lower = lower.map(|(node, _)| *node);
        let mut raising = shared.send(lower, |node| node.raise(request.clone()));
        raising.until(sleep(shared.node_timeout));
        // Those that reported it have it already.
        let mut have = granted
            .iter()
            .filter(|(_, number)| *number == token)
            .count();
        while have < needed {
            match raising.next().await {
                Some((_, Ok(RaiseReply::Raised))) => have += 1,
                Some((node, Ok(RaiseReply::NotOwner))) => self.errors.push((node, expired())),
                Some((node, Err(error))) => self.errors.push((node, error)),
                None => {
                    let late = raising.abandon().into_iter();
                    self.errors
                        .extend(late.map(|node| (node, shared.timed_out())));
                    return Err(self.no_quorum());
                }
            }
        }
        self.fence = Some(token);
        Ok(())
    }
}

fn expired() -> NodeError {
    NodeError::new(
        NodeErrorKind::Rejected,
        "the lock had ended there before its fencing token was settled",
    )
}
