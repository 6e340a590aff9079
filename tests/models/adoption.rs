//! A list of nodes that an operator puts in place of another, with another longest ttl.
//!
//! Five nodes. The old list has three of them, the new one three with one in common; one process stands for all of a
//! list. At any time an operator has the new list adopted: from then on the old process, stopped or cut off, sends
//! nothing more, and relies on its lock as long as that is valid. In a run of its own the new list is one from before,
//! which is taken back: the two nodes that the old list has not vote for it all the time, and the new process, which
//! reaches the third, grants nothing before its wait is over. In the other runs it may not reach that node. The nodes of the new list accept it one after the
//! other, and the one that served the old list tells how long quarantines lasted under that. The new process waits for
//! its nodes from when all of them have accepted the list, by its own clock, as long as the library says.
//!
//! Bounds: one lock, a ttl of three ticks under one list and of one under the other. Abstracted: a command runs and is
//! answered in one step; there is no drift. Not covered: processes of the old list that are not stopped
//! ([`members`](crate::members)).

use stateright::{Model, Property};

use crate::check::{assert_holds, assert_refuted, ticks};
use crate::protocol::quorum::{Drift, Quorum, quarantine};

const NODES: usize = 5;
/// The old list, and the new one.
const LISTS: [[usize; 3]; 2] = [[0, 1, 2], [2, 3, 4]];
const NEW: usize = 1;
const LONGEST: u8 = 3;

/// A rule that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutant {
    /// The new list waits for its own longest ttl alone.
    FormerNotWaitedFor,
    /// A node that served no other list waits for no other, whatever the rest of its list tells.
    EachNodeForItself,
    /// A list that is taken back grants with the nodes that voted for it all the time.
    TakenBackAtOnce,
}

#[derive(Clone, Debug)]
struct Adopted {
    /// In ticks, of each list.
    ttl: [u8; 2],
    /// The new list is one from before.
    back: bool,
    mutant: Option<Mutant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
struct Node {
    /// The list that it serves, from 1; 0: none.
    list: u8,
    votes: bool,
    /// How long quarantines lasted under the list that was replaced.
    former: u8,
    /// The list whose token it has, from 1; 0: none.
    owner: u8,
    left: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
struct State {
    nodes: [Node; NODES],
    /// For how long each list relies on the vote of each node.
    votes: [[u8; NODES]; 2],
    holds: [bool; 2],
    adopting: bool,
    /// For how long all nodes have accepted the new list.
    complete: Option<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Tick,
    Grant(usize, usize),
    Extend(usize, usize),
    Hold(usize),
    Leave(usize),
    Adopt(usize),
    Promote(usize),
}

fn quorum() -> usize {
    Quorum::masking(3, 0).unwrap().needed()
}

impl Adopted {
    fn length(&self, list: usize) -> u8 {
        let ttl = ticks(self.ttl[list]);
        // Whole ticks: without the two milliseconds of drift.
        quarantine(ttl, ticks(0), Drift::new(0.0).unwrap()).as_secs() as u8
    }

    /// How long the new process waits for a node.
    fn wait(&self, state: &State, node: usize) -> u8 {
        let told = LISTS[NEW].map(|node| state.nodes[node].former);
        let former = match self.mutant {
            Some(Mutant::FormerNotWaitedFor) => 0,
            Some(Mutant::EachNodeForItself) => state.nodes[node].former,
            _ => told.into_iter().max().unwrap_or(0),
        };
        self.length(NEW).max(former)
    }

    /// Whether nothing is granted or extended under a list: one of its nodes serves the other, or was taken from it and
    /// has not been waited for.
    fn is_blocked(&self, state: &State, list: usize) -> bool {
        if list != NEW {
            return state.adopting;
        }
        self.back
            && LISTS[NEW].iter().any(|node| {
                let it = &state.nodes[*node];
                let is_waited_for = self.mutant == Some(Mutant::TakenBackAtOnce)
                    || state.complete >= Some(self.wait(state, *node));
                it.list != 2 || it.former > 0 && !is_waited_for
            })
    }

    fn end(state: &mut State, list: usize) {
        state.holds[list] = false;
        state.votes[list] = [0; NODES];
        for node in &mut state.nodes {
            if usize::from(node.owner) == list + 1 {
                (node.owner, node.left) = (0, 0);
            }
        }
    }

