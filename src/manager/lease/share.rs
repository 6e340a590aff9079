//! Sharing a held lock between guards, and letting go of it.

use std::ops::Deref;

use crate::clock::Clock as _;
use crate::manager::error::loss::LossReason;
use crate::manager::lease::held::{HeldLease, Turns};
use crate::manager::lease::state::Left;
use crate::manager::ledger::{Obligation, Owing, Stage};

/// What is owed for a lock that was let go of: what is left on the nodes, and what this process keeps for it.
#[derive(Debug)]
pub(in crate::manager) struct Owed {
    left: Left,
    /// The right to go for the keys, unless the loss has passed it on.
    pub(in crate::manager) turns: Option<Turns>,
    // Missing only where it was let go of before.
    obligation: Option<Obligation>,
}

impl Deref for Owed {
    type Target = Left;

    fn deref(&self) -> &Left {
        &self.left
    }
}

impl Owed {
    /// The nodes that are to be freed now or later. A lock that is left to expire counts as left from here on.
    pub(in crate::manager) fn owing(&mut self) -> Owing {
        let obligation = self.obligation();
        Owing::new(obligation, [&*self.nodes, &*self.busy].concat())
    }

    /// A share by which a shutdown waits, and nothing is owed.
    pub(in crate::manager) fn waited_for(&self) -> Option<Obligation> {
        let obligation = self.obligation.as_ref();
        obligation.map(|obligation| obligation.share().owing_nothing())
    }

    /// What is owed for it, to be met by the release.
    pub(in crate::manager) fn obligation(&mut self) -> Option<Obligation> {
        let obligation = self.obligation.take().filter(|_| !self.left.abandoned);
        if let Some(obligation) = &obligation {
            obligation.enter(Stage::Releasing);
        }
        obligation
    }
}

impl HeldLease {
    /// Lets one more guard of the tenant `number` share the lock, if it is still to be relied on.
    pub(in crate::manager) fn share(&self, number: u32) -> Result<(), LossReason> {
        let ((shared, deferred), _) = self.change(|inner| {
            let (shared, effects) = inner.state.share(number, self.clock.now());
            // What the last guard left to a loan is the new one's again.
            let deferred = inner.deferred.take_if(|_| shared.is_ok());
            ((shared, deferred), effects)
        });
        drop(deferred);
        shared
    }

    /// Notes that one of the guards that share the lock has left; whether it was the last.
    pub(in crate::manager) fn leave(&self) -> bool {
        self.inner().state.leave()
    }

    /// Notes that a waiter for its end was told of it, and will give up what runs under the lock.
    pub(in crate::manager) fn end_is_told(&self) {
        self.inner().state.end_is_told();
    }

    /// Lets go of the lock: from here on the watchdog leaves it alone.
    pub(in crate::manager) fn let_go(&self) -> Owed {
        let (owed, _) = self.change(|inner| {
            let (left, effects) = inner.state.let_go(self.clock.now());
            let owed = Owed {
                left,
                turns: inner.turns.take_if(|_| !effects.pass_turns),
                obligation: inner.obligation.take(),
            };
            (owed, effects)
        });
        if let Some(turns) = &owed.turns {
            turns.leave();
        }
        owed
    }
}
