//! A move from one list of nodes to another, by the two ways of `docs::operating`.
//!
//! [`Deploys`]: three processes go from the old list to both lists and on to the new one, one after the other, while they
//! lock. [`Retiring`]: a process locks on three nodes, an operator retires the nodes one by one, waits, and then others
//! lock on the new list.
//!
//! Abstracted: in [`Deploys`] a list grants or refuses in one step, which is what the other models show of it. In
//! [`Retiring`] the new list is always free, a release never comes, and whoever stands for its processes works for ever.

use stateright::{Model, Property};

use crate::check::{NOW, ago, assert_holds, assert_refuted, quorum, ticks};
use crate::protocol::quorum::deadline;

const PROCESSES: usize = 3;

/// The rule that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutant {
    /// One deploy, from the old list to the new one.
    NotBoth,
    /// The second deploy begins while a process has the old list alone.
    NotAfterTheFirst,
    /// Processes with the new list start as soon as the old nodes are retired.
    NoWait,
    /// A quorum of the old nodes need not be retired.
    TooFew,
}

/// The lists of a process: `[old, new]`.
type Lists = [bool; 2];
const OLD: Lists = [true, false];
const BOTH: Lists = [true, true];
const NEW: Lists = [false, true];

#[derive(Clone, Debug)]
struct Deploys {
    mutant: Option<Mutant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Deployed {
    lists: [Lists; PROCESSES],
    /// What each process holds, and the lists with which it began: it ends its work before it is replaced.
    held: [Lists; PROCESSES],
}

impl Deployed {
    fn works(&self, process: usize) -> bool {
        self.held[process] == self.lists[process]
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deploy {
    /// Locks on the next list that it has.
    Lock(usize),
    Release(usize),
    Replace(usize, Lists),
}

impl Model for Deploys {
    type State = Deployed;
    type Action = Deploy;

    fn init_states(&self) -> Vec<Deployed> {
        vec![Deployed {
            lists: [OLD; PROCESSES],
            held: [[false; 2]; PROCESSES],
        }]
    }

    fn actions(&self, state: &Deployed, actions: &mut Vec<Deploy>) {
        for process in 0..PROCESSES {
            if !state.works(process) {
                actions.push(Deploy::Lock(process));
            }
            if state.held[process].contains(&true) {
                actions.push(Deploy::Release(process));
                continue;
            }
            let mut all = state.lists.iter();
            let first_is_over =
                self.mutant == Some(Mutant::NotAfterTheFirst) || !all.any(|lists| *lists == OLD);
            match state.lists[process] {
                OLD if self.mutant == Some(Mutant::NotBoth) => {
                    actions.push(Deploy::Replace(process, NEW));
                }
                OLD => actions.push(Deploy::Replace(process, BOTH)),
                BOTH if first_is_over => actions.push(Deploy::Replace(process, NEW)),
                _ => {}
            }
        }
    }

    fn next_state(&self, last: &Deployed, action: Deploy) -> Option<Deployed> {
        let mut state = *last;
        match action {
            Deploy::Lock(process) => {
                let wants =
                    |list: &usize| state.lists[process][*list] && !state.held[process][*list];
                let list = (0..2).find(wants)?;
                if state.held.iter().any(|held| held[list]) {
                    return None;
                }
                state.held[process][list] = true;
            }
            Deploy::Release(process) => state.held[process] = [false; 2],
            Deploy::Replace(process, lists) => state.lists[process] = lists,
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::<Self>::always(ONE, |_, state| {
                (0..PROCESSES).filter(|it| state.works(*it)).count() <= 1
            }),
            Property::<Self>::sometimes("all have the new list, and one works", |_, state| {
                state.lists == [NEW; PROCESSES] && (0..PROCESSES).any(|it| state.works(it))
            }),
            Property::<Self>::sometimes(
                "a process works beside one with other lists",
                |_, state| {
                    let works = |it: &usize| state.works(*it);
                    let other =
                        |it: usize| state.lists.iter().any(|lists| *lists != state.lists[it]);
                    (0..PROCESSES).find(works).is_some_and(other)
                },
            ),
        ]
    }
}

const ONE: &str = "one process works at a time";
const NODES: usize = 3;
/// In ticks.
const TTL: u8 = 2;

#[derive(Clone, Debug)]
struct Retiring {
    mutant: Option<Mutant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
struct Retired {
    /// How many ticks are left of the lock on each node.
    nodes: [u8; NODES],
    retired: [bool; NODES],
    /// How many ticks ago the command was sent that each node confirmed last.
    votes: [Option<u8>; NODES],
    /// And those that are on their way.
    sent: [Option<u8>; NODES],
    /// How many ticks the operator still waits, once enough nodes are retired.
    waits: Option<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Sends an acquire, or an extension, to a node.
    Send(usize),
    /// It runs, and is answered.
    Run(usize),
    Retire(usize),
    /// Enough nodes are retired.
    Wait,
    Tick,
}

impl Retiring {
    fn holds(state: &Retired) -> bool {
        let since = state.votes.iter().flatten().map(|age| ago(*age));
        let end = deadline(since, quorum(NODES), ticks(TTL));
        end.is_some_and(|end| end > NOW)
    }

    fn is_open(state: &Retired) -> bool {
        state.waits == Some(0)
    }
}

impl Model for Retiring {
    type State = Retired;
    type Action = Step;

    fn init_states(&self) -> Vec<Retired> {
        vec![Retired::default()]
    }

    fn actions(&self, state: &Retired, actions: &mut Vec<Step>) {
        for node in 0..NODES {
            actions.push(match state.sent[node] {
                None => Step::Send(node),
                Some(_) => Step::Run(node),
            });
            if !state.retired[node] {
                actions.push(Step::Retire(node));
            }
        }
        let needed = quorum(NODES);
        let left = state.retired.iter().filter(|retired| !**retired).count();
        let is_enough = left < needed || self.mutant == Some(Mutant::TooFew) && left == needed;
        if state.waits.is_none() && is_enough {
            actions.push(Step::Wait);
        }
        actions.push(Step::Tick);
    }

    fn next_state(&self, last: &Retired, step: Step) -> Option<Retired> {
        let mut state = *last;
        match step {
            Step::Send(node) => state.sent[node] = Some(0),
            Step::Run(node) => {
                let sent = state.sent[node].take();
                if !state.retired[node] {
                    (state.nodes[node], state.votes[node]) = (TTL, sent);
                }
            }
            Step::Retire(node) => state.retired[node] = true,
            Step::Wait => {
                let waits = self.mutant != Some(Mutant::NoWait);
                state.waits = Some(u8::from(waits) * TTL);
            }
            Step::Tick => {
                let ages = state.votes.iter_mut().chain(&mut state.sent);
                ages.flatten().for_each(|age| *age = (*age + 1).min(TTL));
                state.nodes = state.nodes.map(|left| left.saturating_sub(1));
                state.waits = state.waits.map(|left| left.saturating_sub(1));
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::<Self>::always(ENDED, |_, state| {
                !Self::is_open(state) || !Self::holds(state)
            }),
            Property::<Self>::sometimes(
                "a lock is held when the last node is retired",
                |_, state| state.retired == [true; NODES] && Self::holds(state),
            ),
            Property::<Self>::sometimes(
                "the new list is used, and a node was never asked",
                |_, state| Self::is_open(state) && state.retired.contains(&false),
            ),
        ]
    }
}

const ENDED: &str = "no lock on the old nodes is valid when the new ones are used";

#[test]
fn a_move_by_two_deploys_keeps_one_holder() {
    assert_holds("moving, deploys", Deploys { mutant: None });
}

#[test]
fn a_move_by_one_deploy_does_not() {
    for mutant in [Mutant::NotBoth, Mutant::NotAfterTheFirst] {
        let mutant = Some(mutant);
        assert_refuted(&format!("moving, {mutant:?}"), Deploys { mutant }, ONE);
    }
}

#[test]
fn locks_on_retired_nodes_have_ended_when_others_are_used() {
    assert_holds("moving, retiring", Retiring { mutant: None });
}

#[test]
fn a_quorum_of_nodes_must_be_retired_and_a_ttl_waited() {
    for mutant in [Mutant::NoWait, Mutant::TooFew] {
        let mutant = Some(mutant);
        assert_refuted(&format!("moving, {mutant:?}"), Retiring { mutant }, ENDED);
    }
}
