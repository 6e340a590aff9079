//! The restart guard: nodes that forget, or come back with old data, and processes with different ttls.
//!
//! Three nodes, two processes with ttls of one and of three ticks; no ttl may be longer than three. A process has its
//! votes node by node; a vote counts for a tick after its attempt began, and only where the node knows of leases as
//! long. The holder relies on the lock while a quorum of nodes confirmed it less than a ttl ago, and may extend it
//! anywhere at any time, not at all, or too late.
//!
//! A node that may have lost data does not vote. Each process that asks it sees that, waits by its own clock, asks any
//! of the other nodes (the rest cannot be reached), and lets the library judge how long the wait must be; then it
//! promotes the node, at once or much later. No process can count on reaching any node at any time.
//!
//! Bounds: two losses, at most one node at a time that does not vote for having lost data; one of them may be old data,
//! from any moment before. Abstracted: a command runs and is answered in one step; drift, skew and the time for which
//! processes go on counting a replaced server are nought (the first is in [`lease`](crate::lease), the last in
//! [`sentinel`](crate::sentinel)). Not covered: fencing tokens ([`fence`](crate::fence)), the first start
//! ([`members`](crate::members)), operators who say that nothing is held.

use stateright::{Model, Property};

use crate::check::{assert_holds, assert_refuted, leads_to, ticks};
use crate::protocol::quarantine::{Census, Rule, latest_vote};
use crate::protocol::quorum::Quorum;
use crate::protocol::validity::Drift;

const NODES: usize = 3;
const PROCESSES: usize = 2;
/// In ticks.
const TTL: [u8; PROCESSES] = [1, 3];
const MAX_TTL: u8 = 3;

/// A rule that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutant {
    NoQuarantine,
    /// Too few of the other nodes reply, and the wait is the longest lease that those know of.
    QuarantineTrustsTheFew,
    QuarantineTooShort,
    LongerLeaseGranted,
    LongerLeaseExtended,
    LateVoteCounts,
    IdentityIsTheProcess,
}

#[derive(Clone, Debug)]
struct Guarded {
    losses: u8,
    /// Whether one of the losses may be old data.
    old: bool,
    mutant: Option<Mutant>,
    /// Whether each state is followed until both processes were granted the lock.
    recovers: bool,
}

/// What a node stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
struct Data {
    /// The process whose token it has, from 1; 0: none.
    owner: u8,
    left: u8,
    /// The marker has the node's present identity.
    marked: bool,
    /// The longest lease that it knows of.
    known: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
struct Node {
    data: Data,
    /// What it may come back with.
    saved: Option<Data>,
    /// Some process has begun its quarantine.
    quarantined: bool,
    views: [View; PROCESSES],
}

/// One process's view of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
struct View {
    /// For how long the last grant or extension is relied on.
    vote: u8,
    /// For how long it has seen the present quarantine.
    waited: Option<u8>,
    /// The wait is over: the longest lease that the others know of.
    plan: Option<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
struct State {
    nodes: [Node; NODES],
    holds: [bool; PROCESSES],
    losses: u8,
    aged: bool,
}

/// A step of a process at a node; `u8` is the set of the other nodes that reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Tick,
    CheckIn(usize, usize),
    Grant(usize, usize),
    Hold(usize),
    Extend(usize, usize),
    Leave(usize),
    Census(usize, usize, u8),
    Promote(usize, usize),
    Save(usize),
    Forget(usize),
    ComeBackOld(usize),
}

impl Guarded {
    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    fn quorum() -> Quorum {
        Quorum::masking(NODES, 0).unwrap()
    }

    fn votes(&self, node: &Node) -> bool {
        node.data.marked || self.is(Mutant::NoQuarantine)
    }

    /// Whether a lease of the process counts where the node has it.
    fn counts(&self, node: &Node, process: usize, mutant: Mutant) -> bool {
        let knows = node.data.known >= TTL[process] || self.is(Mutant::NoQuarantine);
        self.votes(node) && (knows || self.is(mutant))
    }

