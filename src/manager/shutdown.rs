//! Shutting a manager down: holders are asked to end, no new locks, time for running work to end, and then the loss of
//! what is still held.

use std::sync::Arc;
use std::time::Duration;

use crate::manager::LockManager;
use crate::manager::error::loss::LossReason;

/// What of a manager may still be set on nodes when [`LockManager::shutdown`] returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Locks that were still held when the grace was over, and that this call ended. Their holders were told of the
    /// loss.
    pub lost: usize,
    /// Locks whose guards were still alive at the very end, also lost ones. Each is released when the last of its guards
    /// has gone.
    pub held: usize,
    /// Calls for a lock that were still asking nodes at the very end. What they are granted is released.
    pub acquiring: usize,
    /// Locks, or grants of lost rounds, whose release some node had not confirmed at the very end. It is tried again in
    /// the background, as long as the runtime lives and until the ttl is over.
    pub unconfirmed: usize,
    /// Locks, or grants of lost rounds, that are not released any more, and that some node may have until their ttl
    /// ends: a node refused the release or did not answer for a whole ttl, there was no room for it in the background,
    /// or the manager's runtime had ended. Those that were left before the shutdown began count, too.
    ///
    /// The ttl counts from when the release was given up, for the node may run a late command until then. So a lock
    /// counts for up to two ttls after its release, or a minute and a ttl where its node also lacked a record, even if
    /// that node was down all the time and has nothing.
    pub expiring: usize,
}

impl ShutdownReport {
    /// Whether no node has anything of this manager any more: every node confirmed the release of all that it may ever
    /// have granted, or its ttl was over.
    ///
    /// A command that the network, or a server that stood still, held back for longer than the ttl is not waited for.
    /// Should it be delivered in the end, that node keeps the lock for one more ttl.
    #[must_use]
    pub const fn is_all_released(&self) -> bool {
        self.held == 0 && self.acquiring == 0 && self.unconfirmed == 0 && self.expiring == 0
    }
}

impl LockManager {
    /// Asks all holders of this manager's locks to come to an end, now and from now on:
    /// [`LockHandle::draining`](crate::LockHandle::draining) fires.
    ///
    /// Call it when the server begins to stop. A server that ends in order waits for its requests, and so for streams
    /// of events that have no end of their own. They watch `draining`, say their last word, and end; then the server
    /// can. `docs::getting_started` has the whole order.
    ///
    /// Locks are granted as before. The requests that the server still answers need them: it has accepted some of them
    /// already, and load balancers go on sending others for a moment. [`shutdown`](Self::shutdown), after the server's
    /// end, refuses new locks.
    ///
    /// It asks no node and cannot be undone. Calling it again does nothing.
    pub fn drain(&self) {
        self.shared.drain.ask();
    }

    /// Waits until [`drain`](Self::drain) or [`shutdown`](Self::shutdown) is called. At once if one was.
    ///
    /// For streams that hold no lock, and for the limit of a server's end, as in `docs::getting_started`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing; a new one fires all the same. It borrows nothing and can be stored.
    pub fn draining(&self) -> impl Future<Output = ()> + Send + use<> {
        let drain = Arc::clone(&self.shared.drain);
        async move { drain.asked().await }
    }

    /// Whether [`drain`](Self::drain) or [`shutdown`](Self::shutdown) was called: for a readiness check, so that no
    /// more requests are sent here.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.shared.drain.is_asked()
    }

    /// Ends the manager in an orderly way.
    ///
    /// From the call on, holders are asked to end as by [`drain`](Self::drain), and new locks are refused with
    /// [`ShuttingDown`](crate::AcquireError::ShuttingDown), also to callers that wait for one already. Everything else
    /// has until the end of `grace`: holders to release their locks, calls under way to release what they were granted,
    /// nodes to confirm releases and the results of idempotent work. It returns as soon as all nodes have confirmed all
    /// of it; a node that does not answer can take up all of the grace.
    ///
    /// Locks that are held after the grace are *lost* with [`LossReason::Shutdown`]: the middleware drops the
    /// request's future, and the lock is released after it. For that, and for all that is not released yet, there is
    /// further time: two [node time-outs](crate::Settings::node_timeout), at least 250 ms.
    ///
    /// Once nothing is left to be released, the connections are closed, for which there is another half second.
    /// Otherwise they stay open, and the releases go on in the background.
    ///
    /// Call it after the server has stopped taking requests and before the runtime ends. It may be called
    /// several times, also at the same time: each call waits, and reports what it finds at its end.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, new locks are refused all the same, and the rest stays as it is: releases go on, and
    /// nothing is forgotten. Call it again to go on.
    pub async fn shutdown(&self, grace: Duration) -> ShutdownReport {
        let shared = &self.shared;
        shared.drain.ask();
        shared.grant_no_more();
        let mut lost = 0;
        let mut is_empty = shared.ledger.is_empty_within(grace).await;
        if !is_empty {
            lost = shared.registry.lose_all(LossReason::Shutdown);
            let last = (shared.node_timeout * 2).max(SHORTEST_LAST_WAIT);
            is_empty = shared.ledger.is_empty_within(last).await;
        }
        if is_empty {
            // Nothing can be owed any more, as nothing new begins.
            // All nodes at once: the time that frozen ones take must not add up.
            let mut closing = shared.send_all(|node| node.close());
            closing.until(shared.tasks.timer(LONGEST_CLOSE));
            while closing.next().await.is_some() {}
            shared.registry.stop();
        }
        let open = shared.ledger.open();
        ShutdownReport {
            lost,
            held: open.held,
            acquiring: open.acquiring,
            unconfirmed: open.releasing,
            expiring: shared.ledger.left(),
        }
    }
}

/// How long holders have to go after the grace, at least, and nodes to confirm what is released then.
const SHORTEST_LAST_WAIT: Duration = Duration::from_millis(250);
/// How long nodes may take to close their connections.
const LONGEST_CLOSE: Duration = Duration::from_millis(500);
