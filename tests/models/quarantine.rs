//! The restart guard: nodes that forget, or come back with old data, and processes with different ttls.
//!
//! Three nodes, two processes; no ttl may be longer than three ticks. A process has its votes node by node, and an
//! attempt may take any time. The holder relies on the lock while a quorum of nodes confirmed it less than a ttl ago,
//! and may extend it anywhere at any time, not at all, or too late.
//!
//! A node that may have lost data does not vote. Each process that asks it sees that, waits by its own clock for the
//! length that the library says, and promotes the node, at once or much later. No process can count on reaching any
//! node at any time. An extension is written in a quarantine, too, and counts there only while the holder's last vote
//! of that node does.
//!
//! Bounds: two or three losses, of any nodes, also of all at once; one of them may be old data, from any moment before.
//! Abstracted: a command runs and is answered in one step; drift, skew and the time for which processes go on counting
//! a replaced server are nought (the first is in [`lease`](crate::lease), the last in [`sentinel`](crate::sentinel)).
//! Not covered: fencing tokens ([`fence`](crate::fence)), the first start ([`members`](crate::members)), operators who
//! say that nothing is held.

use stateright::{Model, Property};

use crate::check::{assert_holds, assert_refuted, leads_to, quorum, reached, wait};

const NODES: usize = 3;
const PROCESSES: usize = 2;
/// In ticks.
const MAX_TTL: u8 = 3;

/// A rule that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutant {
    NoQuarantine,
    QuarantineTooShort,
    IdentityIsTheProcess,
    /// An extension counts in a quarantine whether or not the vote before it still does.
    QuarantinedVoteRevives,
}

#[derive(Clone, Debug)]
struct Guarded {
    /// In ticks, of each process.
    ttl: [u8; PROCESSES],
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
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
struct Node {
    data: Data,
    /// What it may come back with.
    saved: Option<Data>,
    views: [View; PROCESSES],
}

impl Node {
    /// What it has, and what it may come back with.
    fn stored(&mut self) -> impl Iterator<Item = &mut Data> {
        std::iter::once(&mut self.data).chain(&mut self.saved)
    }
}

/// One process's view of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
struct View {
    /// For how long the last grant or extension is relied on.
    vote: u8,
    /// For how long it has seen the present quarantine.
    waited: Option<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
struct State {
    nodes: [Node; NODES],
    holds: [bool; PROCESSES],
    losses: u8,
    aged: bool,
    /// An extension has counted in a quarantine.
    carried: bool,
}

/// A step of a process at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Tick,
    CheckIn(usize, usize),
    Grant(usize, usize),
    Hold(usize),
    Extend(usize, usize),
    Leave(usize),
    Promote(usize, usize),
    Save(usize),
    Forget(usize),
    ComeBackOld(usize),
}

impl Guarded {
    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    fn votes(&self, node: &Node) -> bool {
        node.data.marked || self.is(Mutant::NoQuarantine)
    }

    fn grants(&self, state: &State, process: usize, node: usize) -> bool {
        let it = &state.nodes[node];
        let fresh = it.views[process].vote == 0;
        !state.holds[process] && self.votes(it) && it.data.owner == 0 && fresh
    }

    /// How long a process must have waited.
    fn wait(&self) -> u8 {
        wait(MAX_TTL, 0) - u8::from(self.is(Mutant::QuarantineTooShort))
    }

    /// The process does not rely on anything any more. Its locks may stay, and only refuse others.
    fn end(state: &mut State, process: usize) {
        state.holds[process] = false;
        for node in &mut state.nodes {
            node.views[process].vote = 0;
            for data in node.stored() {
                if usize::from(data.owner) == process + 1 {
                    (data.owner, data.left) = (0, 0);
                }
            }
        }
    }

    fn voted(state: &State, process: usize) -> usize {
        let voted = |it: &&Node| it.views[process].vote > 0;
        state.nodes.iter().filter(voted).count()
    }