    fn grants(&self, state: &State, process: usize, node: usize) -> bool {
        let it = &state.nodes[node];
        let fresh = it.views[process].vote == 0;
        let counts = self.counts(it, process, Mutant::LongerLeaseGranted);
        !state.holds[process] && counts && it.data.owner == 0 && fresh
    }

    /// How long the process must have waited, if these nodes reply.
    fn wait(&self, state: &State, process: usize, node: usize, replies: u8) -> Option<u8> {
        let it = &state.nodes[node];
        let mut census = Census {
            intact: 0,
            answered: 1,
            known: ticks(self.known(state, process, replies).max(it.data.known)),
        };
        for (other, it) in state.nodes.iter().enumerate() {
            if replies & (1 << other) != 0 {
                census.answered += 1;
                census.intact += usize::from(self.votes(it));
            }
        }
        if self.is(Mutant::QuarantineTrustsTheFew) && census.intact > 0 {
            census.intact = Self::quorum().needed();
        }
        let rule = Rule {
            quorum: Self::quorum(),
            max_ttl: ticks(MAX_TTL),
            drift: Drift::new(0.0).unwrap(),
            skew: ticks(0),
        };
        // Whole ticks: without the two milliseconds of drift.
        let wait = rule.wait(census)?.time.as_secs() as u8;
        Some(wait - u8::from(self.is(Mutant::QuarantineTooShort)))
    }

    /// The longest lease of which these nodes and the process know.
    fn known(&self, state: &State, process: usize, replies: u8) -> u8 {
        let nodes = state.nodes.iter().enumerate();
        let replied = nodes.filter(|(node, _)| replies & (1 << node) != 0);
        let known = replied.map(|(_, it)| it.data.known).max().unwrap_or(0);
        known.max(TTL[process])
    }

    /// The process does not rely on anything any more. Its locks may stay, and only refuse others.
    fn end(state: &mut State, process: usize) {
        state.holds[process] = false;
        for node in &mut state.nodes {
            node.views[process].vote = 0;
            for data in [Some(&mut node.data), node.saved.as_mut()]
                .into_iter()
                .flatten()
            {
                if usize::from(data.owner) == process + 1 {
                    (data.owner, data.left) = (0, 0);
                }
            }
        }
    }

    fn tick(&self, state: &mut State) {
        for node in &mut state.nodes {
            for data in [Some(&mut node.data), node.saved.as_mut()]
                .into_iter()
                .flatten()
            {
                data.left = data.left.saturating_sub(1);
                if data.left == 0 {
                    data.owner = 0;
                }
            }
            for view in &mut node.views {
                view.vote = view.vote.saturating_sub(1);
                view.waited = view.waited.map(|it| (it + 1).min(MAX_TTL));
            }
        }
        for process in 0..PROCESSES {
            let votes = state.nodes.iter().filter(|it| it.views[process].vote > 0);
            let is_late = latest_vote(ticks(MAX_TTL)) <= ticks(1)
                && !state.holds[process]
                && !self.is(Mutant::LateVoteCounts);
            let is_lost = state.holds[process] && votes.count() < Self::quorum().needed();
            if is_late || is_lost {
                Self::end(state, process);
            }
        }
    }

    fn check_in(&self, node: &mut Node, process: usize) {
        node.data.known = node.data.known.max(TTL[process]);
        if self.votes(node) {
            node.views[process].waited = None;
            return;
        }
        node.quarantined = true;
        let view = &mut node.views[process];
        if view.waited.is_none() {
            (view.waited, view.plan) = (Some(0), None);
        }
    }

    fn extend(&self, state: &mut State, process: usize, node: usize) {
        let it = &mut state.nodes[node];
        let counts = self.counts(it, process, Mutant::LongerLeaseExtended);
        (it.data.owner, it.data.left) = (process as u8 + 1, TTL[process]);
        if counts {
            it.views[process].vote = TTL[process];
        }
    }

    fn lose(&self, state: &mut State, node: usize, data: Data) {
        state.losses += 1;
        let it = &mut state.nodes[node];
        let marked = data.marked && self.is(Mutant::IdentityIsTheProcess);
        it.data = Data { marked, ..data };
        it.quarantined = false;
        for view in &mut it.views {
            (view.waited, view.plan) = (None, None);
        }
    }

