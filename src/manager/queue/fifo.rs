//! [`Queue`], with the [`Turn`] of a caller that has its keys and the [`Seat`] of one that waits.

use std::fmt;
use std::mem;
use std::pin::Pin;
use std::slice;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Waker};

use super::super::sync::{Mutex, MutexGuard};
use super::list::{Bounds, Call, Entrance, Name, Refused, SentAway, WaitLists};
use super::passing::Giving;
use super::wakeups::Wakeups;

/// What a waiter is called with: a turn, or a lock with its turn.
pub(crate) trait Handover: Sized {
    /// What callers that do not wait are told of a key that is in use.
    type Note: Clone;

    /// A turn without a lock.
    fn of_turn(turn: Turn<Self>) -> Self;
}

/// How often a waiter for several keys misses one that is free, before later callers wait for it.
pub(crate) const MISSES: u32 = 8;

/// The callers of one manager, by key.
pub(crate) struct Queue<H: Handover> {
    state: Mutex<State<H>>,
    bounds: Bounds,
}

struct State<H: Handover> {
    lists: WaitLists<H, H::Note>,
    closed: bool,
}

/// What [`Queue::enter`] gives.
pub(crate) enum Entered<H: Handover> {
    /// The key is not in use here.
    Turn(Turn<H>),
    /// Others come before.
    Seat(Seat<H>),
}

/// How much of the queue is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    /// Keys that are in use.
    pub(crate) keys: usize,
    /// Callers that wait.
    pub(crate) waiting: usize,
    /// Callers that wait, and those that were called and have not polled since.
    pub(crate) seats: usize,
}

impl<H: Handover> Queue<H> {
    /// A queue in which a waiter for several keys claims them after so many `misses`.
    pub(crate) fn new(bounds: Bounds, misses: u32) -> Self {
        Self {
            state: Mutex::new(State {
                lists: WaitLists::new(misses),
                closed: false,
            }),
            bounds,
        }
    }

    fn state(&self) -> MutexGuard<'_, State<H>> {
        // No panic can leave the lists half-linked: what could panic, wakers and drops, is done outside.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters the queue for `name`.
    pub(crate) fn enter(
        self: &Arc<Self>,
        name: &Name,
        may_wait: bool,
    ) -> Result<Entered<H>, Refused<H::Note>> {
        let bounds = self.bounds;
        let names = slice::from_ref(name);
        self.enter_by(names, |lists| lists.enter(name, may_wait, bounds))
    }

    /// Enters the queue for all of `names`, of which each is there once.
    pub(crate) fn enter_all(
        self: &Arc<Self>,
        names: &[Name],
        may_wait: bool,
    ) -> Result<Entered<H>, Refused<H::Note>> {
        let bounds = self.bounds;
        self.enter_by(names, |lists| lists.enter_all(names, may_wait, bounds))
    }

    fn enter_by(
        self: &Arc<Self>,
        names: &[Name],
        enter: impl FnOnce(&mut WaitLists<H, H::Note>) -> Result<Entrance, Refused<H::Note>>,
    ) -> Result<Entered<H>, Refused<H::Note>> {
        let mut state = self.state();
        if state.closed {
            return Err(Refused::Closed);
        }
        let entrance = enter(&mut state.lists)?;
        drop(state);
        Ok(match entrance {
            Entrance::Free => Entered::Turn(self.turn(names)),
            Entrance::Queued(index) => Entered::Seat(Seat {
                queue: Arc::clone(self),
                index: Some(index),
            }),
        })
    }

    fn turn(self: &Arc<Self>, names: &[Name]) -> Turn<H> {
        Turn::new(Arc::clone(self), names)
    }

    /// Changes the lists in a way that may give turns to waiters, and wakes those.
    fn change<R>(
        self: &Arc<Self>,
        change: impl FnOnce(&mut WaitLists<H, H::Note>, &Giving<'_, H>, &mut Wakeups<H::Note>) -> R,
    ) -> R {
        let mut wakeups = Wakeups::new();
        let turn = |names: &[Name]| H::of_turn(self.turn(names));
        let giving = Giving {
            turn: &turn,
            claims: true,
        };
        let changed = change(&mut self.state().lists, &giving, &mut wakeups);
        wakeups.run();
        changed
    }

    /// Calls the first waiter for `name` alone with `handover`. Returns it if there is none, or if one that wants
    /// several keys comes before and all of them are free.
    pub(crate) fn hand_over(&self, name: &str, handover: H) -> Result<(), H> {
        let mut wakeups = Wakeups::new();
        let handed = self.state().lists.hand_over(name, handover, &mut wakeups);
        wakeups.run();
        handed
    }

    /// Ends the turns of these keys: each passes to the next waiter; if there is none, its entry goes.
    fn pass(self: &Arc<Self>, names: &[Name]) {
        if !names.is_empty() {
            self.change(|lists, giving, wakeups| lists.release(names, giving, wakeups));
        }
    }

    /// Refuses all callers from now on, and sends the waiters away.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        let wakers = state.lists.close();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// The note of `name`, if it is in use.
    pub(crate) fn note(&self, name: &str) -> Option<H::Note> {
        self.state().lists.note(name)
    }

    pub(crate) const fn bounds(&self) -> Bounds {
        self.bounds
    }

    pub(crate) fn load(&self) -> Load {
        let lists = &self.state().lists;
        Load {
            keys: lists.keys(),
            waiting: lists.waiting(),
            seats: lists.seats(),
        }
    }
}

/// The place of a waiter: a future of what it is called with. Dropped, it leaves nothing behind, and a handover that
/// came meanwhile passes on.
#[must_use = "a seat that is dropped is given up"]
pub(crate) struct Seat<H: Handover> {
    queue: Arc<Queue<H>>,
    // `None` once it is over.
    index: Option<usize>,
}

impl<H: Handover> Seat<H> {
    /// Whether it claims its keys, which are several: those that come free are kept for it, until it is called or
    /// [gives way](Self::give_way). The task that polls it is woken when that begins.
    pub(crate) fn claims(&self) -> bool {
        let claims = |index| self.queue.state().lists.claims(index);
        self.index.is_some_and(claims)
    }

