//! [`LeaseState`]: the life of one held lock as a pure state machine. No clock, no mutex, no task.
//!
//! ```text
//!   Held ───────────────► Ending      the deadline is near
//!   Held, Ending ───────► Lost        the deadline is over, or the manager shuts down
//!   Held ───────────────► Lost        other owners have taken it on the nodes
//!   Held, Ending, Lost ─► Released    the last guard has left
//! ```
//!
//! Only `Held` can be extended, so nothing revives a lock once its end was announced. A `Held` lock can pass to another
//! caller of this process, its next *tenant*. Each tenant has a number; for all but the present tenant the lock has
//! ended.
//!
//! Events return [`Effects`], which the driver, [`held`](super::held), performs once it has unlocked the state.

use std::time::Duration;

use crate::manager::error::LossReason;
use crate::moment::Moment;
use crate::protocol::on_nodes::{Landed, OnNodes};
use crate::protocol::renewal::{Renewal, Step};
use crate::settings::constants::HandOff;

#[derive(Debug)]
pub(super) struct LeaseState {
    pub(super) nodes: OnNodes,
    pub(super) renewal: Renewal,
    phase: Phase,
    // While `Held`, as the nodes confirm it; fixed from `Ending` on; the origin of time once the lock has ended.
    pub(super) deadline: Moment,
    // When the round was sent that the nodes granted.
    started: Moment,
    pub(super) tenant: u32,
    // When the present tenant got it.
    pub(super) since: Moment,
    // How many guards share it: those of the present tenant.
    guards: u32,
    // Whether the holder was notified of the end before it came.
    announced: bool,
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

/// The work that an event gives to the driver.
#[derive(Debug, Default, PartialEq, Eq)]
#[must_use = "the driver performs them"]
pub(super) struct Effects {
    /// Wake the tasks that wait for the end.
    pub(super) notify_ended: bool,
    /// Wake the release.
    pub(super) notify_landed: bool,
    pub(super) lost: Option<LossReason>,
    /// Pass the turn to the next caller, because the lock is lost.
    pub(super) pass_turn: bool,
    /// Count this time for a tenant that has just ended.
    pub(super) held_for: Option<Duration>,
    pub(super) renew: Vec<usize>,
    pub(super) hand_over: Option<u32>,
    /// This tenant has not accepted the lock in time.
    pub(super) lapsed: Option<u32>,
}

#[derive(Debug)]
pub(crate) struct End {
    /// If a command is in flight, ask [`HeldLease::landed`](super::held::HeldLease::landed) later.
    pub(crate) nodes: OnNodes,
    pub(crate) lost: Option<LossReason>,
    /// Why the lock was about to end, if its holder released it before that.
    pub(crate) given_up: Option<LossReason>,
}

impl End {
    pub(crate) const fn counts_as_lost(&self) -> bool {
        self.lost.is_some() || self.given_up.is_some()
    }

    /// Whether its ttl has ended it, or is about to.
    pub(crate) fn has_expired(&self) -> bool {
        self.lost.or(self.given_up) == Some(LossReason::Expired)
    }
}

impl LeaseState {
    pub(super) fn new(nodes: OnNodes, renewal: Renewal, started: Moment) -> Self {
        Self {
            phase: Phase::Held,
            deadline: renewal.deadline(&nodes),
            nodes,
            renewal,
            started,
            tenant: 0,
            since: started,
            guards: 1,
            announced: false,
            lapses: None,
        }
    }

