//! [`LockGuard`]: the right to a held lock, and its end.

use std::fmt;
use std::ops::Deref;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use crate::manager::error::{LossReason, ReleaseError};
use crate::manager::freeing::{Freeing, Release};
use crate::manager::handle::LockHandle;
use crate::manager::lease::held::{HeldLease, Passed, Tenancy, Turn};
use crate::manager::nodes::fanout::Fanout;
use crate::manager::queue::fifo::Entered;
use crate::manager::shared::Shared;
use crate::node::NodeFuture;

/// The right to a held lock. Dropping it releases the lock on every node, in the background.
///
/// A watchdog extends the lock, for at most the manager's `max_hold`. The lock can still be *lost* if the nodes cannot
/// be reached until its validity ends. Work that must not go on without the lock watches [`lost`](LockHandle::lost), or
/// runs inside [`LockManager::run`](crate::LockManager::run).
///
/// Dropping the guard never blocks and never panics. If the manager's runtime has ended, or 10 000 releases are under
/// way, the lock stays on the nodes until its ttl ends.
#[must_use = "a guard that is not bound releases the lock at once"]
#[clippy::has_significant_drop]
pub struct LockGuard {
    pub(super) shared: Arc<Shared>,
    handle: LockHandle,
    // Set by `release` and `resign`, so that dropping the guard does not let the lock go a second time.
    is_over: bool,
    // If the handle observes several locks: the guards of all locks except the first.
    others: Vec<Self>,
}

impl LockGuard {
    pub(crate) fn new(shared: Arc<Shared>, tenancy: Tenancy) -> Self {
        let handle = LockHandle::new(tenancy, Arc::clone(&shared.common.drain));
        Self {
            shared,
            handle,
            is_over: false,
            others: Vec::new(),
        }
    }

    /// The first guard of a lock, which the watchdog extends from now on. If the manager is shutting down, the lock is
    /// released instead.
    pub(crate) fn first(shared: &Arc<Shared>, lease: Arc<HeldLease>) -> Option<Self> {
        let inserted = shared.registry.insert(&lease);
        let guard = Self::new(Arc::clone(shared), Tenancy::new(lease, 0));
        inserted.then_some(guard)
    }

    pub(crate) fn again(
        handle: &LockHandle,
        lock: &Tenancy,
        shared: &Arc<Shared>,
    ) -> Result<Self, LossReason> {
        lock.share()?;
        let guard = Self::new(Arc::clone(shared), lock.clone());
        Ok(guard.waited_for(handle.waited))
    }

    pub(crate) fn together(mut guards: Vec<Self>) -> Option<Self> {
        let last = guards.pop()?;
        Some(last.along_with(guards))
    }

    pub(crate) fn along_with(mut self, others: Vec<Self>) -> Self {
        for mut other in others {
            let further = std::mem::take(&mut other.others);
            self.others.push(other);
            self.others.extend(further);
        }
        if !self.others.is_empty() {
            let others = self.others.iter();
            let tenancies = others.map(|other| other.tenancy.clone()).collect();
            self.handle.speak_for(tenancies);
        }
        self
    }

    pub(crate) const fn waited_for(mut self, waited: Duration) -> Self {
        self.handle.waited = waited;
        self
    }

    /// Returns an observer of this lock.
    #[must_use]
    pub fn handle(&self) -> LockHandle {
        self.handle.clone()
    }

    /// Returns one more guard of this lock, for a part of the work that may outlast this guard. The lock is released
    /// when its last guard is dropped.
    ///
    /// # Errors
    ///
    /// The reason why the lock has ended, or is about to end.
    pub fn reenter(&self) -> Result<Self, LossReason> {
        let guard = Self::again(&self.handle, &self.tenancy, &self.shared)?;
        let others: Result<_, _> = self.others.iter().map(Self::reenter).collect();
        Ok(guard.along_with(others?))
    }

