//! [`HeldLease`] drives the [`LeaseState`] of one lock. See there for the methods that have the name of an event.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::Clock;
use crate::lease::Lease;
use crate::manager::error::LossReason;
use crate::manager::lease::state::{Effects, End, LeaseState};
use crate::manager::ledger::{Obligation, Stage};
use crate::manager::queue::{Deadline, Holder, fifo as queue};
use crate::manager::tasks::notified_until;
use crate::moment::Moment;
use crate::namespace::NodeKeys;
use crate::protocol::on_nodes::{Landed, OnNodes};
use crate::protocol::renewal::{Renewal, Terms};
use crate::settings::constants::HandOff;
use crate::token::FencingToken;
use crate::trace::Caller;

pub(crate) type Queue = queue::Queue<Passed>;
pub(crate) type Turn = queue::Turn<Passed>;

/// What passes to the next caller of this process.
pub(crate) enum Passed {
    Turn(Turn),
    Lock(Tenancy),
}

impl queue::Handover for Passed {
    type Holder = Holder;

    fn of_turn(turn: Turn) -> Self {
        Self::Turn(turn)
    }
}

/// A lock from the view of one of its tenants.
#[derive(Clone)]
pub(crate) struct Tenancy {
    pub(crate) lease: Arc<HeldLease>,
    pub(crate) number: u32,
    // Set for a reader, which shares the lock with other readers of this process.
    share: Option<Arc<Share>>,
}

struct Share {
    guards: AtomicU32,
    // Notified when the last guard of this reader is gone.
    left: Arc<Notify>,
}

impl Tenancy {
    pub(crate) fn new(lease: Arc<HeldLease>, number: u32) -> Self {
        let is_shared = lease.keys.first().is_shared();
        let share = || Share {
            guards: AtomicU32::new(1),
            left: Arc::default(),
        };
        Self {
            share: is_shared.then(|| Arc::new(share())),
            lease,
            number,
        }
    }

    pub(crate) fn join(lease: Arc<HeldLease>) -> Option<Self> {
        // A shared lock never passes to another tenant, so all its readers have the number of the first tenant.
        let reader = Self::new(lease, 0);
        reader.lease.share(reader.number).is_ok().then_some(reader)
    }

    fn has_left(&self) -> bool {
        let share = self.share.as_ref();
        share.is_some_and(|share| share.guards.load(Ordering::Acquire) == 0)
    }

    /// Notified when this reader has left. `HeldLease::ended` is notified of all other ends.
    pub(crate) fn left(&self) -> Option<&Arc<Notify>> {
        self.share.as_ref().map(|share| &share.left)
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.has_left() || self.lease.is_lost(self.number)
    }

    pub(crate) fn remaining(&self) -> Duration {
        if self.is_lost() {
            return Duration::ZERO;
        }
        let lease = &self.lease;
        lease.deadline.get().since(lease.clock.now())
    }

    pub(crate) fn ended_because(&self) -> Option<LossReason> {
        if self.has_left() {
            return Some(LossReason::Released);
        }
        self.lease.ended_because(self.number)
    }

    pub(crate) fn share(&self) -> Result<(), LossReason> {
        if let Some(share) = &self.share {
            let more = |count: u32| (count > 0).then_some(count + 1);
            let order = (Ordering::AcqRel, Ordering::Acquire);
            let shared = share.guards.fetch_update(order.0, order.1, more);
            shared.map_err(|_| LossReason::Released)?;
        }
        self.lease
            .share(self.number)
            .inspect_err(|_| self.count_down())
    }

    /// Removes one guard. Returns whether it was the last guard of the lock in this process.
    pub(crate) fn leave(&self) -> bool {
        self.count_down();
        self.lease.leave()
    }

    fn count_down(&self) {
        let Some(share) = &self.share else { return };
        if share.guards.fetch_sub(1, Ordering::AcqRel) == 1 {
            share.left.notify_waiters();
        }
    }
}

pub(crate) struct HeldLease {
    pub(crate) id: u64,
    pub(crate) lease: Lease,
    pub(crate) keys: NodeKeys,
    // How long the caller that got the lock from the nodes had waited for it.
    pub(crate) waited: Duration,
    pub(crate) clock: Arc<dyn Clock>,
    // The deadline and the tenant of the state, to be read without the mutex. They change only under the mutex.
    deadline: Arc<Deadline>,
    tenant: AtomicU32,
    // When the watchdog looks at this lock again, in nanoseconds. It changes only under the mutex of the registry.
    due: AtomicU64,
    inner: Mutex<Inner>,
    /// Notified when the end is announced, when the lock has ended, and when the lock passes to a new tenant.
    pub(crate) ended: Arc<Notify>,
    landed: Notify,
}

