//! Permits: a key with two slots, each a lock of its own, over three nodes.
//!
//! Four processes ask for the key, each in an order of slots of its own. A node gives the first slot that is free there. A
//! process has a permit once a quorum has given it the *same* slot; other slots that it got are given back at some time,
//! also after others have asked.
//!
//! Abstracted: a command runs and is answered in one step, and a permit ends by its release alone. How one slot is lost,
//! forgotten and extended is that of a lock ([`lease`](crate::lease), [`quarantine`](crate::quarantine)).

use stateright::{Model, Property};

use crate::check::{assert_holds, assert_refuted, quorum};

const NODES: usize = 3;
const SLOTS: usize = 2;
const PROCESSES: usize = 4;

/// A rule that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutant {
    /// A node counts its holders, and a quorum of such votes is a permit, whichever slots they are.
    HoldersAreCounted,
}

#[derive(Clone, Debug)]
struct Permits {
    mutant: Option<Mutant>,
}

/// The owner of each slot of each node, from 1; 0: it is free.
type Nodes = [[u8; SLOTS]; NODES];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
struct State {
    nodes: Nodes,
    holds: [bool; PROCESSES],
}

impl State {
    fn holders(&self) -> usize {
        self.holds.iter().filter(|holds| **holds).count()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Ask(usize, usize),
    Hold(usize),
    /// Gives back what it has at a node beside its permit, or without one.
    GiveBack(usize, usize),
    Release(usize),
}

fn owner(process: usize) -> u8 {
    u8::try_from(process + 1).unwrap()
}

impl Permits {
    /// The slot of which `process` has a quorum of votes.
    fn won(&self, nodes: &Nodes, process: usize) -> Option<usize> {
        let has = |node: &[u8; SLOTS], slot: usize| match self.mutant {
            Some(Mutant::HoldersAreCounted) => node.contains(&owner(process)),
            None => node[slot] == owner(process),
        };
        let votes = |slot: &usize| nodes.iter().filter(|node| has(node, *slot)).count();
        (0..SLOTS).find(|slot| votes(slot) >= quorum(NODES))
    }
}

impl Model for Permits {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::default()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for process in 0..PROCESSES {
            let (holds, won) = (state.holds[process], self.won(&state.nodes, process));
            if holds {
                actions.push(Action::Release(process));
            } else if won.is_some() {
                actions.push(Action::Hold(process));
            }
            for (index, node) in state.nodes.iter().enumerate() {
                let place = node.iter().position(|it| *it == owner(process));
                match place {
                    None if !holds => actions.push(Action::Ask(process, index)),
                    Some(slot) if !holds || won != Some(slot) => {
                        actions.push(Action::GiveBack(process, index));
                    }
                    _ => {}
                }
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = *last;
        let nodes = &mut state.nodes;
        match action {
            Action::Ask(process, node) => {
                let mut order = (0..SLOTS).map(|slot| (slot + process) % SLOTS);
                let free = order.find(|slot| nodes[node][*slot] == 0)?;
                nodes[node][free] = owner(process);
            }
            Action::Hold(process) => state.holds[process] = true,
            Action::GiveBack(process, node) => {
                let mut slots = nodes[node].iter_mut();
                *slots.find(|it| **it == owner(process))? = 0;
            }
            Action::Release(process) => {
                state.holds[process] = false;
                let mine = nodes.as_flattened_mut().iter_mut();
                mine.filter(|it| **it == owner(process))
                    .for_each(|it| *it = 0);
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::<Self>::always(AT_MOST, |_, state| state.holders() <= SLOTS),
            Property::<Self>::sometimes("all permits are held", |_, state| {
                state.holders() == SLOTS
            }),
            Property::<Self>::sometimes("a holder has another slot at a node", |model, state| {
                (0..PROCESSES).any(|process| {
                    let won = model.won(&state.nodes, process);
                    let other = |slot| Some(slot) != won;
                    let places =
                        |slot: usize| state.nodes.iter().any(|node| node[slot] == owner(process));
                    state.holds[process] && (0..SLOTS).any(|slot| other(slot) && places(slot))
                })
            }),
        ]
    }
}

const AT_MOST: &str = "never more hold the key than there are permits";

#[test]
fn never_more_hold_a_key_than_there_are_permits() {
    assert_holds("permits", Permits { mutant: None });
}

#[test]
fn holders_must_not_be_counted() {
    let mutant = Some(Mutant::HoldersAreCounted);
    assert_refuted("permits, holders are counted", Permits { mutant }, AT_MOST);
}
