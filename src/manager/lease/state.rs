//! [`LeaseState`]: the life of one held lock as a pure state machine.
//!
//! ```text
//!   Held ───────────────► Ending      the deadline is near
//!   Held, Ending ───────► Lost        the deadline is over, or the manager shuts down
//!   Held ───────────────► Lost        other owners have taken it on the nodes
//!   Held, Ending, Lost ─► Released    the last guard has left
//! ```
//!
//! Only `Held` can be extended, so nothing revives a lock once its end was announced. A `Held` lock can pass to another
//! caller of this process, its next *tenant*. Each tenant has a number. For all earlier tenants the lock has ended.
//!
//! Each event returns [`Effects`], which [`held`](super::held) performs once it has unlocked the state.

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
    // While `Held`, it follows from what the nodes confirmed. `Ending` fixes it. Once the lock has ended, it is the
    // origin of time.
    pub(super) deadline: Moment,
    // When the round that the nodes granted was sent.
    started: Moment,
    pub(super) tenant: u32,
    // When the present tenant got the lock.
    pub(super) since: Moment,
    // How many guards the present tenant has.
    guards: u32,
    // Whether the holder was notified that the end was near.
    announced: bool,
    // When the hand-over to the present tenant lapses. `None` once the tenant has accepted it.
    lapses: Option<Moment>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Held,
    Ending(LossReason),
    Lost(LossReason),
    Released,
}

#[derive(Debug, Default, PartialEq, Eq)]
#[must_use = "the driver performs them"]
pub(super) struct Effects {
    pub(super) notify_ended: bool,
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
    /// If a command is in flight, [`HeldLease::landed`](super::held::HeldLease::landed) has the later state.
    pub(crate) nodes: OnNodes,
    pub(crate) lost: Option<LossReason>,
    /// Why the lock was about to end, if its holder was notified of that and released it in time.
    pub(crate) given_up: Option<LossReason>,
}

impl End {
    pub(crate) const fn counts_as_lost(&self) -> bool {
        self.lost.is_some() || self.given_up.is_some()
    }

    /// Whether the lock has expired, or was about to expire.
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
        // Check the deadline before using the answer. An answer that arrives after the deadline does not extend the
        // lock, because a loss is final.
        let mut effects = self.check(now);
        self.nodes.land(node, sent, landed);
        match self.phase {
            Phase::Held => {
                let deadline = self.renewal.deadline(&self.nodes);
                // The deadline moves back to the past if too few nodes still have our token.
                if self.nodes.is_taken() || deadline <= now {
                    return self.lose(LossReason::Taken, now);
                }
                self.deadline = deadline;
            }
            // The end was announced or has come, so it does not move any more.
            Phase::Ending(_) | Phase::Lost(_) => {}
            Phase::Released => effects.notify_landed = true,
        }
        effects
    }

    /// Plans a top-up at `at` if a node lacks the lock. Returns whether a node lacks it.
    pub(super) fn plan_top_up(&mut self, at: Moment) -> bool {
        let is_missed = self.phase == Phase::Held && self.nodes.count_ours() < self.nodes.len();
        if is_missed {
            self.renewal.plan_top_up(at);
        }
        is_missed
    }

    /// Returns whether the lock counts on a command that `node` may have forgotten. If so, plans a top-up.
    pub(super) fn doubt(&mut self, node: usize, forgot: Moment, now: Moment) -> bool {
        let is_counted = self.phase == Phase::Held && self.nodes.doubt(node, forgot, now);
        if is_counted {
            self.renewal.plan_top_up(now);
        }
        is_counted
    }

    /// If `terms` allow it, passes the lock to a new tenant, who has this much `time` to [accept](Self::accept) it.
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

    /// `tenant` accepts the lock. `false` if it is too late.
    pub(super) fn accept(&mut self, tenant: u32) -> bool {
        self.tenant == tenant && self.lapses.take().is_some()
    }

    /// Sets the `max_hold` of `tenant`. Returns whether that changes anything.
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
            // The last guard has left, and the lock is about to be released.
            None if self.guards == 0 => Err(LossReason::Released),
            None => {
                self.guards += 1;
                Ok(())
            }
        };
        (shared, effects)
    }

    pub(super) const fn leave(&mut self) -> bool {
        self.guards = self.guards.saturating_sub(1);
        self.guards == 0
    }

    /// Ends the lock for its release, after the last guard has left.
    pub(super) fn let_go(&mut self, now: Moment) -> (End, Effects) {
        // Check the deadline, because no event may have noticed yet that it has passed.
        let mut effects = self.check(now);
        let (lost, given_up) = match self.phase {
            Phase::Held => (None, None),
            Phase::Ending(reason) => (None, self.announced.then_some(reason)),
            Phase::Lost(reason) => (Some(reason), None),
            Phase::Released => (Some(LossReason::Released), None),
        };
        // The lock is released in time, but its work was stopped as if the lock had been lost. Report it as lost, so
        // that operators see why the work was stopped.
        effects.lost = effects.lost.or(given_up);
        if lost.is_none() {
            effects.held_for = Some(now.since(self.since));
        }
        effects.notify_ended |= self.phase != Phase::Released;
        self.phase = Phase::Released;
        self.deadline = Moment::ORIGIN;
        // Commands that are in flight still land in this state, where the release asks for them with
        // `HeldLease::landed`. So the state may be emptied only if no command is in flight.
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