    fn promote(node: &mut Node, process: usize) {
        let known = node.views[process].plan.unwrap();
        node.data.marked = true;
        node.data.known = node.data.known.max(known);
        node.quarantined = false;
        for view in &mut node.views {
            (view.waited, view.plan) = (None, None);
        }
    }

    fn of_process(&self, state: &State, process: usize, actions: &mut Vec<Action>) {
        let voted = |it: &&Node| it.views[process].vote > 0;
        let votes = state.nodes.iter().filter(voted).count();
        if votes > 0 {
            actions.push(Action::Leave(process));
        }
        if !state.holds[process] && votes >= Self::quorum().needed() {
            actions.push(Action::Hold(process));
        }
        for (number, node) in state.nodes.iter().enumerate() {
            let view = &node.views[process];
            let is_news =
                node.data.known < TTL[process] || !self.votes(node) && view.waited.is_none();
            if is_news {
                actions.push(Action::CheckIn(process, number));
            }
            if self.grants(state, process, number) {
                actions.push(Action::Grant(process, number));
            }
            let free = node.data.owner == 0 || usize::from(node.data.owner) == process + 1;
            if state.holds[process] && free && view.vote < TTL[process] {
                actions.push(Action::Extend(process, number));
            }
            if self.votes(node) {
                continue;
            }
            if view.plan.is_some() {
                actions.push(Action::Promote(process, number));
            } else if let Some(waited) = view.waited {
                let over = |set: &u8| {
                    let wait = self.wait(state, process, number, *set);
                    set & (1 << number) == 0 && wait.is_some_and(|wait| waited >= wait)
                };
                let sets = (0..1 << NODES).filter(over);
                actions.extend(sets.map(|set| Action::Census(process, number, set)));
            }
        }
    }

    fn of_node(&self, state: &State, node: usize, actions: &mut Vec<Action>) {
        let is_lost = |it: &Node| !it.data.marked;
        let others = state.nodes.iter().enumerate();
        let mut others = others.filter(|(other, _)| *other != node);
        let may_lose = state.losses < self.losses && !others.any(|(_, it)| is_lost(it));
        if !may_lose {
            return;
        }
        let saves = self.old && !state.aged && state.nodes.iter().all(|it| it.saved.is_none());
        if saves {
            actions.push(Action::Save(node));
        }
        if state.nodes[node].saved.is_some() {
            actions.push(Action::ComeBackOld(node));
        }
        actions.push(Action::Forget(node));
    }
}

impl Model for Guarded {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut state = State::default();
        for node in &mut state.nodes {
            // Only the short ttl was ever used.
            (node.data.marked, node.data.known) = (true, TTL[0]);
        }
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.push(Action::Tick);
        for process in 0..PROCESSES {
            self.of_process(state, process, actions);
        }
        for node in 0..NODES {
            self.of_node(state, node, actions);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = *last;
        match action {
            Action::Tick => self.tick(&mut state),
            Action::CheckIn(process, node) => self.check_in(&mut state.nodes[node], process),
            Action::Grant(process, node) => {
                let node = &mut state.nodes[node];
                (node.data.owner, node.data.left) = (process as u8 + 1, TTL[process]);
                node.views[process].vote = TTL[process];
            }
            Action::Hold(process) => state.holds[process] = true,
            Action::Extend(process, node) => self.extend(&mut state, process, node),
            Action::Leave(process) => Self::end(&mut state, process),
            Action::Census(process, node, replies) => {
                let known = self.known(&state, process, replies);
                state.nodes[node].views[process].plan = Some(known);
            }
            Action::Promote(process, node) => Self::promote(&mut state.nodes[node], process),
            Action::Save(node) => state.nodes[node].saved = Some(state.nodes[node].data),
            Action::Forget(node) => self.lose(&mut state, node, Data::default()),
            Action::ComeBackOld(node) => {
                state.aged = true;
                let data = state.nodes[node].saved.take().unwrap();
                self.lose(&mut state, node, data);
            }
        }
        if state.losses == self.losses {
            state.nodes.iter_mut().for_each(|node| node.saved = None);
        }
        // Nodes are alike.
        state.nodes.sort_unstable();
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::<Self>::always(ONE_HOLDER, |_, state| !(state.holds[0] && state.holds[1])),
            Property::<Self>::sometimes("the long lease is held", |_, state| state.holds[1]),
            Property::<Self>::sometimes("a lock is held while a node does not vote", |_, state| {
                let lost = state.nodes.iter().any(|it| !it.data.marked);
                state.holds[1] && lost && state.nodes.iter().any(|it| it.quarantined)
            }),
            Property::<Self>::sometimes(
                "a node votes again after its last loss",
                |model, state| {
                    let voting = state.nodes.iter().all(|it| it.data.marked);
                    state.losses == model.losses && voting && state.holds[1]
                },
            ),
        ];
        if self.old {
            properties.push(Property::<Self>::sometimes(
                "a node comes back old",
                |_, state| state.aged,
            ));
        }
        if self.recovers {
            properties.push(Property::<Self>::always(GRANTED_AGAIN, |model, state| {
                (0..PROCESSES).all(|process| model.is_granted_again(state, process))
            }));
        }
        properties
    }
}

