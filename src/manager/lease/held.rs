//! [`HeldLease`]: the driver of [`LeaseState`] for one lock. A method that has the name of an event is described there.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::Clock;
use crate::lease::Lease;
use crate::manager::error::LossReason;
use crate::manager::lease::state::{Debt, Effects, LeaseState, Left};
use crate::manager::ledger::{Obligation, Stage};
use crate::manager::queue::{Deadline, Holder, fifo as queue};
use crate::manager::tasks::notified_until;
use crate::moment::Moment;
use crate::namespace::NodeKeys;
use crate::protocol::renewal::{LeaseNodes, NodeEffect, Terms};
use crate::settings::switches::HandOff;
use crate::token::FencingToken;
use crate::trace::Caller;

pub(crate) type Queue = queue::Queue<Passed>;
pub(crate) type Turn = queue::Turn<Passed>;

pub(crate) enum Passed {
    /// A turn without a lock: contend for the keys.
    Turn(Turn),
    /// A lock, with its turn.
    Lock(Tenancy),
}

impl queue::Handover for Passed {
    type Note = Holder;

    fn of_turn(turn: Turn) -> Self {
        Self::Turn(turn)
    }
}

/// A lock as one of its tenants has it. A plain value: the guards release the lock.
#[derive(Clone)]
pub(crate) struct Tenancy {
    pub(crate) lease: Arc<HeldLease>,
    pub(crate) number: u32,
    // Of a reader, who has the lock together with others of this process.
    share: Option<Arc<Share>>,
}

/// What a reader has of a lock.
struct Share {
    guards: AtomicU32,
    // Notified when the last of them is gone.
    left: Arc<Notify>,
}

impl Tenancy {
    const fn of_tenant(lease: Arc<HeldLease>, number: u32) -> Self {
        let share = None;
        Self {
            lease,
            number,
            share,
        }
    }

    /// That of a guard which the lock counts already, and shares with no guard that is there.
    pub(crate) fn first(lease: Arc<HeldLease>) -> Self {
        let is_shared = lease.keys.first().is_shared();
        let share = || Share {
            guards: AtomicU32::new(1),
            left: Arc::default(),
        };
        Self {
            share: is_shared.then(|| Arc::new(share())),
            // A shared lock is never handed on.
            ..Self::of_tenant(lease, 0)
        }
    }

    /// That of one more reader, unless the lock has ended or is about to.
    pub(crate) fn join(lease: Arc<HeldLease>) -> Option<Self> {
        let reader = Self::first(lease);
        reader.lease.share(reader.number).is_ok().then_some(reader)
    }

    /// Whether this reader has left, though others may have the lock yet.
    fn has_left(&self) -> bool {
        let share = self.share.as_ref();
        share.is_some_and(|share| share.guards.load(Ordering::Acquire) == 0)
    }

    /// What is notified when this reader has left; the lease tells of all other ends.
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

    /// Why the lock has ended for this tenant or is about to, if so.
    pub(crate) fn ended_because(&self) -> Option<LossReason> {
        if self.has_left() {
            return Some(LossReason::Released);
        }
        self.lease.ended_because(self.number)
    }

    /// Counts one more guard, unless the lock has ended or is about to.
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

    /// One of the guards has left. Returns whether it was the last that the lock has in this process.
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
    // The serial number of the manager that it is held with.
    pub(crate) manager: u64,
    pub(crate) lease: Lease,
    pub(crate) keys: NodeKeys,
    // Other keys that a node may have set for its owner by a command that was given up, with these.
    others: OnceLock<NodeKeys>,
    // How long the caller had waited that got it from the nodes.
    pub(crate) waited: OnceLock<Duration>,
    // Whether it may pass to the next caller of this process.
    pub(crate) is_passed_on: bool,
    pub(crate) clock: Arc<dyn Clock>,
    // These two show the state without its mutex. They change under it only.
    deadline: Arc<Deadline>,
    tenant: AtomicU32,
    inner: Mutex<Inner>,
    /// Notified when the end is announced, when the lock has ended, and when it passes to a new tenant.
    pub(crate) ended: Arc<Notify>,
    settled: Notify,
}

pub(super) struct Inner {
    pub(super) state: LeaseState,
    // When the watchdog looks at this lock again.
    due: Moment,
    // The right to contend for the keys, until the lock is lost or released. A permit has none.
    turn: Option<Turn>,
    // To free the nodes: passes to the release.
    obligation: Option<Obligation>,
    caller: Caller,
}

