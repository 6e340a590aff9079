//! The lease of one key: acquired, renewed, handed on, released, lost.
//!
//! An *attempt* is one owner token, as in the library: one acquire round, and if that is granted the lock, its renewals
//! and its release. Commands to one node keep their order on a connection. A connection may be given up: then what was
//! sent on it may run at any later time or never, and a release on the next one leaves a tombstone.
//!
//! Time is in ticks. A ttl is three of them; each node's clock may run one tick too fast in every ttl, which is what is
//! given up for drift, so that a holder relies on less than two. Replies may come at any time after the command ran, or
//! never; a process may stop waiting for all of them at any time, and need not do anything at any time.
//!
//! Bounds: one node and two attempts, with a renewal, a hand-off and two connections that are given up; one node and
//! three attempts; one node and two attempts with two renewals, without a hand-off; three nodes and two attempts, without renewals (those of several nodes are in
//! [`quarantine`](crate::quarantine)) and drift, with replies that come at once or never, who release what they lose at
//! once. Abstracted: a release is confirmed in the step in which it runs; a renewal skips the nodes to which a command
//! is under way; tombstones live for ever; `max_hold` is never reached; who is refused does not try again, the next
//! attempt does. Not covered here: nodes that forget ([`quarantine`](crate::quarantine)), fencing tokens
//! ([`fence`](crate::fence)), several keys.

mod steps;

use stateright::{Model, Property};

use crate::check::{assert_holds, assert_refuted, leads_to, reached};

const NODES: usize = 3;
const ATTEMPTS: usize = 3;
/// In ticks.
const TTL: u8 = 3;
/// For how many ticks a grant is relied on.
const VALID: u8 = 2;
/// A little more than one tick of the ttl.
const DRIFT: f64 = 0.36;

/// A rule that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutant {
    NoDrift,
    ValidityFromTheReply,
    ReleaseWithoutCompare,
    LateGrantForgotten,
    HalfIsAQuorum,
    HandOffPastValidity,
    RenewalAfterRelease,
    LossNotFinal,
    NoTombstone,
    /// A later reply of the node settles what an earlier command without a reply may do.
    DoubtForgotten,
}

