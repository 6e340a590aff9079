//! [`LockGuard`], [`LockHandle`] and [`Lost`]: a held lock as the user sees it.

use std::borrow::Cow;
use std::fmt;
use std::future::poll_fn;
use std::iter;
use std::ops::Deref;
use std::pin::{Pin, pin};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

use crate::lock_key::LockKey;
use crate::manager::error::{LossReason, ReleaseError};
use crate::manager::lease::held::{HeldLease, Passed, PendingRelease, Tenancy, Turn};
use crate::manager::nodes::fanout::Fanout;
use crate::manager::queue::fifo::Entered;
use crate::manager::release::{Freeing, Release};
use crate::manager::shared::Shared;
use crate::manager::tasks::Signal;
use crate::namespace::NodeKey;
use crate::node::NodeFuture;
use crate::token::{FencingToken, OwnerHash};

/// A lock that is held, and released on every node in the background when this is dropped. It dereferences to its
/// [`LockHandle`].
///
/// A watchdog extends it until then, for at most the manager's `max_hold`. The lock can still be *lost*, when the nodes
/// cannot be reached until its validity ends. Work that must not go on without it watches [`lost`](LockHandle::lost),
/// or runs inside [`LockManager::run`](crate::LockManager::run).
///
/// Dropping it never blocks and never panics. If the manager's runtime has ended, or 10 000 releases are under way, the
/// lock stays on the nodes until its ttl ends, and
/// [`ShutdownReport::expiring`](crate::snapshot::ShutdownReport::expiring) counts it.
#[must_use = "a guard that is not bound releases the lock at once"]
#[clippy::has_significant_drop]
pub struct LockGuard {
    shared: Arc<Shared>,
    handle: LockHandle,
    // `release` or `resign` was called.
    is_over: bool,
    // That of the first of the other locks in the handle, which has the rest.
    other: Option<Box<Self>>,
}

impl LockGuard {
    pub(crate) fn new(shared: Arc<Shared>, tenancy: Tenancy) -> Self {
        let handle = LockHandle {
            tenancy,
            others: None,
            waited: Duration::ZERO,
            drain: Arc::clone(&shared.drain),
        };
        Self {
            shared,
            handle,
            is_over: false,
            other: None,
        }
    }

    /// The first guard of a lock, which the watchdog extends from here on.
    ///
    /// `None` if the manager is shutting down: then the lock is released in the background.
    pub(crate) fn first(shared: &Arc<Shared>, lease: Arc<HeldLease>) -> Option<Self> {
        let inserted = shared.registry.insert(&lease);
        let guard = Self::new(Arc::clone(shared), Tenancy::first(lease));
        inserted.then_some(guard)
    }

    /// One guard of all these locks; `None` of none.
    pub(crate) fn together(mut guards: Vec<Self>) -> Option<Self> {
        let last = guards.pop()?;
        Some(last.along_with(guards))
    }

    /// One guard of these locks and of `others`.
    pub(crate) fn along_with(mut self, others: Vec<Self>) -> Self {
        for other in others {
            let mut last = &mut self.other;
            while let Some(guard) = last {
                last = &mut guard.other;
            }
            *last = Some(Box::new(other));
        }
        let mut others = Others::default();
        let mut next = &self.other;
        while let Some(guard) = next {
            others.tenancies.push(guard.handle.tenancy.clone());
            next = &guard.other;
        }
        if !others.tenancies.is_empty() {
            let locks = iter::once(&self.handle.tenancy).chain(&others.tenancies);
            let keys = locks.flat_map(|lock| lock.lease.lease.keys.as_slice());
            others.keys = keys.cloned().collect();
            others.keys.sort();
            others.keys.dedup();
            self.handle.others = Some(Arc::new(others));
        }
        self
    }

    pub(crate) const fn waited_for(mut self, waited: Duration) -> Self {
        self.handle.waited = waited;
        self
    }

    /// An observer of this lock.
    #[must_use]
    pub fn handle(&self) -> LockHandle {
        self.handle.clone()
    }

    /// One more guard of the same lock, for a part of the same work that may outlast this one: the lock is released
    /// when the last of them is dropped. It asks no node.
    ///
    /// # Errors
    ///
    /// Why the lock has ended, or is about to, if so.
    pub fn reenter(&self) -> Result<Self, LossReason> {
        let guard = self.handle.reenter(self.tenancy(), &self.shared)?;
        let other = self.other.as_ref().map(|other| other.reenter());
        Ok(guard.along_with(other.transpose()?.into_iter().collect()))
    }

