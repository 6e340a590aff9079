//! One lock that this process holds, from its grant to its end.
//!
//! [`state`] is a pure state machine that takes events with their time, and returns effects. [`held`] keeps the state
//! in a mutex and performs the effects. The [`Registry`] has all held locks, sorted by the time at which the watchdog
//! looks at them again.

pub(crate) mod held;
pub(crate) mod open;
pub(crate) mod state;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use crate::manager::error::LossReason;
use crate::manager::lease::held::HeldLease;
use crate::manager::tasks::Signal;
use crate::moment::Moment;

#[derive(Default)]
pub(crate) struct Registry {
    state: Mutex<Plan>,
    // Wakes the watchdog if a lock is due earlier than planned, or if the watchdog should stop.
    changed: Notify,
    // Given once the manager grants no more locks.
    pub(crate) closing: Signal,
}

#[derive(Default)]
pub(crate) struct Plan {
    pub(crate) leases: BTreeMap<(Moment, u64), Arc<HeldLease>>,
    // The moment until which the watchdog sleeps, or `None` if it sleeps until it is notified.
    pub(crate) armed: Option<Moment>,
    pub(crate) stopped: bool,
}

impl Registry {
    pub(crate) fn state(&self) -> MutexGuard<'_, Plan> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a lock, which the watchdog extends from now on. Returns `false` if the manager grants no more locks.
    pub(crate) fn insert(&self, lease: &Arc<HeldLease>) -> bool {
        let mut state = self.state();
        // Check this under the mutex. A shutdown gives the signal before it loses all locks in the registry, so it
        // misses no lock: the lock is either in the registry by then, or is refused here.
        if self.closing.is_given() {
            return false;
        }
        // Plan again, because a top-up may have been planned since the lock was made.
        lease.plan();
        self.place(&mut state, lease);
        crate::instruments::held_more();
        true
    }

    fn place(&self, state: &mut Plan, lease: &Arc<HeldLease>) {
        let due = lease.due();
        state.leases.insert((due, lease.id), Arc::clone(lease));
        // A new lock is usually due later than the locks before it. Then the watchdog need not be woken.
        if state.armed.is_none_or(|armed| due < armed) {
            state.armed = Some(due);
            self.changed.notify_one();
        }
    }

    pub(crate) fn remove(&self, lease: &HeldLease) {
        let mut state = self.state();
        if state.leases.remove(&(lease.due(), lease.id)).is_some() {
            crate::instruments::held_less();
        }
    }

    pub(crate) fn top_up(&self, lease: &Arc<HeldLease>, at: Moment) {
        if lease.plan_top_up(at) {
            self.replan(lease);
        }
    }

    /// `node` may have forgotten locks that were sent to it before `forgot`. Extends these locks immediately. If the
    /// node has granted one of them to another process since, the reply says so.
    pub(crate) fn doubt(&self, node: usize, forgot: Moment, now: Moment) {
        // Keep the mutex for all locks, so that the watchdog waits for it and extends them in one batch.
        let mut state = self.state();
        let leases: Vec<_> = state.leases.values().map(Arc::clone).collect();
        for lease in leases.iter().filter(|it| it.doubt(node, forgot, now)) {
            self.replan_in(&mut state, lease);
        }
    }

    pub(crate) fn leases(&self) -> Vec<Arc<HeldLease>> {
        self.state().leases.values().map(Arc::clone).collect()
    }

    /// Returns how many locks were not lost before.
    pub(crate) fn lose_all(&self, reason: LossReason) -> usize {
        let leases = self.leases().into_iter();
        leases.filter(|lease| lease.lose(reason)).count()
    }

    pub(crate) fn stop(&self) {
        self.state().stopped = true;
        self.changed.notify_one();
    }

    /// Waits until a lock needs attention; `false` when the watchdog should end.
    pub(crate) async fn wait(&self, now: impl Fn() -> Option<Moment>) -> bool {
        loop {
            let changed = self.changed.notified();
            let Some(now) = now() else { return false };
            let due = {
                let mut state = self.state();
                if state.stopped {
                    return false;
                }
                let first = state.leases.keys().next().map(|(due, _)| *due);
                // A planned wake-up stays planned even if its lock is gone. The next lock is due later than that, so it
                // does not wake this task. Without this, each lock that is added while no other lock is held would wake
                // this task.
                let planned = state.armed.filter(|armed| *armed > now);
                state.armed = first.into_iter().chain(planned).min();
                state.armed
            };
            match due {
                Some(due) if due <= now => return true,
                Some(due) => {
                    let _ = timeout(due.since(now).min(LOOK), changed).await;
                }
                None => changed.await,
            }
        }
    }

    pub(crate) fn due(&self, now: Moment) -> Vec<Arc<HeldLease>> {
        let state = self.state();
        let due = state.leases.range(..=(now, u64::MAX));
        due.map(|(_, lease)| Arc::clone(lease)).collect()
    }

    /// Plans the next tick of a lock again, unless the lock is not in the registry.
    pub(crate) fn replan(&self, lease: &Arc<HeldLease>) {
        self.replan_in(&mut self.state(), lease);
    }

    fn replan_in(&self, state: &mut Plan, lease: &Arc<HeldLease>) {
        if state.leases.remove(&(lease.due(), lease.id)).is_some() {
            // The mutex is held from the removal to the insertion. So this plan includes all earlier changes, and a
            // later change finds the lock in the registry and plans it again.
            lease.plan();
            self.place(state, lease);
        }
    }
}

/// While a tick is planned, the watchdog sleeps at most this long, because timers stop while the host is suspended.
const LOOK: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use crate::LockManager;
    use crate::clock::{Clock, SystemClock};
    use crate::moment::Moment;
    use crate::protocol::on_nodes::Landed;

    /// With this clock, the watchdog runs on the thread of the test, and so not between two lines of the test.
    #[derive(Debug)]
    struct RuntimeClock;

    impl Clock for RuntimeClock {
        fn now(&self) -> Moment {
            SystemClock.now()
        }

        fn follows_runtime(&self) -> bool {
            true
        }
    }

    #[tokio::test]
    async fn a_top_up_that_was_planned_before_the_lock_was_added_is_not_forgotten() {
        let builder = LockManager::builder().memory(3);
        let locks = builder.clock(RuntimeClock).connect().await.unwrap();
        let guard = locks.try_acquire("k").await.unwrap();
        let (held, registry) = (&guard.tenancy.lease, &locks.shared.registry);
        registry.remove(held);
        let now = held.clock.now();
        held.land(0, now, Landed::Absent);
        assert!(held.plan_top_up(now));
        assert!(registry.insert(held));
        assert!(held.due() <= now);
    }
}