#[derive(Clone, Debug)]
struct Leases {
    nodes: usize,
    attempts: usize,
    renewals: u8,
    passes: u8,
    /// How many connections may be given up.
    cuts: u8,
    /// Whether clocks of nodes run too fast.
    drifts: bool,
    /// Whether replies take time.
    delays: bool,
    /// Whether a holder that has lost the lock may stand still before it releases what is left.
    lingers: bool,
    mutant: Option<Mutant>,
    /// Whether each state is followed until the lock is free and acquired again.
    recovers: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
struct Node {
    /// The attempt whose token it has, from 1; 0: none.
    owner: u8,
    left: u8,
    drifted: bool,
    /// The attempts that have a tombstone, as bits.
    dead: u8,
    links: [Link; ATTEMPTS],
}

/// What is between one attempt and one node, and what the attempt knows of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
struct Link {
    /// On the present connection, and has not run.
    sent: Option<Command>,
    /// On a connection that was given up.
    stray: Option<Command>,
    /// The reply that is on its way back.
    reply: Option<Reply>,
    /// How long ago the command was sent whose reply is waited for.
    age: u8,
    waits: bool,
    /// The connection is younger than the attempt.
    renewed: bool,
    known: Known,
    /// A command got no reply, and may run yet.
    doubtful: bool,
    release: Release,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Command {
    Acquire,
    Extend,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Reply {
    /// It has our token for a full ttl.
    Set,
    Held,
    Absent,
    /// There is a tombstone.
    Dead,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
enum Known {
    #[default]
    Clear,
    Unknown,
    /// By a command that was sent so long ago.
    Ours(u8),
    Foreign,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
enum Release {
    #[default]
    No,
    Sent,
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
enum Phase {
    #[default]
    Idle,
    Asking,
    Held,
    Lost,
    Leaving,
    /// All that it may have set was released.
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
struct Attempt {
    phase: Phase,
    /// How long ago the round was sent, up to a ttl.
    age: u8,
    renewals: u8,
    passes: u8,
    /// Another attempt was granted the lock while this one had it.
    broken: bool,
    /// For how long a mutant relies on a lock that was handed over too late.
    imagined: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
struct State {
    nodes: [Node; NODES],
    attempts: [Attempt; ATTEMPTS],
    cuts: u8,
}

/// A step; the numbers are those of the attempt and of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Tick,
    Drift(usize),
    Start(usize),
    Run(usize, usize),
    RunLate(usize, usize),
    Hear(usize, usize),
    StopWaiting(usize),
    GiveUpConnection(usize, usize),
    RunRelease(usize, usize),
    Decide(usize),
    Renew(usize),
    HandOn(usize),
    Leave(usize),
}

impl Model for Leases {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::default()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.push(Action::Tick);
        let nodes = state.nodes[..self.nodes].iter().enumerate();
        let drifting = nodes.filter(|(_, node)| self.drifts && node.owner != 0 && !node.drifted);
        actions.extend(drifting.map(|(node, _)| Action::Drift(node)));
        // Attempts are alike, so they start in order.
        let idle = |it: &usize| state.attempts[*it].phase == Phase::Idle;
        actions.extend((0..self.attempts).find(idle).map(Action::Start));
        for attempt in 0..self.attempts {
            match state.attempts[attempt].phase {
                Phase::Asking if self.verdict(state, attempt).is_some() => {
                    actions.push(Action::Decide(attempt));
                }
                Phase::Held | Phase::Lost => actions.push(Action::Leave(attempt)),
                _ => {}
            }
            if self.renews(state, attempt) {
                actions.push(Action::Renew(attempt));
            }
            if self.passes(state, attempt) {
                actions.push(Action::HandOn(attempt));
            }
            let mut nodes = state.nodes[..self.nodes].iter();
            if nodes.any(|node| node.links[attempt].waits) {
                actions.push(Action::StopWaiting(attempt));
            }
            for node in 0..self.nodes {
                self.at_node(state, attempt, node, actions);
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = *last;
        match action {
            Action::Tick => self.tick(&mut state),
            Action::Drift(node) => {
                let node = &mut state.nodes[node];
                (node.left, node.drifted) = (node.left - 1, true);
                node.expire();
            }
            Action::Start(attempt) => {
                state.attempts[attempt].phase = Phase::Asking;
                for node in &mut state.nodes[..self.nodes] {
                    node.links[attempt].sent = Some(Command::Acquire);
                    node.links[attempt].waits = true;
                }
            }
            Action::Run(attempt, node) => {
                let it = &mut state.nodes[node];
                let command = it.links[attempt].sent.take().unwrap();
                let reply = Self::run(it, attempt, command);
                let link = &mut it.links[attempt];
                link.reply = link.waits.then_some(reply);
                if link.waits && !self.delays {
                    self.hear(&mut state, attempt, node);
                }
            }
            Action::RunLate(attempt, node) => {
                let node = &mut state.nodes[node];
                let command = node.links[attempt].stray.take().unwrap();
                Self::run(node, attempt, command);
            }
            Action::Hear(attempt, node) => self.hear(&mut state, attempt, node),
            Action::StopWaiting(attempt) => {
                for node in 0..self.nodes {
                    let link = &mut state.nodes[node].links[attempt];
                    link.reply = None;
                    if link.waits {
                        self.hear(&mut state, attempt, node);
                    }
                }
            }
            Action::GiveUpConnection(attempt, node) => {
                state.cuts += 1;
                let link = &mut state.nodes[node].links[attempt];
                (link.stray, link.renewed) = (link.sent.take(), true);
                if link.waits {
                    self.hear(&mut state, attempt, node);
                }
            }
            Action::RunRelease(attempt, node) => self.run_release(&mut state, attempt, node),
            Action::Decide(attempt) => self.decide(&mut state, attempt),
            Action::Renew(attempt) => self.renew(&mut state, attempt),
            Action::HandOn(attempt) => {
                let it = &mut state.attempts[attempt];
                it.passes += 1;
                if self.is(Mutant::HandOffPastValidity) {
                    (it.phase, it.imagined) = (Phase::Held, TTL);
                }
            }
            Action::Leave(attempt) => self.leave(&mut state, attempt),
        }
        self.tidy(&mut state);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::<Self>::always(ONE_HOLDER, |model, state| model.holders(state) <= 1),
            Property::<Self>::always(UNBROKEN, |model, state| {
                let broken = |it: &usize| state.attempts[*it].broken && model.is_valid(state, *it);
                !(0..model.attempts).any(|it| broken(&it))
            }),
            Property::<Self>::always(NOTHING_LEFT, |_, state| {
                let is_over = |owner: u8| {
                    owner != 0 && state.attempts[usize::from(owner) - 1].phase == Phase::Over
                };
                !state.nodes.iter().any(|node| is_over(node.owner))
            }),
            Property::<Self>::sometimes(
                "the next attempt is granted after a release",
                |model, state| state.attempts[0].phase == Phase::Over && model.is_valid(state, 1),
            ),
        ];
        properties.extend(reached(&[
            (
                self.lingers,
                "the next attempt is granted after a loss",
                |model: &Self, state: &State| {
                    state.attempts[0].phase == Phase::Lost && model.is_valid(state, 1)
                },
            ),
            (
                self.renewals > 0,
                "a renewal prolongs a lock",
                |model, state| state.attempts[0].age >= VALID && model.is_valid(state, 0),
            ),
            (self.passes > 0, "a lock is handed on", |model, state| {
                state.attempts[0].passes > 0 && model.is_valid(state, 0)
            }),
            (
                self.cuts > 0,
                "a tombstone meets a late command",
                |_, state| {
                    let meets = |node: &Node| node.dead & 1 != 0 && node.links[0].stray.is_some();
                    state.nodes.iter().any(meets)
                },
            ),
        ]));
        if self.recovers {
            properties.push(Property::<Self>::always(GRANTED_AGAIN, |model, state| {
                model.is_granted_again(state)
            }));
        }
        properties
    }
}

impl Leases {
    /// Whether an attempt that begins when the others have left is granted the lock.
    fn is_granted_again(&self, state: &State) -> bool {
        let last = self.attempts - 1;
        if state.attempts[last].phase != Phase::Idle {
            return true;
        }
        let rank = |state: &State, action: &Action| match action {
            Action::RunRelease(..) => Some(0),
            Action::Run(..) | Action::RunLate(..) => Some(1),
            Action::Hear(..) => Some(2),
            Action::Leave(attempt) if *attempt != last => Some(3),
            Action::Decide(_) => Some(4),
            Action::Start(attempt) if *attempt != last => Some(5),
            Action::Start(_) => Some(7),
            Action::Tick if state.nodes.iter().any(|node| node.owner != 0) => Some(6),
            _ => None,
        };
        leads_to(self, *state, 100, rank, |state| self.is_valid(state, last))
    }
}

const ONE_HOLDER: &str = "one holder at a time";
const UNBROKEN: &str = "nobody has the lock during the hold of another";
const NOTHING_LEFT: &str = "nothing is left on the nodes after an orderly end";
const GRANTED_AGAIN: &str = "the lock is granted again once all have left";

/// One node, two attempts, and connections that are given up.
const CUT: Leases = Leases {
    nodes: 1,
    attempts: 2,
    renewals: 1,
    passes: 1,
    cuts: 2,
    drifts: true,
    delays: true,
    lingers: true,
    mutant: None,
    recovers: false,
};

/// The same with one renewal more, and nothing else that takes long.
const TWICE: Leases = Leases {
    renewals: 2,
    passes: 0,
    ..CUT
};

/// One node, and one attempt more.
const THIRD: Leases = Leases {
    attempts: 3,
    renewals: 0,
    cuts: 0,
    ..CUT
};

/// Three nodes, of which two are a quorum.
const THREE: Leases = Leases {
    nodes: 3,
    renewals: 0,
    passes: 0,
    cuts: 0,
    drifts: false,
    delays: false,
    lingers: false,
    ..CUT
};

#[test]
fn one_node_has_one_holder_at_a_time() {
    assert_holds("lease, one node", THIRD);
}

#[test]
fn three_nodes_have_one_holder_at_a_time() {
    assert_holds("lease, three nodes", THREE);
}

#[test]
fn one_node_has_one_holder_at_a_time_though_connections_break_and_grants_again() {
    let model = Leases {
        recovers: true,
        ..CUT
    };
    assert_holds("lease, late commands and recovery", model);
}

#[test]
fn a_renewal_that_runs_late_sets_no_key_where_another_owner_was_seen() {
    assert_holds("lease, two renewals", TWICE);
}

#[test]
fn each_rule_is_needed() {
    for (mutant, model, promise) in [
        (Mutant::NoDrift, &CUT, ONE_HOLDER),
        (Mutant::ValidityFromTheReply, &CUT, ONE_HOLDER),
        (Mutant::ReleaseWithoutCompare, &THIRD, ONE_HOLDER),
        (Mutant::HalfIsAQuorum, &THREE, ONE_HOLDER),
        (Mutant::HandOffPastValidity, &CUT, ONE_HOLDER),
        (Mutant::LossNotFinal, &CUT, UNBROKEN),
        (Mutant::LateGrantForgotten, &THREE, NOTHING_LEFT),
        (Mutant::RenewalAfterRelease, &CUT, NOTHING_LEFT),
        (Mutant::NoTombstone, &CUT, NOTHING_LEFT),
        // The first renewal may run late, on a connection that was given up; by the reply to the second the node has
        // another owner's token.
        (Mutant::DoubtForgotten, &TWICE, NOTHING_LEFT),
    ] {
        let mutant = Some(mutant);
        let model = Leases { mutant, ..*model };
        assert_refuted(&format!("lease, {mutant:?}"), model, promise);
    }
}
