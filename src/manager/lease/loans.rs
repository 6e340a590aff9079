//! What a hold knows of its loans: while one is out, the lock is neither handed on nor released.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock as _;
use crate::manager::error::loss::LossReason;
use crate::manager::lease::held::HeldLease;
use crate::manager::shared::Shared;
use crate::token::Owner;

/// The loans of one lock.
#[derive(Debug, Default)]
pub(in crate::manager) struct Loans {
    pub(in crate::manager) out: u32,
    // How many there were. The proof fits all who have the lock after this tenant, and a copy of the call may come
    // late, so a lock with any is not handed on even when all loans are back.
    pub(in crate::manager) made: u32,
    // A borrower never answered: it may still be at work, so the lock is left to expire.
    pub(in crate::manager) abandoned: bool,
    // The guards have gone, and the last loan releases the lock through this.
    pub(in crate::manager) parked: Option<Parked>,
}

/// The manager, for a release that waits. Its `Debug` shows nothing: the manager knows the lock in turn.
pub(in crate::manager) struct Parked(Arc<Shared>);

impl fmt::Debug for Parked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Parked")
    }
}

impl Loans {
    pub(in crate::manager) const fn ever(&self) -> bool {
        self.made > 0
    }

    /// Takes back what was left to the last loan; whether anything was.
    pub(in crate::manager) fn take_up(&mut self) -> bool {
        self.parked.take().is_some()
    }

    pub(in crate::manager) const fn is_abandoned(&self) -> bool {
        self.abandoned
    }
}

impl HeldLease {
    /// Whether it is the lock of another, who lent it to us.
    pub(in crate::manager) const fn is_borrowed(&self) -> bool {
        matches!(self.lease.owner, Owner::Lender(..))
    }

    /// Whether it was ever lent.
    pub(in crate::manager) fn was_lent(&self) -> bool {
        self.inner().loans.ever()
    }

    /// Whether it is given back with what its work came to, whatever is out.
    pub(in crate::manager) const fn is_of_a_run(&self) -> bool {
        self.run.is_some()
    }

    /// Notes one loan of the tenant `number`, if the lock is still to be relied on: its number, and by when the nodes
    /// will have let the lock go, whatever is late.
    pub(in crate::manager) fn lend(&self, number: u32) -> Result<(u32, Duration), LossReason> {
        if let Some(reason) = self.ended_because(number) {
            return Err(reason);
        }
        let mut inner = self.inner();
        // The last guard may have left in between, or left the lock to the loans that are out.
        if !self.is_held_by(&inner, number) || inner.guards == 0 {
            return Err(LossReason::Released);
        }
        inner.loans.out += 1;
        inner.loans.made = inner.loans.made.wrapping_add(1).max(1);
        let end = inner.holding.latest_end() + self.lease.ttl;
        Ok((inner.loans.made, end.since(self.clock.now())))
    }

    /// Leaves the release to the last loan, if one is out; whether it does. For a lock whose last guard has left.
    pub(in crate::manager) fn park(&self, shared: &Arc<Shared>) -> bool {
        let mut inner = self.inner();
        if inner.loans.out == 0 {
            return false;
        }
        inner.loans.parked = Some(Parked(Arc::clone(shared)));
        true
    }

    /// Notes the end of one loan. If the guards have gone and it was the last, the lock is to be let go now, through
    /// the manager that is returned.
    ///
    /// Without an answer nobody knows whether the borrower is still at work: from here on the lock is not extended,
    /// and it is never released.
    pub(in crate::manager) fn loan_ended(&self, answered: bool) -> Option<Arc<Shared>> {
        let mut inner = self.inner();
        inner.loans.out = inner.loans.out.saturating_sub(1);
        if !answered {
            inner.loans.abandoned = true;
            inner.holding.cease();
        }
        if inner.loans.out > 0 {
            return None;
        }
        let parked = inner.loans.parked.take();
        parked.map(|Parked(shared)| shared)
    }
}