struct Inner {
    state: LeaseState,
    // For a permit: all slots that were asked for, as long as a node may have set another slot than ours.
    asked: Option<NodeKeys>,
    // The right to contend for the keys, until the lock is lost or released. Permits and readers have none.
    turn: Option<Turn>,
    obligation: Option<Obligation>,
    caller: Caller,
}

pub(crate) struct LetGo {
    pub(crate) end: End,
    pub(crate) keys: NodeKeys,
    /// `None` if the loss of the lock has already passed the turn on.
    pub(crate) turn: Option<Turn>,
    /// `None` if the lock was released before.
    pub(crate) obligation: Option<Obligation>,
}

pub(crate) struct LeaseView {
    pub(crate) keys: NodeKeys,
    pub(crate) since: Moment,
    /// The origin of time once the lock is lost.
    pub(crate) deadline: Moment,
    pub(crate) fence: Option<FencingToken>,
}

pub(crate) struct Won {
    pub(crate) lease: Lease,
    pub(crate) keys: NodeKeys,
    pub(crate) asked: Option<NodeKeys>,
    pub(crate) nodes: OnNodes,
    pub(crate) renewal: Renewal,
    pub(crate) turn: Option<Turn>,
    pub(crate) obligation: Obligation,
    pub(crate) waited: Duration,
    pub(crate) caller: Caller,
}