pub(crate) struct PendingRelease {
    pub(crate) left: Left,
    /// The right to contend for the keys, unless the loss has passed it on.
    pub(crate) turn: Option<Turn>,
    /// The duty to free all nodes that are left. `None` for a lock that was released before.
    pub(crate) obligation: Option<Obligation>,
}

pub(crate) struct LeaseView {
    pub(crate) keys: NodeKeys,
    pub(crate) since: Moment,
    /// Until when it may be relied on; the origin of time once it is lost.
    pub(crate) deadline: Moment,
    pub(crate) fence: Option<FencingToken>,
}

impl HeldLease {
    /// A lock that a quorum granted, with the state of every node and the duty to release it.
    pub(crate) fn new(
        (manager, id): (u64, u64),
        lease: Lease,
        keys: NodeKeys,
        clock: Arc<dyn Clock>,
        nodes: LeaseNodes,
        (turn, mut obligation): (Option<Turn>, Obligation),
        is_passed_on: bool,
    ) -> Self {
        obligation.enter(Stage::Held);
        let validity = lease.deadline.since(lease.started);
        let reserve = lease.ttl.saturating_sub(validity);
        let deadline = Arc::new(Deadline::new(lease.deadline, reserve));
        if let Some(turn) = &turn {
            turn.note(&Holder::Here(Arc::clone(&deadline)));
        }
        Self {
            id,
            manager,
            deadline,
            inner: Mutex::new(Inner {
                state: LeaseState::new(nodes, lease.ttl, lease.started),
                due: Moment::from_nanos(u64::MAX),
                turn,
                obligation: Some(obligation),
                caller: Caller::default(),
            }),
            lease,
            keys,
            others: OnceLock::new(),
            waited: OnceLock::new(),
            is_passed_on,
            clock,
            tenant: AtomicU32::new(0),
            ended: Arc::new(Notify::new()),
            settled: Notify::new(),
        }
    }

