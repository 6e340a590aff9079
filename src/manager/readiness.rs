use tokio::time::timeout;

use crate::manager::LockManager;
use crate::manager::error::acquire::AcquireError;
use crate::manager::nodes::node_set::LOOK;

impl LockManager {
    /// Whether enough nodes vote for locks to be granted, as last seen: each node is asked once a second. For a
    /// readiness probe (`docs::observing`), not before each lock. `false` from the begin of a
    /// [shutdown](Self::shutdown) on.
    #[must_use]
    pub fn has_quorum(&self) -> bool {
        self.shared.quorum().is_quorum()
    }

    /// Asks all nodes anew, and waits until every one of them is up and votes, as between the restarts of two servers
    /// (`docs::runbook`). It waits without an end, so put a time-out around it.
    ///
    /// # Errors
    ///
    /// [`AcquireError::ShuttingDown`] once the manager is shut down.
    ///
    /// # Cancel safety
    ///
    /// It changes nothing, so it can be dropped at any time.
    pub async fn all_voting(&self) -> Result<(), AcquireError> {
        let shared = &self.shared;
        let begun = |node| shared.voting.replies(node, |replies| replies.begun());
        let begun: Vec<Option<u64>> = (0..shared.nodes.len()).map(begun).collect();
        shared.voting.recheck_all();
        loop {
            let news = shared.voting.news();
            if shared.registry.is_closed() {
                return Err(AcquireError::ShuttingDown);
            }
            let voted = |(node, begun): (usize, &Option<u64>)| {
                let voted = |begun| shared.voting.replies(node, |it| it.voted_after(begun));
                begun.and_then(voted) == Some(true) && shared.counts(node)
            };
            if begun.iter().enumerate().all(voted) && !shared.voting.is_blocked() {
                return Ok(());
            }
            // No news tells of a node that goes up or down, or of a shutdown.
            let _news = timeout(LOOK, news).await;
        }
    }
}
