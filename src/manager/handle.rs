//! [`LockHandle`] and [`Lost`]: observers of a held lock.

use std::borrow::Cow;
use std::fmt;
use std::future::poll_fn;
use std::iter;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

use crate::lock_key::LockKey;
use crate::manager::error::LossReason;
use crate::manager::lease::held::Tenancy;
use crate::manager::shared::Shared;
use crate::manager::tasks::Signal;
use crate::token::{FencingToken, OwnerHash};

/// An observer of a held lock. It can query the lock and wait for its loss, but does not keep it: once the guard is
/// released, the handle reports the lock as lost.
#[derive(Clone)]
pub struct LockHandle {
    pub(super) tenancy: Tenancy,
    others: Option<Arc<Others>>,
    pub(super) waited: Duration,
    // The manager's signal that its holders should finish.
    drain: Arc<Signal>,
}

struct Others {
    tenancies: Vec<Tenancy>,
    // The keys of all locks, including the first.
    keys: Vec<LockKey>,
}

impl LockHandle {
    /// The locked key; one of them if there are several.
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

    /// The [fencing token](FencingToken) of this holder, to be passed to the resource. `None` if fencing is off, or if
    /// the keys have [several tokens](Self::fence_of).
    #[must_use]
    pub fn fence(&self) -> Option<FencingToken> {
        self.fence_of(self.key()).filter(|_| self.others.is_none())
    }

    /// The fencing token for `key`, if `key` is one of the keys of this handle. Keys in different
    /// [groups](crate::Settings::groups), and keys that a [`LockScope`](crate::LockScope) already held, have tokens of
    /// their own.
    #[must_use]
    pub fn fence_of(&self, key: &LockKey) -> Option<FencingToken> {
        let lock = self.lock_of(key)?;
        Some(lock.lease.lease.fence?.handed_on(lock.number))
    }

    fn lock_of(&self, key: &LockKey) -> Option<&Tenancy> {
        let has = |lock: &&Tenancy| lock.lease.lease.keys.as_slice().contains(key);
        self.locks().find(has)
    }

    pub(crate) const fn new(tenancy: Tenancy, drain: Arc<Signal>) -> Self {
        Self {
            tenancy,
            others: None,
            waited: Duration::ZERO,
            drain,
        }
    }

    /// Adds these locks to the handle.
    pub(crate) fn speak_for(&mut self, tenancies: Vec<Tenancy>) {
        let locks = iter::once(&self.tenancy).chain(&tenancies);
        let keys = locks.flat_map(|lock| lock.lease.lease.keys.as_slice());
        let mut keys: Vec<LockKey> = keys.cloned().collect();
        keys.sort();
        keys.dedup();
        self.others = Some(Arc::new(Others { tenancies, keys }));
    }

    pub(crate) fn locks(&self) -> impl Iterator<Item = &Tenancy> {
        let others = self.others.iter().flat_map(|others| &others.tenancies);
        iter::once(&self.tenancy).chain(others)
    }

    /// The slot of this [permit](crate::LockManager::permits), from 0; `None` for other locks.
    #[must_use]
    pub fn slot(&self) -> Option<u32> {
        self.tenancy.lease.keys.first().slot()
    }

    /// Whether this lock is held by [readers](crate::LockManager::shared).
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.tenancy.lease.keys.first().is_shared()
    }

    /// A hash that identifies this owner, to be stored next to the fencing token.
    #[must_use]
    pub fn owner_hash(&self) -> OwnerHash {
        OwnerHash::of(&self.tenancy.lease.lease.owner)
    }

    /// The owner hash to be stored next to the token of [`fence_of`](Self::fence_of).
    #[must_use]
    pub fn owner_hash_of(&self, key: &LockKey) -> Option<OwnerHash> {
        let lock = self.lock_of(key)?;
        Some(OwnerHash::of(&lock.lease.lease.owner))
    }

    pub(crate) fn shown(&self) -> Cow<'_, str> {
        self.tenancy.lease.keys.first().show()
    }

    pub(crate) fn is_of(&self, shared: &Shared) -> bool {
        // Each manager has its own signal, and all groups of a manager share that signal.
        Arc::ptr_eq(&self.drain, &shared.common.drain)
    }

    pub(crate) fn covers(&self, key: &LockKey) -> bool {
        self.keys().binary_search(key).is_ok()
    }

    pub(crate) fn lost_before(&self) -> Option<LossReason> {
        let lost = self.locks().find(|lock| lock.is_lost());
        lost.and_then(Tenancy::ended_because)
    }

    pub(crate) fn is_released(&self) -> bool {
        self.tenancy.ended_because() == Some(LossReason::Released)
    }

    /// The grant. Renewals do not change it.
    #[cfg(tower_redlock_tests)]
    #[must_use]
    pub fn lease(&self) -> &crate::lease::Lease {
        &self.tenancy.lease.lease
    }

    /// Whether the lock is lost or released. This reads the clock and needs no timer, so it is exact even if the
    /// process was suspended. Once `true`, it stays `true`.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.locks().any(Tenancy::is_lost)
    }

    /// How long the lock stays valid if nothing extends it; zero once it is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        let remaining = self.locks().map(Tenancy::remaining);
        remaining.min().unwrap_or_default()
    }

    /// The time from the call to the grant, including the replies of the nodes.
    #[cfg(tower_redlock_tests)]
    #[must_use]
    pub const fn waited(&self) -> Duration {
        self.waited
    }

    /// Waits until the lock is lost or released. If the validity of the lock is about to end, the future completes a
    /// few milliseconds earlier, so that work can be stopped in time, and the lock is not extended any more. After the
    /// host was suspended, it completes within a second.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub fn lost(&self) -> Lost {
        let mut lost = Lost::new(self.tenancy.clone());
        let others = self.locks().skip(1).cloned();
        lost.others = others.map(|lock| Box::pin(Lost::new(lock))).collect();
        lost
    }

    /// Waits until [`drain`](crate::LockManager::drain) or [`shutdown`](crate::LockManager::shutdown) asks holders to
    /// finish. Use it in work that has no end of its own, such as a stream of events.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub fn draining(&self) -> impl Future<Output = ()> + Send + use<> {
        let drain = Arc::clone(&self.drain);
        async move { drain.given().await }
    }

    /// Whether the holders of this manager's locks were asked to finish.
    #[cfg(tower_redlock_tests)]
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
    /// The future of [`LockHandle::lost`](crate::LockHandle::lost).
    #[must_use = "futures do nothing unless polled"]
    pub struct Lost {
        tenancy: Tenancy,
        #[pin]
        ended: OwnedNotified,
        // Notified when this reader leaves, which can be before the other readers of the lease leave.
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

    pub(crate) fn is_overdue(&self) -> bool {
        self.tenancy.lease.is_overdue() || self.others.iter().any(|other| other.is_overdue())
    }

    pub(crate) async fn or_done<T>(self, work: impl Future<Output = T>) -> Result<T, LossReason> {
        let mut lost = pin!(self);
        let mut work = pin!(work);
        poll_fn(|cx| lost.as_mut().poll_beside(cx, |cx| work.as_mut().poll(cx))).await
    }

    /// Polls `work`, unless the lock has ended. If `work` has a result, that wins over a loss at the same moment.
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
            // `ended` and `left` were created before this check. So if the lock ends after the check, the polls below
            // see it.
            if let Some(reason) = tenancy.ended_because() {
                if reason != LossReason::Released {
                    lease.end_is_announced();
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