    /// Releases the lock, and waits for at most the node time-out until a quorum of nodes has deleted it. If another
    /// caller of this manager waits for the key, the lock may pass to that caller instead. If the lock has other
    /// guards, or other readers of this process share it, it is released with the last of them.
    ///
    /// # Errors
    ///
    /// [`ReleaseError::Lost`] if the lock had been lost before. [`ReleaseError::Unconfirmed`] if too few nodes answered
    /// in time.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, even before its first poll, the release goes on in the background.
    pub async fn release(mut self) -> Result<(), ReleaseError> {
        if !self.others.is_empty() {
            return self.release_all().await;
        }
        let lost_before = self.handle.lost_before();
        self.is_over = true;
        let (released, lost) = match let_go(&self.shared, &self.tenancy) {
            Some((freeing, lost)) => (Release::new(freeing).quorum().await, lost),
            // The lock passed to the next waiter, or other guards still share it.
            None => (Ok(()), lost_before),
        };
        lost.map_or(released, |reason| Err(ReleaseError::Lost(reason)))
    }

    fn release_all(mut self) -> NodeFuture<Result<(), ReleaseError>> {
        let lost = self.handle.lost_before().map(ReleaseError::Lost);
        let mut outcome = lost.map_or(Ok(()), Err);
        let mut releases = Fanout::new([]);
        let others = std::mem::take(&mut self.others);
        for mut guard in std::iter::once(self).chain(others) {
            guard.is_over = true;
            if let Some((freeing, _)) = let_go(&guard.shared, &guard.tenancy) {
                releases.push(0, Box::pin(Release::new(freeing).quorum()));
            }
        }
        Box::pin(async move {
            while let Some((_, released)) = releases.next().await {
                outcome = outcome.and(released);
            }
            outcome
        })
    }
}

#[cfg(feature = "idempotency")]
impl LockGuard {
    pub(super) fn resign(mut self) -> Freeing {
        self.is_over = true;
        let (registry, held) = (&self.shared.registry, &self.tenancy.lease);
        registry.remove(held);
        Freeing::of_held(&self.shared, held, held.let_go())
    }
}

/// Ends a tenancy: passes the lock to the next waiter, or prepares its release. `None` if there is nothing to release.
fn let_go(shared: &Arc<Shared>, tenancy: &Tenancy) -> Option<(Freeing, Option<LossReason>)> {
    if !tenancy.leave() {
        // Other guards or readers still share the lock.
        return None;
    }
    let held = &tenancy.lease;
    if passes_on(shared, held) {
        return None;
    }
    shared.registry.remove(held);
    let turn = turn_of_readers(shared, held);
    let mut let_go = held.let_go();
    let_go.turn = let_go.turn.or(turn);
    let lost = let_go.end.lost;
    Some((Freeing::of_held(shared, held, let_go), lost))
}

/// Passes the lock to the next waiter of this process, if one wants it. Returns whether there is nothing left to
/// release.
fn passes_on(shared: &Arc<Shared>, held: &Arc<HeldLease>) -> bool {
    let (key, ttl) = (held.keys.first(), held.lease.ttl);
    if key.is_shared() || held.keys.are_several() {
        return false;
    }
    let (line, queue) = (key.announced(), &shared.common.queue);
    if !queue.has_next_waiter(line.as_str(), ttl) {
        return false;
    }
    let mut terms = shared.common.hand_off;
    if key.slot().is_some() {
        terms.max_passes = terms.max_passes.min(PASSES_OF_PERMITS);
    }
    let may_pass = !shared.set.voting.is_blocked();
    let next = may_pass.then(|| held.offer(&terms, shared.set.node_timeout));
    if let Some(next) = next.flatten() {
        shared.registry.replan(held);
        let number = next.number;
        let next = Passed::Lock(next);
        if queue.hand_over(line.as_str(), ttl, next).is_ok() {
            crate::instruments::released("handed-on");
            return true;
        }
        // All waiters have left in the meantime, so this call takes the lock back, by accepting it, and releases it. It
        // cannot take the lock back if this thread was paused until the hand-over lapsed. Then the watchdog has ended
        // that tenancy in its place, and there is nothing to release here.
        if !held.accept(number) {
            return true;
        }
    }
    if key.slot().is_some() {
        // The replies to this release will say how many other processes wait, and so for how long to give way to them.
        // Waiters of this process get the notice of the release before these replies arrive. Until then, give way as if
        // one other process waited.
        shared.give_way(key, 1, Duration::ZERO);
    }
    false
}

