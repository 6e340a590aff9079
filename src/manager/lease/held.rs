//! [`HeldLease`]: one lock that this process holds, shared by its guard, its handles, the watchdog and late answers.
//!
//! ```text
//!            tick: deadline near        tick or check: deadline reached
//!   Held ───────────────────────► Ending ─────────────────────────────► Lost
//!    │  └──────────── taken by another, shutdown ───────────────────────►│
//!    └──────────────────────── guard released or dropped ◄───────────────┘
//!                                      Released
//! ```
//!
//! Only `Held` can be extended, so nothing revives a lock once its end was announced. While it is `Held` it can
//! pass from one guard of this process to the next: what the nodes hold stays, and each guard is a *tenant* of its
//! own, told apart by its number. For all but the present tenant the lock has ended.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::Clock;
use crate::lease::Lease;
use crate::manager::error::loss::LossReason;

pub(in crate::manager) use crate::manager::lease::clocks::Clocks;
use crate::manager::lease::loans::Loans;
use crate::manager::lease::state::{Inner, Locked, Phase};
use crate::manager::ledger::{Obligation, Stage};
use crate::manager::queue;
use crate::manager::settings::hand_off::HandOff;
use crate::manager::waiting::holder::{Deadline, Holder};
use crate::manager::waiting::turns;
use crate::moment::Moment;
use crate::namespace::NodeKeys;
use crate::protocol::renewal::{LeaseNodes, Step};
use crate::trace::Caller;

/// The callers of one manager.
pub(in crate::manager) type Queue = queue::Queue<Passed>;
/// The right to go for a key.
pub(in crate::manager) type Turn = queue::Turn<Passed>;
/// The right to go for all keys of one lock.
pub(in crate::manager) type Turns = turns::Turns<Passed>;

/// What passes from one caller of this process to the next.
#[derive(Debug)]
pub(in crate::manager) enum Passed {
    /// A bare turn: go for the keys.
    Turn(Turn),
    /// A lock, with its turn.
    Lock(Tenancy),
}

impl queue::Baton for Passed {
    type Note = Holder;

    fn bare(turn: Turn) -> Self {
        Self::Turn(turn)
    }
}

/// A lock as one of its tenants has it. A plain value: the tenant's guards are what lets go of the lock.
#[derive(Clone, Debug)]
pub(in crate::manager) struct Tenancy {
    pub(in crate::manager) lease: Arc<HeldLease>,
    pub(in crate::manager) number: u32,
}

impl Tenancy {
    /// That of the caller to which the nodes granted the lock.
    pub(in crate::manager) const fn first(lease: Arc<HeldLease>) -> Self {
        Self { lease, number: 0 }
    }
}

/// One lock that this process holds.
#[derive(Debug)]
pub(in crate::manager) struct HeldLease {
    pub(in crate::manager) id: u64,
    // The manager it is held with.
    pub(in crate::manager) manager: u64,
    pub(in crate::manager) lease: Lease,
    pub(in crate::manager) keys: NodeKeys,
    // Whether its keys are hidden from those who look.
    pub(in crate::manager) redact: bool,
    // Of a run, which gives it back with what the work came to: what the nodes' clocks showed when they granted it.
    pub(in crate::manager) run: Option<Clocks>,
    pub(in crate::manager) clock: Arc<dyn Clock>,
    // Changed under the mutex only.
    pub(in crate::manager) deadline: Arc<Deadline>,
    // The number of the present tenant. Changed under the mutex only.
    pub(in crate::manager) tenant: AtomicU32,
    pub(in crate::manager) inner: Mutex<Inner>,
    /// Notified when the phase leaves `Held`, when it becomes `Released`, and when the lock passes to a new tenant.
    pub(in crate::manager) ended: Arc<Notify>,
    // Notified when a command that was under way at the release has been answered or given up.
    pub(in crate::manager) settled: Notify,
}

impl HeldLease {
    /// A lock that a quorum granted, with what is known of every node, and what is owed for it. Without turns: one that
    /// another lent us, and that a quorum vouched for.
    pub(in crate::manager) fn new(
        (manager, id): (u64, u64),
        redact: bool,
        lease: Lease,
        keys: NodeKeys,
        clock: Arc<dyn Clock>,
        holding: LeaseNodes,
        (turns, obligation): (Option<Turns>, Obligation),
    ) -> Self {
        obligation.enter(Stage::Held);
        let validity = lease.deadline.since(lease.started);
        let reserve = lease.ttl.saturating_sub(validity);
        let deadline = Arc::new(Deadline::new(lease.deadline, reserve));
        if let Some(turns) = &turns {
            turns.note(&Holder::Here(Arc::clone(&deadline)));
        }
        Self {
            id,
            manager,
            deadline,
            inner: Mutex::new(Inner {
                holding,
                phase: Phase::Held,
                due: Moment::from_nanos(u64::MAX),
                turns,
                obligation: Some(obligation),
                guards: 1,
                loans: Loans::default(),
                since: lease.started,
                caller: Caller::default(),
                told: false,
            }),
            lease,
            keys,
            redact,
            run: None,
            clock,
            tenant: AtomicU32::new(0),
            ended: Arc::new(Notify::new()),
            settled: Notify::new(),
        }
    }

