//! What the processes know and decide, and what the steps do.

use std::time::Duration;

use super::{
    Action, Attempt, Command, DRIFT, Known, Leases, Link, Mutant, Node, Phase, Release, Reply,
    State, TTL,
};
use crate::check::{NOW, ago, ticks};
use crate::moment::Moment;
use crate::protocol::on_nodes::{Keys, Landed, OnNodes, Verdict};
use crate::protocol::quorum::{Drift, Quorum, deadline};
use crate::token::Holder;

impl Leases {
    pub(super) fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    fn quorum(&self) -> Quorum {
        Quorum::masking(self.nodes, 0).unwrap()
    }

    fn needed(&self) -> usize {
        if self.is(Mutant::HalfIsAQuorum) {
            return self.nodes / 2;
        }
        self.quorum().needed()
    }

    fn drift(&self) -> Drift {
        Drift::new(if self.is(Mutant::NoDrift) { 0.0 } else { DRIFT }).unwrap()
    }

    fn validity(&self) -> Duration {
        ticks(TTL).saturating_sub(self.drift().of(ticks(TTL)))
    }

    /// What the process knows of the nodes, as the library has it.
    fn on_nodes(&self, state: &State, attempt: usize) -> OnNodes {
        let mut nodes = OnNodes::new(self.quorum(), Keys::All, self.validity());
        for (node, it) in state.nodes[..self.nodes].iter().enumerate() {
            let link = it.links[attempt];
            if link.doubtful && !self.is(Mutant::DoubtForgotten) {
                nodes.land(node, NOW, Landed::Abandoned);
            }
            match link.known {
                Known::Clear => {}
                Known::Unknown => nodes.land(node, NOW, Landed::Abandoned),
                Known::Ours(age) => nodes.land(node, ago(age), OURS),
                Known::Foreign => nodes.land(node, NOW, ANOTHERS),
            }
            if link.waits {
                nodes.send(node);
            }
        }
        nodes
    }

    fn deadline(&self, state: &State, attempt: usize) -> Moment {
        let nodes = state.nodes[..self.nodes].iter();
        let confirmed = nodes.filter_map(|node| match node.links[attempt].known {
            Known::Ours(age) => Some(ago(age)),
            _ => None,
        });
        let end = deadline(confirmed, self.needed(), self.validity());
        end.unwrap_or(Moment::ORIGIN)
    }

    /// Whether the holder relies on the lock now.
    pub(super) fn is_valid(&self, state: &State, attempt: usize) -> bool {
        let it = &state.attempts[attempt];
        it.phase == Phase::Held && (it.imagined > 0 || NOW < self.deadline(state, attempt))
    }

    pub(super) fn holders(&self, state: &State) -> usize {
        let attempts = 0..self.attempts;
        attempts.filter(|it| self.is_valid(state, *it)).count()
    }

    pub(super) fn verdict(&self, state: &State, attempt: usize) -> Option<bool> {
        let links = || {
            state.nodes[..self.nodes]
                .iter()
                .map(|node| node.links[attempt])
        };
        let granted = links().filter(|it| matches!(it.known, Known::Ours(_)));
        if self.is(Mutant::HalfIsAQuorum) && granted.count() >= self.needed() {
            return Some(true);
        }
        let verdict = self.on_nodes(state, attempt).verdict();
        verdict.map(|verdict| verdict == Verdict::Granted)
    }

    /// Whether the attempt can send a renewal now.
    pub(super) fn renews(&self, state: &State, attempt: usize) -> bool {
        let it = &state.attempts[attempt];
        let late = self.is(Mutant::RenewalAfterRelease)
            && matches!(it.phase, Phase::Leaving | Phase::Over);
        it.renewals < self.renewals && it.age > 0 && (late || self.is_valid(state, attempt))
    }

    /// Whether the lock can pass to the next caller of the process now.
    pub(super) fn passes(&self, state: &State, attempt: usize) -> bool {
        let it = &state.attempts[attempt];
        if it.passes >= self.passes {
            return false;
        }
        if self.is(Mutant::HandOffPastValidity) {
            return matches!(it.phase, Phase::Held | Phase::Lost);
        }
        let left = self.deadline(state, attempt).since(NOW);
        it.phase == Phase::Held && left >= ticks(TTL) / 2
    }
}

