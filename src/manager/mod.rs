//! [`LockManager`]: locks over a set of nodes.
//!
//! ```text
//!   LockManager ── attempt ──► fanout ──► nodes            (acquire; the caller polls)
//!        │            │ won
//!        │            ▼
//!        │          hold ◄── guard, handles                (one held lock)
//!        │            ▲
//!        ├─ watchdog ─┘ extend, top up, announce loss      (one task, one timer)
//!        └─ background: late answers, releases             (what outlives its caller)
//! ```

mod attempt;
mod background;
mod connect;
mod core;
mod error;
mod fanout;
mod guard;
mod hold;
mod options;
mod releaser;
mod shutdown;
mod watchdog;

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use self::attempt::Attempt;
use self::core::{Core, random};
use crate::clock::Clock as _;
use crate::lock_key::{KeyError, LockKey};
use crate::node::NodeState;
use crate::protocol::backoff::{Backoff, after_split};
use crate::protocol::round::Verdict;

pub use self::error::{
    AcquireError, Contended, LossReason, NoEntropy, NoQuorum, NodeFailure, ReleaseError, RunError,
    ShuttingDown, TooSlow, Unconfirmed, WaitTimeout,
};
pub use self::guard::{LockGuard, LockHandle, Lost};
pub use self::options::{ConfigError, ConnectError, Misconfigured};
pub(crate) use self::options::{Options, Settings};
pub use self::shutdown::ShutdownReport;

/// Takes and gives back locks over a set of nodes.
///
/// A manager is cheap to clone; all clones share connections, the watchdog and the background work. It belongs
/// to the tokio runtime on which it was built: its tasks live there. Make one with
/// [`LockManager::builder`](Self::builder).
///
/// # Which method should you use?
///
/// * [`run`](Self::run) for work that must stop when the lock is lost: it is cancelled then.
/// * [`acquire`](Self::acquire) to wait for a busy lock, up to the manager's `max_wait`.
/// * [`try_acquire`](Self::try_acquire) to be told at once that it is busy.
/// * the [`RedlockLayer`](crate::RedlockLayer) for HTTP requests.
///
/// # Fairness
///
/// None is promised: whoever asks at the right moment gets a freed lock.
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
    core: Arc<Core>,
}

impl LockManager {
    /// Acquires `key` if it is free, and says so at once if it is not.
    ///
    /// One round asks all nodes in parallel. If several contenders split the nodes among them, this one stands
    /// back for a few round trips and tries again, for two node time-outs at most.
    ///
    /// # Errors
    ///
    /// [`AcquireError::Contended`] if another holds it; see [`AcquireError`] for the rest.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, whatever it had set on any node is released in the background, also what is
    /// granted later.
    pub async fn try_acquire<K>(&self, key: K) -> Result<LockGuard, AcquireError>
    where
        K: TryInto<LockKey>,
        K::Error: Into<KeyError>,
    {
        self.acquire_within(key, Duration::ZERO).await
    }

    /// Acquires `key`, waiting up to the manager's `max_wait` while another holds it.
    ///
    /// # Errors
    ///
    /// [`AcquireError::WaitTimeout`] if another held it all the time; see [`AcquireError`] for the rest.
    ///
    /// # Cancel safety
    ///
    /// As for [`try_acquire`](Self::try_acquire). A dropped waiter leaves nothing behind.
    pub async fn acquire<K>(&self, key: K) -> Result<LockGuard, AcquireError>
    where
        K: TryInto<LockKey>,
        K::Error: Into<KeyError>,
    {
        self.acquire_within(key, self.core.max_wait).await
    }

    /// Acquires `key`, waiting up to `max_wait`, or the manager's `max_wait` if that is less.
    ///
    /// # Errors
    ///
    /// As for [`acquire`](Self::acquire), or [`try_acquire`](Self::try_acquire) if `max_wait` is zero.
    ///
    /// # Cancel safety
    ///
    /// As for [`try_acquire`](Self::try_acquire).
    pub async fn acquire_within<K>(
        &self,
        key: K,
        max_wait: Duration,
    ) -> Result<LockGuard, AcquireError>
    where
        K: TryInto<LockKey>,
        K::Error: Into<KeyError>,
    {
        let key = key.try_into().map_err(Into::into)?;
        acquire(&self.core, key, max_wait.min(self.core.max_wait)).await
    }

    /// Acquires `key` as [`acquire`](Self::acquire) does, runs `work` under the lock, and releases it.
    ///
    /// When the lock is lost, `work` is dropped where it stands. A result that exists wins over a loss at the
    /// same moment.
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
    pub async fn run<K, F, Fut>(&self, key: K, work: F) -> Result<Fut::Output, RunError>
    where
        K: TryInto<LockKey>,
        K::Error: Into<KeyError>,
        F: FnOnce(LockHandle) -> Fut,
        Fut: Future,
    {
        let guard = self.acquire(key).await?;
        let outcome = {
            // Declared after the guard, so dropped before it: the work ends before the lock does.
            let mut work = pin!(work(guard.handle()));
            let mut lost = pin!(guard.lost());
            tokio::select! {
                biased;
                output = &mut work => Ok(output),
                reason = &mut lost => Err(RunError::Lost(reason)),
            }
        };
        // A release that is not confirmed goes on in the background; the work is done either way.
        let _ = guard.release().await;
        outcome
    }

