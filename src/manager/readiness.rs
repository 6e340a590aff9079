//! Whether the nodes of a manager can grant locks now, and waiting until all of them can.

use tokio::time::timeout;

use crate::manager::LockManager;
use crate::manager::error::acquire::AcquireError;
use crate::manager::nodes::node_set::LOOK;

impl LockManager {
    /// Whether enough nodes vote for locks to be granted, as far as is known now. It asks no node, and is cheap.
    ///
    /// A node counts while its [`VotingStatus`](crate::snapshot::VotingStatus) is `Voting`. A node that stands still is
    /// noticed within about two seconds, one that is down at once. `false` also before the first nodes have answered,
    /// while a node serves processes with another list, and from the begin of a [shutdown](Self::shutdown) on.
    ///
    /// A node that refuses a command for a lock does not count for 5 s, or until it runs one; except where the fault is
    /// that of the one key, as when another program wrote a list to it.
    ///
    /// It is what a readiness probe asks of a service that cannot do anything without locks:
    /// the page `observing` of the guide. Do not ask it before taking a lock: the lock itself
    /// tells.
    #[must_use]
    pub fn has_quorum(&self) -> bool {
        self.shared.quorum().is_quorum()
    }

    /// Asks all nodes, and waits until every one of them is up and votes.
    ///
    /// Each node must say so after the call: what was known before does not count. A node that is down, refused or
    /// quarantined is waited for without an end, so put a time-out around it; [`nodes`](Self::nodes) tells which nodes
    /// those are. Between the restarts of two servers it says when to go on:
    /// the page `runbook` of the guide.
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
