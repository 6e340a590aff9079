//! [`Queue`]: which caller of this process goes for a key, and who waits behind it.
//!
//! ```text
//!   enter ──► Turn  (nobody has the key here: go for it)
//!     │         │ dropped, or handed over with a lock: the first in the line is called
//!     │         ▼
//!     ├─────► Seat ──► Baton  (a bare turn, or a lock with its turn)
//!     └─────► Refused  (would have to wait and will not, or the queue is full or closed)
//! ```
//!
//! For each key there is at most one turn, and an entry exactly while there is one, or while the key is kept for a
//! moment. A turn may be for several keys: it is taken at once or not at all, so that nobody has a turn of one key
//! while waiting for that of another. [`passing`] tells how those who want several keep up with those who want one.
//!
//! Who is called and does not want it any more drops the baton, which passes it on: no wake-up is lost. Everything is
//! done under one short mutex; nobody is woken and nothing of a caller's is dropped inside it.
//!
//! The module depends on the standard library, `slab`, and the [`sync`](super::sync) module beside it, so that
//! the model checker of `tests/queue` runs this very code.

mod list;
mod passing;
mod sending;
mod turn;

use std::fmt;
use std::pin::Pin;
use std::slice;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Waker};

use self::list::{Call, Entrance, Lines};
use self::passing::{After, Giving};
pub(super) use self::turn::Turn;
use super::sync::{Mutex, MutexGuard};

/// The name of what is queued for.
pub(super) type Name = Arc<str>;

/// What is passed to a waiter whose turn it is.
pub(super) trait Baton: Sized {
    /// What callers who do not wait are told of a key that is in use.
    type Note: Clone;

    /// A turn with nothing in hand.
    fn bare(turn: Turn<Self>) -> Self;
}

/// How many may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) per_key: usize,
    pub(super) total: usize,
}

/// How often who wants several keys misses one that it could have, before those who come later wait for it.
pub(super) const MISSES: u32 = 8;

/// The callers of one manager, by key.
pub(super) struct Queue<B: Baton> {
    state: Mutex<State<B>>,
    bounds: Bounds,
}

struct State<B: Baton> {
    lines: Lines<B, B::Note>,
    closed: bool,
}

/// What [`Queue::enter`] gives.
pub(super) enum Entered<B: Baton> {
    /// The key is not in use here.
    Turn(Turn<B>),
    /// Others are before.
    Seat(Seat<B>),
}

/// Why there was no way in.
#[derive(Debug)]
pub(super) enum Refused<N> {
    /// The key is in use here, and the caller does not wait.
    InUse(Option<N>),
    /// As many wait for this key as may.
    KeyFull,
    /// As many wait in all as may.
    Full,
    /// Nobody is let in any more.
    Closed,
}

/// How much of the queue is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Load {
    /// Keys that somebody has a turn for.
    pub(super) keys: usize,
    /// Callers in line.
    pub(super) waiting: usize,
    /// Callers in line, and those that were called and have not looked yet.
    pub(super) seats: usize,
}

impl<B: Baton> Queue<B> {
    /// A queue in which who wants several keys claims them after so many `misses`.
    pub(super) fn new(bounds: Bounds, misses: u32) -> Self {
        Self {
            state: Mutex::new(State {
                lines: Lines::new(misses),
                closed: false,
            }),
            bounds,
        }
    }

    fn state(&self) -> MutexGuard<'_, State<B>> {
        // No panic can leave the lines half-linked: what could panic, wakers and drops, is done outside.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gets in line for `name`.
    pub(super) fn enter(
        self: &Arc<Self>,
        name: &Name,
        waiters: bool,
    ) -> Result<Entered<B>, Refused<B::Note>> {
        let bounds = self.bounds;
        let names = slice::from_ref(name);
        self.enter_by(names, |lines| lines.enter(name, waiters, bounds))
    }

    /// Gets in line for all of `names`, of which each is there once.
    pub(super) fn enter_all(
        self: &Arc<Self>,
        names: &[Name],
        waiters: bool,
    ) -> Result<Entered<B>, Refused<B::Note>> {
        let bounds = self.bounds;
        self.enter_by(names, |lines| lines.enter_all(names, waiters, bounds))
    }

    fn enter_by(
        self: &Arc<Self>,
        names: &[Name],
        enter: impl FnOnce(&mut Lines<B, B::Note>) -> Result<Entrance, Refused<B::Note>>,
    ) -> Result<Entered<B>, Refused<B::Note>> {
        let mut state = self.state();
        if state.closed {
            return Err(Refused::Closed);
        }
        let entrance = enter(&mut state.lines)?;
        drop(state);
        Ok(match entrance {
            Entrance::Free => Entered::Turn(self.turn(names)),
            Entrance::Place(index) => Entered::Seat(Seat {
                queue: Arc::clone(self),
                index: Some(index),
            }),
        })
    }

