//! The watchdog: one timer and, per node, one batch of extensions for all held locks.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::borrow::follow;
use super::core::Core;
use super::ending::LossReason;
use super::hold::Hold;
use crate::clock::Clock as _;
use crate::moment::Moment;
use crate::node::{ExtendReply, ExtendRequest, NodeError, NodeErrorKind};
use crate::token::{Owner, OwnerToken};

/// All locks that are held, by the moment at which each needs attention.
#[derive(Debug)]
pub(super) struct Registry {
    state: Mutex<State>,
    // Something became due earlier than the watchdog sleeps, or it should stop.
    changed: Notify,
    // No more locks are taken.
    closing: Notify,
}

#[derive(Debug, Default)]
struct State {
    holds: BTreeMap<(Moment, u64), Arc<Hold>>,
    // Until when the watchdog sleeps; `None` for as long as need be.
    armed: Option<Moment>,
    closed: bool,
    stopped: bool,
}

impl Registry {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::new(State::default()),
            changed: Notify::new(),
            closing: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a lock into care; `false` if the manager takes no more.
    pub(super) fn insert(&self, hold: &Arc<Hold>) -> bool {
        let mut state = self.state();
        if state.closed {
            return false;
        }
        // Under the mutex, so that a top-up that was planned before is in it, and one planned later finds it.
        let due = hold.first_due();
        self.place(&mut state, hold, due);
        crate::metrics::held_more();
        true
    }

    fn place(&self, state: &mut State, hold: &Arc<Hold>, due: Moment) {
        hold.set_due(due);
        state.holds.insert((due, hold.id), Arc::clone(hold));
        // The common case wakes nobody: a new lock is due later than those before it.
        if state.armed.is_none_or(|armed| due < armed) {
            state.armed = Some(due);
            self.changed.notify_one();
        }
    }

    /// Lets go of a lock.
    pub(super) fn remove(&self, hold: &Hold) {
        let mut state = self.state();
        if state.holds.remove(&(hold.due(), hold.id)).is_some() {
            crate::metrics::held_less();
        }
    }

    /// Has the missing nodes of a lock topped up at `at`.
    pub(super) fn top_up(&self, hold: &Arc<Hold>, at: Moment) {
        if !hold.plan_top_up(at) {
            return;
        }
        let mut state = self.state();
        let due = hold.due();
        // Not there: released meanwhile, or about to be inserted, and then its first tick sees the plan.
        if at < due && state.holds.remove(&(due, hold.id)).is_some() {
            self.place(&mut state, hold, at);
        }
    }

    /// Takes no more locks.
    pub(super) fn close(&self) {
        self.state().closed = true;
        self.closing.notify_waiters();
    }

    /// Waits until no more locks are taken.
    pub(super) async fn closing(&self) {
        loop {
            let closing = self.closing.notified();
            if self.is_closed() {
                return;
            }
            closing.await;
        }
    }

    /// Whether no more locks are taken.
    pub(super) fn is_closed(&self) -> bool {
        self.state().closed
    }

    /// All locks that are held.
    pub(super) fn holds(&self) -> Vec<Arc<Hold>> {
        self.state().holds.values().map(Arc::clone).collect()
    }

    /// Loses every lock that is held; tells how many were not lost before.
    pub(super) fn lose_all(&self, reason: LossReason) -> usize {
        let holds = self.holds().into_iter();
        holds.filter(|hold| hold.lose(reason)).count()
    }

    /// Ends the watchdog.
    pub(super) fn stop(&self) {
        self.state().stopped = true;
        self.changed.notify_one();
    }

    /// Waits until a lock needs attention; `false` when the watchdog should end.
    async fn wait(&self, now: impl Fn() -> Option<Moment>) -> bool {
        loop {
            let changed = self.changed.notified();
            let Some(now) = now() else { return false };
            let due = {
                let mut state = self.state();
                if state.stopped {
                    return false;
                }
                let first = state.holds.keys().next().map(|(due, _)| *due);
                // What is planned stays, though the lock that it was for be gone: the next is due later, and then
                // wakes nobody. Else every lock that is taken while no other is held would wake this task.
                let planned = state.armed.filter(|armed| *armed > now);
                state.armed = first.into_iter().chain(planned).min();
                state.armed
            };
            match due {
                Some(due) if due <= now => return true,
                Some(due) => {
                    tokio::select! {
                        biased;
                        () = changed => {}
                        () = sleep(due.since(now)) => {}
                    }
                }
                None => changed.await,
            }
        }
    }

    /// The locks that are due at `now`.
    fn due(&self, now: Moment) -> Vec<Arc<Hold>> {
        let until = (now, u64::MAX);
        let state = self.state();
        state
            .holds
            .range(..=until)
            .map(|(_, hold)| Arc::clone(hold))
            .collect()
    }

    /// Puts a lock back for its next turn, unless it was released meanwhile.
    fn reschedule(&self, hold: &Arc<Hold>, next: Moment) {
        let mut state = self.state();
        if state.holds.remove(&(hold.due(), hold.id)).is_some() {
            self.place(&mut state, hold, next);
        }
    }
}