    pub(super) fn due(&self) -> Moment {
        match self.phase {
            Phase::Held => {
                (self.lapses.into_iter()).fold(self.renewal.due(&self.nodes), Moment::min)
            }
            Phase::Ending(_) => self.deadline,
            Phase::Lost(_) | Phase::Released => Moment::from_nanos(u64::MAX),
        }
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
        if self.renewal.is_capped(&self.nodes) {
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

    pub(super) const fn end_is_announced(&mut self) {
        self.announced = true;
    }

    pub(super) fn tick(&mut self, now: Moment) -> Effects {
        let mut effects = self.check(now);
        if self.phase != Phase::Held {
            return effects;
        }
        if self.lapses.take_if(|end| *end <= now).is_some() {
            effects.lapsed = Some(self.tenant);
        }
        let all = 0..self.nodes.len();
        effects.renew = match self.renewal.step(&self.nodes, now) {
            Step::Wait => Vec::new(),
            Step::Renew => all.collect(),
            Step::TopUp => all.filter(|node| self.nodes.is_missed(*node)).collect(),
            Step::Ending => {
                self.phase = Phase::Ending(self.end_reason());
                effects.notify_ended = true;
                return effects;
            }
        };
        for node in &effects.renew {
            self.nodes.send(*node);
        }
        effects
    }

    pub(super) fn land(
        &mut self,
        node: usize,
        sent: Moment,
        landed: Landed,
        now: Moment,
    ) -> Effects {
        // Before the answer is looked at: an answer after the deadline moves nothing, because a loss is final.
        let mut effects = self.check(now);
        self.nodes.land(node, sent, landed);
        match self.phase {
            Phase::Held => {
                let deadline = self.renewal.deadline(&self.nodes);
                // A deadline that moved back means that too few nodes still have our token.
                if self.nodes.is_taken() || deadline <= now {
                    return self.lose(LossReason::Taken, now);
                }
                self.deadline = deadline;
            }
            // The end was announced: it does not move any more.
            Phase::Ending(_) | Phase::Lost(_) => {}
            Phase::Released => effects.notify_landed = true,
        }
        effects
    }

    /// Plans a top-up at `at` if nodes lack the lock, and returns whether they do.
    pub(super) fn plan_top_up(&mut self, at: Moment) -> bool {
        let is_missed = self.phase == Phase::Held && self.nodes.count_ours() < self.nodes.len();
        if is_missed {
            self.renewal.plan_top_up(at);
        }
        is_missed
    }

    /// `node` may have forgotten what was sent before `forgot`. If the lock counts it by that, plans a top-up and
    /// returns `true`.
    pub(super) fn doubt(&mut self, node: usize, forgot: Moment, now: Moment) -> bool {
        let is_counted = self.phase == Phase::Held && self.nodes.doubt(node, forgot, now);
        if is_counted {
            self.renewal.plan_top_up(now);
        }
        is_counted
    }

    /// Passes the lock to a new tenant, who has so much `time` to [accept](Self::accept) it, if `terms` allow it. The
    /// lock has then ended for all earlier tenants.
    pub(super) fn offer(&mut self, now: Moment, terms: &HandOff, time: Duration) -> Effects {
        let comfortable = self.deadline.since(now) >= self.renewal.terms().ttl / 2;
        let passes = self.tenant < terms.max_passes && now.since(self.started) < terms.max_time;
        if self.phase != Phase::Held || !comfortable || !passes {
            return Effects::default();
        }
        let held_for = now.since(self.since);
        self.renewal.begin_anew(now);
        self.deadline = self.renewal.deadline(&self.nodes);
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

    /// `tenant` takes the lock; `false` if that came too late.
    pub(super) fn accept(&mut self, tenant: u32) -> bool {
        self.tenant == tenant && self.lapses.take().is_some()
    }

    /// Returns whether that changes anything.
    pub(super) fn hold_for(&mut self, tenant: u32, max_hold: Duration) -> bool {
        let is_new = self.phase == Phase::Held && self.tenant == tenant;
        let changes = is_new && self.renewal.terms().max_hold != max_hold;
        if changes {
            self.renewal.hold_for(self.since, max_hold);
            self.deadline = self.renewal.deadline(&self.nodes);
        }
        changes
    }

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

    /// Removes one guard. Returns whether it was the last.
    pub(super) const fn leave(&mut self) -> bool {
        self.guards = self.guards.saturating_sub(1);
        self.guards == 0
    }

    /// The last guard has left: nothing extends the lock any more.
    pub(super) fn let_go(&mut self, now: Moment) -> (End, Effects) {
        // The deadline may have passed, and no event may have noticed that yet.
        let mut effects = self.check(now);
        let (lost, given_up) = match self.phase {
            Phase::Held => (None, None),
            Phase::Ending(reason) => (None, self.announced.then_some(reason)),
            Phase::Lost(reason) => (Some(reason), None),
            Phase::Released => (Some(LossReason::Released), None),
        };
        // It is released in time, but the work was cut off as if it had been lost, and that is to be seen.
        effects.lost = effects.lost.or(given_up);
        if lost.is_none() {
            effects.held_for = Some(now.since(self.since));
        }
        effects.notify_ended |= self.phase != Phase::Released;
        self.phase = Phase::Released;
        self.deadline = Moment::ORIGIN;
        // Commands that are in flight land in this state. The release asks for that by `HeldLease::landed`.
        let nodes = match self.nodes.count_in_flight() {
            0 => self.nodes.take(),
            _ => self.nodes.clone(),
        };
        let end = End {
            nodes,
            lost,
            given_up,
        };
        (end, effects)
    }
}

#[cfg(test)]
mod tests;
