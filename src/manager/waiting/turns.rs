//! What passes from one caller of this process to the next: a bare turn, or a lock with its turn.

use std::sync::Weak;
use std::time::Duration;

use crate::clock::Clock;
use crate::manager::guard::LockGuard;
use crate::manager::lease::held::HeldLease;
use crate::manager::queue::{self, Name};
use crate::moment::Moment;
use crate::namespace::{NodeKey, NodeKeys};

/// The callers of one manager.
pub(in crate::manager) type Queue = queue::Queue<Baton>;
/// The right to go for a key.
pub(in crate::manager) type Turn = queue::Turn<Baton>;

/// The right to go for all keys of one lock.
#[derive(Debug)]
pub(in crate::manager) struct Turns {
    turn: Turn,
    // Who comes next is to ask the nodes.
    personal: bool,
}

impl Turns {
    pub(in crate::manager) const fn new(turn: Turn) -> Self {
        Self {
            turn,
            personal: false,
        }
    }

    /// The same for a lock that never passes to another holder.
    pub(in crate::manager) const fn personal(mut self) -> Self {
        self.personal = true;
        self
    }

    /// The right to go for `key` alone; that for the others passes on.
    pub(in crate::manager) fn keep_only(self, key: &NodeKey) -> Option<Self> {
        let turn = self.turn.keep_only(key.as_str())?;
        Some(Self { turn, ..self })
    }

    /// The right to go for all of `keys`, if nobody has it for one of those that are missing.
    pub(in crate::manager) fn widen(self, keys: &NodeKeys) -> Option<Self> {
        let turn = self.turn.widen(&names(keys))?;
        Some(Self { turn, ..self })
    }

    /// Whether the lock may pass to somebody who waits: only one of a single key does, and no personal one.
    pub(in crate::manager) fn can_hand_off(&self) -> bool {
        !self.personal && self.turn.is_waited_for()
    }

    /// Notes what is known of the keys.
    pub(in crate::manager) fn note(&self, note: &Note) {
        self.turn.note(note);
    }

    /// Lets those wait who do not: the keys are being given back, or will be if one of them is held elsewhere.
    pub(in crate::manager) fn leave(&self) {
        self.turn.set_leaving(true);
    }

    /// The keys are here to stay: who does not wait is sent away.
    pub(in crate::manager) fn stay(&self) {
        self.turn.set_leaving(false);
    }
}

/// The names of `keys` in the queue.
pub(in crate::manager) fn names(keys: &NodeKeys) -> Vec<Name> {
    let keys = keys.as_slice().iter();
    keys.map(|key| Name::clone(key.shared())).collect()
}

/// What a waiter is called with. Dropped, it passes on: a guard releases its lock, or hands it to the next.
#[derive(Debug)]
pub(in crate::manager) enum Baton {
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
pub(in crate::manager) enum Note {
    /// It is held here.
    Held(Weak<HeldLease>),
    /// It is held elsewhere, until then unless it is extended or released.
    Until(Moment),
}

impl Note {
    /// How long the lease goes on, as far as is known.
    pub(in crate::manager) fn remaining(&self, clock: &dyn Clock) -> Option<Duration> {
        match self {
            Self::Held(hold) => hold.upgrade().map(|hold| hold.left()),
            Self::Until(end) => Some(end.since(clock.now())),
        }
    }
}
