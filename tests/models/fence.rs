//! The fencing tokens of one key.
//!
//! No time at all: a lock may end on any node at any moment, so that it is never in the way, and every command and
//! reply may take any time. So what holds here holds whatever clocks do. An attempt asks three nodes, takes the replies
//! of any quorum of those that granted, lets the library judge their counters, and writes the highest back where it
//! still owns the lock if they do not agree. A token must be above those of all attempts that had theirs before it
//! began, hand-overs included, and no two may be the same.
//!
//! A node may forget all, or come back with what it had at any time before. It then votes again once the attempts that
//! were under way when it did are over (which is what the wait of a quarantine is for), once its process has read the
//! highest counter of each of the other nodes after that, and with that as its floor.
//!
//! Bounds: three attempts whose clocks propose anything from 0 to 1, or two with proposals up to 2 and one node that
//! forgets, or comes back old, or three one after the other and one node that comes back old. A step of the counters is
//! 2, one hand-over 1. Abstracted: a promotion reads both other nodes; where too few remember, the library goes on from
//! the clock, which is not here. Not covered: proposals that are absurdly far ahead, nonsense in counters, and those
//! that expire (with one key the mark equals them).

use stateright::{Model, Property};

use crate::check::{assert_holds, assert_refuted, quorum};
use crate::protocol::quorum::{FenceVerdict, agree};
use crate::token::FencingToken;

const NODES: usize = 3;
const ATTEMPTS: usize = 3;
/// Between the tokens of two grants: the token between is for a hand-over.
const STEP: u8 = 2;

/// A rule that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutant {
    FenceNotWrittenBack,
    FenceOnTooFewNodes,
    FenceOfOthersRaised,
    RaisedInQuarantine,
    OldCounterCounts,
    NoQuarantine,
    MarkNotLearnt,
}

#[derive(Clone, Debug)]
struct Fences {
    attempts: usize,
    /// How many of them may ask at a time.
    at_once: usize,
    /// The highest proposal.
    proposals: u8,
    /// How many nodes may forget, one after the other.
    losses: u8,
    /// Whether they come back with old data, or with none.
    old: bool,
    mutant: Option<Mutant>,
}

/// What a node stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
struct Data {
    /// The attempt to which it granted the lock last, from 1; 0: none.
    owner: u8,
    /// 0: none.
    count: u8,
    mark: u8,
    floor: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
struct Node {
    data: Data,
    /// What it may come back with.
    saved: Option<Data>,
    quarantine: Option<Quarantine>,
    links: [Link; ATTEMPTS],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
struct Quarantine {
    /// The attempts that must be over first, as bits.
    after: u8,
    /// How many of the other nodes told their mark, and the highest of those.
    told: u8,
    floor: u8,
}

/// What one attempt has asked of one node, and what came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
enum Link {
    #[default]
    None,
    Asked,
    Granted(u8),
    /// It was asked to raise its counter.
    Raise,
    Raised,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
enum Phase {
    #[default]
    Idle,
    Asking,
    Raising,
    Holding,
    Dead,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
struct Attempt {
    phase: Phase,
    proposal: u8,
    token: u8,
    handed_on: bool,
    /// The highest token that was handed out before it began.
    before: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
struct State {
    nodes: [Node; NODES],
    attempts: [Attempt; ATTEMPTS],
    losses: u8,
    /// A token was not above an earlier one, or was there twice.
    is_wrong: bool,
}

/// A step. Attempts come before nodes; `u8` is a set of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Start(usize, u8),
    Grant(usize, usize),
    Decide(usize, u8),
    Raise(usize, usize),
    HandOut(usize),
    HandOn(usize),
    Save(usize),
    Lose(usize),
    EndWait(usize),
    ReadMark(usize, usize),
    Promote(usize),
}

impl Data {
    /// A new count for a holder, at least the `proposal`.
    fn advance(&mut self, proposal: u8, with_floor: bool) -> u8 {
        let floor = if with_floor { self.floor } else { 0 };
        let base = self.counted().max(floor);
        self.set(proposal.max(base + STEP));
        self.count
    }

    /// The mark stands in for a counter that is missing.
    fn counted(&self) -> u8 {
        if self.count == 0 {
            self.mark
        } else {
            self.count
        }
    }

