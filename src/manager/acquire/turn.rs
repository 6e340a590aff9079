use std::pin::Pin;
use std::slice;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::timeout;

use crate::manager::acquire::call::Call;
use crate::manager::error::AcquireError;
use crate::manager::guard::LockGuard;
use crate::manager::lease::held::{Passed, Turn};
use crate::manager::queue::Holder;
use crate::manager::queue::fifo::{Entered, Name, Refused, Seat, SentAway};
use crate::manager::shared::Shared;
use crate::namespace::NodeKeys;
use crate::protocol::renewal::Terms;

impl Call<'_> {
    pub(crate) async fn turn(&self, queued: &mut bool) -> Result<Wakeup, AcquireError> {
        loop {
            let seat = match self.enter().map_err(|refused| self.refusal(refused))? {
                Entered::Turn(turn) => return Ok(Wakeup::Turn(turn)),
                Entered::Seat(inner) => LockSeat::new(self.shared, &self.terms, inner),
            };
            let wakeup = self.called(seat).await?;
            *queued = true;
            match wakeup {
                // The lock was lost after it was handed over. Dropping the guard passes its turn to the next caller,
                // and this call queues again.
                Wakeup::Lock(guard) if guard.is_lost() => {}
                Wakeup::Lapsed => {}
                wakeup => return Ok(wakeup),
            }
        }
    }

    /// Enters the queue for one key. A caller that does not wait for locks is refused if the key is in use, except that
    /// a call for a record, a permit or a shared lock may queue while the holder is not known.
    fn enter(&self) -> Result<Entered<Passed>, Refused<Holder>> {
        let want = &self.want;
        let names = slice::from_ref(self.keys.first().shared());
        // A lock is handed over only to a waiter with the same ttl. No lock has a ttl of zero, so a caller that enters
        // with zero never gets the lock of another caller.
        let ttl = if want.is_handed_on() {
            self.terms.ttl
        } else {
            Duration::ZERO
        };
        let queue = &self.shared.common.queue;
        let enter = |may_wait| queue.enter(names, ttl, may_wait, want.is_shared());
        match enter(self.wait.is_patient()) {
            Err(Refused::InUse(None)) if !want.is_handed_on() || want.is_permit() => enter(true)
                .map_err(|refused| match refused {
                    Refused::KeyFull | Refused::Full => Refused::InUse(None),
                    refused => refused,
                }),
            entered => entered,
        }
    }

    async fn called(
        &self,
        seat: impl Future<Output = Result<Wakeup, SentAway>>,
    ) -> Result<Wakeup, AcquireError> {
        let (shared, wait) = (self.shared, self.wait);
        let _waiter = shared
            .common
            .waiters
            .add(self.keys.first(), wait.began, true);
        match timeout(wait.left_in_queue(shared), seat).await {
            Ok(Ok(wakeup)) => Ok(wakeup),
            Ok(Err(SentAway::Closed)) => Err(AcquireError::ShuttingDown),
            Err(_) | Ok(Err(SentAway::InUse)) => Err(self.busy()),
        }
    }

    pub(crate) async fn turn_of_all(
        &self,
        before_wait: impl FnOnce(),
    ) -> Result<Turn, AcquireError> {
        let (names, ttl) = (names(&self.keys), self.terms.ttl);
        let entered = (self.shared.common.queue).enter(&names, ttl, self.wait.is_patient(), false);
        let seat = match entered.map_err(|refused| self.refusal(refused))? {
            Entered::Turn(turn) => return Ok(turn),
            Entered::Seat(inner) => LockSeat::new(self.shared, &self.terms, inner),
        };
        before_wait();
        match self.called(seat).await? {
            Wakeup::Turn(turn) => Ok(turn),
            // Unreachable, because locks are handed over only to callers that want a single key.
            Wakeup::Lock(_) | Wakeup::Lapsed => Err(self.busy()),
        }
    }

    fn refusal(&self, refused: Refused<Holder>) -> AcquireError {
        let bounds = self.shared.common.queue.bounds();
        let full = |limit, of_key| AcquireError::QueueFull { limit, of_key };
        match refused {
            Refused::InUse(holder) => self.wait.busy_for(self.shared, holder.as_ref()),
            Refused::KeyFull => full(bounds.per_key, true),
            Refused::Full => full(bounds.total, false),
            Refused::Closed => AcquireError::ShuttingDown,
        }
    }
}

pub(crate) fn names(keys: &NodeKeys) -> Vec<Name> {
    let keys = keys.as_slice().iter();
    keys.map(|key| Name::clone(key.shared())).collect()
}

/// What a waiter in the queue gets. Dropping it passes the turn on, or releases the lock.
pub(crate) enum Wakeup {
    Turn(Turn),
    Lock(LockGuard),
    /// The waiter did not accept the lock in time.
    Lapsed,
}

impl Wakeup {
    fn new(shared: &Arc<Shared>, max_hold: Duration, passed: Passed) -> Self {
        match passed {
            Passed::Turn(turn) => Self::Turn(turn),
            Passed::Lock(tenancy) if !tenancy.lease.accept(tenancy.number) => Self::Lapsed,
            Passed::Lock(tenancy) => {
                // Set the `max_hold` of this caller, because the lock still has the one of its former holder.
                if tenancy.lease.hold_for(tenancy.number, max_hold) {
                    shared.registry.replan(&tenancy.lease);
                }
                Self::Lock(LockGuard::new(Arc::clone(shared), tenancy))
            }
        }
    }
}

/// A place in the queue. A lock that is handed over to it always gets a guard, even if the caller has left.
#[must_use = "a seat that is dropped is given up"]
pub(crate) struct LockSeat<'a> {
    pub(crate) shared: &'a Arc<Shared>,
    pub(crate) inner: Seat<Passed>,
    max_hold: Duration,
}

impl<'a> LockSeat<'a> {
    pub(crate) const fn new(shared: &'a Arc<Shared>, terms: &Terms, inner: Seat<Passed>) -> Self {
        Self {
            shared,
            inner,
            max_hold: terms.max_hold,
        }
    }
}

impl Future for LockSeat<'_> {
    type Output = Result<Wakeup, SentAway>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let (shared, max_hold) = (self.shared, self.max_hold);
        let called = Pin::new(&mut self.inner).poll(cx);
        called.map_ok(|passed| Wakeup::new(shared, max_hold, passed))
    }
}

impl Drop for LockSeat<'_> {
    fn drop(&mut self) {
        if let Some(passed) = self.inner.leave() {
            drop(Wakeup::new(self.shared, self.max_hold, passed));
        }
    }
}
