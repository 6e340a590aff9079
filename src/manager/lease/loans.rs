//! Lending a held lock: while a loan is out, it is neither handed on nor released.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock as _;
use crate::manager::error::loss::LossReason;
use crate::manager::lease::held::{Deferred, HeldLease, Inner};

impl HeldLease {
    /// Whether it was ever lent.
    pub(crate) fn was_lent(&self) -> bool {
        self.inner().state.was_lent()
    }

    /// Notes one loan of the tenant `number`, if the lock is still to be relied on: its number, and by when the nodes
    /// will have let the lock go, whatever is late.
    pub(crate) fn lend(&self, number: u32) -> Result<(u32, Duration), LossReason> {
        let now = self.clock.now();
        let (lent, _) = self.change(|inner| inner.state.lend(number, now));
        lent.map(|(loan, end)| (loan, end.since(now)))
    }

    /// Leaves `release` to the last loan, if one is out; whether it does. For a lock whose last guard has left.
    pub(crate) fn defer(&self, release: impl FnOnce(&Arc<Self>) + Send + 'static) -> bool {
        let mut inner = self.inner();
        let is_deferred = inner.state.defer();
        if is_deferred {
            inner.deferred = Some(Deferred(Box::new(release)));
        }
        is_deferred
    }

    /// Notes the end of one loan. If the guards have gone and it was the last, the lock is released now.
    ///
    /// Without a response it is not known whether the borrower is still at work: from here on the lock is not extended,
    /// and it is never released.
    pub(crate) fn loan_ended(self: &Arc<Self>, answered: bool) {
        let (deferred, _) = self.change(|inner: &mut Inner| {
            let effects = inner.state.loan_ended(answered);
            (inner.deferred.take_if(|_| effects.release), effects)
        });
        if let Some(Deferred(release)) = deferred {
            release(self);
        }
    }
}