const OURS: Landed = Landed::Ours {
    fence: None,
    key: 0,
};
const ANOTHERS: Landed = Landed::Anothers(Holder {
    tag: 0,
    remaining: None,
    key: None,
});

/// What the steps do.
impl Leases {
    pub(super) fn tick(&self, state: &mut State) {
        for node in &mut state.nodes[..self.nodes] {
            node.left = node.left.saturating_sub(1);
            node.expire();
            for link in &mut node.links {
                if link.waits {
                    link.age = (link.age + 1).min(TTL);
                }
                if let Known::Ours(age) = &mut link.known {
                    *age = (*age + 1).min(TTL);
                }
            }
        }
        for attempt in 0..self.attempts {
            let it = &mut state.attempts[attempt];
            if !matches!(it.phase, Phase::Idle | Phase::Over) {
                it.age = (it.age + 1).min(TTL);
            }
            it.imagined = it.imagined.saturating_sub(1);
            self.check(state, attempt);
        }
    }

    /// Loses the lock if its deadline has passed: the first thing at any event.
    fn check(&self, state: &mut State, attempt: usize) {
        let is_over =
            state.attempts[attempt].phase == Phase::Held && !self.is_valid(state, attempt);
        if is_over && !self.is(Mutant::LossNotFinal) {
            self.lose(state, attempt);
        }
    }

    fn lose(&self, state: &mut State, attempt: usize) {
        state.attempts[attempt].phase = Phase::Lost;
        if !self.lingers {
            self.leave(state, attempt);
        }
    }

    /// The node runs a command.
    pub(super) fn run(node: &mut Node, attempt: usize, command: Command) -> Reply {
        let token = attempt as u8 + 1;
        let is_dead = node.dead & (1 << attempt) != 0;
        match (command, node.owner) {
            (Command::Acquire, _) if is_dead => return Reply::Dead,
            (_, owner) if owner != 0 && owner != token => return Reply::Held,
            (Command::Extend, 0) if is_dead => return Reply::Absent,
            _ => {}
        }
        node.owner = token;
        node.left = TTL;
        node.drifted = false;
        Reply::Set
    }

    /// The process takes in a reply.
    pub(super) fn hear(&self, state: &mut State, attempt: usize, node: usize) {
        self.check(state, attempt);
        let link = &mut state.nodes[node].links[attempt];
        let age = if self.is(Mutant::ValidityFromTheReply) {
            0
        } else {
            link.age
        };
        let reply = link.reply.take();
        (link.waits, link.age) = (false, 0);
        let mut nodes = self.on_nodes(state, attempt);
        let landed = match reply {
            Some(Reply::Set) => OURS,
            Some(Reply::Held) => ANOTHERS,
            Some(Reply::Absent) => Landed::Absent,
            Some(Reply::Dead) => Landed::NoEffect,
            None => Landed::Abandoned,
        };
        nodes.land(node, ago(age), landed);
        let link = &mut state.nodes[node].links[attempt];
        link.doubtful |= reply.is_none();
        link.known = match (nodes.is_ours(node), link.known, reply) {
            (true, Known::Ours(before), Some(Reply::Set)) => Known::Ours(before.min(age)),
            (true, Known::Ours(before), _) => Known::Ours(before),
            (true, ..) => Known::Ours(age),
            (false, _, Some(Reply::Held)) => Known::Foreign,
            (false, _, Some(Reply::Absent)) => Known::Clear,
            (false, _, None) => Known::Unknown,
            (false, known, _) => known,
        };
        self.check(state, attempt);
        if nodes.is_taken() && state.attempts[attempt].phase == Phase::Held {
            self.lose(state, attempt);
        }
        self.settle(state, attempt);
    }

    pub(super) fn decide(&self, state: &mut State, attempt: usize) {
        let granted = self.verdict(state, attempt) == Some(true);
        state.attempts[attempt].phase = Phase::Held;
        if granted && self.is_valid(state, attempt) {
            for (other, it) in state.attempts.iter_mut().enumerate() {
                it.broken |= other != attempt && it.phase == Phase::Held;
            }
            return;
        }
        if self.is(Mutant::LateGrantForgotten) {
            for node in &mut state.nodes {
                node.links[attempt].waits = false;
                node.links[attempt].reply = None;
            }
        }
        self.leave(state, attempt);
    }

