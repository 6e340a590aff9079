//! A list of nodes that an operator puts in place of another, with another longest ttl.
//!
//! Five nodes. The old list has three of them, the new one three with one in common; one process stands for all of a
//! list. At any time an operator has the new list adopted: from then on the old process, stopped or cut off, sends
//! nothing more, and relies on its lock as long as that is valid. The nodes of the new list accept it one after the
//! other, and the one that served the old list tells how long quarantines lasted under that. The new process waits for
//! its nodes from when all of them have accepted the list, by its own clock, as long as the library says.
//!
//! One run takes an earlier list back. There the two nodes that only this list has vote for it all the time, and the
//! new process, which reaches the third, grants nothing before its wait is over. In the other runs it may not reach
//! that node.
//!
//! Bounds: one lock, a ttl of three ticks under one list and of one under the other. Abstracted: a command runs and is
//! answered in one step; there is no drift. Not covered: processes of the old list that are not stopped
//! ([`members`](crate::members)).

use stateright::{Model, Property};

use crate::check::{assert_holds, assert_refuted, quorum, wait};

const NODES: usize = 5;
/// The old list, and the new one.
const LISTS: [[usize; 3]; 2] = [[0, 1, 2], [2, 3, 4]];
const NEW: usize = 1;
const LONGEST: u8 = 3;
/// How many nodes of a list must vote.
fn needed() -> usize {
    quorum(LISTS[NEW].len())
}

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

impl Adopted {
    /// How long the new process waits for a node.
    fn wait(&self, state: &State, node: usize) -> u8 {
        let told = LISTS[NEW].map(|node| state.nodes[node].former);
        let former = match self.mutant {
            Some(Mutant::FormerNotWaitedFor) => 0,
            Some(Mutant::EachNodeForItself) => state.nodes[node].former,
            _ => told.into_iter().max().unwrap_or(0),
        };
        wait(self.ttl[NEW], 0).max(former)
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
        for node in LISTS[NEW] {
            if self.back && !LISTS[0].contains(&node) {
                (state.nodes[node].list, state.nodes[node].votes) = (2, true);
            }
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
            if !state.holds[list] && voted >= needed() && is_open {
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
            } else if !it.votes && state.complete >= Some(self.wait(state, node)) {
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
                    if state.holds[list] && Self::voted(&state, list) < needed() {
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
                if it.list == 1 {
                    it.former = wait(self.ttl[0], 0);
                }
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

#[test]
fn a_list_in_place_of_another_or_taken_back_waits_for_the_longer_of_their_ttls() {
    for ttl in [[3, 1], [1, 3]] {
        for back in [false, true] {
            let mutant = None;
            let model = Adopted { ttl, back, mutant };
            assert_holds(&format!("adoption, ttls {ttl:?}, back: {back}"), model);
        }
    }
}

#[test]
fn each_rule_is_needed() {
    for (mutant, back) in [
        (Mutant::FormerNotWaitedFor, false),
        (Mutant::EachNodeForItself, false),
        (Mutant::TakenBackAtOnce, true),
    ] {
        let (ttl, mutant) = ([3, 1], Some(mutant));
        let model = Adopted { ttl, back, mutant };
        assert_refuted(&format!("adoption, {mutant:?}"), model, ONE_HOLDER);
    }
}
