use std::time::Duration;

use crate::manager::LockManager;
use crate::settings::error::ConfigError;

/// Handles with other times. They share everything else.
impl LockManager {
    /// Another handle of this manager, whose locks have this `ttl`, for a [layer](crate::RedlockLayer) or for single
    /// calls. From 10 ms, or the node time-out if that is longer, to `max_ttl`, in whole milliseconds. The handle's
    /// `max_hold` is raised to it if it is shorter.
    ///
    /// All handles share one queue per key; a lock passes only to a caller that wants the same ttl. A lock keeps the
    /// ttl that it was acquired with.
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
