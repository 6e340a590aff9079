//! [`Turns`]: the right of one caller of this process to go for the keys of one lock.

use crate::manager::queue::{Handover, Name, Turn};
use crate::manager::waiting::holder::Holder;
use crate::namespace::{NodeKey, NodeKeys};

/// The right to go for all keys of one lock. `B` is what waiters are called with.
#[derive(Debug)]
pub(crate) struct Turns<B: Handover> {
    turn: Turn<B>,
    // The next caller must ask the nodes.
    personal: bool,
}

impl<B: Handover<Note = Holder>> Turns<B> {
    pub(crate) const fn new(turn: Turn<B>) -> Self {
        Self {
            turn,
            personal: false,
        }
    }

    /// The same for a lock that never passes to another holder.
    pub(crate) const fn personal(mut self) -> Self {
        self.personal = true;
        self
    }

    /// The right to go for `key` alone; that for the others passes on.
    pub(crate) fn keep_only(self, key: &NodeKey) -> Option<Self> {
        let turn = self.turn.keep_only(key.as_str())?;
        Some(Self { turn, ..self })
    }

    /// The right to go for all of `keys`, if none of those that are missing is in use.
    pub(crate) fn widen(self, keys: &NodeKeys) -> Option<Self> {
        let turn = self.turn.widen(&names(keys))?;
        Some(Self { turn, ..self })
    }

    /// Whether the lock may pass to a waiter as it is: only a lock of a single key does, and no personal one.
    pub(crate) fn can_hand_off(&self) -> bool {
        !self.personal && self.turn.is_waited_for()
    }

    /// Notes who holds the keys.
    pub(crate) fn note(&self, holder: &Holder) {
        self.turn.note(holder);
    }

    /// The keys are being released, or will be if one of them is held elsewhere: also callers that do not wait for a
    /// holder wait for that.
    pub(crate) fn leave(&self) {
        self.turn.set_leaving(true);
    }

    /// The keys stay in use: callers that do not wait for a holder are sent away.
    pub(crate) fn stay(&self) {
        self.turn.set_leaving(false);
    }
}

/// The names of `keys` in the queue.
pub(crate) fn names(keys: &NodeKeys) -> Vec<Name> {
    let keys = keys.as_slice().iter();
    keys.map(|key| Name::clone(key.shared())).collect()
}