    /// Releases the lock and waits until a quorum of nodes is free of it, for the node time-out at most; then a
    /// contender can acquire it at once. If another caller of this manager waits for the key, the lock may pass to it
    /// instead ([`HandOff`](crate::settings::HandOff)). While it has other guards, or other readers of this process have it,
    /// it is released with the last of them.
    ///
    /// # Errors
    ///
    /// [`ReleaseError::Lost`] if the lock had been lost before: the work may have run without it.
    /// [`ReleaseError::Unconfirmed`] if too few nodes answered in time; the release goes on in the background until the
    /// ttl has ended the lock.
    ///
    /// # Cancel safety
    ///
    /// Once called, the lock is given up. If the future is dropped, polled or not, the release goes on in the
    /// background.
    pub async fn release(mut self) -> Result<(), ReleaseError> {
        if self.other.is_some() {
            return self.release_all().await;
        }
        let lost_before = self.handle.lost_before();
        self.is_over = true;
        match let_go(&self.shared, self.tenancy()) {
            Some((freeing, lost)) => {
                let released = Release::new(freeing).quorum().await;
                lost.map_or(released, |reason| Err(ReleaseError::Lost(reason)))
            }
            // Handed on, or shared by others.
            None => lost_before.map_or(Ok(()), |reason| Err(ReleaseError::Lost(reason))),
        }
    }

