//! Readers: a key that two of them may have together, or one of two writers alone, over three nodes.
//!
//! A node grants a reader where no writer has the key, and a writer where nobody has it. A process has the lock once a
//! quorum has granted it. One that stopped without a word keeps what it has at a node until its own end there.
//!
//! Abstracted: a command runs and is answered in one step. Each reader takes a fencing token as a writer does, so
//! [`fence`](crate::fence) has that; and what nodes forget is the same for one owner and for several
//! ([`quarantine`](crate::quarantine)). The hint of a waiting writer only refuses readers, which any node may do.

use stateright::{Model, Property};

use crate::check::{assert_holds, assert_refuted, quorum};

const NODES: usize = 3;
const READERS: usize = 2;
const PROCESSES: usize = 4;

/// The rule that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutant {
    /// A release frees the key, whoever else reads it.
    ReleaseFreesAll,
    /// The key ends with the reader that set it last.
    OneEndForAll,
}

#[derive(Clone, Debug)]
struct Readers {
    mutant: Option<Mutant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
struct Node {
    has: [bool; PROCESSES],
    last: usize,
}

impl Node {
    fn has_writer(&self) -> bool {
        self.has[READERS..].contains(&true)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
enum Stage {
    #[default]
    Asks,
    Holds,
    /// It has released the lock.
    Done,
    /// It has stopped without a word.
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
struct State {
    nodes: [Node; NODES],
    stages: [Stage; PROCESSES],
}

impl State {
    fn holds(&self, process: usize) -> bool {
        self.stages[process] == Stage::Holds
    }

    fn holders(&self) -> usize {
        (0..PROCESSES).filter(|it| self.holds(*it)).count()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Ask(usize, usize),
    Hold(usize),
    Renew(usize, usize),
    GiveBack(usize, usize),
    Release(usize),
    Stop(usize),
    /// What a process that has stopped has at a node ends there.
    End(usize, usize),
}

impl Readers {
    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    fn free(&self, node: &mut Node, process: usize, all: Mutant) {
        let is_all = self.is(all) && (all != Mutant::OneEndForAll || node.last == process);
        if is_all && process < READERS {
            node.has[..READERS].fill(false);
        }
        node.has[process] = false;
    }
}

impl Model for Readers {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::default()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for process in 0..PROCESSES {
            let has = |node: &usize| state.nodes[*node].has[process];
            let (there, missing): (Vec<_>, Vec<_>) = (0..NODES).partition(has);
            let mut each = |nodes: &[usize], action: fn(usize, usize) -> Action| {
                actions.extend(nodes.iter().map(|node| action(process, *node)));
            };
            match state.stages[process] {
                Stage::Asks => {
                    each(&missing, Action::Ask);
                    each(&there, Action::GiveBack);
                    let holds = there.len() >= quorum(NODES);
                    actions.extend(holds.then_some(Action::Hold(process)));
                    actions.extend((!there.is_empty()).then_some(Action::Stop(process)));
                }
                Stage::Holds => {
                    each(&missing, Action::Renew);
                    actions.extend([Action::Release(process), Action::Stop(process)]);
                }
                Stage::Gone => each(&there, Action::End),
                Stage::Done => {}
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = *last;
        match action {
            Action::Ask(process, node) | Action::Renew(process, node) => {
                let node = &mut state.nodes[node];
                let is_free = match process < READERS {
                    true => !node.has_writer(),
                    false => !node.has.contains(&true),
                };
                if !is_free {
                    return None;
                }
                (node.has[process], node.last) = (true, process);
            }
            Action::Hold(process) => state.stages[process] = Stage::Holds,
            Action::GiveBack(process, node) => {
                self.free(&mut state.nodes[node], process, Mutant::ReleaseFreesAll);
            }
            Action::Release(process) => {
                state.stages[process] = Stage::Done;
                for node in &mut state.nodes {
                    if node.has[process] {
                        self.free(node, process, Mutant::ReleaseFreesAll);
                    }
                }
            }
            Action::Stop(process) => state.stages[process] = Stage::Gone,
            Action::End(process, node) => {
                self.free(&mut state.nodes[node], process, Mutant::OneEndForAll);
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::<Self>::always(ALONE, |_, state| {
                let writes = (READERS..PROCESSES).any(|process| state.holds(process));
                !writes || state.holders() == 1
            }),
            Property::<Self>::sometimes("two read at once", |_, state| state.holders() == READERS),
            Property::<Self>::sometimes(
                "a writer comes after a reader that has stopped",
                |_, state| state.stages[0] == Stage::Gone && state.holds(READERS),
            ),
        ]
    }
}

const ALONE: &str = "a writer has the key alone";

#[test]
fn a_writer_has_a_key_alone() {
    assert_holds("readers", Readers { mutant: None });
}

#[test]
fn each_rule_of_readers_is_needed() {
    for mutant in [Mutant::ReleaseFreesAll, Mutant::OneEndForAll] {
        let mutant = Some(mutant);
        assert_refuted(&format!("readers, {mutant:?}"), Readers { mutant }, ALONE);
    }
}