    pub(super) fn inner(&self) -> MutexGuard<'_, Inner> {
        // What is done under it is short and cannot panic half-way.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies an event, and performs its effects once the mutex is unlocked, because they run foreign code. Returns
    /// the result of the event.
    fn change<T>(&self, event: impl FnOnce(&mut Inner) -> (T, Effects)) -> (T, Effects) {
        let mut inner = self.inner();
        let (value, effects) = event(&mut inner);
        self.deadline.set(inner.state.deadline());
        self.tenant.store(inner.state.tenant(), Ordering::Release);
        let turn = inner.turn.take_if(|_| effects.pass_turn);
        let lost = effects.lost.map(|reason| (reason, inner.caller.clone()));
        drop(inner);
        if effects.notify_ended {
            self.ended.notify_waiters();
        }
        if effects.notify_settled {
            self.settled.notify_waiters();
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

    /// Notes that a node may have set any of the keys that were `asked` for, if one of them was enough.
    pub(crate) fn may_have(&self, asked: Option<&NodeKeys>) {
        if let Some(asked) = asked {
            self.others.get_or_init(|| asked.clone());
        }
    }

    /// The keys that are to be released.
    pub(crate) fn owed(&self) -> &NodeKeys {
        self.others.get().unwrap_or(&self.keys)
    }

    fn apply(&self, event: impl FnOnce(&mut LeaseState) -> Effects) -> Effects {
        self.change(|inner| ((), event(&mut inner.state))).1
    }

    /// Whether the lock is lost, for the tenant `number`.
    fn is_lost(&self, number: u32) -> bool {
        if self.tenant.load(Ordering::Acquire) != number {
            return true;
        }
        // Loss by anything but time moves the deadline to the origin, so one comparison answers for all.
        if self.clock.now() < self.deadline.get() {
            return false;
        }
        // An extension may have come in between; then the lock was never seen as lost.
        let (is_lost, _) = self.change(|inner| {
            let now = self.clock.now();
            (now >= inner.state.deadline(), inner.state.check(now))
        });
        is_lost
    }

    fn ended_because(&self, number: u32) -> Option<LossReason> {
        let event = |inner: &mut Inner| inner.state.ended_because(number, self.clock.now());
        self.change(event).0
    }

    pub(crate) fn end_is_told(&self) {
        self.inner().state.end_is_told();
    }

    /// Loses the lock at once; `false` if it has ended before.
    pub(crate) fn lose(&self, reason: LossReason) -> bool {
        let effects = self.apply(|state| state.lose(reason, self.clock.now()));
        effects.lost.is_some()
    }

    /// Passes the lock on, within these `terms`, if it is `wanted`: another caller of this process waits for it.
    pub(crate) fn succeed(
        self: &Arc<Self>,
        terms: &HandOff,
        time: Duration,
        wanted: bool,
    ) -> Option<Tenancy> {
        let ((), effects) = self.change(|inner| {
            let now = self.clock.now();
            ((), inner.state.succeed(now, terms, wanted, time))
        });
        let lease = Arc::clone(self);
        let tenant = |number| Tenancy::of_tenant(lease, number);
        effects.hand_over.map(tenant)
    }

    pub(crate) fn accept(&self, number: u32) -> bool {
        self.inner().state.accept(number)
    }

    pub(crate) fn hold_for(&self, number: u32, max_hold: Duration) -> bool {
        let event = |inner: &mut Inner| {
            let changes = inner.state.hold_for(number, max_hold);
            (changes, Effects::default())
        };
        self.change(event).0
    }

    /// Whether the deadline has passed. The state may not show that yet.
    pub(crate) fn is_overdue(&self) -> bool {
        self.clock.now() >= self.deadline.get()
    }

    /// Does what is due at `now`; returns the nodes that are to be sent an extension, sent at `now`, and the tenancy that
    /// has lapsed, for a guard to end it. Each of the nodes gets one [`reply`](Self::reply).
    pub(crate) fn tick(self: &Arc<Self>, now: Moment) -> (Vec<usize>, Option<Tenancy>) {
        let effects = self.apply(|state| state.tick(now));
        let lapsed = |number| Tenancy::of_tenant(Arc::clone(self), number);
        (effects.renew, effects.lapsed.map(lapsed))
    }

    pub(crate) fn reply(&self, node: usize, effect: NodeEffect) {
        let _ = self.apply(|state| state.reply(node, effect, self.clock.now()));
    }

    /// Waits until no command that may set our token is under way to `node`, and tells what it owes. For a lock that
    /// [was let go of](Self::let_go).
    pub(crate) async fn settled(&self, node: usize) -> Debt {
        notified_until(&self.settled, || self.inner().state.debt(node)).await
    }

    pub(crate) fn plan_top_up(&self, at: Moment) -> bool {
        self.inner().state.plan_top_up(at)
    }

    pub(crate) fn due(&self) -> Moment {
        self.inner().due
    }

    pub(crate) fn terms(&self) -> Terms {
        self.inner().state.terms()
    }

    /// Plans the next look of the watchdog. Only the registry calls it, under its mutex.
    pub(super) fn plan(&self) -> Moment {
        let mut inner = self.inner();
        inner.due = inner.state.due();
        inner.due
    }
}

impl HeldLease {
    fn share(&self, number: u32) -> Result<(), LossReason> {
        let event = |inner: &mut Inner| inner.state.share(number, self.clock.now());
        self.change(event).0
    }

    fn leave(&self) -> bool {
        self.inner().state.leave()
    }

    /// Lets go of the lock: from here on the watchdog leaves it alone.
    pub(crate) fn let_go(&self) -> PendingRelease {
        let event = |inner: &mut Inner| {
            let (left, effects) = inner.state.let_go(self.clock.now());
            let pending = PendingRelease {
                left,
                turn: inner.turn.take_if(|_| !effects.pass_turn),
                obligation: inner.obligation.take(),
            };
            // Before the end can be seen: a caller that sees it and tries once may wait for the release.
            if let Some(turn) = &pending.turn {
                turn.set_leaving(true);
            }
            (pending, effects)
        };
        self.change(event).0
    }
}

impl HeldLease {
    pub(crate) fn belongs_to_caller(&self) {
        self.inner().caller = Caller::current();
    }

    /// Logs something about the lock in the span of its caller; `tell` gets the name by which it is shown.
    pub(crate) fn tell(&self, tell: impl FnOnce(&str)) {
        let caller = self.inner().caller.clone();
        caller.tell(|| tell(&self.keys.first().show()));
    }

    pub(crate) fn granted(&self) -> Vec<usize> {
        self.inner().state.holding()
    }

    pub(crate) fn view(&self) -> LeaseView {
        let inner = self.inner();
        let (state, first) = (&inner.state, self.lease.fence);
        LeaseView {
            keys: self.keys.clone(),
            since: state.since(),
            deadline: state.deadline(),
            fence: first.map(|first| first.handed_on(state.tenant())),
        }
    }
}