    /// The same for a run of some work, granted when the nodes' clocks showed this.
    pub(in crate::manager) fn of_a_run(mut self, clocks: Clocks) -> Self {
        self.run = Some(clocks);
        self
    }

    pub(in crate::manager) fn inner(&self) -> Locked<'_> {
        // The short methods below cannot panic half-way.
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        Locked::new(self, inner)
    }

    pub(in crate::manager) fn end(&self) -> Moment {
        self.deadline.get()
    }

    /// Whether the lock is lost, for the tenant `number`. Exact: it asks the clock, and once true it stays true.
    pub(in crate::manager) fn is_lost(&self, number: u32) -> bool {
        if self.tenant.load(Ordering::Acquire) != number {
            return true;
        }
        // Loss by anything but time moves the deadline to the origin, so one comparison answers for all.
        if self.clock.now() < self.end() {
            return false;
        }
        let mut inner = self.inner();
        // An extension may have come in between; then the lock was never seen as lost.
        if self.clock.now() < self.end() {
            return false;
        }
        self.expire(&mut inner);
        true
    }

    /// What is left until the deadline, for the tenant `number`; zero once lost.
    pub(in crate::manager) fn remaining(&self, number: u32) -> Duration {
        if self.is_lost(number) {
            return Duration::ZERO;
        }
        self.end().since(self.clock.now())
    }

    /// Why the lock has ended or is about to, for the tenant `number`, if so.
    pub(in crate::manager) fn ended_because(&self, number: u32) -> Option<LossReason> {
        let mut inner = self.inner();
        if self.tenant.load(Ordering::Acquire) != number {
            return Some(LossReason::Released);
        }
        if self.clock.now() >= self.end() {
            self.expire(&mut inner);
        }
        match inner.phase {
            Phase::Held => None,
            Phase::Ending(reason) | Phase::Lost(reason) => Some(reason),
            Phase::Released => Some(LossReason::Released),
        }
    }

    /// Loses the lock because its deadline has passed.
    pub(in crate::manager) fn expire(&self, inner: &mut Locked<'_>) {
        let reason = match inner.phase {
            Phase::Held => Self::end_reason(inner),
            Phase::Ending(reason) => reason,
            Phase::Lost(_) | Phase::Released => return,
        };
        self.leave_held(inner, Phase::Lost(reason));
    }

    /// Loses the lock at once; `false` if it has ended before.
    pub(in crate::manager) fn lose(&self, reason: LossReason) -> bool {
        let mut inner = self.inner();
        let is_held = matches!(inner.phase, Phase::Held | Phase::Ending(_));
        if is_held {
            self.leave_held(&mut inner, Phase::Lost(reason));
        }
        is_held
    }

    pub(in crate::manager) fn leave_held(&self, inner: &mut Locked<'_>, phase: Phase) {
        inner.phase = phase;
        if let Phase::Lost(reason) = phase {
            self.deadline.set(Moment::ORIGIN);
            // The guard may live on, but others can have the lock now: also others in this process.
            inner.after.passed = inner.turns.take();
            inner.after.lost = Some((reason, inner.caller.clone()));
            inner.after.held_for = Some(self.clock.now().since(inner.since));
        }
        inner.after.ended = true;
    }

    /// Passes the lock to a new tenant, if somebody in this process waits for it and nothing speaks against it;
    /// returns that one's tenancy. From here on the lock has ended for all before.
    pub(in crate::manager) fn succeed(self: &Arc<Self>, terms: &HandOff) -> Option<Tenancy> {
        let mut inner = self.inner();
        let number = self.tenant.load(Ordering::Acquire);
        let now = self.clock.now();
        let comfortable = self.end().since(now) >= self.lease.ttl / 2;
        let passes = number < terms.max_passes && now.since(self.lease.started) < terms.max_time;
        let ours = !inner.loans.ever();
        let wanted = || inner.turns.as_ref().is_some_and(Turns::can_hand_off);
        if inner.phase != Phase::Held || !comfortable || !passes || !ours || !wanted() {
            return None;
        }
        inner.holding.begin_anew(now);
        self.deadline.set(inner.holding.deadline());
        let number = number + 1;
        inner.guards = 1;
        inner.after.held_for = Some(now.since(inner.since));
        inner.since = now;
        self.tenant.store(number, Ordering::Release);
        inner.after.ended = true;
        let lease = Arc::clone(self);
        Some(Tenancy { lease, number })
    }

    /// Does what is due at `now`; returns when to look again and the nodes that are to be sent an extension,
    /// sent at `now`. Those nodes are marked as busy.
    pub(in crate::manager) fn tick(&self, now: Moment) -> (Moment, Vec<usize>) {
        let mut inner = self.inner();
        let never = Moment::from_nanos(u64::MAX);
        match inner.phase {
            Phase::Held => {}
            Phase::Ending(_) if now < self.end() => return (self.end(), Vec::new()),
            Phase::Ending(_) => {
                self.expire(&mut inner);
                return (never, Vec::new());
            }
            Phase::Lost(_) | Phase::Released => return (never, Vec::new()),
        }
        let all = 0..inner.holding.nodes();
        let nodes: Vec<usize> = match inner.holding.step(now) {
            Step::Wait => Vec::new(),
            Step::Renew => all.collect(),
            Step::TopUp => all
                .filter(|node| inner.holding.misses(*node) && !inner.holding.busy(*node))
                .collect(),
            Step::Ending => {
                let reason = Self::end_reason(&inner);
                self.leave_held(&mut inner, Phase::Ending(reason));
                return (self.end(), Vec::new());
            }
            Step::Lost => {
                self.expire(&mut inner);
                return (never, Vec::new());
            }
        };
        for node in &nodes {
            inner.holding.begin(*node);
        }
        (inner.holding.due(), nodes)
    }

    /// When the watchdog should first look at the lock.
    pub(in crate::manager) fn first_due(&self) -> Moment {
        self.inner().holding.due()
    }

    pub(in crate::manager) fn end_reason(inner: &Inner) -> LossReason {
        if inner.holding.capped() {
            LossReason::MaxHold
        } else {
            LossReason::Expired
        }
    }

    /// Takes in what `node` answered to a command that may have set our token: `note` tells the fold.
    pub(in crate::manager) fn answered(&self, node: usize, note: impl FnOnce(&mut LeaseNodes)) {
        let mut inner = self.inner();
        // Before the answer is looked at: what arrives after the deadline moves nothing because a loss is final.
        if inner.phase == Phase::Held && self.clock.now() >= self.end() {
            self.expire(&mut inner);
        }
        inner.holding.end(node);
        note(&mut inner.holding);
        match inner.phase {
            Phase::Held => {
                let end = inner.holding.deadline();
                if inner.holding.taken() || end <= self.clock.now() {
                    let reason = if self.is_borrowed() {
                        LossReason::Lender
                    } else {
                        LossReason::Taken
                    };
                    self.leave_held(&mut inner, Phase::Lost(reason));
                } else {
                    self.deadline.set(end);
                }
            }
            // The end was announced: it does not move any more.
            Phase::Ending(_) | Phase::Lost(_) => {}
            Phase::Released => inner.after.settled = true,
        }
    }

    /// Waits until no command that may set our token is under way to `node`, and tells whether it owes a release.
    /// For a lock whose guard has let go.
    pub(in crate::manager) async fn settled(&self, node: usize) -> bool {
        loop {
            // Before the look, so that no answer is missed in between.
            let settled = self.settled.notified();
            {
                let inner = self.inner();
                if !inner.holding.busy(node) {
                    return inner.holding.owes(node);
                }
            }
            settled.await;
        }
    }

    /// Asks for a top-up at `at` if nodes are missing, and tells whether they are.
    pub(in crate::manager) fn plan_top_up(&self, at: Moment) -> bool {
        let mut inner = self.inner();
        if inner.phase != Phase::Held || inner.holding.missing() == 0 {
            return false;
        }
        inner.holding.plan_top_up(at);
        true
    }

    /// Whether it is held with the manager of this serial number.
    pub(in crate::manager) const fn belongs_to(&self, manager: u64) -> bool {
        self.manager == manager
    }

    pub(in crate::manager) fn due(&self) -> Moment {
        self.inner().due
    }

    pub(in crate::manager) fn set_due(&self, due: Moment) {
        self.inner().due = due;
    }
}
