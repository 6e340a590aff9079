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
