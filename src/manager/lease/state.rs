//! [`LeaseState`]: the life of one held lock as a pure state machine. No clock, no mutex, no task.
//!
//! ```text
//!   Held ───────────────► Ending      the deadline is near
//!   Held, Ending ───────► Lost        the deadline is over, or the manager shuts down
//!   Held ───────────────► Lost        other owners have taken it on the nodes
//!   Held, Ending, Lost ─► Released    the last guard has left
//! ```
//!
//! Only `Held` can be extended, so nothing revives a lock once its end was announced. A `Held` lock can pass to
//! another caller of this process, its next *tenant*: the keys on the nodes stay. Each tenant has a number; for all
//! but the present one the lock has ended.
//!
//! Events return [`Effects`]. The driver, [`held`](super::held), performs them once it has unlocked the state.

use std::time::Duration;

use smallvec::SmallVec;

use crate::manager::error::LossReason;
use crate::moment::Moment;
use crate::protocol::renewal::{LeaseNodes, NodeEffect, Step, Terms};
use crate::settings::switches::HandOff;

#[derive(Debug)]
pub(super) struct LeaseState {
    nodes: LeaseNodes,
    phase: Phase,
    // That of the nodes while `Held`; fixed from `Ending` on; the origin of time once it has ended.
    deadline: Moment,
    ttl: Duration,
    // When the nodes granted it.
    started: Moment,
    tenant: u32,
    // When the present tenant got it.
    since: Moment,
    // How many guards share it: those of the present tenant.
    guards: u32,
    // Whether a waiter for the end was told of it before the deadline.
    told: bool,
    // When the hand-over to the present tenant lapses, until it is accepted.
    lapses: Option<Moment>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Held,
    Ending(LossReason),
    Lost(LossReason),
    Released,
}

/// The work that an event gives to the driver, each once.
#[derive(Debug, Default, PartialEq, Eq)]
#[must_use = "the driver performs them"]
pub(super) struct Effects {
    /// The lock has ended for a tenant, or its end is announced: wake the tasks that wait for it.
    pub(super) notify_ended: bool,
    /// A command that was under way at the release has been answered or abandoned: wake the release, which waits for
    /// that.
    pub(super) notify_settled: bool,
    /// Count and log this loss, or this end that made the holder give up.
    pub(super) lost: Option<LossReason>,
    /// The lock is lost: pass the turn to the next caller, though the guard may live on.
    pub(super) pass_turn: bool,
    /// Count this time: a tenant that has just ended had the lock for it.
    pub(super) held_for: Option<Duration>,
    /// Send these nodes an extension; they are marked as busy.
    pub(super) renew: Vec<usize>,
    /// Hand the lock over to the tenant of this number.
    pub(super) hand_over: Option<u32>,
    /// The tenant of this number has not accepted the lock in time: pass it on or release it.
    pub(super) lapsed: Option<u32>,
}

/// Nodes, by their indices.
pub(crate) type Indices = SmallVec<[usize; 5]>;

/// What a node owes of a lock that was let go of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Debt {
    Nothing,
    /// It has our token.
    Token,
    /// It may have it, or get it, by a command that was given up.
    Doubtful,
}

/// The rest of a released lock on the nodes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Left {
    /// The nodes that have it, or may.
    pub(crate) owing: Indices,
    /// Whether one of them has a command under way, and is to be released when that is
    /// [settled](super::held::HeldLease::settled).
    pub(crate) is_busy: bool,
    /// Those of them that had a command that was given up and may run yet.
    pub(crate) doubtful: Indices,
    /// How many nodes are free already.
    pub(crate) free: usize,
    pub(crate) lost: Option<LossReason>,
    /// Why the lock was about to end, if its holder was told and released it before.
    pub(crate) given_up: Option<LossReason>,
}

impl Left {
    pub(crate) const fn counts_as_lost(&self) -> bool {
        self.lost.is_some() || self.given_up.is_some()
    }

    /// Whether its ttl has ended it, or is about to.
    pub(crate) fn has_expired(&self) -> bool {
        self.lost.or(self.given_up) == Some(LossReason::Expired)
    }
}

impl LeaseState {
    /// A lock that a quorum granted by a round sent at `started`.
    pub(super) fn new(nodes: LeaseNodes, ttl: Duration, started: Moment) -> Self {
        Self {
            phase: Phase::Held,
            deadline: nodes.deadline(),
            nodes,
            ttl,
            started,
            tenant: 0,
            since: started,
            guards: 1,
            told: false,
            lapses: None,
        }
    }