impl HeldLease {
    pub(crate) fn new(id: u64, clock: Arc<dyn Clock>, mut won: Won) -> Self {
        won.obligation.enter(Stage::Held);
        let lease = won.lease;
        let validity = lease.deadline.since(lease.started);
        let reserve = lease.ttl.saturating_sub(validity);
        let deadline = Arc::new(Deadline::new(lease.deadline, reserve));
        if let Some(turn) = &won.turn {
            turn.set_holder(&Holder::Here(Arc::clone(&deadline)));
        }
        let state = LeaseState::new(won.nodes, won.renewal, lease.started);
        Self {
            id,
            deadline,
            due: AtomicU64::new(state.due().as_nanos()),
            inner: Mutex::new(Inner {
                state,
                asked: won.asked,
                turn: won.turn,
                obligation: Some(won.obligation),
                caller: won.caller,
            }),
            lease,
            keys: won.keys,
            waited: won.waited,
            clock,
            tenant: AtomicU32::new(0),
            ended: Arc::new(Notify::new()),
            landed: Notify::new(),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // Ignore poisoning, because no change under this mutex can panic half-way.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies an event. Performs its effects after unlocking the mutex, because they can run foreign code.
    fn change<T>(&self, event: impl FnOnce(&mut Inner) -> (T, Effects)) -> (T, Effects) {
        let mut inner = self.inner();
        let (value, effects) = event(&mut inner);
        self.deadline.set(inner.state.deadline);
        self.tenant.store(inner.state.tenant, Ordering::Release);
        let turn = inner.turn.take_if(|_| effects.pass_turn);
        let lost = effects.lost.map(|reason| (reason, inner.caller.clone()));
        drop(inner);
        if effects.notify_ended {
            self.ended.notify_waiters();
        }
        if effects.notify_landed {
            self.landed.notify_waiters();
        }
        drop(turn);
        if let Some(time) = effects.held_for {
            crate::instruments::held_for(time);
        }
        if let Some((reason, caller)) = lost {
            crate::instruments::lost(reason.word());
            let key = self.keys.first().show();
            caller.tell(|| crate::trace::lock_lost(&key, &reason));
        }
        (value, effects)
    }

    fn apply(&self, event: impl FnOnce(&mut LeaseState) -> Effects) -> Effects {
        self.change(|inner| ((), event(&mut inner.state))).1
    }

    /// Whether the lock is lost for the tenant `number`.
    ///
    /// This usually takes no mutex: each end of a lock moves the deadline to the origin or the tenant to the next
    /// number, so a deadline in the future means that the lock is held. A deadline in the past can be out of date,
    /// because this thread may not see the latest extension yet. So before it answers *lost*, this method asks the
    /// state under the mutex, which also makes the loss final.
    fn is_lost(&self, number: u32) -> bool {
        if self.tenant.load(Ordering::Acquire) != number {
            return true;
        }
        let event = |inner: &mut Inner| {
            let now = self.clock.now();
            (now >= inner.state.deadline, inner.state.check(now))
        };
        self.is_overdue() && self.change(event).0
    }

    fn ended_because(&self, number: u32) -> Option<LossReason> {
        let event = |inner: &mut Inner| inner.state.ended_because(number, self.clock.now());
        self.change(event).0
    }

    pub(crate) fn end_is_announced(&self) {
        self.inner().state.end_is_announced();
    }

    /// Loses the lock immediately. `false` if it had ended before.
    pub(crate) fn lose(&self, reason: LossReason) -> bool {
        let effects = self.apply(|state| state.lose(reason, self.clock.now()));
        effects.lost.is_some()
    }

    pub(crate) fn offer(self: &Arc<Self>, terms: &HandOff, time: Duration) -> Option<Tenancy> {
        let effects = self.apply(|state| state.offer(self.clock.now(), terms, time));
        let tenant = effects.hand_over?;
        Some(Tenancy::new(Arc::clone(self), tenant))
    }

    pub(crate) fn accept(&self, number: u32) -> bool {
        self.inner().state.accept(number)
    }

    pub(crate) fn hold_for(&self, number: u32, max_hold: Duration) -> bool {
        let event =
            |inner: &mut Inner| (inner.state.hold_for(number, max_hold), Effects::default());
        self.change(event).0
    }

    /// Whether the deadline has passed, even if the state does not show that yet.
    pub(crate) fn is_overdue(&self) -> bool {
        self.clock.now() >= self.deadline.get()
    }

    /// Returns the nodes to which the caller is to send an extension, and the tenancy that the caller is to end because
    /// nobody accepted it in time. The caller [lands](Self::land) each extension once, even if it does not send it.
    pub(crate) fn tick(self: &Arc<Self>, now: Moment) -> (Vec<usize>, Option<Tenancy>) {
        let effects = self.apply(|state| state.tick(now));
        let lapsed = |number| Tenancy::new(Arc::clone(self), number);
        (effects.renew, effects.lapsed.map(lapsed))
    }

    pub(crate) fn land(&self, node: usize, sent: Moment, landed: Landed) {
        let _ = self.apply(|state| state.land(node, sent, landed, self.clock.now()));
    }

    /// After [`let_go`](Self::let_go): waits until no command that can set our token is in flight to `node`, and
    /// returns what the nodes have then.
    pub(crate) async fn landed(&self, node: usize) -> OnNodes {
        let look = || {
            let inner = self.inner();
            let nodes = &inner.state.nodes;
            (!nodes.is_in_flight(node)).then(|| nodes.clone())
        };
        notified_until(&self.landed, look).await
    }

    /// Called for a permit when its stray slots have been freed. If no command can still set another slot, the release
    /// need not free the other slots.
    pub(crate) fn has_only_its_slot(&self) {
        let mut inner = self.inner();
        let nodes = &inner.state.nodes;
        if (0..nodes.len()).all(|node| !nodes.is_in_flight(node) && !nodes.may_still_run(node)) {
            inner.asked = None;
        }
    }

    pub(crate) fn plan_top_up(&self, at: Moment) -> bool {
        self.inner().state.plan_top_up(at)
    }

    pub(super) fn doubt(&self, node: usize, forgot: Moment, now: Moment) -> bool {
        self.inner().state.doubt(node, forgot, now)
    }

    pub(crate) fn due(&self) -> Moment {
        Moment::from_nanos(self.due.load(Ordering::Relaxed))
    }

    pub(crate) fn terms(&self) -> Terms {
        *self.inner().state.renewal.terms()
    }

    /// Only for the registry, under its mutex.
    pub(super) fn plan(&self) {
        let due = self.inner().state.due();
        self.due.store(due.as_nanos(), Ordering::Relaxed);
    }

    fn share(&self, number: u32) -> Result<(), LossReason> {
        let event = |inner: &mut Inner| inner.state.share(number, self.clock.now());
        self.change(event).0
    }

    fn leave(&self) -> bool {
        self.inner().state.leave()
    }

    pub(crate) fn let_go(&self) -> LetGo {
        let event = |inner: &mut Inner| {
            let (end, effects) = inner.state.let_go(self.clock.now());
            let asked = inner.asked.take();
            let let_go = LetGo {
                end,
                keys: asked.unwrap_or_else(|| self.keys.clone()),
                turn: inner.turn.take_if(|_| !effects.pass_turn),
                obligation: inner.obligation.take(),
            };
            // Set this before anyone can see the end. A caller that sees the end and tries only once can then wait for
            // the release.
            if let Some(turn) = &let_go.turn {
                turn.set_being_released(true);
            }
            (let_go, effects)
        };
        self.change(event).0
    }

    pub(crate) fn belongs_to(&self, caller: Caller) {
        self.inner().caller = caller;
    }

    /// Logs in the span of the lock's caller.
    pub(crate) fn log(&self, log: impl FnOnce(&str)) {
        let caller = self.inner().caller.clone();
        caller.tell(|| log(&self.keys.first().show()));
    }

    pub(crate) fn on_nodes(&self) -> OnNodes {
        self.inner().state.nodes.clone()
    }

    pub(crate) fn view(&self) -> LeaseView {
        let inner = self.inner();
        let (state, first) = (&inner.state, self.lease.fence);
        LeaseView {
            keys: self.keys.clone(),
            since: state.since,
            deadline: state.deadline,
            fence: first.map(|first| first.handed_on(state.tenant)),
        }
    }
}
