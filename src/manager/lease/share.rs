//! Sharing a held lock between guards, and letting go of it.

use crate::clock::Clock as _;
use crate::manager::error::loss::LossReason;
use crate::manager::lease::held::{HeldLease, Turn};
use crate::manager::lease::state::Left;
use crate::manager::ledger::{Obligation, Stage};

/// What is to be released of a lock that the last guard has let go of.
#[derive(Debug)]
pub(crate) struct PendingRelease {
    /// The nodes to release now.
    pub(crate) nodes: Vec<usize>,
    /// The nodes with a command under way, to be released when that is [settled](HeldLease::settled).
    pub(crate) busy: Vec<usize>,
    /// How many nodes are free already.
    pub(crate) free: usize,
    /// Why the lock had been lost, if it had.
    pub(crate) lost: Option<LossReason>,
    /// The right to go for the keys, unless the loss has passed it on.
    pub(crate) turn: Option<Turn>,
    /// To free all these nodes. Missing where there is nothing to release.
    pub(crate) obligation: Option<Obligation>,
}

impl HeldLease {
    /// Lets one more guard of the tenant `number` share the lock, if it is still to be relied on.
    pub(crate) fn share(&self, number: u32) -> Result<(), LossReason> {
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
    pub(crate) fn leave(&self) -> bool {
        self.inner().state.leave()
    }

    /// Notes that a waiter for its end was told of it, and will give up what runs under the lock.
    pub(crate) fn end_is_told(&self) {
        self.inner().state.end_is_told();
    }

    /// Lets go of the lock: from here on the watchdog leaves it alone.
    pub(crate) fn let_go(&self) -> PendingRelease {
        let ((mut pending, abandoned), _) = self.change(|inner| {
            let (left, effects) = inner.state.let_go(self.clock.now());
            let Left {
                nodes,
                busy,
                free,
                lost,
                abandoned,
            } = left;
            let pending = PendingRelease {
                nodes,
                busy,
                free,
                lost,
                turn: inner.turn.take_if(|_| !effects.pass_turn),
                obligation: inner.obligation.take(),
            };
            ((pending, abandoned), effects)
        });
        if let Some(turn) = &pending.turn {
            turn.set_leaving(true);
        }
        // A lock that is left to expire counts as left from here on.
        pending.obligation.take_if(|_| abandoned);
        if let Some(obligation) = &pending.obligation {
            obligation.enter(Stage::Releasing);
        }
        pending
    }
}