    fn set(&mut self, count: u8) {
        self.count = count;
        self.mark = self.mark.max(count);
    }
}

impl Fences {
    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    fn hand_out(state: &mut State, attempt: usize, token: u8) {
        let above = |it: &Attempt| it.before > 0 && token < it.before + STEP;
        state.is_wrong |= above(&state.attempts[attempt]);
        let others = state
            .attempts
            .iter()
            .filter(|it| it.phase == Phase::Holding);
        // The tokens of a holder and of all to whom it may hand the lock.
        state.is_wrong |= others.clone().any(|it| it.token.abs_diff(token) < STEP);
        state.attempts[attempt] = Attempt {
            phase: Phase::Holding,
            token,
            ..Attempt::default()
        };
        forget_links(state, attempt);
    }

    fn decide(&self, state: &mut State, attempt: usize, replies: u8) {
        let granted: Vec<(usize, u8)> = (0..NODES)
            .filter(|node| replies & (1 << node) != 0)
            .map(|node| (node, state.nodes[node].links[attempt].count()))
            .collect();
        let tokens: Vec<FencingToken> = granted.iter().map(|(_, it)| token(*it)).collect();
        match agree(tokens.iter().copied(), quorum(NODES)) {
            FenceVerdict::Agreed(token) => Self::hand_out(state, attempt, number(token)),
            FenceVerdict::Open(token) if self.is(Mutant::FenceNotWrittenBack) => {
                Self::hand_out(state, attempt, number(token));
            }
            FenceVerdict::Open(token) => {
                let token = number(token);
                let it = &mut state.attempts[attempt];
                (it.phase, it.token, it.proposal) = (Phase::Raising, token, 0);
                forget_links(state, attempt);
                for (node, count) in granted {
                    let lower = count < token;
                    let link = &mut state.nodes[node].links[attempt];
                    *link = if lower { Link::Raise } else { Link::Raised };
                }
            }
            FenceVerdict::None => unreachable!("all who granted have told"),
        }
    }

    fn end_wait(state: &mut State, node: usize) {
        let quarantine = state.nodes[node].quarantine.as_mut().unwrap();
        let after = std::mem::take(&mut quarantine.after);
        for attempt in 0..ATTEMPTS {
            let is_open = matches!(
                state.attempts[attempt].phase,
                Phase::Asking | Phase::Raising
            );
            if after & (1 << attempt) != 0 && is_open {
                state.attempts[attempt] = Attempt {
                    phase: Phase::Dead,
                    ..Attempt::default()
                };
                forget_links(state, attempt);
            }
        }
    }

    fn lose(&self, state: &mut State, node: usize) {
        state.losses += 1;
        let attempts = state.attempts.iter().enumerate();
        let open = attempts.filter(|(_, it)| matches!(it.phase, Phase::Asking | Phase::Raising));
        let after = open.fold(0, |bits, (attempt, _)| bits | (1 << attempt));
        let node = &mut state.nodes[node];
        node.data = node.saved.take().unwrap_or_default();
        node.quarantine = (!self.is(Mutant::NoQuarantine)).then_some(Quarantine {
            after,
            ..Quarantine::default()
        });
    }

    fn at_node(&self, state: &State, attempt: usize, node: usize) -> Option<Action> {
        let it = &state.nodes[node];
        let owner = usize::from(it.data.owner);
        let votes = it.quarantine.is_none();
        match it.links[attempt] {
            Link::Asked if votes => Some(Action::Grant(attempt, node)),
            // A node that came back old may have a lock again that another had taken from us.
            Link::Raise if !votes && !self.is(Mutant::RaisedInQuarantine) => None,
            Link::Raise if owner == attempt + 1 || self.is(Mutant::FenceOfOthersRaised) => {
                Some(Action::Raise(attempt, node))
            }
            _ => None,
        }
    }

    fn of_attempt(&self, state: &State, attempt: usize, actions: &mut Vec<Action>) {
        let links = || state.nodes.iter().map(|node| node.links[attempt]);
        actions.extend((0..NODES).filter_map(|node| self.at_node(state, attempt, node)));
        match state.attempts[attempt].phase {
            Phase::Asking => {
                let granted = links().enumerate();
                let granted = granted.filter(|(_, it)| matches!(it, Link::Granted(_)));
                let granted = granted.fold(0_u8, |bits, (node, _)| bits | (1 << node));
                let sets = (1..=granted).filter(|set| set & !granted == 0);
                let quorums = sets.filter(|set| set.count_ones() as usize >= quorum(NODES));
                actions.extend(quorums.map(|set| Action::Decide(attempt, set)));
            }
            Phase::Raising => {
                let raised = links().filter(|it| *it == Link::Raised).count();
                let too_few = self.is(Mutant::FenceOnTooFewNodes) && raised > 0;
                if raised >= quorum(NODES) || too_few {
                    actions.push(Action::HandOut(attempt));
                }
            }
            Phase::Holding if !state.attempts[attempt].handed_on => {
                actions.push(Action::HandOn(attempt));
            }
            _ => {}
        }
    }