    /// The same for a guard of several locks: all of them at once.
    fn release_all(self) -> NodeFuture<Result<(), ReleaseError>> {
        let mut outcome =
            (self.handle.lost_before()).map_or(Ok(()), |reason| Err(ReleaseError::Lost(reason)));
        let mut releases = Fanout::new([]);
        let mut next = Some(Box::new(self));
        while let Some(mut guard) = next {
            next = guard.other.take();
            guard.is_over = true;
            if let Some((freeing, _)) = let_go(&guard.shared, guard.tenancy()) {
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

    pub(crate) const fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Ends the lock, which is not handed on. `None`: it has other guards, or keeps another lock; then this one leaves.
    pub(crate) fn resign_alone(mut self) -> Option<PendingRelease> {
        let alone = self.other.is_none();
        let pending = alone.then(|| self.held().let_go_alone())??;
        self.is_over = true;
        self.shared.registry.remove(self.held());
        Some(pending)
    }

    const fn held(&self) -> &Arc<HeldLease> {
        &self.handle.tenancy.lease
    }
}

#[cfg(feature = "idempotency")]
impl LockGuard {
    pub(crate) fn resign(mut self) -> (Arc<HeldLease>, PendingRelease) {
        self.is_over = true;
        let held = Arc::clone(self.held());
        self.shared.registry.remove(&held);
        let pending = held.let_go();
        (held, pending)
    }
}

/// Ends a tenancy: passes the lock to the next waiter of this process, or takes it from the watchdog and prepares its
/// release.
fn let_go(shared: &Arc<Shared>, tenancy: &Tenancy) -> Option<(Freeing, Option<LossReason>)> {
    if !tenancy.leave() {
        // Others share it.
        return None;
    }
    let held = &tenancy.lease;
    let (line, ttl) = (held.keys.first().announced(), held.lease.ttl);
    let is_alone = held.is_passed_on && !held.keys.are_several();
    let is_wanted = is_alone && shared.queue.has_heir(line.as_str(), ttl);
    let agreed = is_wanted && !shared.voting.is_blocked();
    let is_permit = held.keys.first().slot().is_some();
    let mut terms = shared.hand_off;
    if is_permit {
        terms.max_passes = terms.max_passes.min(PASSES_OF_PERMITS);
    }
    if let Some(next) = held.succeed(&terms, shared.node_timeout, agreed) {
        shared.registry.replan(held);
        let number = next.number;
        let next = Passed::Lock(next);
        if shared.queue.hand_over(line.as_str(), ttl, next).is_ok() {
            crate::instruments::released("handed-on");
            return None;
        }
        // All waiters left in between. It is this call that releases now, unless this thread stood still for so long that
        // the hand-over lapsed: then the lock is another's.
        if !held.accept(number) {
            return None;
        }
    }
    if is_wanted && is_permit {
        // Those that wait here hear of the release before its replies, which tell how long to give way.
        shared.give_way(held.keys.first(), 1, Duration::ZERO);
    }
    shared.registry.remove(held);
    let turn = leaving_turn(shared, held);
    let mut pending = held.let_go();
    pending.turn = pending.turn.or(turn);
    let lost = pending.left.lost;
    Some((Freeing::of(shared, held, pending), lost))
}

/// Closes a lease of readers, who have no turn. Those that do not wait, and come before the release is done, may wait for it
/// as for that of another lock.
fn leaving_turn(shared: &Shared, held: &HeldLease) -> Option<Turn> {
    let key = held.keys.first();
    if !key.is_shared() {
        return None;
    }
    if shared.open_leases.close(held) {
        // Others of them may join the one that is open.
        return None;
    }
    let names = slice::from_ref(key.shared());
    match shared.queue.enter(names, held.lease.ttl, false, false) {
        Ok(Entered::Turn(turn)) => {
            turn.set_leaving(true);
            Some(turn)
        }
        // Others ask the nodes.
        _ => None,
    }
}

/// While several permits pass on in a process that got many of them, others wait for all of these. With 4 the longest wait
/// was 0.4 of that with 32, and the rate 0.96.
const PASSES_OF_PERMITS: u32 = 4;

/// Ends a tenancy that nobody took in time, as a guard that is dropped does.
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
            // A release that is dropped goes on in the background.
            let freeing = let_go(&self.shared, self.tenancy()).map(|(freeing, _)| freeing);
            drop(freeing.map(Release::aside));
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

/// An observer of a held lock: it can ask and wait, and neither extends nor releases.
///
/// Handles are cheap to clone and may outlive the guard; from its release on they say that the lock is lost.
#[derive(Clone)]
pub struct LockHandle {
    tenancy: Tenancy,
    others: Option<Arc<Others>>,
    waited: Duration,
    // Of the manager.
    drain: Arc<Signal>,
}

/// The locks of a guard besides its first: keys of other groups of nodes, or that a scope had.
#[derive(Default)]
struct Others {
    tenancies: Vec<Tenancy>,
    // Those of all locks, also of the first.
    keys: Vec<LockKey>,
}

impl LockHandle {
    /// The key that is locked; one of several.
    #[must_use]
    pub fn key(&self) -> &LockKey {
        self.tenancy.lease.lease.key()
    }

    /// All keys that are locked, sorted.
    #[must_use]
    pub fn keys(&self) -> &[LockKey] {
        match &self.others {
            Some(others) => &others.keys,
            None => self.tenancy.lease.lease.keys.as_slice(),
        }
    }

    /// The [fencing token](FencingToken) of this holder, for the resource. `None` with
    /// [`Fencing::OFF`](crate::settings::Fencing::OFF), and where its keys have [several](Self::fence_of).
    #[must_use]
    pub fn fence(&self) -> Option<FencingToken> {
        self.fence_of(self.key()).filter(|_| self.others.is_none())
    }

    /// The fencing token for `key`, if that is one of its keys. Keys in several [groups](crate::Settings::groups), and those
    /// that a [`LockScope`](crate::LockScope) had before, have tokens of their own.
    #[must_use]
    pub fn fence_of(&self, key: &LockKey) -> Option<FencingToken> {
        let lock = self.lock_of(key)?;
        Some(lock.lease.lease.fence?.handed_on(lock.number))
    }

    fn lock_of(&self, key: &LockKey) -> Option<&Tenancy> {
        let has = |lock: &&Tenancy| lock.lease.lease.keys.as_slice().contains(key);
        self.locks().find(has)
    }

    /// The tenancies of all its locks.
    pub(crate) fn locks(&self) -> impl Iterator<Item = &Tenancy> {
        let others = self.others.iter().flat_map(|others| &others.tenancies);
        iter::once(&self.tenancy).chain(others)
    }

    /// The number of the slot that this [permit](crate::LockManager::permits) has, from 0; `None` if it is no permit.
    #[must_use]
    pub fn slot(&self) -> Option<u32> {
        self.tenancy.lease.keys.first().slot()
    }

    /// Whether others may have the lock at the same time, as [readers](crate::LockManager::shared).
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.tenancy.lease.keys.first().is_shared()
    }

    /// A hash that tells this owner from every other, to be stored beside the fencing token: `docs::fencing`.
    #[must_use]
    pub fn owner_hash(&self) -> OwnerHash {
        OwnerHash::of(&self.tenancy.lease.lease.owner)
    }

    /// The same beside [`fence_of`](Self::fence_of), if `key` is one of its keys.
    #[must_use]
    pub fn owner_hash_of(&self, key: &LockKey) -> Option<OwnerHash> {
        let lock = self.lock_of(key)?;
        Some(OwnerHash::of(&lock.lease.lease.owner))
    }

    /// The key as logs show it.
    pub(crate) fn shown(&self) -> Cow<'_, str> {
        self.tenancy.lease.keys.first().show()
    }

    pub(crate) const fn tenancy(&self) -> &Tenancy {
        &self.tenancy
    }

    pub(crate) fn is_of(&self, shared: &Shared) -> bool {
        self.tenancy.lease.manager == shared.serial
    }

    pub(crate) fn covers(&self, key: &LockKey) -> bool {
        self.keys().binary_search(key).is_ok()
    }

    pub(crate) fn last_node_key(&self) -> Option<&str> {
        let keys = self.locks().flat_map(|lock| lock.lease.keys.as_slice());
        keys.map(NodeKey::as_str).max()
    }

    pub(crate) fn lost_before(&self) -> Option<LossReason> {
        let lost = self.locks().find(|lock| lock.is_lost());
        lost.and_then(Tenancy::ended_because)
    }

    pub(crate) fn is_released(&self) -> bool {
        self.tenancy.ended_because() == Some(LossReason::Released)
    }

    /// Whether its holder goes on as a reader, or tries to.
    pub(crate) fn has_successor(&self) -> bool {
        self.tenancy.lease.is_followed.load(Ordering::Acquire)
    }

    /// Goes on as the shared lock that its holder has made of it, if so.
    pub(crate) fn follow(&mut self) {
        if let Some(tenancy) = self.tenancy.lease.successor.get().cloned() {
            self.tenancy = tenancy;
        }
    }

    /// One more guard of one of its locks.
    pub(crate) fn reenter(
        &self,
        lock: &Tenancy,
        shared: &Arc<Shared>,
    ) -> Result<LockGuard, LossReason> {
        lock.share()?;
        let guard = LockGuard::new(Arc::clone(shared), lock.clone());
        Ok(guard.waited_for(self.waited))
    }

    /// The grant. Renewals do not change it.
    #[cfg(feature = "test-util")]
    #[doc(hidden)]
    #[must_use]
    pub fn lease(&self) -> &crate::lease::Lease {
        &self.tenancy.lease.lease
    }

    /// Whether the lock may no longer be relied on. It asks the clock, not a timer, so it is exact even if the process
    /// was suspended. Once `true`, it stays `true`. Also `true` after the release.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.locks().any(Tenancy::is_lost)
    }