    fn turn(self: &Arc<Self>, names: &[Name]) -> Turn<B> {
        Turn::new(Arc::clone(self), names)
    }

    /// Changes the lines in a way that may give turns to some who wait, and wakes them.
    fn change<R>(
        self: &Arc<Self>,
        change: impl FnOnce(&mut Lines<B, B::Note>, &Giving<'_, B>, &mut After<B::Note>) -> R,
    ) -> R {
        let mut after = After::new();
        let turn = |names: &[Name]| B::bare(self.turn(names));
        let giving = Giving {
            turn: &turn,
            claims: true,
        };
        let changed = change(&mut self.state().lines, &giving, &mut after);
        after.run();
        changed
    }

    /// Calls the first who waits for `name` alone with `baton`, or gives it back if nobody does, or somebody comes
    /// before who wants several keys and has its turn.
    pub(super) fn hand_over(&self, name: &str, baton: B) -> Result<(), B> {
        let mut after = After::new();
        let handed = self.state().lines.hand_over(name, baton, &mut after);
        after.run();
        handed
    }

    /// Ends the turns of these keys: each goes to the next who waits; if nobody does, its entry goes.
    fn pass(self: &Arc<Self>, names: &[Name]) {
        if !names.is_empty() {
            self.change(|lines, giving, after| lines.release(names, giving, after));
        }
    }

    /// Lets nobody in any more, and tells everyone who waits.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        let wakers = state.lines.close();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// What is known of `name`, if it is in use.
    pub(super) fn note(&self, name: &str) -> Option<B::Note> {
        self.state().lines.note(name)
    }

    pub(super) const fn bounds(&self) -> Bounds {
        self.bounds
    }

    pub(super) fn load(&self) -> Load {
        let lines = &self.state().lines;
        Load {
            keys: lines.keys(),
            waiting: lines.waiting(),
            seats: lines.places(),
        }
    }
}

/// Why a waiter waits no more, though it was not called.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SentAway {
    /// The queue was closed.
    Closed,
    /// It does not wait, and the key that it thought about to come free is in use.
    InUse,
}

/// A place in the queue: a future of the baton. Dropped, it leaves nothing behind, and what it was called with
/// meanwhile is passed on.
#[must_use = "a seat that is dropped is given up"]
pub(super) struct Seat<B: Baton> {
    queue: Arc<Queue<B>>,
    // None once it is over.
    index: Option<usize>,
}

impl<B: Baton> Seat<B> {
    /// Whether it claims its keys, which are several: what comes free of them is kept for it, until it is called or
    /// [gives way](Self::give_way). Whoever polled it is woken when that begins.
    pub(super) fn claims(&self) -> bool {
        let claims = |index| self.queue.state().lines.claims(index);
        self.index.is_some_and(claims)
    }

    /// Ends its claim: what was kept for it goes to others, and it waits on.
    pub(super) fn give_way(&self) {
        if let Some(index) = self.index {
            self.queue
                .change(|lines, giving, after| lines.give_way(index, giving, after));
        }
    }

    /// Gives the place up, and returns what it was called with meanwhile.
    pub(super) fn leave(&mut self) -> Option<B> {
        let index = self.index.take()?;
        let call = self
            .queue
            .change(|lines, giving, after| lines.remove(index, giving, after));
        match call {
            Some(Call::Called(baton)) => Some(baton),
            _ => None,
        }
    }
}

impl<B: Baton> Future for Seat<B> {
    type Output = Result<B, SentAway>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(index) = self.index else {
            return Poll::Ready(Err(SentAway::Closed));
        };
        let mut state = self.queue.state();
        if let Ok(stale) = state.lines.wait(index, cx) {
            drop(state);
            drop(stale);
            return Poll::Pending;
        }
        // It is in no line any more, so nothing else is to be done.
        let call = state.lines.take_out(index);
        drop(state);
        self.index = None;
        Poll::Ready(match call {
            Some(Call::Called(baton)) => Ok(baton),
            Some(Call::SentAway(reason)) => Err(reason),
            Some(Call::Waiter(_)) | None => Err(SentAway::Closed),
        })
    }
}

impl<B: Baton> Drop for Seat<B> {
    fn drop(&mut self) {
        // Outside the mutex: a baton that nobody took passes itself on.
        drop(self.leave());
    }
}

impl<B: Baton> fmt::Debug for Queue<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("load", &self.load())
            .finish_non_exhaustive()
    }
}
