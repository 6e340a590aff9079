//! [`LockManager`]: acquires locks over a set of nodes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::key_error::KeyError;
use crate::lock_keys::LockKeys;
use crate::manager::acquire::call::acquire;
use crate::manager::error::acquire::AcquireError;
use crate::manager::error::loss::LossReason;
use crate::manager::error::release::RunError;
use crate::manager::guard::{LockGuard, LockHandle};
use crate::manager::shared::Shared;
use crate::settings::times::Times;

/// Acquires and releases locks over a set of nodes.
///
/// A manager is cheap to clone; all clones share connections, the watchdog and background tasks, and so do handles with
/// other times ([`with_ttl`](Self::with_ttl), [`with_max_hold`](Self::with_max_hold),
/// [`with_max_wait`](Self::with_max_wait)). It belongs
/// to the tokio runtime on which it was built: its tasks live there. It can be used from others; when its own ends, its
/// locks are lost ([`Shutdown`](LossReason::Shutdown)), and it grants no more. Make one with
/// [`LockManager::builder`](Self::builder).
///
/// # Which method should you use?
///
/// * [`run`](Self::run) for work that must stop when the lock is lost: it is cancelled then.
/// * [`acquire`](Self::acquire) to wait for a busy lock, up to the manager's `max_wait`.
/// * [`try_acquire`](Self::try_acquire) to fail at once if it is busy.
/// * the [`RedlockLayer`](crate::RedlockLayer) for HTTP requests.
///
/// # Fairness
///
/// FIFO within a process: callers of one manager that wait for one key get it in the order of their calls, and callers
/// that do not wait never overtake them. For callers that want several keys see
/// [`acquire`](Self::acquire).
///
/// No order between managers, which usually means between processes. For fairness each manager has one contender per
/// key, however many callers wait behind it; it passes a lock among its own callers only so often
/// ([`HandOff`](crate::settings::HandOff)); and after a contended release the key has a cooldown of a few round trips
/// in this manager, while the others contend at random moments. So each has about the same chance at each release, and
/// no caller waits for ever; but there is no bound on how often one may be unlucky. Contenders of other libraries know
/// nothing of this; beside them set [`HandOff::OFF`](crate::settings::HandOff::OFF), or they hardly ever get a lock
/// that is wanted all the time. Callers that do not wait take a lock that they find free.
///
/// # Waiting
///
/// A waiter does not poll. The contender subscribes to releases on every node that can announce them, and asks the
/// nodes again after a release, when the holder's lease ends, and now and then in any case (after up to 1 s, or 100 ms
/// while fewer than a quorum of nodes announce releases): notices may be lost, and some holders announce nothing.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tower_redlock::LockManager;
///
/// let locks = LockManager::builder().memory(5).connect().await?;
/// let guard = locks.try_acquire("order:42").await?;
/// assert!(locks.try_acquire("order:42").await.is_err(), "one at a time");
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct LockManager {
    pub(crate) shared: Arc<Shared>,
    // Those of this handle; others of the same manager may have others.
    pub(crate) times: Times,
}

impl LockManager {
    /// Acquires `keys` if they are free, and fails at once if one of them is not.
    ///
    /// `keys` is one key (a text, a [`LockKey`](crate::LockKey)), an array or `Vec` of keys, or [`LockKeys`]. While another caller of
    /// this manager holds a key or contends for it, no node is asked. Otherwise one round asks all nodes in parallel.
    /// If several contenders split the votes, this one waits for a few round trips and tries again, for two node
    /// time-outs at most.
    ///
    /// # Errors
    ///
    /// [`AcquireError::Contended`] if another holds a key; see [`AcquireError`] for the rest.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the keys that it has set on any node are released in the background, also those that
    /// are granted later.
    pub async fn try_acquire<K>(&self, keys: K) -> Result<LockGuard, AcquireError>
    where
        K: TryInto<LockKeys, Error: Into<KeyError>>,
    {
        self.acquire_keys(lock_keys(keys)?, Duration::ZERO).await
    }