    /// How long the lock may be relied on if nothing extends it; zero once lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        let remaining = self.locks().map(Tenancy::remaining);
        remaining.min().unwrap_or_default()
    }

    /// The time from the call to the grant: in the queue of this process, for other processes, and for the replies of
    /// the nodes. So it is never quite zero.
    #[must_use]
    pub const fn waited(&self) -> Duration {
        self.waited
    }

    /// Waits until the lock is lost, or until a few milliseconds before its validity ends, so that work can be stopped
    /// in time; from then on the lock is not extended. It also fires when the guard is released. If the host was
    /// suspended past the end, it fires within a second of its going on.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing; a new one fires all the same.
    pub fn lost(&self) -> Lost {
        let mut lost = Lost::new(self.tenancy.clone());
        let others = self.locks().skip(1).cloned();
        lost.others = others.map(|lock| Box::pin(Lost::new(lock))).collect();
        lost
    }

    /// Waits until [`drain`](crate::LockManager::drain) or [`shutdown`](crate::LockManager::shutdown) asks holders to
    /// come to an end; at once if one did. For work without an end of its own, such as a stream of events. The lock is
    /// held and extended as before; [`lost`](Self::lost) tells of its loss.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing; a new one fires all the same. It borrows nothing and can be stored.
    pub fn draining(&self) -> impl Future<Output = ()> + Send + use<> {
        let drain = Arc::clone(&self.drain);
        async move { drain.given().await }
    }

    /// Whether the holders of this manager's locks were asked to come to an end.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.drain.is_given()
    }
}

impl fmt::Debug for LockHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockHandle")
            .field("key", &self.shown())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}

pin_project! {
    /// The future of [`LockHandle::lost`](crate::LockHandle::lost). It owns what it needs and can be stored.
    #[must_use = "futures do nothing unless polled"]
    pub struct Lost {
        tenancy: Tenancy,
        #[pin]
        ended: OwnedNotified,
        // Of a reader, who may leave before the others.
        #[pin]
        left: Option<OwnedNotified>,
        others: Vec<Pin<Box<Lost>>>,
    }
}

