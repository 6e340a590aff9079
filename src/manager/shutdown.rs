use std::sync::Arc;
use std::time::Duration;

use crate::manager::LockManager;
use crate::manager::error::LossReason;

/// The keys of a manager that may still be on nodes when [`LockManager::shutdown`] returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Locks that were still held when the grace was over, and that this call ended.
    pub lost: usize,
    /// Locks whose guards were still alive at the end, also lost ones.
    pub held: usize,
    /// Calls for a lock that were still asking nodes at the end. Their grants are released.
    pub acquiring: usize,
    /// Locks, or grants of lost rounds, whose release some node had not confirmed at the end. It goes on in the
    /// background.
    pub unconfirmed: usize,
    /// Locks, or grants of lost rounds, that are not released any more, and that some node may have for up to two ttls:
    /// it refused the release or did not answer for a whole ttl, there was no room in the background, or the manager's
    /// runtime had ended.
    pub expiring: usize,
}

impl ShutdownReport {
    /// Whether no node has a key of this manager any more: every node confirmed the release, or the ttl was over. A
    /// command that the network or a server held back for longer than the ttl may still set a key for one more ttl.
    #[must_use]
    pub const fn is_all_released(&self) -> bool {
        self.held == 0 && self.acquiring == 0 && self.unconfirmed == 0 && self.expiring == 0
    }
}

impl LockManager {
    /// Asks all holders of this manager's locks, also later ones, to come to an end:
    /// [`LockHandle::draining`](crate::LockHandle::draining) fires. Call it when the server begins to stop:
    /// `docs::getting_started` has the order. Locks are granted as before, until [`shutdown`](Self::shutdown). It asks
    /// no node and cannot be undone.
    pub fn drain(&self) {
        self.shared.drain.ask();
    }

    /// Waits until [`drain`](Self::drain) or [`shutdown`](Self::shutdown) is called; at once if one was.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing; a new one fires all the same. It borrows nothing and can be stored.
    pub fn draining(&self) -> impl Future<Output = ()> + Send + use<> {
        let drain = Arc::clone(&self.shared.drain);
        async move { drain.asked().await }
    }

    /// Whether [`drain`](Self::drain) or [`shutdown`](Self::shutdown) was called.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.shared.drain.is_asked()
    }

    /// Ends the manager in an orderly way. Call it after the server has stopped and before the runtime ends.
    ///
    /// From the call on, new locks are refused with [`ShuttingDown`](crate::AcquireError::ShuttingDown), and holders
    /// are asked to end. Until the end of `grace` holders may release their locks and nodes confirm. Locks that are
    /// held after it are *lost* with [`LossReason::Shutdown`]. Their release has two node time-outs more, at least 250
    /// ms; then the connections are closed, for which there is half a second. It returns as soon as all nodes have
    /// confirmed all of it; otherwise the releases go on in the background. Several calls may wait.
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
            // Nothing new begins. All nodes at once: the time that frozen ones take must not add up.
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

const SHORTEST_LAST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_CLOSE: Duration = Duration::from_millis(500);
