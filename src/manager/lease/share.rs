//! Sharing a held lock between guards, and letting go of it.

use std::sync::atomic::Ordering;

use crate::clock::Clock as _;
use crate::manager::error::loss::LossReason;
use crate::manager::lease::held::{HeldLease, Turns};
use crate::manager::lease::state::{Inner, Phase};
use crate::manager::ledger::{Obligation, Owing, Stage};
use crate::moment::Moment;

/// What the guard owes when it lets go.
#[derive(Debug)]
pub(in crate::manager) struct Owed {
    /// The nodes to release now.
    pub(in crate::manager) nodes: Vec<usize>,
    /// The nodes with a command under way, to be released when that is [settled](HeldLease::settled).
    pub(in crate::manager) busy: Vec<usize>,
    /// How many nodes are free already.
    pub(in crate::manager) free: usize,
    /// Why the lock had been lost, if it had.
    pub(in crate::manager) lost: Option<LossReason>,
    /// The right to go for the keys, unless the loss has passed it on.
    pub(in crate::manager) turns: Option<Turns>,
    // Missing only where it was let go of before.
    pub(in crate::manager) obligation: Option<Obligation>,
    // Nothing is sent, though the nodes have it.
    pub(in crate::manager) abandoned: bool,
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

    /// What is owed for it, to be met by whoever gives it back.
    pub(in crate::manager) fn obligation(&mut self) -> Option<Obligation> {
        let obligation = self.obligation.take().filter(|_| !self.abandoned);
        if let Some(obligation) = &obligation {
            obligation.enter(Stage::Releasing);
        }
        obligation
    }
}

impl HeldLease {
    /// Lets one more guard of the tenant `number` share the lock, if it is still to be relied on.
    pub(in crate::manager) fn share(&self, number: u32) -> Result<(), LossReason> {
        if let Some(reason) = self.ended_because(number) {
            return Err(reason);
        }
        let mut inner = self.inner();
        // The last guard may have left in between; but what it left to a loan is taken up again.
        if !self.is_held_by(&inner, number) || (inner.guards == 0 && !inner.loans.take_up()) {
            return Err(LossReason::Released);
        }
        inner.guards += 1;
        Ok(())
    }

    pub(in crate::manager) fn is_held_by(&self, inner: &Inner, number: u32) -> bool {
        self.tenant.load(Ordering::Acquire) == number && inner.phase == Phase::Held
    }

    /// Notes that one of the guards that share the lock has left; whether it was the last.
    pub(in crate::manager) fn leave(&self) -> bool {
        let mut inner = self.inner();
        inner.guards = inner.guards.saturating_sub(1);
        inner.guards == 0
    }

    /// Notes that somebody who waited for its end was told of it, and will give up what runs under the lock.
    pub(in crate::manager) fn end_is_told(&self) {
        self.inner().told = true;
    }

    /// Lets go of the lock: from here on the watchdog leaves it alone.
    pub(in crate::manager) fn let_go(&self) -> Owed {
        let mut inner = self.inner();
        // Also when the end was announced and nobody has looked since.
        if self.clock.now() >= self.end() {
            self.expire(&mut inner);
        }
        let lost = match inner.phase {
            Phase::Lost(reason) => Some(reason),
            Phase::Held | Phase::Ending(_) => None,
            Phase::Released => Some(LossReason::Released),
        };
        // A lock that is left to expire keeps its nodes.
        let left = inner.loans.is_abandoned();
        let nodes = 0..if left { 0 } else { inner.holding.nodes() };
        let owed = Owed {
            free: nodes.clone().filter(|n| inner.holding.is_clear(*n)).count(),
            busy: nodes.clone().filter(|n| inner.holding.busy(*n)).collect(),
            nodes: nodes
                .filter(|n| inner.holding.owes(*n) && !inner.holding.busy(*n))
                .collect(),
            lost,
            turns: inner.turns.take(),
            obligation: inner.obligation.take(),
            abandoned: left,
        };
        if let Some(turns) = &owed.turns {
            turns.leave();
        }
        if let (Phase::Ending(reason), true) = (inner.phase, inner.told) {
            // It is given back in time, but the work was cut off as if it had been lost, and that is to be seen.
            inner.after.lost = Some((reason, inner.caller.clone()));
        }
        if lost.is_none() {
            inner.after.held_for = Some(self.clock.now().since(inner.since));
        }
        inner.phase = Phase::Released;
        self.deadline.set(Moment::ORIGIN);
        inner.after.ended = true;
        owed
    }
}
