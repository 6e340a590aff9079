//! What a hold keeps under its mutex, and what is done once that is unlocked.

use std::ops::{Deref, DerefMut};
use std::sync::MutexGuard;
use std::time::Duration;

use crate::manager::error::loss::LossReason;
use crate::manager::lease::held::{HeldLease, Turns};
use crate::manager::lease::loans::Loans;
use crate::manager::ledger::Obligation;
use crate::moment::Moment;
use crate::protocol::renewal::LeaseNodes;
use crate::trace::{Caller, lock_lost};

/// What changes about a lock while it is held.
#[derive(Debug)]
pub(in crate::manager) struct Inner {
    pub(in crate::manager) holding: LeaseNodes,
    pub(in crate::manager) phase: Phase,
    // When the watchdog looks at this lock again.
    pub(in crate::manager) due: Moment,
    // The right to go for the key: it passes to the next in this process when the lock is lost or given back.
    pub(in crate::manager) turns: Option<Turns>,
    // To free the nodes: with whoever has let go of the lock, once that is done.
    pub(in crate::manager) obligation: Option<Obligation>,
    // How many guards share it: those of the present tenant.
    pub(in crate::manager) guards: u32,
    pub(in crate::manager) loans: Loans,
    // When the present tenant got it.
    pub(in crate::manager) since: Moment,
    pub(in crate::manager) caller: Caller,
    // Whether somebody was told of its end while it was still to be relied on.
    pub(in crate::manager) told: bool,
}

/// The inside of a hold, and what is to be done once its mutex is unlocked: fields drop in order.
pub(in crate::manager) struct Locked<'a> {
    pub(in crate::manager) inner: MutexGuard<'a, Inner>,
    pub(in crate::manager) after: After<'a>,
}

/// What must not be done under the mutex, for it calls code that is not ours.
pub(in crate::manager) struct After<'a> {
    pub(in crate::manager) hold: &'a HeldLease,
    pub(in crate::manager) ended: bool,
    pub(in crate::manager) settled: bool,
    pub(in crate::manager) lost: Option<(LossReason, Caller)>,
    pub(in crate::manager) passed: Option<Turns>,
    // For how long a tenant that is one no more has held it.
    pub(in crate::manager) held_for: Option<Duration>,
}

impl<'a> Locked<'a> {
    pub(in crate::manager) const fn new(hold: &'a HeldLease, inner: MutexGuard<'a, Inner>) -> Self {
        Self {
            inner,
            after: After {
                hold,
                ended: false,
                settled: false,
                lost: None,
                passed: None,
                held_for: None,
            },
        }
    }
}

impl Drop for After<'_> {
    fn drop(&mut self) {
        if self.ended {
            self.hold.ended.notify_waiters();
        }
        if self.settled {
            self.hold.settled.notify_waiters();
        }
        drop(self.passed.take());
        if let Some(time) = self.held_for {
            crate::metrics::held_for(time);
        }
        if let Some((reason, caller)) = self.lost.take() {
            crate::metrics::lost(reason.word());
            let key = self.hold.keys.first().show(self.hold.redact);
            caller.tell(|| lock_lost(&key, &reason));
        }
    }
}

impl Deref for Locked<'_> {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.inner
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Inner {
        &mut self.inner
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::manager) enum Phase {
    Held,
    Ending(LossReason),
    Lost(LossReason),
    Released,
}