    pub(super) const fn deadline(&self) -> Moment {
        self.deadline
    }

    pub(super) const fn tenant(&self) -> u32 {
        self.tenant
    }

    pub(super) const fn since(&self) -> Moment {
        self.since
    }

    /// When to tick next: never, once it has ended.
    pub(super) fn due(&self) -> Moment {
        match self.phase {
            Phase::Held => (self.lapses.into_iter()).fold(self.nodes.due(), Moment::min),
            Phase::Ending(_) => self.deadline,
            Phase::Lost(_) | Phase::Released => Moment::from_nanos(u64::MAX),
        }
    }

    pub(super) fn holding(&self) -> Vec<usize> {
        let nodes = 0..self.nodes.nodes();
        nodes.filter(|node| self.nodes.holds(*node)).collect()
    }

    /// What `node` owes; `None` while a command that may set our token is under way to it.
    pub(super) fn debt(&self, node: usize) -> Option<Debt> {
        if self.nodes.busy(node) {
            return None;
        }
        Some(match self.nodes.owes(node) {
            _ if self.nodes.is_doubtful(node) => Debt::Doubtful,
            true => Debt::Token,
            false => Debt::Nothing,
        })
    }

    /// Loses the lock if its deadline has passed by `now`.
    pub(super) fn check(&mut self, now: Moment) -> Effects {
        if now < self.deadline {
            return Effects::default();
        }
        match self.phase {
            Phase::Held => self.lose(self.end_reason(), now),
            Phase::Ending(reason) => self.lose(reason, now),
            Phase::Lost(_) | Phase::Released => Effects::default(),
        }
    }

    /// Loses the lock at once, unless it has ended before.
    pub(super) fn lose(&mut self, reason: LossReason, now: Moment) -> Effects {
        if matches!(self.phase, Phase::Lost(_) | Phase::Released) {
            return Effects::default();
        }
        self.phase = Phase::Lost(reason);
        self.deadline = Moment::ORIGIN;
        Effects {
            notify_ended: true,
            lost: Some(reason),
            pass_turn: true,
            held_for: Some(now.since(self.since)),
            ..Effects::default()
        }
    }

    fn end_reason(&self) -> LossReason {
        if self.nodes.capped() {
            LossReason::MaxHold
        } else {
            LossReason::Expired
        }
    }

    pub(super) fn ended_because(
        &mut self,
        tenant: u32,
        now: Moment,
    ) -> (Option<LossReason>, Effects) {
        if self.tenant != tenant {
            return (Some(LossReason::Released), Effects::default());
        }
        let effects = self.check(now);
        let reason = match self.phase {
            Phase::Held => None,
            Phase::Ending(reason) | Phase::Lost(reason) => Some(reason),
            Phase::Released => Some(LossReason::Released),
        };
        (reason, effects)
    }

    /// A waiter for the end was told of it, and will stop the work under the lock.
    pub(super) const fn end_is_told(&mut self) {
        self.told = true;
    }

    /// Does what is due at `now`. Extensions count as sent at `now`.
    pub(super) fn tick(&mut self, now: Moment) -> Effects {
        let mut effects = self.check(now);
        if self.phase != Phase::Held {
            return effects;
        }
        if self.lapses.take_if(|end| *end <= now).is_some() {
            effects.lapsed = Some(self.tenant);
        }
        let all = 0..self.nodes.nodes();
        effects.renew = match self.nodes.step(now) {
            Step::Wait => Vec::new(),
            Step::Renew => all.collect(),
            Step::TopUp => all
                .filter(|node| !self.nodes.holds(*node) && !self.nodes.busy(*node))
                .collect(),
            Step::Ending => {
                self.phase = Phase::Ending(self.end_reason());
                effects.notify_ended = true;
                return effects;
            }
        };
        for node in &effects.renew {
            self.nodes.begin(*node);
        }
        effects
    }

    /// Takes in the result of a command to `node` that may have set our token.
    pub(super) fn reply(&mut self, node: usize, effect: NodeEffect, now: Moment) -> Effects {
        // Before the reply is looked at: a reply after the deadline moves nothing, because a loss is final.
        let mut effects = self.check(now);
        self.nodes.end(node);
        self.nodes.apply(node, effect);
        match self.phase {
            Phase::Held => {
                let deadline = self.nodes.deadline();
                if self.nodes.taken() || deadline <= now {
                    return self.lose(LossReason::Taken, now);
                }
                self.deadline = deadline;
            }
            // The end was announced: it does not move any more.
            Phase::Ending(_) | Phase::Lost(_) => {}
            Phase::Released => effects.notify_settled = true,
        }
        effects
    }

