//! [`Queue`] chooses the one caller of this process that contends for a key, and makes the other callers wait.
//!
//! ```text
//!   enter ──► Turn  (the key is not in use here: contend for it)
//!     │         │ dropped, or handed over with a lock: the first waiter is called
//!     │         ▼
//!     ├─────► Seat ──► Handover  (a turn, or a lock with its turn)
//!     └─────► Refused  (the caller does not wait for locks, or the queue is full or closed)
//! ```
//!
//! The turns of several keys are taken together or not at all, so callers cannot deadlock.
//!
//! The module uses nothing of this crate except the module `sync`, so that `tests/queue` can run it under a model
//! checker.

mod lists;

use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use smallvec::SmallVec;

pub(crate) use self::lists::{Bounds, Name, Refused, SentAway};
use self::lists::{Call, Dispatch, WaitLists};
use super::sync::{Mutex, MutexGuard};

pub(crate) trait Handover: Sized {
    type Holder: Clone;

    fn of_turn(turn: Turn<Self>) -> Self;
}

pub(crate) struct Queue<H: Handover>(Mutex<WaitLists<H, H::Holder>>);

pub(crate) enum Entered<H: Handover> {
    Turn(Turn<H>),
    Seat(Seat<H>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) keys: usize,
    pub(crate) waiting: usize,
    pub(crate) seats: usize,
}

impl<H: Handover> Queue<H> {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self(Mutex::new(WaitLists::new(bounds)))
    }

    fn lists(&self) -> MutexGuard<'_, WaitLists<H, H::Holder>> {
        // A poisoned mutex is safe to use. Only wakers and drops could panic, and they run outside the mutex, so no
        // panic leaves the lists half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters the queue for all of `names`. Only a lock with this `ttl` is handed over to the caller. Adjacent callers
    /// with `shares` count as one waiter.
    pub(crate) fn enter(
        self: &Arc<Self>,
        names: &[Name],
        ttl: Duration,
        may_wait: bool,
        shares: bool,
    ) -> Result<Entered<H>, Refused<H::Holder>> {
        let number = self.lists().enter(names, ttl, may_wait, shares)?;
        Ok(match number {
            None => Entered::Turn(self.turn(names)),
            Some(_) => Entered::Seat(Seat {
                queue: Arc::clone(self),
                number,
            }),
        })
    }

    fn turn(self: &Arc<Self>, names: &[Name]) -> Turn<H> {
        Turn {
            queue: Arc::clone(self),
            names: names.into(),
        }
    }

    fn change<R>(
        self: &Arc<Self>,
        change: impl FnOnce(&mut WaitLists<H, H::Holder>, &mut Dispatch<'_, H, H::Holder>) -> R,
    ) -> R {
        let turn = |names: &[Name]| H::of_turn(self.turn(names));
        let mut dispatch = Dispatch::new(&turn);
        let changed = change(&mut self.lists(), &mut dispatch);
        dispatch.finish();
        changed
    }

    /// Gives `handover`, a lock with this `ttl`, to the first waiter that wants only `name`. Returns `handover` if no
    /// waiter takes it.
    pub(crate) fn hand_over(
        self: &Arc<Self>,
        name: &str,
        ttl: Duration,
        handover: H,
    ) -> Result<(), H> {
        self.change(|lists, dispatch| lists.hand_over(name, ttl, handover, dispatch))
    }

    pub(crate) fn has_next_waiter(&self, name: &str, ttl: Duration) -> bool {
        self.lists().has_next_waiter(name, ttl)
    }

    fn pass(self: &Arc<Self>, names: &[Name]) {
        if !names.is_empty() {
            self.change(|lists, dispatch| lists.release(names, dispatch));
        }
    }

    pub(crate) fn close(self: &Arc<Self>) {
        self.change(|lists, dispatch| lists.close(dispatch));
    }

    pub(crate) fn holder(&self, name: &str) -> Option<H::Holder> {
        self.lists().holder(name)
    }

    pub(crate) fn is_in_use(&self, name: &str) -> bool {
        self.lists().entries.contains_key(name)
    }

    pub(crate) fn bounds(&self) -> Bounds {
        self.lists().bounds
    }

    pub(crate) fn load(&self) -> Load {
        let lists = self.lists();
        Load {
            keys: lists.entries.len(),
            waiting: lists.waiting,
            seats: lists.waiters.len(),
        }
    }
}