    /// Acquires all of `keys` or none, waiting up to the [`max_wait`](Self::with_max_wait) of this handle while others
    /// hold some of them. `keys` are as for [`try_acquire`](Self::try_acquire).
    ///
    /// # Several keys
    ///
    /// They are sorted, each is taken once, and there may be 1 to [`LockKeys::MAX`] of them. On each node they are
    /// taken in one step, so that two callers whose keys overlap never wait for each other, in whatever order they
    /// name them. The lock has one ttl, one fencing token and one guard; it is never handed off inside the process.
    /// The token is greater than that of every earlier holder of each of the keys, and less than that of every later
    /// one: register it with the row of each, as the page `fencing` of the guide has it.
    ///
    /// # Fairness of several keys
    ///
    /// * **Rule**: a caller that waits for several keys keeps none of them from other callers. It contends when all of
    ///   them are free in this manager. While the nodes reply that one of them is held elsewhere, it has the turn of
    ///   that key alone (of none, if the nodes do not tell [which](crate::node::Holder::key)), and other callers get
    ///   the rest.
    /// * **Bound**: callers that want fewer keys overtake it, and only `max_wait` bounds how often: where one of its
    ///   keys or another is always in use, it waits in vain.
    /// * **Several such callers**: of those that want the same keys, the older comes before the younger.
    /// * **Callers that do not wait** are not refused because of it, but may have to wait for the replies of its nodes.
    /// * **Between managers** no order is promised, as for one key.
    ///
    /// # Errors
    ///
    /// [`AcquireError::WaitTimeout`] if another held a key all the time; see [`AcquireError`] for the rest.
    ///
    /// # Cancel safety
    ///
    /// As for [`try_acquire`](Self::try_acquire). A dropped waiter leaves nothing behind: no place in the queue, no
    /// subscription, no key; if its turn had just come, that passes to the next caller.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let locks = tower_redlock::LockManager::builder().memory(5).connect().await?;
    /// let guard = locks.acquire(["account:7", "account:3"]).await?;
    /// assert!(locks.try_acquire("account:3").await.is_err());
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    pub async fn acquire<K>(&self, keys: K) -> Result<LockGuard, AcquireError>
    where
        K: TryInto<LockKeys, Error: Into<KeyError>>,
    {
        self.acquire_keys(lock_keys(keys)?, self.times.max_wait)
            .await
    }

    /// Acquires `keys` as [`acquire`](Self::acquire) does, runs `work` under the lock, and releases it.
    ///
    /// When the lock is lost, `work` is dropped where it stands. A result that exists wins over a loss at the
    /// same moment. A [`Rejection`](crate::middleware::Rejection) makes a response of the error.
    ///
    /// # Errors
    ///
    /// [`RunError::Acquire`] if the lock was not acquired: `work` was not called. [`RunError::Lost`] if it was
    /// lost half-way: how far `work` came is unknown.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, `work` is dropped first and the lock is released after it, in the background.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let locks = tower_redlock::LockManager::builder().memory(5).connect().await?;
    /// let sum = locks.run("order:42", |_lock| async { 40 + 2 }).await?;
    /// assert_eq!(sum, 42);
    /// # Ok(()) }
    /// ```
    pub async fn run<K, F, Fut>(&self, keys: K, work: F) -> Result<Fut::Output, RunError>
    where
        K: TryInto<LockKeys, Error: Into<KeyError>>,
        F: FnOnce(LockHandle) -> Fut,
        Fut: Future,
    {
        let guard = self.acquire(keys).await?;
        let outcome = {
            // Dropped before the guard: the work ends before the lock does.
            let work = work(guard.handle());
            guard.lost().or_done(work).await.map_err(RunError::Lost)
        };
        // A release that is not confirmed goes on in the background; the result of the work stands.
        let _ = guard.release().await;
        outcome
    }

    /// Acquires `keys`, waiting up to `max_wait`, or the `max_wait` of this handle if that is less.
    pub(crate) async fn acquire_keys(
        &self,
        keys: LockKeys,
        max_wait: Duration,
    ) -> Result<LockGuard, AcquireError> {
        let limit = max_wait.min(self.times.max_wait);
        acquire(&self.shared, self.times.terms, keys, limit).await
    }

    /// One more guard of a lock of this manager that is still held.
    pub(crate) fn reenter(&self, handle: &LockHandle) -> Result<LockGuard, LossReason> {
        handle.reenter(&self.shared)
    }

    /// The time to live of the locks of this handle on the nodes.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        self.times.terms.ttl
    }

    /// The longest that [`acquire`](Self::acquire) waits with this handle.
    #[must_use]
    pub fn max_wait(&self) -> Duration {
        self.times.max_wait
    }

    /// How long a node may take to reply.
    #[must_use]
    pub fn node_timeout(&self) -> Duration {
        self.shared.node_timeout
    }

    /// How many nodes must grant.
    #[must_use]
    pub fn quorum(&self) -> usize {
        self.shared.terms.quorum.needed()
    }
}

fn lock_keys<K>(keys: K) -> Result<LockKeys, AcquireError>
where
    K: TryInto<LockKeys, Error: Into<KeyError>>,
{
    keys.try_into().map_err(|error: K::Error| {
        crate::instruments::invalid_key();
        AcquireError::InvalidKey(error.into())
    })
}

impl fmt::Debug for LockManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockManager")
            .field("nodes", &self.shared.nodes)
            .field("quorum", &self.quorum())
            .field("ttl", &self.ttl())
            .finish_non_exhaustive()
    }
}