    pub(super) fn renew(&self, state: &mut State, attempt: usize) {
        let it = &mut state.attempts[attempt];
        it.renewals += 1;
        let listens = it.phase == Phase::Held;
        for node in &mut state.nodes[..self.nodes] {
            let link = &mut node.links[attempt];
            if link.sent.is_none() && !link.waits {
                link.sent = Some(Command::Extend);
                (link.waits, link.age) = (listens, 0);
            }
        }
    }

    pub(super) fn leave(&self, state: &mut State, attempt: usize) {
        state.attempts[attempt].phase = Phase::Leaving;
        state.attempts[attempt].imagined = 0;
        self.settle(state, attempt);
    }

    /// Sends releases to nodes that may have the token and to which nothing is under way; then it may be over.
    fn settle(&self, state: &mut State, attempt: usize) {
        if state.attempts[attempt].phase != Phase::Leaving {
            return;
        }
        let nodes = self.on_nodes(state, attempt);
        let mut is_over = true;
        for (number, node) in state.nodes[..self.nodes].iter_mut().enumerate() {
            let link = &mut node.links[attempt];
            if !link.waits && nodes.is_to_be_released(number) && link.release == Release::No {
                link.release = Release::Sent;
            }
            is_over &= !link.waits && link.release != Release::Sent;
        }
        if !is_over {
            return;
        }
        let it = &mut state.attempts[attempt];
        let renews = self.is(Mutant::RenewalAfterRelease);
        *it = Attempt {
            phase: Phase::Over,
            age: u8::from(renews),
            renewals: if renews { it.renewals } else { 0 },
            ..Attempt::default()
        };
        for node in &mut state.nodes {
            let link = &mut node.links[attempt];
            *link = Link {
                sent: link.sent,
                stray: link.stray,
                ..Link::default()
            };
        }
    }

    pub(super) fn run_release(&self, state: &mut State, attempt: usize, node: usize) {
        let it = &mut state.nodes[node];
        let link = &mut it.links[attempt];
        link.release = Release::Done;
        if link.renewed && !self.is(Mutant::NoTombstone) {
            it.dead |= 1 << attempt;
        }
        if usize::from(it.owner) == attempt + 1 || self.is(Mutant::ReleaseWithoutCompare) {
            it.left = 0;
            it.expire();
        }
        self.settle(state, attempt);
    }

    /// Forgets what has no effect any more, so that fewer states differ.
    pub(super) fn tidy(&self, state: &mut State) {
        for (attempt, it) in state.attempts[..self.attempts].iter_mut().enumerate() {
            if !matches!(it.phase, Phase::Lost | Phase::Leaving) {
                continue;
            }
            (it.age, it.broken) = (TTL, false);
            if it.phase == Phase::Leaving && !self.is(Mutant::RenewalAfterRelease) {
                (it.renewals, it.passes) = (0, 0);
            }
            for node in &mut state.nodes[..self.nodes] {
                let link = &mut node.links[attempt];
                link.age = 0;
                if let Known::Ours(age) = &mut link.known {
                    *age = TTL;
                }
            }
        }
        // Nodes are alike.
        state.nodes[..self.nodes].sort_unstable();
    }

    /// The steps of one attempt at one node.
    pub(super) fn at_node(
        &self,
        state: &State,
        attempt: usize,
        node: usize,
        actions: &mut Vec<Action>,
    ) {
        let link = &state.nodes[node].links[attempt];
        if link.sent.is_some() {
            actions.push(Action::Run(attempt, node));
            if state.cuts < self.cuts && link.stray.is_none() {
                actions.push(Action::GiveUpConnection(attempt, node));
            }
        }
        if link.stray.is_some() {
            actions.push(Action::RunLate(attempt, node));
        }
        if link.reply.is_some() {
            actions.push(Action::Hear(attempt, node));
        }
        if link.release == Release::Sent && link.sent.is_none() {
            actions.push(Action::RunRelease(attempt, node));
        }
    }
}

impl Node {
    pub(super) fn expire(&mut self) {
        if self.left == 0 {
            (self.owner, self.drifted) = (0, false);
        }
    }
}