    fn tick(state: &mut State) {
        for node in &mut state.nodes {
            for data in node.stored() {
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
            if state.holds[process] && Self::voted(state, process) < quorum(NODES) {
                Self::end(state, process);
            }
        }
    }

    fn extend(&self, state: &mut State, process: usize, node: usize) {
        let it = &mut state.nodes[node];
        let goes_on = it.views[process].vote > 0 || self.is(Mutant::QuarantinedVoteRevives);
        (it.data.owner, it.data.left) = (process as u8 + 1, self.ttl[process]);
        if self.votes(it) || goes_on {
            state.carried |= !it.data.marked;
            it.views[process].vote = self.ttl[process];
        }
    }

    fn lose(&self, state: &mut State, node: usize, data: Data) {
        state.losses += 1;
        let it = &mut state.nodes[node];
        let marked = data.marked && self.is(Mutant::IdentityIsTheProcess);
        it.data = Data { marked, ..data };
        it.views.iter_mut().for_each(|view| view.waited = None);
    }

    fn of_process(&self, state: &State, process: usize, actions: &mut Vec<Action>) {
        let votes = Self::voted(state, process);
        if votes > 0 {
            actions.push(Action::Leave(process));
        }
        if !state.holds[process] && votes >= quorum(NODES) {
            actions.push(Action::Hold(process));
        }
        for (number, node) in state.nodes.iter().enumerate() {
            let view = &node.views[process];
            if self.grants(state, process, number) {
                actions.push(Action::Grant(process, number));
            }
            let free = node.data.owner == 0 || usize::from(node.data.owner) == process + 1;
            if state.holds[process] && free && view.vote < self.ttl[process] {
                actions.push(Action::Extend(process, number));
            }
            match view.waited {
                _ if self.votes(node) => {}
                None => actions.push(Action::CheckIn(process, number)),
                Some(waited) if waited >= self.wait() => {
                    actions.push(Action::Promote(process, number));
                }
                Some(_) => {}
            }
        }
    }

    fn of_node(&self, state: &State, node: usize, actions: &mut Vec<Action>) {
        if state.losses == self.losses {
            return;
        }
        if self.old && state.nodes.iter().all(|it| it.saved.is_none()) {
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
        state.nodes.iter_mut().for_each(|it| it.data.marked = true);
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
            Action::Tick => Self::tick(&mut state),
            Action::CheckIn(process, node) => state.nodes[node].views[process].waited = Some(0),
            Action::Grant(process, node) => {
                let node = &mut state.nodes[node];
                (node.data.owner, node.data.left) = (process as u8 + 1, self.ttl[process]);
                node.views[process].vote = self.ttl[process];
            }
            Action::Hold(process) => state.holds[process] = true,
            Action::Extend(process, node) => self.extend(&mut state, process, node),
            Action::Leave(process) => Self::end(&mut state, process),
            Action::Promote(_, node) => {
                let node = &mut state.nodes[node];
                node.data.marked = true;
                node.views.iter_mut().for_each(|view| view.waited = None);
            }
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
            Property::<Self>::sometimes("a lock outlives the loss of a node's data", |_, state| {
                state.carried && state.holds[1]
            }),
            Property::<Self>::sometimes(
                "a node votes again after the last loss",
                |model, state| {
                    let voting = state.nodes.iter().all(|it| it.data.marked);
                    state.losses == model.losses && voting && state.holds[1]
                },
            ),
        ];
        properties.extend(reached(&[
            (
                self.losses >= NODES as u8,
                "all nodes forget at once",
                |_: &Self, state: &State| {
                    state.holds[1] && state.nodes.iter().all(|it| !it.data.marked)
                },
            ),
            (self.old, "a node comes back old", |_, state| state.aged),
        ]));
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

/// Losses of all data, of all nodes.
const FORGETFUL: Guarded = Guarded {
    ttl: [1, 3],
    losses: 3,
    old: false,
    mutant: None,
    recovers: false,
};

/// Losses of all data, or of what is new.
const OLD: Guarded = Guarded {
    losses: 2,
    old: true,
    ..FORGETFUL
};

#[test]
fn one_holder_at_a_time_while_any_number_of_nodes_forget() {
    assert_holds("quarantine", FORGETFUL);
    let long = Guarded {
        ttl: [3, 3],
        losses: 2,
        ..FORGETFUL
    };
    assert_holds("quarantine, long leases", long);
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
fn each_rule_is_needed() {
    let long = Guarded {
        ttl: [3, 3],
        losses: 1,
        ..FORGETFUL
    };
    for (mutant, model) in [
        (Mutant::NoQuarantine, &OLD),
        (Mutant::QuarantineTooShort, &OLD),
        (Mutant::QuarantinedVoteRevives, &long),
        // A server that was demoted and promoted again is another.
        (Mutant::IdentityIsTheProcess, &OLD),
    ] {
        let mutant = Some(mutant);
        let model = Guarded { mutant, ..*model };
        assert_refuted(&format!("quarantine, {mutant:?}"), model, ONE_HOLDER);
    }
}