impl Guarded {
    /// Whether the process is granted the lock once all nodes can be reached and nothing more is lost.
    fn is_granted_again(&self, state: &State, process: usize) -> bool {
        let rank = |state: &State, action: &Action| match action {
            Action::Leave(other) if *other != process => Some(0),
            Action::CheckIn(..) => Some(1),
            Action::Promote(..) => Some(2),
            Action::Census(_, _, replies) if replies.count_ones() == 2 => Some(3),
            Action::Hold(it) if *it == process => Some(4),
            Action::Grant(it, _) if *it == process => Some(5),
            Action::Tick if !state.holds[process] => Some(6),
            _ => None,
        };
        leads_to(self, *state, 60, rank, |state| state.holds[process])
    }
}

const ONE_HOLDER: &str = "one holder at a time";
const GRANTED_AGAIN: &str = "the lock is granted again once all nodes can be reached";

/// Two losses of all data.
const FORGETFUL: Guarded = Guarded {
    losses: 2,
    old: false,
    mutant: None,
    recovers: false,
};

/// One loss, of all data or of what is new.
const OLD: Guarded = Guarded {
    losses: 1,
    old: true,
    ..FORGETFUL
};

fn assert_needed(mutant: Mutant, model: &Guarded) {
    let mutant = Guarded {
        mutant: Some(mutant),
        ..model.clone()
    };
    assert_refuted(
        &format!("quarantine, {:?}", mutant.mutant),
        mutant,
        ONE_HOLDER,
    );
}

#[test]
fn one_holder_at_a_time_while_nodes_forget() {
    assert_holds("quarantine, two losses", FORGETFUL);
}

#[test]
fn one_holder_at_a_time_while_a_node_comes_back_old() {
    assert_holds("quarantine, old data", OLD);
}

#[test]
fn a_lock_is_granted_again_after_a_loss() {
    let model = Guarded {
        losses: 1,
        recovers: true,
        ..FORGETFUL
    };
    assert_holds("quarantine, recovery", model);
}

#[test]
fn without_a_quarantine_there_are_two_holders() {
    assert_needed(Mutant::NoQuarantine, &OLD);
}

#[test]
fn a_quarantine_must_not_trust_the_few_that_reply() {
    assert_needed(Mutant::QuarantineTrustsTheFew, &OLD);
}

#[test]
fn a_quarantine_must_not_be_a_tick_too_short() {
    assert_needed(Mutant::QuarantineTooShort, &OLD);
}

#[test]
fn a_node_must_not_grant_longer_leases_than_it_knows_of() {
    assert_needed(Mutant::LongerLeaseGranted, &FORGETFUL);
}

#[test]
fn a_node_must_not_extend_longer_leases_than_it_knows_of() {
    assert_needed(Mutant::LongerLeaseExtended, &FORGETFUL);
}

#[test]
fn late_votes_must_not_count() {
    assert_needed(Mutant::LateVoteCounts, &FORGETFUL);
}

#[test]
fn a_server_that_was_demoted_and_promoted_again_is_another() {
    assert_needed(Mutant::IdentityIsTheProcess, &OLD);
}
