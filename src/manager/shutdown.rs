//! Ending a manager: no new locks, running work to its end, the rest told.

use std::time::Duration;

use super::LockManager;
use super::ending::LossReason;
use super::fanout::Fanout;

/// What [`LockManager::shutdown`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Locks that were still held when the grace was over; their holders were told that they are lost.
    pub lost: usize,
    /// Locks whose guards were still alive at the very end. Each is released when its guard is dropped.
    pub held: usize,
    /// Releases that some node has not confirmed yet; their ttl ends them.
    pub unconfirmed: usize,
}

impl LockManager {
    /// Ends the manager in an orderly way.
    ///
    /// From the call on, new locks are refused with
    /// [`ShuttingDown`](crate::AcquireError::ShuttingDown), also to those who wait for one already. Locks that are
    /// held are given `grace` to be released. Those still held then are *lost* with [`LossReason::Shutdown`]: the
    /// middleware drops the request's future, and the lock is released after it. Then the releases under way are
    /// awaited and the connections are closed. After `grace` it takes at most a second more.
    ///
    /// Call it after the server has stopped taking requests and before the runtime ends. It may be called
    /// several times.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, no new locks are taken all the same, and the rest is left as it stands; call
    /// it again to go on.
    pub async fn shutdown(&self, grace: Duration) -> ShutdownReport {
        let core = &self.core;
        core.registry.close();
        core.queue.close();
        let mut lost = 0;
        // What was asked for before may be granted yet; it is refused and released then.
        core.attempts.idle(LAST_WAIT).await;
        let mut held = core.registry.empty(grace).await;
        if held > 0 {
            lost = core.registry.lose_all(LossReason::Shutdown);
            held = core.registry.empty(LAST_WAIT).await;
        }
        let unconfirmed = core.background.idle(LAST_WAIT).await;
        if held == 0 {
            let closing = core.nodes.iter().enumerate();
            let mut closing = Fanout::new(closing.map(|(index, node)| (index, node.close())));
            // All at once: frozen nodes must not add up.
            let closed = async { while closing.next().await.is_some() {} };
            let _ = tokio::time::timeout(LAST_WAIT, closed).await;
            core.registry.stop();
        }
        ShutdownReport {
            lost,
            held,
            unconfirmed,
        }
    }
}

/// How long each of the four steps around the grace may take.
const LAST_WAIT: Duration = Duration::from_millis(250);