impl Lost {
    pub(crate) fn new(tenancy: Tenancy) -> Self {
        Self {
            ended: Arc::clone(&tenancy.lease.ended).notified_owned(),
            left: tenancy.left().cloned().map(Notify::notified_owned),
            tenancy,
            others: Vec::new(),
        }
    }
}

impl Lost {
    /// Whether the time of the lock is over, also where no task was told yet.
    pub(crate) fn is_overdue(&self) -> bool {
        self.tenancy.lease.is_overdue() || self.others.iter().any(|other| other.is_overdue())
    }

    /// The result of `work`; or why the lock was lost before.
    pub(crate) async fn or_done<T>(self, work: impl Future<Output = T>) -> Result<T, LossReason> {
        let mut lost = pin!(self);
        let mut work = pin!(work);
        poll_fn(|cx| lost.as_mut().poll_beside(cx, |cx| work.as_mut().poll(cx))).await
    }

    /// Polls work that ends with the lock. A result that exists wins; after the time of the lock work is polled no
    /// more.
    pub(crate) fn poll_beside<T>(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        work: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<Result<T, LossReason>> {
        if self.is_overdue()
            && let Poll::Ready(reason) = self.as_mut().poll(cx)
        {
            return Poll::Ready(Err(reason));
        }
        match work(cx) {
            Poll::Ready(done) => Poll::Ready(Ok(done)),
            Poll::Pending => self.poll(cx).map(Err),
        }
    }
}

impl Future for Lost {
    type Output = LossReason;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<LossReason> {
        let mut this = self.project();
        for other in &mut *this.others {
            if let Poll::Ready(reason) = other.as_mut().poll(cx) {
                return Poll::Ready(reason);
            }
        }
        let (tenancy, lease) = (&*this.tenancy, &this.tenancy.lease);
        loop {
            // No wake-up can be lost between this check and the poll: the notification was created before both.
            if let Some(reason) = tenancy.ended_because() {
                if reason != LossReason::Released {
                    lease.end_is_told();
                }
                return Poll::Ready(reason);
            }
            let left = this.left.as_mut().as_pin_mut();
            if left.is_some_and(|left| left.poll(cx).is_ready()) {
                this.left.set(None);
                continue;
            }
            ready!(this.ended.as_mut().poll(cx));
            this.ended.set(Arc::clone(&lease.ended).notified_owned());
        }
    }
}

impl fmt::Debug for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lost")
            .field("key", &self.tenancy.lease.keys.first().show())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "test-util"))]
mod tests {
    use std::pin::pin;
    use std::sync::Mutex;
    use std::sync::atomic::AtomicU64;
    use std::task::{Wake, Waker};

    use super::*;
    use crate::LockManager;
    use crate::clock::Clock;
    use crate::manager::watchdog::renew_due;
    use crate::moment::Moment;
    use crate::settings::{HandOff, RestartGuard};

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

    /// Runs something when it is woken, on the thread that wakes it.
    struct Then(Mutex<Option<Box<dyn FnOnce() + Send>>>);

    impl Wake for Then {
        fn wake(self: Arc<Self>) {
            let then = self.0.lock().ok().and_then(|mut then| then.take());
            then.into_iter().for_each(|then| then());
        }
    }

    /// The thread that hands the lock over stands still before it does, and the hand-over lapses meanwhile.
    #[tokio::test]
    async fn a_hand_over_that_comes_after_its_lapse_takes_nothing_away() {
        let clock = Hand(Arc::new(AtomicU64::new(1_000_000_000)));
        let builder = LockManager::builder().memory(1).clock(clock.clone());
        let builder = builder.hand_off(HandOff::new(9, Duration::from_secs(9)));
        let builder = builder.restart_guard(RestartGuard::OFF);
        let locks = builder.connect().await.unwrap();
        let guard = locks.acquire("k").await.unwrap();
        let mut cx = Context::from_waker(Waker::noop());
        let mut next = pin!(locks.acquire("k"));
        assert!(next.as_mut().poll(&mut cx).is_pending());
        let shared = Arc::clone(&locks.shared);
        let stall = move || {
            // Until the watchdog looks at the lock.
            clock.0.fetch_add(4_000_000_000, Ordering::SeqCst);
            renew_due(&shared, end_lapsed);
        };
        // The end of the tenancy is told between the choice of the next tenant and the hand-over.
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
        assert_eq!(
            next.handle().tenancy().number,
            2,
            "the lapsed one is between"
        );
        next.release().await.unwrap();
    }
}