    /// The time to live that is sent to the nodes.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        self.core.terms.ttl
    }

    /// The longest that [`acquire`](Self::acquire) waits.
    #[must_use]
    pub fn max_wait(&self) -> Duration {
        self.core.max_wait
    }

    /// How long a node may take to answer.
    #[must_use]
    pub fn node_timeout(&self) -> Duration {
        self.core.node_timeout
    }

    /// How many nodes must grant.
    #[must_use]
    pub fn quorum(&self) -> usize {
        self.core.terms.quorum.needed()
    }

    /// The nodes and what is known of each right now.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeStatus> {
        let nodes = self.core.nodes.iter();
        nodes
            .map(|node| NodeStatus {
                name: node.name().to_owned(),
                state: node.state(),
            })
            .collect()
    }
}

impl fmt::Debug for LockManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockManager")
            .field("nodes", &self.core.nodes)
            .field("quorum", &self.quorum())
            .field("ttl", &self.ttl())
            .finish_non_exhaustive()
    }
}

/// One node and what is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeStatus {
    /// The node's name.
    pub name: String,
    /// What is known of it.
    pub state: NodeState,
}

/// Rounds until the lock is won, out of reach, or the wait is over.
async fn acquire(
    core: &Arc<Core>,
    key: LockKey,
    max_wait: Duration,
) -> Result<LockGuard, AcquireError> {
    let place = core.namespace.place(&key);
    let began = core.clock.now();
    let mut backoff = Backoff::new(FIRST_POLL, SLOWEST_POLL);
    let mut splits = 0;
    loop {
        if core.registry.is_closed() {
            return Err(AcquireError::ShuttingDown(ShuttingDown));
        }
        let mut attempt = Attempt::new(core, &place)?;
        let verdict = attempt.decide().await;
        let round_trip = core.clock.now().since(attempt.sent());
        let (remaining, mut pause) = match verdict {
            Verdict::Granted => return won(core, attempt, key),
            Verdict::NoQuorum => return Err(AcquireError::NoQuorum(attempt.no_quorum())),
            Verdict::Split {
                contenders,
                remaining,
            } => {
                splits += 1;
                // Timers count in milliseconds; less would not spread the contenders.
                let round_trip = round_trip.max(Duration::from_millis(1));
                (remaining, after_split(random(), contenders, round_trip))
            }
            Verdict::Contended { remaining } => {
                splits = MAX_SPLITS;
                let poll = backoff.next(random());
                // Nobody can have it before the holder's lease ends, unless the holder releases it. A lease that
                // seems to have ended is no reason to hurry.
                let lease = remaining.filter(|left| !left.is_zero());
                (remaining, lease.map_or(poll, |left| poll.min(left)))
            }
        };
        let waited = core.clock.now().since(began);
        let left = max_wait.saturating_sub(waited);
        // Bounded by time, too: with a slow node a split may only seem one, and every round takes its time-out.
        if splits >= MAX_SPLITS || waited >= core.node_timeout * SPLIT_TIMEOUTS {
            if left.is_zero() {
                return Err(busy(max_wait, remaining, waited));
            }
            pause = pause.min(left);
        }
        attempt.give_back().await;
        sleep(pause).await;
    }
}

/// Puts a granted round under the care of the watchdog.
fn won(core: &Arc<Core>, attempt: Attempt, key: LockKey) -> Result<LockGuard, AcquireError> {
    let hold = attempt.win(key)?;
    let inserted = core.registry.insert(&hold);
    let guard = LockGuard::new(Arc::clone(core), hold);
    if !inserted {
        // Dropping the guard releases what was just granted.
        return Err(AcquireError::ShuttingDown(ShuttingDown));
    }
    Ok(guard)
}

fn busy(max_wait: Duration, remaining: Option<Duration>, waited: Duration) -> AcquireError {
    if max_wait.is_zero() {
        AcquireError::Contended(Contended { remaining })
    } else {
        AcquireError::WaitTimeout(WaitTimeout { remaining, waited })
    }
}

/// How many split votes in a row count as contention.
const MAX_SPLITS: u32 = 8;
/// For how many node time-outs split votes are tried again at once.
const SPLIT_TIMEOUTS: u32 = 2;
/// The ceiling of the first pause between two looks at a busy lock; it doubles from there.
const FIRST_POLL: Duration = Duration::from_millis(4);
/// The ceiling of the longest pause between two looks at a busy lock.
const SLOWEST_POLL: Duration = Duration::from_millis(100);