    fn of_node(&self, state: &State, node: usize, actions: &mut Vec<Action>) {
        let it = &state.nodes[node];
        let may_lose = state.losses < self.losses && it.quarantine.is_none();
        if may_lose && self.old && it.saved.is_none() && it.data != Data::default() {
            actions.push(Action::Save(node));
        }
        if may_lose && self.old == it.saved.is_some() && it.data != Data::default() {
            actions.push(Action::Lose(node));
        }
        let Some(quarantine) = it.quarantine else {
            return;
        };
        if quarantine.after != 0 {
            actions.push(Action::EndWait(node));
            return;
        }
        let others = (0..NODES).filter(|other| *other != node);
        if self.is(Mutant::MarkNotLearnt) || quarantine.told.count_ones() as usize >= quorum(NODES)
        {
            actions.push(Action::Promote(node));
        } else {
            let untold = others.filter(|other| {
                quarantine.told & (1 << other) == 0 && state.nodes[*other].quarantine.is_none()
            });
            actions.extend(untold.map(|other| Action::ReadMark(node, other)));
        }
    }
}

impl Link {
    fn count(self) -> u8 {
        match self {
            Self::Granted(count) => count,
            _ => 0,
        }
    }
}

fn forget_links(state: &mut State, attempt: usize) {
    for node in &mut state.nodes {
        node.links[attempt] = Link::None;
    }
}

fn token(count: u8) -> FencingToken {
    FencingToken::new(u64::from(count)).unwrap()
}

fn number(token: FencingToken) -> u8 {
    u8::try_from(token.get()).unwrap()
}

/// Nodes are alike. Who has read whose mark refers to their order, so it stays while one reads.
fn sort(state: &mut State) {
    let reads = |node: &Node| node.quarantine.is_some_and(|it| it.told != 0);
    if !state.nodes.iter().any(reads) {
        state.nodes.sort_unstable();
    }
}

impl Model for Fences {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::default()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let ends = |it: &Attempt| matches!(it.phase, Phase::Holding | Phase::Dead);
        if state.is_wrong || state.attempts[..self.attempts].iter().all(ends) {
            return;
        }
        // Attempts are alike, so they start in order.
        let idle = |it: &usize| state.attempts[*it].phase == Phase::Idle;
        let asks = |it: &&Attempt| matches!(it.phase, Phase::Asking | Phase::Raising);
        let has_room = state.attempts.iter().filter(asks).count() < self.at_once;
        if let Some(attempt) = (0..self.attempts).find(idle).filter(|_| has_room) {
            actions.extend((0..=self.proposals).map(|it| Action::Start(attempt, it)));
        }
        for attempt in 0..self.attempts {
            self.of_attempt(state, attempt, actions);
        }
        for node in 0..NODES {
            self.of_node(state, node, actions);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = *last;
        match action {
            Action::Start(attempt, proposal) => {
                let held = state
                    .attempts
                    .iter()
                    .filter(|it| it.phase == Phase::Holding);
                let before = held.map(|it| it.token).max().unwrap_or(0);
                state.attempts[attempt] = Attempt {
                    phase: Phase::Asking,
                    proposal,
                    before,
                    ..Attempt::default()
                };
                for node in &mut state.nodes {
                    node.links[attempt] = Link::Asked;
                }
            }
            Action::Grant(attempt, node) => {
                let proposal = state.attempts[attempt].proposal;
                let node = &mut state.nodes[node];
                let count = node
                    .data
                    .advance(proposal, !self.is(Mutant::OldCounterCounts));
                node.data.owner = attempt as u8 + 1;
                node.links[attempt] = Link::Granted(count);
            }
            Action::Decide(attempt, replies) => self.decide(&mut state, attempt, replies),
            Action::Raise(attempt, node) => {
                let token = state.attempts[attempt].token;
                let node = &mut state.nodes[node];
                let count = node.data.counted().max(token);
                node.data.set(count);
                node.links[attempt] = Link::Raised;
            }
            Action::HandOut(attempt) => {
                let token = state.attempts[attempt].token;
                Self::hand_out(&mut state, attempt, token);
            }
            Action::HandOn(attempt) => {
                let it = &mut state.attempts[attempt];
                let next = number(token(it.token).handed_on(1));
                it.handed_on = true;
                let others = last.attempts.iter().enumerate();
                let others = others.filter(|(other, _)| *other != attempt);
                state.is_wrong |= others
                    .clone()
                    .any(|(_, other)| other.phase == Phase::Holding && other.token == next);
            }
            Action::Save(node) => state.nodes[node].saved = Some(state.nodes[node].data),
            Action::Lose(node) => self.lose(&mut state, node),
            Action::EndWait(node) => Self::end_wait(&mut state, node),
            Action::ReadMark(node, other) => {
                let mark = state.nodes[other].data.mark;
                let quarantine = state.nodes[node].quarantine.as_mut().unwrap();
                quarantine.told |= 1 << other;
                quarantine.floor = quarantine.floor.max(mark);
            }
            Action::Promote(node) => {
                let node = &mut state.nodes[node];
                let floor = node.quarantine.take().unwrap().floor;
                node.data.mark = node.data.mark.max(floor);
                node.data.floor = node.data.floor.max(floor);
            }
        }
        sort(&mut state);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::<Self>::always(GROWS, |_, state| !state.is_wrong),
            Property::<Self>::sometimes("every attempt has a token", |model, state| {
                let attempts = state.attempts[..model.attempts].iter();
                attempts.clone().all(|it| it.phase == Phase::Holding)
            }),
            Property::<Self>::sometimes("a token is written back", |_, state| {
                state.attempts.iter().any(|it| it.phase == Phase::Raising)
            }),
            Property::<Self>::sometimes("a lock is handed on", |_, state| {
                state.attempts.iter().any(|it| it.handed_on)
            }),
        ];
        if self.losses > 0 {
            properties.push(Property::<Self>::sometimes(
                "a node is promoted and grants",
                |_, state| {
                    let grants = |it: &Node| it.data.floor > 0 && it.data.count > it.data.floor;
                    state.nodes.iter().any(grants)
                },
            ));
        }
        properties
    }
}

const GROWS: &str = "a token is above all that were there before";

/// Nodes that remember.
const INTACT: Fences = Fences {
    attempts: 3,
    at_once: 3,
    proposals: 1,
    losses: 0,
    old: false,
    mutant: None,
};

/// A node that loses what it has.
const FORGETFUL: Fences = Fences {
    attempts: 2,
    proposals: 2,
    losses: 1,
    ..INTACT
};

/// A node that comes back with what it once had.
const OLD: Fences = Fences {
    old: true,
    proposals: 0,
    ..FORGETFUL
};

/// The same with attempts one after the other, of which the last meets what the first left.
const OLD_LATER: Fences = Fences {
    attempts: 3,
    at_once: 1,
    ..OLD
};

#[test]
fn tokens_grow_whatever_the_timing() {
    assert_holds("fence", INTACT);
}

#[test]
fn tokens_grow_though_a_node_forgets() {
    assert_holds("fence, one forgets", FORGETFUL);
}

#[test]
fn tokens_grow_though_a_node_comes_back_with_old_counters() {
    assert_holds("fence, one comes back old", OLD);
    assert_holds("fence, one comes back old later", OLD_LATER);
}

#[test]
fn each_rule_is_needed() {
    for (mutant, model) in [
        (Mutant::FenceNotWrittenBack, &INTACT),
        (Mutant::FenceOnTooFewNodes, &INTACT),
        (Mutant::FenceOfOthersRaised, &INTACT),
        (Mutant::RaisedInQuarantine, &OLD),
        (Mutant::OldCounterCounts, &OLD_LATER),
        (Mutant::NoQuarantine, &FORGETFUL),
        (Mutant::MarkNotLearnt, &FORGETFUL),
    ] {
        let mutant = Some(mutant);
        let model = Fences { mutant, ..*model };
        assert_refuted(&format!("fence, {mutant:?}"), model, GROWS);
    }
}