    /// Asks for a top-up at `at` if nodes are missing, and tells whether they are.
    pub(super) fn plan_top_up(&mut self, at: Moment) -> bool {
        let is_missed = self.phase == Phase::Held && self.nodes.missing() > 0;
        if is_missed {
            self.nodes.plan_top_up(at);
        }
        is_missed
    }

    /// Passes the lock to a new tenant, if one is `wanted` and `terms` allow it. From here on the lock has ended for
    /// all tenants before.
    /// The new tenant has so much `time` to [accept](Self::accept) it.
    pub(super) fn succeed(
        &mut self,
        now: Moment,
        terms: &HandOff,
        wanted: bool,
        time: Duration,
    ) -> Effects {
        let comfortable = self.deadline.since(now) >= self.ttl / 2;
        let passes = self.tenant < terms.max_passes && now.since(self.started) < terms.max_time;
        if self.phase != Phase::Held || !wanted || !comfortable || !passes {
            return Effects::default();
        }
        let held_for = now.since(self.since);
        self.nodes.begin_anew(now);
        self.deadline = self.nodes.deadline();
        self.tenant += 1;
        self.guards = 1;
        self.since = now;
        self.lapses = Some(now + time);
        Effects {
            notify_ended: true,
            held_for: Some(held_for),
            hand_over: Some(self.tenant),
            ..Effects::default()
        }
    }

    /// `tenant`, to whom the lock was handed over, takes it; `false` if that came too late, and the lock is another's.
    pub(super) fn accept(&mut self, tenant: u32) -> bool {
        self.tenant == tenant && self.lapses.take().is_some()
    }

    /// Gives the present tenant, who is new, a `max_hold` of its own. Returns whether that changes anything.
    pub(super) fn hold_for(&mut self, tenant: u32, max_hold: Duration) -> bool {
        let is_new = self.phase == Phase::Held && self.tenant == tenant;
        let changes = is_new && self.nodes.max_hold() != max_hold;
        if changes {
            self.nodes.hold_for(self.since, max_hold);
            self.deadline = self.nodes.deadline();
        }
        changes
    }

    /// Lets one more guard of `tenant` share the lock, unless it has ended or is about to.
    pub(super) fn share(&mut self, tenant: u32, now: Moment) -> (Result<(), LossReason>, Effects) {
        let (ended, effects) = self.ended_because(tenant, now);
        let shared = match ended {
            Some(reason) => Err(reason),
            // The last guard has left.
            None if self.guards == 0 => Err(LossReason::Released),
            None => {
                self.guards += 1;
                Ok(())
            }
        };
        (shared, effects)
    }

    pub(super) const fn terms(&self) -> Terms {
        self.nodes.terms()
    }

    /// One of the guards that share the lock has left. Returns whether it was the last.
    pub(super) const fn leave(&mut self) -> bool {
        self.guards = self.guards.saturating_sub(1);
        self.guards == 0
    }

    /// The last guard has left: from here on nothing extends the lock.
    pub(super) fn let_go(&mut self, now: Moment) -> (Left, Effects) {
        // Also when the end was announced and no event has come since.
        let mut effects = self.check(now);
        let lost = match self.phase {
            Phase::Held | Phase::Ending(_) => None,
            Phase::Lost(reason) => Some(reason),
            Phase::Released => Some(LossReason::Released),
        };
        let count = self.nodes.nodes();
        let (mut owing, mut is_busy, mut free) = (Indices::new(), false, 0);
        let mut doubtful = Indices::new();
        for node in 0..count {
            is_busy |= self.nodes.busy(node);
            free += usize::from(self.nodes.is_clear(node));
            if self.nodes.busy(node) || self.nodes.owes(node) {
                owing.push(node);
            }
            if self.nodes.is_doubtful(node) {
                doubtful.push(node);
            }
        }
        let given_up = match self.phase {
            Phase::Ending(reason) if self.told => Some(reason),
            _ => None,
        };
        let left = Left {
            owing,
            is_busy,
            doubtful,
            free,
            lost,
            given_up,
        };
        // It is released in time, but the work was cut off as if it had been lost, and that is to be seen.
        effects.lost = effects.lost.or(given_up);
        if lost.is_none() {
            effects.held_for = Some(now.since(self.since));
        }
        effects.notify_ended |= self.phase != Phase::Released;
        self.phase = Phase::Released;
        self.deadline = Moment::ORIGIN;
        (left, effects)
    }
}

#[cfg(test)]
mod tests;
