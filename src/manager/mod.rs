//! [`LockManager`]: locks over a set of nodes.
//!
//! A caller takes its turn in the [`queue`], asks the nodes ([`acquire`](mod@acquire), [`asking`]), and gets a
//! [`guard`] of a [`lease`], which the [`watchdog`] extends. The guard passes the lock to the next caller, or releases
//! it ([`freeing`]).

mod acquire;
mod asking;
mod error;
mod freeing;
mod guard;
mod handle;
mod holders;
mod lease;
mod ledger;
mod lifecycle;
mod nodes;
mod queue;
#[cfg(feature = "idempotency")]
mod records;
mod scope;
mod shared;
mod snapshot;
mod tasks;
mod want;
mod watchdog;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use self::acquire::acquire;
use self::acquire::wait::Wait;
pub use self::error::{
    AcquireError, ConnectError, LossReason, NoQuorum, NodeFailure, ReleaseError, RunError,
};
pub use self::guard::LockGuard;
pub use self::handle::{LockHandle, Lost};
pub use self::holders::{KeyHolder, KeyOnNode, KeyStatus, KeyVerdict, LockList};
use self::lease::held::Tenancy;
pub use self::lifecycle::ShutdownReport;
pub use self::nodes::voting::status::VotingStatus;
#[cfg(feature = "idempotency")]
pub use self::records::complete::CompleteError;
#[cfg(feature = "idempotency")]
pub use self::records::{IdempotentRun, RunGuard};
pub use self::scope::LockScope;
use self::shared::Shared;
pub use self::snapshot::{HeldLock, NodeStatus, QueueStatus, Snapshot};
use self::want::Want;
use crate::clock::Clock as _;
use crate::key_error::KeyError;
use crate::lock_key::{LockKey, LockKeys};
use crate::settings::checked::Times;
use crate::settings::error::{ConfigError, ensure};

/// Acquires and releases locks over a set of nodes.
///
/// A manager is cheap to clone. Clones and handles with other times, such as [`with_ttl`](Self::with_ttl), share
/// connections and background tasks. A manager can be used from several runtimes. If the runtime on which it was built
/// ends, all its locks are lost. A separate thread renews the locks, so a handler that blocks its thread loses no lock.
///
/// # Fairness
///
/// Within a process, callers that wait for one key get it in the order of their calls. A caller that waits for several
/// keys gets them when all are free. Between processes, the caller that has waited longest usually comes first, but
/// there is no limit to how often a process may lose.
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
    // The first group, for code that needs only the parts that all groups have in common.
    pub(crate) shared: Arc<Shared>,
    pub(crate) groups: Arc<[Arc<Shared>]>,
    // The times of this handle. Other handles of the same manager can have other times.
    pub(crate) times: Times,
    pub(crate) want: Want,
}

impl LockManager {
    /// Acquires all of `keys` or none, and fails immediately if one of them is not free. `keys` is one key (a string or
    /// a [`LockKey`]), an array or `Vec` of keys, or [`LockKeys`].
    ///
    /// If several callers split the votes of the nodes, the call tries again for at most two node time-outs.
    ///
    /// # Errors
    ///
    /// [`AcquireError::Contended`] if another caller holds a key; see [`AcquireError`] for the rest.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, its keys are released on every node in the background, including keys that nodes grant
    /// later.
    pub async fn try_acquire<K>(&self, keys: K) -> Result<LockGuard, AcquireError>
    where
        K: TryInto<LockKeys, Error: Into<KeyError>>,
    {
        self.acquire_within(lock_keys(keys)?, Duration::ZERO).await
    }

