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
//! For each key there is at most one turn, and an entry exactly while there is one. Who is called and does not
//! want it any more drops the baton, which passes it on: no wake-up is lost. Everything is done under one short
//! mutex; nobody is woken and nothing of a caller's is dropped inside it.
//!
//! The module depends on the standard library, `slab`, and the [`sync`](super::sync) module beside it, so that
//! the model checker of `tests/queue` runs this very code.

mod lines;

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Waker};

use self::lines::{Call, Entrance, Lines};
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
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            state: Mutex::new(State {
                lines: Lines::new(),
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
        waits: bool,
    ) -> Result<Entered<B>, Refused<B::Note>> {
        let mut state = self.state();
        if state.closed {
            return Err(Refused::Closed);
        }
        let entrance = state.lines.enter(name, waits, self.bounds)?;
        drop(state);
        Ok(match entrance {
            Entrance::Free => Entered::Turn(self.turn(name)),
            Entrance::Place(index) => Entered::Seat(Seat {
                queue: Arc::clone(self),
                index: Some(index),
            }),
        })
    }

    fn turn(self: &Arc<Self>, name: &Name) -> Turn<B> {
        Turn {
            queue: Arc::clone(self),
            name: Name::clone(name),
        }
    }

    /// Calls the first who waits for `name` with `baton`, or gives it back if nobody does.
    pub(super) fn hand_over(&self, name: &str, baton: B) -> Result<(), B> {
        let mut state = self.state();
        let Some(index) = state.lines.take_first(name) else {
            drop(state);
            return Err(baton);
        };
        let waker = state.lines.call(index, baton);
        drop(state);
        wake(waker);
        Ok(())
    }

    /// Ends a turn: the first who waits is called with a new one; if nobody does, the entry goes.
    fn pass(self: &Arc<Self>, name: &Name) {
        let mut state = self.state();
        let lines = &mut state.lines;
        let (waker, note) = match lines.take_first(name) {
            Some(index) => {
                lines.set_leaving(name, false);
                let waker = lines.call(index, B::bare(self.turn(name)));
                (waker, lines.set_note(name, None))
            }
            None => (None, lines.forget(name)),
        };
        drop(state);
        drop(note);
        wake(waker);
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

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// The right of one caller to go for a key, and to hold it. Dropped, it passes to the next.
pub(super) struct Turn<B: Baton> {
    queue: Arc<Queue<B>>,
    name: Name,
}

impl<B: Baton> Turn<B> {
    /// Whether anyone waits behind.
    pub(super) fn is_waited_for(&self) -> bool {
        self.queue.state().lines.waiting_for(&self.name) > 0
    }

    /// What those who do not wait are told from now on.
    pub(super) fn note(&self, note: B::Note) {
        let mut state = self.queue.state();
        let before = state.lines.set_note(&self.name, Some(note));
        drop(state);
        drop(before);
    }

    /// Whether the lock is being given back.
    pub(super) fn set_leaving(&self, leaving: bool) {
        self.queue.state().lines.set_leaving(&self.name, leaving);
    }
}

impl<B: Baton> Drop for Turn<B> {
    fn drop(&mut self) {
        self.queue.pass(&self.name);
    }
}

/// The queue was closed while its waiters waited.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Closed;

/// A place in the queue: a future of the baton. Dropped, it leaves nothing behind, and what it was called with
/// meanwhile is passed on.
#[must_use = "a seat that is dropped is given up"]
pub(super) struct Seat<B: Baton> {
    queue: Arc<Queue<B>>,
    // None once it is over.
    index: Option<usize>,
}

impl<B: Baton> Future for Seat<B> {
    type Output = Result<B, Closed>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(index) = self.index else {
            return Poll::Ready(Err(Closed));
        };
        let mut state = self.queue.state();
        if let Ok(stale) = state.lines.wait(index, cx) {
            drop(state);
            drop(stale);
            return Poll::Pending;
        }
        let call = state.lines.remove(index);
        drop(state);
        self.index = None;
        Poll::Ready(match call {
            Some(Call::Called(baton)) => Ok(baton),
            Some(Call::Waiting(_) | Call::Closed) | None => Err(Closed),
        })
    }
}

impl<B: Baton> Drop for Seat<B> {
    fn drop(&mut self) {
        if let Some(index) = self.index.take() {
            let call = self.queue.state().lines.remove(index);
            // Outside the mutex: a baton that nobody took passes itself on.
            drop(call);
        }
    }
}

impl<B: Baton> fmt::Debug for Queue<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("load", &self.load())
            .finish_non_exhaustive()
    }
}

impl<B: Baton> fmt::Debug for Turn<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Turn").field(&self.name).finish()
    }
}
