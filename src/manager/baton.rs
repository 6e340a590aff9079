//! What passes from one caller of this process to the next: a bare turn, or a lock with its turn.

use std::sync::Weak;
use std::time::Duration;

use super::guard::LockGuard;
use super::hold::Hold;
use super::queue;
use crate::clock::Clock;
use crate::moment::Moment;

/// The callers of one manager.
pub(super) type Queue = queue::Queue<Baton>;
/// The right to go for a key.
pub(super) type Turn = queue::Turn<Baton>;

/// The right to go for all keys of one lock.
#[derive(Debug)]
pub(super) struct Turns {
    first: Turn,
    rest: Vec<Turn>,
    // Who comes next is to ask the nodes.
    personal: bool,
}

impl Turns {
    /// The right to go for the first key; the others follow in their order.
    pub(super) const fn new(first: Turn) -> Self {
        Self {
            first,
            rest: Vec::new(),
            personal: false,
        }
    }

    pub(super) fn push(&mut self, turn: Turn) {
        self.rest.push(turn);
    }

    /// The same for a lock that never passes to another holder.
    pub(super) const fn personal(mut self) -> Self {
        self.personal = true;
        self
    }

    /// The right to go for the first key alone, to be kept: who does not wait is refused again. The others are given
    /// back.
    pub(super) fn stay(self) -> Turn {
        self.first.set_leaving(false);
        self.first
    }

    fn all(&self) -> impl Iterator<Item = &Turn> {
        std::iter::once(&self.first).chain(&self.rest)
    }

    /// Whether the lock may pass to somebody who waits: only one of a single key does, and no personal one.
    pub(super) fn can_hand_off(&self) -> bool {
        !self.personal && self.rest.is_empty() && self.first.is_waited_for()
    }

    /// Notes what is known of the keys.
    pub(super) fn note(&self, note: &Note) {
        for turn in self.all() {
            turn.note(note.clone());
        }
    }

    /// Lets those in who do not wait: the keys are being given back.
    pub(super) fn leave(&self) {
        for turn in self.all() {
            turn.set_leaving(true);
        }
    }
}

/// What a waiter is called with. Dropped, it passes on: a guard releases its lock, or hands it to the next.
#[derive(Debug)]
pub(super) enum Baton {
    /// Go for the key.
    Turn(Turn),
    /// The key is yours already.
    Lock(LockGuard),
}

impl queue::Baton for Baton {
    type Note = Note;

    fn bare(turn: Turn) -> Self {
        Self::Turn(turn)
    }
}

/// What is known of a key that is in use.
#[derive(Clone, Debug)]
pub(super) enum Note {
    /// It is held here.
    Held(Weak<Hold>),
    /// It is held elsewhere, until then unless it is extended or released.
    Until(Moment),
}

impl Note {
    /// How long the lease goes on, as far as is known.
    pub(super) fn remaining(&self, clock: &dyn Clock) -> Option<Duration> {
        match self {
            Self::Held(hold) => hold.upgrade().map(|hold| hold.left()),
            Self::Until(end) => Some(end.since(clock.now())),
        }
    }
}