    fn voted(state: &State, list: usize) -> usize {
        state.votes[list].iter().filter(|vote| **vote > 0).count()
    }
}

impl Model for Adopted {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut state = State::default();
        for node in LISTS[0] {
            (state.nodes[node].list, state.nodes[node].votes) = (1, true);
        }
        for node in LISTS[NEW]
            .iter()
            .filter(|node| self.back && !LISTS[0].contains(node))
        {
            (state.nodes[*node].list, state.nodes[*node].votes) = (2, true);
        }
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.push(Action::Tick);
        for (list, nodes) in LISTS.iter().enumerate() {
            let voted = Self::voted(state, list);
            if voted > 0 {
                actions.push(Action::Leave(list));
            }
            let is_open = !self.is_blocked(state, list);
            if !state.holds[list] && voted >= quorum() && is_open {
                actions.push(Action::Hold(list));
            }
            for node in nodes.iter().filter(|_| is_open) {
                let it = &state.nodes[*node];
                let votes = usize::from(it.list) == list + 1 && it.votes;
                let free = it.owner == 0 || usize::from(it.owner) == list + 1;
                let vote = state.votes[list][*node];
                if votes && free && !state.holds[list] && vote == 0 {
                    actions.push(Action::Grant(list, *node));
                }
                if votes && free && state.holds[list] && vote < self.ttl[list] {
                    actions.push(Action::Extend(list, *node));
                }
            }
        }
        for node in LISTS[NEW] {
            let it = &state.nodes[node];
            if it.list != 2 {
                actions.push(Action::Adopt(node));
            } else if !it.votes
                && state
                    .complete
                    .is_some_and(|it| it >= self.wait(state, node))
            {
                actions.push(Action::Promote(node));
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = *last;
        match action {
            Action::Tick => {
                for node in &mut state.nodes {
                    node.left = node.left.saturating_sub(1);
                    if node.left == 0 {
                        node.owner = 0;
                    }
                }
                state.complete = state.complete.map(|it| (it + 1).min(LONGEST));
                for list in 0..2 {
                    state.votes[list] = state.votes[list].map(|it| it.saturating_sub(1));
                    if state.holds[list] && Self::voted(&state, list) < quorum() {
                        Self::end(&mut state, list);
                    }
                }
            }
            Action::Grant(list, node) | Action::Extend(list, node) => {
                let it = &mut state.nodes[node];
                (it.owner, it.left) = (list as u8 + 1, self.ttl[list]);
                state.votes[list][node] = self.ttl[list];
            }
            Action::Hold(list) => state.holds[list] = true,
            Action::Leave(list) => Self::end(&mut state, list),
            Action::Adopt(node) => {
                state.adopting = true;
                let it = &mut state.nodes[node];
                it.former = if it.list == 1 { self.length(0) } else { 0 };
                (it.list, it.votes) = (2, false);
                if LISTS[NEW].iter().all(|node| state.nodes[*node].list == 2) {
                    state.complete = Some(0);
                }
            }
            Action::Promote(node) => {
                let it = &mut state.nodes[node];
                // Its vote proves that the former list was waited for.
                (it.votes, it.former) = (true, 0);
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::<Self>::always(ONE_HOLDER, |_, state| !(state.holds[0] && state.holds[1])),
            Property::<Self>::sometimes("the new list grants", |_, state| state.holds[1]),
            Property::<Self>::sometimes("a lock outlives its list", |_, state| {
                state.holds[0] && state.complete.is_some()
            }),
        ]
    }
}

const ONE_HOLDER: &str = "one list grants at a time";

/// The ttl becomes shorter.
const SHORTER: Adopted = Adopted {
    ttl: [3, 1],
    back: false,
    mutant: None,
};

fn assert_needed(mutant: Mutant, back: bool) {
    let model = Adopted {
        mutant: Some(mutant),
        back,
        ..SHORTER
    };
    assert_refuted(&format!("adoption, {mutant:?}"), model, ONE_HOLDER);
}

#[test]
fn a_list_in_place_of_another_waits_for_the_longer_of_their_ttls() {
    assert_holds("adoption, shorter ttl", SHORTER);
    let longer = Adopted {
        ttl: [1, 3],
        ..SHORTER
    };
    assert_holds("adoption, longer ttl", longer);
}

#[test]
fn a_list_that_is_taken_back_waits_for_the_one_between() {
    for ttl in [[3, 1], [1, 3]] {
        let back = Adopted {
            ttl,
            back: true,
            ..SHORTER
        };
        assert_holds(&format!("adoption, back, {ttl:?}"), back);
    }
}

#[test]
fn the_nodes_of_a_list_from_before_must_wait_with_the_one_that_is_taken_back() {
    assert_needed(Mutant::TakenBackAtOnce, true);
}

#[test]
fn the_ttl_of_the_former_list_must_be_waited_for() {
    assert_needed(Mutant::FormerNotWaitedFor, false);
}

#[test]
fn a_node_must_wait_for_what_another_tells_of_the_former_list() {
    assert_needed(Mutant::EachNodeForItself, false);
}