/// Looks after the locks of a manager until it is gone.
pub(super) async fn watch(core: Weak<Core>, registry: Arc<Registry>) {
    let now = || core.upgrade().map(|core| core.clock.now());
    while registry.wait(now).await {
        let Some(core) = core.upgrade() else { return };
        turn(&core);
    }
}

/// One turn: everything that is due gets its step, and each node one batch.
fn turn(core: &Arc<Core>) {
    let mut batches: Vec<Vec<Due>> = core.nodes.iter().map(|_| Vec::new()).collect();
    // The send time of all batches: read before anything can leave.
    let sent = core.clock.now();
    // While a node serves processes with another list, what is held ends with its validity.
    let blocked = core.standings.is_blocked();
    for hold in core.registry.due(sent) {
        let (next, nodes) = hold.tick(sent);
        for node in nodes {
            if blocked {
                hold.answered(node, |_| {});
                continue;
            }
            match (hold.lease.owner, batches.get_mut(node)) {
                (Owner::Us(token), Some(batch)) => batch.push(Due {
                    request: renewal(core, &hold, token),
                    hold: Arc::clone(&hold),
                }),
                (Owner::Lender(owner, claim), _) => {
                    let lender = (owner, claim);
                    let look = follow(Arc::clone(core), node, Arc::clone(&hold), lender, sent);
                    core.background.spawn_anyway(look);
                }
                (Owner::Us(_), None) => {}
            }
        }
        core.registry.reschedule(&hold, next);
    }
    for (node, batch) in batches.into_iter().enumerate() {
        if !batch.is_empty() {
            let job = extend(Arc::clone(core), node, batch, sent);
            core.background.spawn_anyway(job);
        }
    }
}

fn renewal(core: &Core, hold: &Hold, token: OwnerToken) -> ExtendRequest {
    let lease = &hold.lease;
    ExtendRequest::new(hold.keys.clone(), token, lease.ttl, true)
        .under(Some(Arc::clone(&core.charter)))
        .numbered(lease.fence.map(|token| core.fence(token)))
}

/// One lock in a batch.
struct Due {
    hold: Arc<Hold>,
    request: ExtendRequest,
}

/// Extends a batch of locks on one node.
async fn extend(core: Arc<Core>, index: usize, batch: Vec<Due>, sent: Moment) {
    let Some(node) = core.nodes.get(index) else {
        return;
    };
    let requests: Arc<[ExtendRequest]> = batch.iter().map(|due| due.request.clone()).collect();
    let answers = match timeout(core.node_timeout, node.extend(requests)).await {
        Ok(answers) => answers,
        Err(_) => Err(core.timed_out()),
    };
    let mut answers = match answers {
        Ok(answers) => answers,
        Err(error) => vec![Err(error); batch.len()],
    };
    // A node that answers for fewer locks than it was asked about has not answered for the others.
    answers.resize_with(batch.len(), || Err(core.timed_out()));
    for (due, answer) in batch.iter().zip(answers) {
        if let Err(error) = &answer {
            due.hold
                .tell(|key| crate::trace::not_extended(key, core.name_of(index), error));
        }
        due.hold.answered(index, |holding| match answer {
            Ok(ExtendReply::Extended | ExtendReply::Refilled) if core.in_time(sent) => {
                holding.confirm(index, sent);
            }
            // Too late to count; it may be there.
            Ok(ExtendReply::Extended | ExtendReply::Refilled) => holding.unknown(index),
            Ok(ExtendReply::Quarantined) => {
                // It is there, to be carried when the node votes again or knows of leases as long, and counts for
                // nothing until then.
                core.standings.suspect(index);
                holding.unknown(index);
            }
            Ok(ExtendReply::Absent) => holding.absent(index, sent),
            Ok(ExtendReply::Held(_)) => holding.foreign(index, sent),
            Err(error) => note_failure(&core, holding, index, &error),
        });
    }
}

fn note_failure(
    core: &Core,
    holding: &mut crate::protocol::renewal::Holding,
    index: usize,
    error: &NodeError,
) {
    if error.outcome_unknown() {
        holding.unknown(index);
    }
    core.heard(index, error);
    if matches!(
        error.kind(),
        NodeErrorKind::Rejected | NodeErrorKind::Misconfigured | NodeErrorKind::Foreign
    ) {
        crate::trace::command_failed(core.name_of(index), "extend", error);
    }
}

#[cfg(test)]
mod tests {
    use crate::LockManager;

    #[tokio::test]
    async fn a_lock_that_was_held_for_a_moment_does_not_make_the_next_wake_the_watchdog() {
        let locks = LockManager::builder().memory(1).connect().await.unwrap();
        let planned = || locks.core.registry.state().armed;
        drop(locks.try_acquire("one").await.unwrap());
        let first = planned();
        assert!(first.is_some());
        // It looks after the lock now, and finds it gone.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert!(locks.core.registry.holds().is_empty());
        assert_eq!(planned(), first, "it sleeps until then");
        let _lock = locks.try_acquire("two").await.unwrap();
        assert_eq!(planned(), first, "and need not be woken");
    }
}