    /// Acquires all of `keys` or none, and waits for them for at most the [`max_wait`](Self::with_max_wait) of this
    /// handle. `keys` are up to 64 keys, given as for [`try_acquire`](Self::try_acquire).
    ///
    /// Callers that acquire several keys never deadlock. The keys have one guard, one ttl and one fencing token. Keys
    /// of several [groups](crate::Settings::groups) are acquired one group after another, and each group has its own
    /// [token](LockHandle::fence_of).
    ///
    /// # Errors
    ///
    /// [`AcquireError::WaitTimeout`] if a key was still held at the end of the wait; see [`AcquireError`] for the rest.
    ///
    /// # Cancel safety
    ///
    /// As for [`try_acquire`](Self::try_acquire). If a waiter is dropped, its turn passes to the next caller. Drop a
    /// future that you do not poll any more, because it keeps other callers waiting if it has its turn.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let locks = tower_redlock::LockManager::builder().memory(5).connect().await?;
    /// let guard = locks.acquire(["account:7", "account:3"]).await?;
    /// assert!(locks.try_acquire("account:3").await.is_err());
    /// # drop(guard);
    /// # Ok(()) }
    /// ```
    pub async fn acquire<K>(&self, keys: K) -> Result<LockGuard, AcquireError>
    where
        K: TryInto<LockKeys, Error: Into<KeyError>>,
    {
        self.acquire_within(lock_keys(keys)?, self.times.max_wait)
            .await
    }

    /// Acquires `keys` as [`acquire`](Self::acquire) does, runs `work`, and releases the lock.
    ///
    /// # Errors
    ///
    /// [`RunError::Acquire`] if the lock was not acquired. [`RunError::Lost`] if the lock was lost before `work` had a
    /// result: `work` was dropped half-way.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, `work` is dropped first, and then the lock is released in the background.
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
            // This block drops the work before the guard, so that the work ends before the lock does.
            let work = work(guard.handle());
            guard.lost().or_done(work).await.map_err(RunError::Lost)
        };
        // An unconfirmed release is no error here: it goes on in the background, and the work has its result.
        let _ = guard.release().await;
        outcome
    }

    pub(crate) async fn acquire_within(
        &self,
        keys: LockKeys,
        limit: Duration,
    ) -> Result<LockGuard, AcquireError> {
        let group = self.group(keys.first());
        let is_of_it = |key: &LockKey| Arc::ptr_eq(self.group(key), group);
        if self.is_exclusive() && !keys.as_slice().iter().all(is_of_it) {
            return Box::pin(self.acquire_apart(keys, limit)).await;
        }
        acquire(group, self.times.terms, (keys, &self.want), limit).await
    }

    /// Acquires keys of several groups in sorted order, so that callers never deadlock.
    async fn acquire_apart(
        &self,
        keys: LockKeys,
        limit: Duration,
    ) -> Result<LockGuard, AcquireError> {
        let wait = Wait::new(self.shared.set.clock.now(), limit);
        let mut guards = Vec::new();
        let alike = |one: &LockKey, next: &LockKey| Arc::ptr_eq(self.group(one), self.group(next));
        for keys in keys.as_slice().chunk_by(alike) {
            let keys = LockKeys::of(keys.iter().cloned());
            let (group, left) = (self.group(keys.first()), wait.left(&self.shared));
            if wait.is_patient() && left.is_zero() {
                return Err(wait.busy_for(&self.shared, None));
            }
            guards.push(acquire(group, self.times.terms, (keys, &self.want), left).await?);
        }
        // `keys` is never empty, so there is at least one guard.
        let guard = LockGuard::together(guards).ok_or_else(KeyError::no_key)?;
        let guard = guard.waited_for(wait.waited(&self.shared));
        // An earlier group's lock may have been lost while the call waited for a later group.
        let lost = guard.lost_before().map(AcquireError::Lost);
        lost.map_or(Ok(guard), Err)
    }

    /// Whether a key has one owner at a time.
    pub(crate) const fn is_exclusive(&self) -> bool {
        matches!(self.want, Want::Lock)
    }

    pub(crate) const fn limit(&self) -> Option<u32> {
        match self.want {
            Want::Permit { limit, .. } => Some(limit),
            _ => None,
        }
    }

    pub(crate) fn reenter(&self, handle: &LockHandle) -> Result<LockGuard, LossReason> {
        let again =
            |lock: &Tenancy| LockGuard::again(handle, lock, self.group(lock.lease.lease.key()));
        let guard = again(&handle.tenancy)?;
        let others: Result<_, _> = handle.locks().skip(1).map(again).collect();
        Ok(guard.along_with(others?))
    }

    pub(crate) fn group(&self, key: &LockKey) -> &Arc<Shared> {
        let group = match self.groups.len() {
            1 => None,
            count => self.groups.get(key.group(count)),
        };
        group.unwrap_or(&self.shared)
    }

    // For the program `redlock`.
    #[doc(hidden)]
    #[must_use]
    pub fn max_ttl(&self) -> Duration {
        self.shared.set.terms.max_ttl
    }
}

