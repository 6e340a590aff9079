use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::timeout;

use crate::clock::Clock as _;
use crate::instruments;
use crate::key_error::KeyError;
use crate::lock_key::{LockKey, LockKeys};
use crate::manager::LockManager;
use crate::manager::acquire::wait::Wait;
use crate::manager::error::{AcquireError, LossReason};
use crate::manager::guard::LockGuard;
use crate::manager::handle::LockHandle;

/// The locks that one piece of work, such as a request, holds, so that its parts can share them. A
/// [`RedlockLayer`](crate::RedlockLayer) keeps a scope in the extensions of each request. Clones are the same scope.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use tower_redlock::{LockKey, LockManager, LockScope};
///
/// let locks = LockManager::builder().memory(5).connect().await?;
/// let scope = LockScope::new();
/// let order = LockKey::new("order:42")?;
/// let outer = locks.acquire_in(&scope, order.clone().into(), Duration::ZERO).await?;
/// let inner = locks.acquire_in(&scope, order.into(), Duration::ZERO).await?;
/// assert_eq!(outer.fence(), inner.fence());
/// # Ok(()) }
/// ```
#[derive(Clone, Default)]
pub struct LockScope {
    work: Arc<Work>,
}

#[derive(Default)]
struct Work {
    held: Mutex<Locks>,
    // Makes the parts of the work acquire one after another. Two parts that acquire at the same time would not know of
    // each other's locks, and would wait for them in vain. `AssertUnwindSafe` is correct here, because the mutex guards
    // no value that a panic could leave half-changed.
    turn: AssertUnwindSafe<tokio::sync::Mutex<()>>,
}

type Locks = SmallVec<[LockHandle; 1]>;

impl LockScope {
    /// Creates a scope that holds nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn held(&self) -> MutexGuard<'_, Locks> {
        let held = self.work.held.lock();
        held.unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn holds(&self) -> bool {
        self.live().iter().any(|handle| !handle.is_lost())
    }

    fn live(&self) -> Locks {
        let held = self.held();
        let live = held.iter().filter(|handle| !handle.is_released());
        live.cloned().collect()
    }

    fn add(&self, handle: LockHandle) {
        let mut held = self.held();
        held.retain(|handle| !handle.is_released());
        held.push(handle);
    }
}

impl fmt::Debug for LockScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.held().iter()).finish()
    }
}

impl LockManager {
    /// Acquires all of `keys` or none, for a part of the work that has this `scope`. If the work already holds a key,
    /// the new guard shares that lock. Each key has the [fencing token](LockHandle::fence_of) of its lock.
    ///
    /// The call waits for at most `max_wait`, or the [`max_wait`](Self::with_max_wait) of this handle if that is less.
    /// Work that already holds locks waits only for keys that sort after all keys that it holds, and tries other keys
    /// once, so pieces of work never deadlock.
    ///
    /// # Errors
    ///
    /// As for [`acquire`](Self::acquire); [`AcquireError::Lost`] if the work has lost a lock on one of the keys, or
    /// loses it while it waits for the others.
    ///
    /// # Cancel safety
    ///
    /// As for [`acquire`](Self::acquire).
    pub async fn acquire_in(
        &self,
        scope: &LockScope,
        keys: LockKeys,
        max_wait: Duration,
    ) -> Result<LockGuard, AcquireError> {
        let limit = max_wait.min(self.times.max_wait);
        self.acquire_in_within(scope, keys, limit).await
    }

    pub(crate) async fn acquire_in_within(
        &self,
        scope: &LockScope,
        keys: LockKeys,
        limit: Duration,
    ) -> Result<LockGuard, AcquireError> {
        if self.limit().is_some() {
            // Permits are not shared: each part of the work takes its own permit.
            return self.acquire_within(keys, limit).await;
        }
        let began = self.shared.set.clock.now();
        let (outer, missing) = self.share(&scope.live(), &keys)?;
        if missing.is_none() {
            return all_of(outer);
        }
        drop(outer);
        let patience = if limit.is_zero() {
            self.shared.set.node_timeout
        } else {
            limit
        };
        let wait = Wait::new(began, limit);
        let Ok(_turn) = timeout(patience, scope.work.turn.lock()).await else {
            let keys = self.shared.set.namespace.node_keys(&keys)?;
            let busy = wait.busy(&self.shared, &keys);
            instruments::acquired(busy.word(), wait.waited(&self.shared));
            return Err(busy);
        };
        let live = scope.live();
        let (outer, missing) = self.share(&live, &keys)?;
        let Some(missing) = missing else {
            return all_of(outer);
        };
        let limit = if self.comes_after(&missing, &live)? {
            wait.left(&self.shared)
        } else {
            Duration::ZERO
        };
        let acquire = self.acquire_within(missing, limit);
        let guard = match &outer {
            None => acquire.await?,
            // The lock on the keys that the work has may end while it waits for the others.
            Some(outer) => (outer.lost().or_done(acquire).await).map_err(AcquireError::Lost)??,
        };
        scope.add(guard.handle());
        Ok(match outer {
            None => guard,
            Some(outer) => guard.along_with(vec![outer]),
        })
    }

    fn share(
        &self,
        live: &[LockHandle],
        keys: &LockKeys,
    ) -> Result<(Option<LockGuard>, Option<LockKeys>), AcquireError> {
        if live.is_empty() {
            return Ok((None, Some(keys.clone())));
        }
        let (mut shared, mut guards) = (Vec::new(), Vec::new());
        for handle in live {
            let wanted = keys.as_slice().iter().any(|key| handle.covers(key));
            if !wanted || !handle.is_of(&self.shared) {
                continue;
            }
            match self.reenter(handle) {
                Ok(guard) if guard.is_shared() && self.is_exclusive() => {
                    instruments::invalid_key();
                    return Err(KeyError::upgrade().into());
                }
                Ok(guard) => {
                    guards.push(guard);
                    shared.push(handle);
                }
                // Another part of the work has just released the lock, so its keys count as missing.
                Err(LossReason::Released) => {}
                Err(reason) => {
                    let lost = AcquireError::Lost(reason);
                    instruments::acquired(lost.word(), Duration::ZERO);
                    return Err(lost);
                }
            }
        }
        let is_held = |key: &&LockKey| shared.iter().any(|handle| handle.covers(key));
        let missing = keys.as_slice().iter().filter(|key| !is_held(key));
        // `LockKeys` cannot be empty, so an error here means that no key is missing.
        let missing = LockKeys::new(missing).ok();
        Ok((LockGuard::together(guards), missing))
    }

    /// Whether all of `keys` sort after all keys that the work holds.
    fn comes_after(&self, keys: &LockKeys, live: &[LockHandle]) -> Result<bool, AcquireError> {
        if live.is_empty() {
            return Ok(true);
        }
        let keys = self.shared.set.namespace.node_keys(keys)?;
        let first = keys.first().as_str();
        let locks = live.iter().flat_map(LockHandle::locks);
        let mut held = locks.flat_map(|lock| lock.lease.keys.as_slice());
        Ok(held.all(|key| first > key.as_str()))
    }
}

fn all_of(outer: Option<LockGuard>) -> Result<LockGuard, AcquireError> {
    // There is at least one key, and no key is missing, so there is a guard that holds it.
    outer.ok_or_else(|| KeyError::no_key().into())
}
