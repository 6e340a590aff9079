//! [`LockManager`]: locks over a set of nodes.
//!
//! ```text
//!   LockManager ── acquire ──► queue                       (one caller per key contends, the others wait)
//!        │           │ its turn            ▲
//!        │           ├─► notices           │ hand-off, or a turn
//!        │           └─► round ──► nodes   │               (polled by the caller)
//!        │                │ won            │
//!        │                ▼                │
//!        │             lease ◄── guard ────┘               (one held lock)
//!        │                ▲  ▲
//!        ├── renewal ─────┘ extend, top up, announce loss  (one task, one timer, on a thread of its own)
//!        └── tasks: late replies, releases                 (they outlive their caller)
//! ```

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
/// A manager is cheap to clone; clones, and handles with other times ([`with_ttl`](Self::with_ttl),
/// [`with_max_hold`](Self::with_max_hold), [`with_max_wait`](Self::with_max_wait)), share connections, the watchdog and
/// background tasks. It belongs to the tokio runtime on which it was built and can be used from others; when its own
/// ends, its locks are lost and it grants no more. Renewals run on a thread of its own, which ends with it: a handler
/// that blocks its thread loses no lock, and loses none for others.
///
/// # Fairness
///
/// FIFO within a process: callers of one manager that wait for one key get it in the order of their calls, and callers
/// that do not wait never overtake them. A caller that waits for several keys gets them when all are free.
///
/// Between managers the one whose caller has waited longest comes first as a rule, but no bound says how often one may
/// lose. Each has one contender per key, passes a lock among its own callers a limited number of times
/// ([`HandOff`](crate::settings::HandOff)), and contends a few round trips later after a contended release. A release
/// tells how long its holder had waited; a contender that has waited for less comes up to one and a half round trips
/// later.
///
/// A waiter does not poll: its process listens for releases, and asks again when the holder's lease ends, and at least
/// once a second (every 100 ms while fewer than a quorum of nodes announce releases).
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
    // The first of the groups, for what they have in common.
    pub(crate) shared: Arc<Shared>,
    pub(crate) groups: Arc<[Arc<Shared>]>,
    // Those of this handle; others of the same manager may have others.
    pub(crate) times: Times,
    pub(crate) want: Want,
}

impl LockManager {
    /// Acquires `keys` if they are free, and fails at once if one of them is not. `keys` is one key (a text, a
    /// [`LockKey`](crate::LockKey)), an array or `Vec` of keys, or [`LockKeys`]; all of them are taken or none.
    ///
    /// While another caller of this manager holds a key or contends for it, no node is asked. If several contenders
    /// split the votes, this one tries again after a few round trips, for two node time-outs at most; and once more if nodes
    /// died between their grants and the fencing token.
    ///
    /// # Errors
    ///
    /// [`AcquireError::Contended`] if another holds a key; see [`AcquireError`] for the rest.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, its keys are released on every node in the background, also those that are granted
    /// later.
    pub async fn try_acquire<K>(&self, keys: K) -> Result<LockGuard, AcquireError>
    where
        K: TryInto<LockKeys, Error: Into<KeyError>>,
    {
        self.acquire_keys(lock_keys(keys)?, Duration::ZERO).await
    }

    /// Acquires all of `keys` or none, waiting up to the [`max_wait`](Self::with_max_wait) of this handle while others
    /// hold some of them. `keys` are as for [`try_acquire`](Self::try_acquire).
    ///
    /// There may be 1 to 64 keys. On each node they are taken in one step, so callers never wait for
    /// each other in a circle. A lock on several keys has one ttl, one guard and one fencing token, greater than that
    /// of every earlier holder of each key; it is never handed off inside the process.
    ///
    /// Keys of several [groups](crate::Settings::groups) are taken in their order, neighbours in one group as one lock, each
    /// of which has its own [token](LockHandle::fence_of). Those that come first are held while it waits for the next: the
    /// future must be polled or dropped, for they are extended up to `max_hold`.
    ///
    /// # Errors
    ///
    /// [`AcquireError::WaitTimeout`] if another held a key all the time; see [`AcquireError`] for the rest.
    ///
    /// # Cancel safety
    ///
    /// As for [`try_acquire`](Self::try_acquire). A dropped waiter leaves nothing behind; if its turn had just come,
    /// that passes to the next caller. So does a lock that was handed to a future that is kept and not polled for a node
    /// time-out; the future queues anew. A future that is kept may still keep other callers of this manager waiting, however
    /// short its own wait is, for it may be its turn to ask the nodes; and other processes for a ttl, if nodes have granted
    /// what it asked for: drop it, or poll it in a task of its own.
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

    /// Acquires `keys` as [`acquire`](Self::acquire) does, runs `work` under the lock, and releases it. When the lock
    /// is lost, `work` is dropped where it stands. A result that exists wins over a loss at that moment. A `Rejection`
    /// makes a response of the error.
    ///
    /// # Errors
    ///
    /// [`RunError::Acquire`] if the lock was not acquired: `work` was not called. [`RunError::Lost`] if it was lost
    /// half-way.
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