/// The times of this handle, for tests.
#[cfg(tower_redlock_tests)]
impl LockManager {
    /// The ttl of its locks.
    #[must_use]
    pub const fn ttl(&self) -> Duration {
        self.times.terms.ttl
    }

    /// The longest wait of its calls.
    #[must_use]
    pub const fn max_wait(&self) -> Duration {
        self.times.max_wait
    }

    /// How long a node may take to reply.
    #[must_use]
    pub fn node_timeout(&self) -> Duration {
        self.shared.set.node_timeout
    }
}

impl LockManager {
    /// Returns a handle of this manager whose locks have this `ttl`: whole milliseconds, at least 10 ms and at least
    /// the node time-out, and at most `max_ttl`. If the handle's `max_hold` is shorter, it is raised to the ttl.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] for a ttl out of these bounds.
    pub fn with_ttl(&self, ttl: Duration) -> Result<Self, ConfigError> {
        let shared = &self.shared;
        let times = self
            .times
            .with_ttl(ttl, shared.set.terms.max_ttl, shared.set.node_timeout)?;
        Ok(Self {
            times,
            ..self.clone()
        })
    }

    /// Returns a handle of this manager whose callers may hold a lock for `max_hold`, which is at least the ttl. After
    /// that time the lock is lost.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if `max_hold` is shorter than the ttl.
    pub fn with_max_hold(&self, max_hold: Duration) -> Result<Self, ConfigError> {
        let times = self.times.with_max_hold(max_hold)?;
        Ok(Self {
            times,
            ..self.clone()
        })
    }

    /// Returns a handle of this manager whose locks are *permits*: up to `limit` callers (1 to 256), in all processes
    /// together, hold a key at the same time.
    ///
    /// Permits limit load. They do not guard data, because [`fence`](LockHandle::fence) orders only the holders of one
    /// [`slot`](LockHandle::slot). A permit has one key. Permits do not exclude locks on the same key. If processes use
    /// different limits for a key, the highest limit counts.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] for a limit out of these bounds.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let locks = tower_redlock::LockManager::builder().memory(3).connect().await?;
    /// let reports = locks.permits(2)?;
    /// let _one = reports.try_acquire("tenant:7").await?;
    /// let _other = reports.try_acquire("tenant:7").await?;
    /// assert!(reports.try_acquire("tenant:7").await.is_err());
    /// # Ok(()) }
    /// ```
    pub fn permits(&self, limit: u32) -> Result<Self, ConfigError> {
        ensure((1..=256).contains(&limit), "permits", || {
            format!("permits is {limit}; use 1 to 256, or divide the load among several keys")
        })?;
        Ok(Self {
            want: Want::permit(limit),
            ..self.clone()
        })
    }

    /// Returns a handle of this manager whose callers are *readers*: any number of them, in all processes together,
    /// hold a key at the same time. Meanwhile no *writer*, a caller that wants the lock alone, can hold it.
    ///
    /// While a writer waits, new readers queue behind it or are refused. A shared lock has one key, and cannot be made
    /// exclusive. `docs::sharing` has an example, and says how long a reader can hold a lock.
    #[must_use]
    pub fn shared(&self) -> Self {
        Self {
            want: Want::Reader,
            ..self.clone()
        }
    }

    /// Returns a handle of this manager whose callers wait for a busy lock for at most `max_wait`; zero means not at
    /// all. A [layer](crate::RedlockLayer::max_wait) has its own wait.
    #[must_use]
    pub fn with_max_wait(&self, max_wait: Duration) -> Self {
        let mut other = self.clone();
        other.times.max_wait = max_wait;
        other
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
            .field("nodes", &self.shared.set.nodes)
            .field("quorum", &self.shared.set.terms.quorum.needed())
            .field("ttl", &self.times.terms.ttl)
            .finish_non_exhaustive()
    }
}
