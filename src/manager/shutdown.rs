//! Ending a manager: no new locks, running work to its end, the rest told.

use std::time::Duration;

use crate::manager::LockManager;
use crate::manager::error::loss::LossReason;
use crate::manager::ledger::Open;
use crate::manager::nodes::fanout::Fanout;
use crate::manager::shared::Shared;

/// What [`LockManager::shutdown`] found: what of the manager may still be set on nodes when it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Locks that were still held when the grace was over, and that this call ended; their holders were told that they
    /// are lost.
    pub lost: usize,
    /// Locks whose guards or loans were still alive at the very end, lost or borrowed as they may be. Each is released
    /// when the last of these has gone.
    pub held: usize,
    /// Calls for a lock that were still asking nodes at the very end. Whatever they are granted is released.
    pub acquiring: usize,
    /// Locks, or grants that came to nothing, whose release some node had not confirmed at the very end. It is tried
    /// again in the background, as long as the runtime lives and until the ttl is over.
    pub unconfirmed: usize,
    /// Locks, or grants that came to nothing, that nobody releases any more, and whose ttl was not over at the very
    /// end: a node refused the release or did not answer for a whole ttl, there was no room for it in the background,
    /// the manager's runtime had ended, or a [`Loan`](crate::Loan) was dropped without an answer. Some node may have
    /// them until their ttl ends. Those that were left before the shutdown began count, too.
    pub expiring: usize,
}

impl ShutdownReport {
    /// Whether no node has anything of this manager any more: every node confirmed the release of all that it may ever
    /// have granted, or its ttl was over.
    #[must_use]
    pub const fn is_all_released(&self) -> bool {
        self.held == 0 && self.acquiring == 0 && self.unconfirmed == 0 && self.expiring == 0
    }
}

impl LockManager {
    /// Ends the manager in an orderly way.
    ///
    /// From the call on, new locks are refused with
    /// [`ShuttingDown`](crate::AcquireError::ShuttingDown), also to those who wait for one already. Everything else is
    /// given `grace`: to holders to release their locks, to calls under way to learn what they were granted and give
    /// it back, to nodes to confirm releases and what idempotent requests came to. It returns as soon as all nodes
    /// have confirmed all of it; a node that does not answer can take up all of the grace.
    ///
    /// Locks that are held after the grace are *lost* with [`LossReason::Shutdown`]: the middleware drops the
    /// request's future, and the lock is released after it. For that, and for what else is not given back yet, there is
    /// as much time again as two [node time-outs](crate::LockManagerBuilder::node_timeout), at least 250 ms.
    ///
    /// Once nothing is left to be given back, the connections are closed, for which there is another half second.
    /// Otherwise they stay open, and what is left goes on in the background.
    ///
    /// Call it after the server has stopped taking requests and before the runtime ends. It may be called
    /// several times, also at the same time: each call waits, and reports what it finds at its end.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, no new locks are taken all the same, and the rest is left as it stands: releases go
    /// on, and nothing is forgotten. Call it again to go on.
    pub async fn shutdown(&self, grace: Duration) -> ShutdownReport {
        let shared = &self.shared;
        shared.ledger.close();
        shared.registry.close();
        shared.queue.close();
        let mut lost = 0;
        let mut is_empty = shared.ledger.is_empty_within(grace).await;
        if !is_empty {
            lost = shared.registry.lose_all(LossReason::Shutdown);
            let last = (shared.node_timeout * 2).max(SHORTEST_LAST_WAIT);
            is_empty = shared.ledger.is_empty_within(last).await;
        }
        if is_empty {
            // Nothing can be owed any more, for nothing new begins.
            shared.close_nodes().await;
            shared.registry.stop();
        }
        let Open {
            acquiring,
            held,
            releasing,
        } = shared.ledger.open();
        ShutdownReport {
            lost,
            held,
            acquiring,
            unconfirmed: releasing,
            expiring: shared.ledger.left(),
        }
    }
}

impl Shared {
    async fn close_nodes(&self) {
        let closing = self.nodes.iter().enumerate();
        let mut closing = Fanout::new(closing.map(|(index, node)| (index, node.close())));
        // All at once: frozen nodes must not add up.
        let closed = async { while closing.next().await.is_some() {} };
        let _ = tokio::time::timeout(LONGEST_CLOSE, closed).await;
    }
}

/// How long holders have to go after the grace, at least, and nodes to confirm what is released then.
const SHORTEST_LAST_WAIT: Duration = Duration::from_millis(250);
/// How long nodes may take to close their connections.
const LONGEST_CLOSE: Duration = Duration::from_millis(500);