    /// Ends its claim: the keys that were kept for it go to others, and it waits on.
    pub(crate) fn give_way(&self) {
        if let Some(index) = self.index {
            self.queue
                .change(|lists, giving, wakeups| lists.give_way(index, giving, wakeups));
        }
    }

    /// Gives the seat up, and returns what it was called with meanwhile.
    pub(crate) fn leave(&mut self) -> Option<H> {
        let index = self.index.take()?;
        let call = self
            .queue
            .change(|lists, giving, wakeups| lists.remove(index, giving, wakeups));
        match call {
            Some(Call::Called(handover)) => Some(handover),
            _ => None,
        }
    }
}

impl<H: Handover> Future for Seat<H> {
    type Output = Result<H, SentAway>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(index) = self.index else {
            return Poll::Ready(Err(SentAway::Closed));
        };
        let mut state = self.queue.state();
        if let Ok(stale) = state.lists.wait(index, cx) {
            drop(state);
            drop(stale);
            return Poll::Pending;
        }
        // It is in no list any more, so nothing else is to be done.
        let call = state.lists.take_out(index);
        drop(state);
        self.index = None;
        Poll::Ready(match call {
            Some(Call::Called(handover)) => Ok(handover),
            Some(Call::SentAway(reason)) => Err(reason),
            Some(Call::Waiting(_)) | None => Err(SentAway::Closed),
        })
    }
}

impl<H: Handover> Drop for Seat<H> {
    fn drop(&mut self) {
        // Outside the mutex: a handover that was not taken passes itself on.
        drop(self.leave());
    }
}

impl<H: Handover> fmt::Debug for Queue<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("load", &self.load())
            .finish_non_exhaustive()
    }
}

/// The right of one caller to contend for a key, or for several, and to hold them. Dropped, it passes to the next.
pub(crate) struct Turn<H: Handover> {
    queue: Arc<Queue<H>>,
    names: Names,
}

/// The names of one or several keys. One takes no more room than its name.
enum Names {
    One(Name),
    Several(Vec<Name>),
}

impl Names {
    fn as_slice(&self) -> &[Name] {
        match self {
            Self::One(name) => slice::from_ref(name),
            Self::Several(names) => names,
        }
    }
}

impl From<&[Name]> for Names {
    fn from(names: &[Name]) -> Self {
        match names {
            [name] => Self::One(Name::clone(name)),
            names => Self::Several(names.to_vec()),
        }
    }
}

impl<H: Handover> Turn<H> {
    fn new(queue: Arc<Queue<H>>, names: &[Name]) -> Self {
        Self {
            queue,
            names: names.into(),
        }
    }

    /// Whether it is for one key, and a waiter would take the lock of that as it is.
    pub(crate) fn is_waited_for(&self) -> bool {
        match &self.names {
            Names::One(name) => self.queue.state().lists.has_heir(name),
            Names::Several(_) => false,
        }
    }

    /// What callers that do not wait are told from now on.
    pub(crate) fn note(&self, note: &H::Note) {
        let mut state = self.queue.state();
        let names = self.names.as_slice().iter();
        let before: Vec<_> = names
            .map(|name| state.lists.set_note(name, Some(note.clone())))
            .collect();
        drop(state);
        drop(before);
    }

    /// Sets whether the keys are about to come free: then callers that do not wait may wait for that. They are sent
    /// away when it is not so.
    pub(crate) fn set_leaving(&self, leaving: bool) {
        let mut wakeups = Wakeups::new();
        let mut state = self.queue.state();
        for name in self.names.as_slice() {
            state.lists.set_leaving(name, leaving, &mut wakeups);
        }
        drop(state);
        wakeups.run();
    }

    /// The turn of `name` alone; those of the other keys end.
    pub(crate) fn keep_only(mut self, name: &str) -> Option<Self> {
        let is_kept = |other: &&Name| ***other == *name;
        let kept = self
            .names
            .as_slice()
            .iter()
            .find(is_kept)
            .map(Name::clone)?;
        let names = mem::replace(&mut self.names, Names::One(kept));
        let mut others = names.as_slice().to_vec();
        others.retain(|other| **other != *name);
        self.queue.pass(&others);
        Some(self)
    }

    /// The turn of `names`, which are several, this one's among them, if none of the others is in use.
    pub(crate) fn widen(mut self, names: &[Name]) -> Option<Self> {
        let ours = self.names.as_slice();
        let mut others = names.to_vec();
        others.retain(|other| !ours.contains(other));
        if self.queue.state().take(&others) {
            self.names = names.into();
            return Some(self);
        }
        None
    }
}

impl<H: Handover> State<H> {
    fn take(&mut self, names: &[Name]) -> bool {
        !self.closed && self.lists.take_free(names)
    }
}

impl<H: Handover> Drop for Turn<H> {
    fn drop(&mut self) {
        self.queue.pass(self.names.as_slice());
    }
}

impl<H: Handover> fmt::Debug for Turn<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Turn").field(&self.names.as_slice()).finish()
    }
}
