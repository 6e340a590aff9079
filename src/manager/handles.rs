//! Other handles of the same manager, with times of their own.

use std::time::Duration;

use crate::manager::LockManager;
use crate::settings::error::ConfigError;

/// Handles with other times. They share everything else: nodes, connections, queues, tasks, snapshots and the shutdown.
impl LockManager {
    /// Another handle of this manager, whose locks have this `ttl`. Give it to a [layer](crate::RedlockLayer), or
    /// acquire with it.
    ///
    /// From 10 ms, or the node time-out if that is longer, to the [`max_ttl`](crate::Settings::max_ttl) that
    /// all processes agree on, in whole milliseconds. The handle's `max_hold` is raised to it if it is shorter, and so
    /// is the time for which counters are kept under its locks.
    ///
    /// * All handles share one queue per key. A lock is handed on only to a caller that wants the same ttl; for others
    ///   it is released on the nodes.
    /// * A lock keeps the ttl that it was acquired with, also where it is shared ([`LockScope`](crate::LockScope),
    ///   [`LockGuard::reenter`](crate::LockGuard::reenter)).
    ///
    /// # Errors
    ///
    /// [`ConfigError`] for a ttl out of these bounds.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use tower_redlock::{LockManager, RedlockLayer, key};
    ///
    /// let locks = LockManager::builder().memory(5).connect().await?;
    /// // A stream keeps its lock for five minutes; a payment ends in ten seconds, and another may begin.
    /// let streams = locks.with_max_hold(Duration::from_secs(300))?;
    /// let payments = locks.with_ttl(Duration::from_secs(5))?.with_max_hold(Duration::from_secs(10))?;
    /// let stream = RedlockLayer::new(streams, key::header("x-topic"));
    /// let pay = RedlockLayer::new(payments, key::header("x-order-id"));
    /// # let _ = (stream, pay);
    /// # Ok(()) }
    /// ```
    pub fn with_ttl(&self, ttl: Duration) -> Result<Self, ConfigError> {
        let shared = &self.shared;
        let times = self
            .times
            .with_ttl(ttl, shared.max_ttl, shared.node_timeout)?;
        Ok(Self {
            shared: shared.clone(),
            times,
        })
    }

    /// Another handle of this manager, whose callers may hold a lock for `max_hold`, at least the ttl: then it is lost.
    ///
    /// It is each holder's own, also of a lock that was handed on from a caller of another handle.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if it is shorter than the ttl.
    pub fn with_max_hold(&self, max_hold: Duration) -> Result<Self, ConfigError> {
        Ok(Self {
            shared: self.shared.clone(),
            times: self.times.with_max_hold(max_hold)?,
        })
    }

    /// Another handle of this manager, whose callers wait for a busy lock for `max_wait` at most. Zero: they do not
    /// wait.
    #[must_use]
    pub fn with_max_wait(&self, max_wait: Duration) -> Self {
        let mut other = self.clone();
        other.times.max_wait = max_wait;
        other
    }
}