    pub(crate) async fn acquire_keys(
        &self,
        keys: LockKeys,
        max_wait: Duration,
    ) -> Result<LockGuard, AcquireError> {
        let limit = max_wait.min(self.times.max_wait);
        self.acquire_within(keys, limit).await
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

    /// Acquires keys of several groups: in their order, as all that waits for keys while it holds some, so that nobody waits
    /// in a circle.
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
        // There is always a key.
        let guard = LockGuard::together(guards).ok_or_else(KeyError::no_key)?;
        let guard = guard.waited_for(wait.waited(&self.shared));
        // The first may have been held for long.
        let lost = guard.lost_before().map(AcquireError::Lost);
        lost.map_or(Ok(guard), Err)
    }

    /// Whether one owner has a key at a time.
    pub(crate) const fn is_exclusive(&self) -> bool {
        matches!(self.want, Want::Lock)
    }

    pub(crate) const fn limit(&self) -> Option<u32> {
        match self.want {
            Want::Permit { limit, .. } => Some(limit),
            _ => None,
        }
    }

    /// One more guard of all locks of a handle.
    pub(crate) fn reenter(&self, handle: &LockHandle) -> Result<LockGuard, LossReason> {
        let again =
            |lock: &Tenancy| LockGuard::again(handle, lock, self.group(lock.lease.lease.key()));
        let guard = again(handle.tenancy())?;
        let others: Result<_, _> = handle.locks().skip(1).map(again).collect();
        Ok(guard.along_with(others?))
    }

    /// The group of nodes that has `key`.
    pub(crate) fn group(&self, key: &LockKey) -> &Arc<Shared> {
        let group = match self.groups.len() {
            1 => None,
            count => self.groups.get(key.group(count)),
        };
        group.unwrap_or(&self.shared)
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

    /// The longest ttl of any process, and the length of a quarantine.
    #[must_use]
    pub fn max_ttl(&self) -> Duration {
        self.shared.set.max_ttl
    }

    /// How long a node may take to reply.
    #[must_use]
    pub fn node_timeout(&self) -> Duration {
        self.shared.set.node_timeout
    }
}

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
            .with_ttl(ttl, shared.set.max_ttl, shared.set.node_timeout)?;
        Ok(Self {
            times,
            ..self.clone()
        })
    }

    /// Another handle of this manager, whose callers may hold a lock for `max_hold`, at least the ttl: then it is lost.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if it is shorter than the ttl.
    pub fn with_max_hold(&self, max_hold: Duration) -> Result<Self, ConfigError> {
        let times = self.times.with_max_hold(max_hold)?;
        Ok(Self {
            times,
            ..self.clone()
        })
    }

    /// Another handle of this manager, whose locks are *permits*: up to `limit` callers hold a key at once, in all
    /// processes together, from 1 to 256. It limits load; it does not guard data, for which
    /// [`fence`](LockHandle::fence) orders only the holders of one [`slot`](LockHandle::slot).
    ///
    /// A permit is extended, lost, passed on and released as a lock is. It is on one key, and is not shared in a
    /// [`LockScope`](crate::LockScope). Permits of a key and locks on it know nothing of each other. Use one limit for a
    /// key: where processes differ, the highest counts. `docs::permits` has the rest.
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
    /// let one = reports.try_acquire("tenant:7").await?;
    /// let _other = reports.try_acquire("tenant:7").await?;
    /// assert!(reports.try_acquire("tenant:7").await.is_err());
    /// one.release().await?;
    /// let _third = reports.try_acquire("tenant:7").await?;
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

    /// Another handle of this manager, whose callers *share* locks: any number of readers hold a key at once, in all
    /// processes together, and no holder of a lock on it beside them. For work that only reads what the holders of the
    /// lock write.
    ///
    /// Readers of one process that come within a tenth of the ttl share one lease, for which the nodes are asked once;
    /// [`max_hold`](Self::with_max_hold) counts from its grant. While a caller waits for the lock alone, no new readers
    /// come: in its process they queue behind it, and elsewhere the nodes refuse them, as far as they heard of it. So it
    /// waits for a tenth of the ttl, and for the readers that have begun by then. A shared lock is on one key and cannot be
    /// made exclusive: [`acquire_in`](Self::acquire_in) refuses that at once. `docs::shared` has the rest, and what a
    /// reader's [`fence`](LockHandle::fence) is for. Of a handle for [permits](Self::permits) it makes one for readers, who
    /// know nothing of these.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let locks = tower_redlock::LockManager::builder().memory(3).connect().await?;
    /// let readers = locks.shared();
    /// let one = readers.try_acquire("document:7").await?;
    /// let other = readers.try_acquire("document:7").await?;
    /// assert!(locks.try_acquire("document:7").await.is_err(), "it is being read");
    /// one.release().await?;
    /// other.release().await?;
    /// let writer = locks.try_acquire("document:7").await?;
    /// assert!(readers.try_acquire("document:7").await.is_err());
    /// # drop(writer);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn shared(&self) -> Self {
        Self {
            want: Want::Reader,
            ..self.clone()
        }
    }

    /// Another handle of this manager, whose callers wait for a busy lock for `max_wait` at most. Zero: they do not
    /// wait. A [layer](crate::RedlockLayer::max_wait) has a wait of its own.
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
            .field("ttl", &self.ttl())
            .finish_non_exhaustive()
    }
}