/// The place of a waiter in the queue. As a future it resolves to the handover. Dropping it gives up the place, and
/// passes on a handover that has already come.
#[must_use = "a seat that is dropped is given up"]
pub(crate) struct Seat<H: Handover> {
    queue: Arc<Queue<H>>,
    // `None` once the caller has taken its handover, was sent away, or has left.
    number: Option<u64>,
}

impl<H: Handover> Seat<H> {
    pub(crate) fn leave(&mut self) -> Option<H> {
        let number = self.number.take()?;
        let call = self.queue.lists().take_out(number);
        match call {
            Some(Call::Called(handover)) => Some(handover),
            _ => None,
        }
    }
}

impl<H: Handover> Future for Seat<H> {
    type Output = Result<H, SentAway>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(number) = self.number else {
            return Poll::Ready(Err(SentAway::Closed));
        };
        let mut lists = self.queue.lists();
        if let Ok(stale) = lists.wait(number, cx) {
            drop(lists);
            drop(stale);
            return Poll::Pending;
        }
        let call = lists.take_out(number);
        drop(lists);
        self.number = None;
        Poll::Ready(match call {
            Some(Call::Called(handover)) => Ok(handover),
            Some(Call::SentAway(reason)) => Err(reason),
            Some(Call::Waiting(_)) | None => Err(SentAway::Closed),
        })
    }
}

impl<H: Handover> Drop for Seat<H> {
    fn drop(&mut self) {
        // The mutex is not locked here, because dropping a handover locks it to pass the turn on.
        drop(self.leave());
    }
}

/// The right of one caller to contend for keys and to hold them. Dropping it passes it to the next waiter.
pub(crate) struct Turn<H: Handover> {
    queue: Arc<Queue<H>>,
    names: SmallVec<[Name; 1]>,
}

impl<H: Handover> Turn<H> {
    /// Takes a seat in front of all waiters. The seat must be dropped before the turn. `None` for several keys.
    pub(crate) fn front_seat(&self, ttl: Duration) -> Option<Seat<H>> {
        let [name] = self.names.as_slice() else {
            return None;
        };
        let number = self.queue.lists().enter_in_front(name, ttl);
        Some(Seat {
            queue: Arc::clone(&self.queue),
            number: Some(number),
        })
    }

    pub(crate) fn set_holder(&self, holder: &H::Holder) {
        self.queue.change(|lists, dispatch| {
            for name in &self.names {
                lists.set_holder(name, holder.clone(), dispatch);
            }
        });
    }

    /// Sets whether the keys are about to come free. If so, even callers that do not wait for locks may wait for them.
    pub(crate) fn set_being_released(&self, being_released: bool) {
        self.queue.change(|lists, dispatch| {
            for name in &self.names {
                lists.set_being_released(name, being_released, dispatch);
            }
        });
    }

    /// Passes on the turns of all keys for which `stays` is false.
    pub(crate) fn keep_only(mut self, stays: impl Fn(&str) -> bool) -> Option<Self> {
        let mut others = self.names.clone();
        others.retain(|name| !stays(name));
        self.names.retain(|name| stays(name));
        self.queue.pass(&others);
        (!self.names.is_empty()).then_some(self)
    }

    pub(crate) fn widen(mut self, names: &[Name]) -> Option<Self> {
        let mut others = names.to_vec();
        others.retain(|other| !self.names.contains(other));
        if !self.queue.lists().take_free(&others) {
            return None;
        }
        self.names = names.into();
        Some(self)
    }
}

impl<H: Handover> Drop for Turn<H> {
    fn drop(&mut self) {
        self.queue.pass(&self.names);
    }
}