/// Closes a lease of readers, and takes a turn for its release, because readers hold no turn.
fn turn_of_readers(shared: &Shared, held: &HeldLease) -> Option<Turn> {
    let key = held.keys.first();
    if !key.is_shared() {
        return None;
    }
    if shared.open_leases.close(held) {
        // The process has other leases on the key, so the key does not come free.
        return None;
    }
    let (names, queue) = (slice::from_ref(key.shared()), &shared.common.queue);
    let Ok(Entered::Turn(turn)) = queue.enter(names, held.lease.ttl, false, false) else {
        // Another caller has the turn and already asks the nodes.
        return None;
    };
    turn.set_being_released(true);
    Some(turn)
}

/// How many times a permit passes on before it is released. Less often than a lock, because other processes wait while
/// this process passes on all permits that it holds.
const PASSES_OF_PERMITS: u32 = 4;

pub(crate) fn end_lapsed(shared: &Arc<Shared>, lapsed: Tenancy) {
    drop(LockGuard::new(Arc::clone(shared), lapsed));
}

impl Deref for LockGuard {
    type Target = LockHandle;

    fn deref(&self) -> &LockHandle {
        &self.handle
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        if !self.is_over {
            // Dropping a `Release` does not cancel it: it goes on in the background.
            let freeing = let_go(&self.shared, &self.tenancy).map(|(freeing, _)| freeing);
            drop(freeing.map(Release::in_background));
        }
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard")
            .field("key", &self.shown())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "test-util"))]
mod tests {
    use std::pin::pin;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::task::{Context, Wake, Waker};

    use super::*;
    use crate::LockManager;
    use crate::clock::Clock;
    use crate::manager::watchdog::renew_due;
    use crate::moment::Moment;

    #[derive(Clone, Debug)]
    struct Hand(Arc<AtomicU64>);

    impl Clock for Hand {
        fn now(&self) -> Moment {
            Moment::from_nanos(self.0.load(Ordering::SeqCst))
        }

        fn follows_runtime(&self) -> bool {
            true
        }
    }

    /// A waker that runs a closure on the thread that wakes it.
    struct Then(Mutex<Option<Box<dyn FnOnce() + Send>>>);

    impl Wake for Then {
        fn wake(self: Arc<Self>) {
            let then = self.0.lock().ok().and_then(|mut then| then.take());
            then.into_iter().for_each(|then| then());
        }
    }

    /// The thread that hands the lock over is paused before it does so, and the hand-over lapses meanwhile.
    #[tokio::test]
    async fn a_hand_over_that_comes_after_its_lapse_takes_nothing_away() {
        let clock = Hand(Arc::new(AtomicU64::new(1_000_000_000)));
        let builder = LockManager::builder().memory(1).clock(clock.clone());
        let builder = builder.hand_off_limits(9, Duration::from_secs(9));
        let builder = builder.without_restart_guard();
        let locks = builder.connect().await.unwrap();
        let guard = locks.acquire("k").await.unwrap();
        let mut cx = Context::from_waker(Waker::noop());
        let mut next = pin!(locks.acquire("k"));
        assert!(next.as_mut().poll(&mut cx).is_pending());
        let shared = Arc::clone(&locks.shared);
        let stall = move || {
            // Move the clock to a time at which the watchdog looks at the lock.
            clock.0.fetch_add(4_000_000_000, Ordering::SeqCst);
            renew_due(&shared, end_lapsed);
        };
        // The holder is notified of its end between the choice of the next tenant and the hand-over, and this waker
        // makes the hand-over lapse there.
        let waker = Waker::from(Arc::new(Then(Mutex::new(Some(Box::new(stall))))));
        let mut lost = pin!(guard.handle().lost());
        assert!(
            lost.as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
        guard.release().await.unwrap();
        let next = next.await.unwrap();
        assert!(!next.is_lost());
        assert_eq!(next.handle().tenancy.number, 2, "the lapsed one is between");
        next.release().await.unwrap();
    }
}
