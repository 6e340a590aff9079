//! Two lists of nodes that have one in common.
//!
//! Five nodes. The processes of the first list know three of them, those of the second list three with one in common;
//! one process stands for all of a list. A node belongs to whoever comes first. A process takes its list for complete
//! once each of its nodes has accepted it, and not before that begins the wait after which it promotes them; a node
//! that has voted under the list, or votes, proves that. A process that finds one of its nodes to belong to others
//! grants and extends nothing while it does, nor, if the node forgets that, before its quarantine is over.
//!
//! Any process may be cut off from any of its nodes, all the time. Three runs. In one, no node forgets, and the node in
//! common can be among those cut off. In the second it can be reached, is asked in every tick, and forgets twice whom it
//! belonged to: so the second list can take it over while the first has locks, and the first can take it back. In the
//! third it forgets once, and each process may be stopped at any time and for any time; a process counts no vote unless
//! it has asked the node in common in this tick or the last. If the node in common forgets while one of the lists cannot
//! reach it, or twice while one of the lists is stopped, there may be two holders; nothing is promised then.
//!
//! Bounds: one lock; a ttl of two ticks; clocks may differ by one tick. Abstracted: a command runs and is answered in one
//! step; there is no drift; what a process reads of the other nodes and the promotion after it are one step. Not
//! covered: lists that are put in place of others by an operator ([`adoption`](crate::adoption)), more than two lists,
//! nodes that forget and are not in common ([`quarantine`](crate::quarantine)).

use stateright::{Model, Property};

use crate::check::{assert_holds, assert_refuted, leads_to, quorum, wait};

const NODES: usize = 5;
/// The nodes of each list, which are as many for both.
const LISTS: [[usize; 3]; 2] = [[0, 1, 2], [2, 3, 4]];
/// The node in common.
const COMMON: usize = 2;
/// Its place in each list.
const COMMON_PLACES: [usize; 2] = [2, 0];
/// In ticks.
const TTL: u8 = 2;
/// By how much clocks may differ, in ticks, and for how long the answer of the node in common is relied on.
const SKEW: u8 = 1;
/// The longest wait.
const LONGEST: u8 = TTL + SKEW;

/// A rule that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutant {
    /// A quorum that has accepted the list is enough.
    ListNeedsNoAcceptance,
    ForeignNodeCostsAVote,
    /// The wait counts from when a node was seen, though others had not accepted the list by then.
    WaitsBeforeAllAccept,
    /// Who finds that a node of others has forgotten them goes on at once.
    ReclaimedAtOnce,
    /// A process that was stopped goes on as if nothing had changed.
    StoppedProcessGrants,
}

#[derive(Clone, Debug)]
struct Lists {
    /// Whether the node in common may be cut off; if not, it forgets twice.
    cut: bool,
    /// It forgets once only, and processes may be stopped. A node that was of others is not waited for: the wait for the
    /// whole list is enough then.
    once: bool,
    mutant: Option<Mutant>,
    /// Whether each state is followed until a list grants the lock.
    recovers: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
struct Node {
    /// The list that it serves, from 1; 0: none.
    list: u8,
    votes: bool,
    /// It has voted for this list.
    accepted: bool,
    /// The list whose token it has, from 1; 0: none.
    owner: u8,
    left: u8,
}

/// What one process knows of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
enum Known {
    #[default]
    Nothing,
    Foreign,
    Votes,
    /// For how long it has seen the quarantine.
    Waits(u8),
    /// It has forgotten the quarantine that was seen.
    Waited,
}

/// A node of a list, as its process sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
struct View {
    known: Known,
    /// For how long its vote is relied on.
    vote: u8,
    /// It cannot be reached.
    is_cut: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
struct Process {
    views: [View; 3],
    /// For how long its list has been complete.
    complete: Option<u8>,
    holds: bool,
    /// For how long the answer of the node in common is relied on.
    asked: u8,
    /// The node in common belonged to others, and has forgotten that.
    reclaims: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
struct State {
    nodes: [Node; NODES],
    processes: [Process; 2],
    forgot: u8,
}

/// A step of a process, at the node of that place in its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Tick,
    CheckIn(usize, usize),
    Promote(usize, usize),
    Grant(usize, usize),
    Hold(usize),
    Extend(usize, usize),
    Leave(usize),
    Forget,
}

/// How many nodes of a list must vote.
fn needed() -> usize {
    quorum(LISTS[0].len())
}

impl Process {
    fn knows(&self, known: Known) -> bool {
        self.views.iter().any(|view| view.known == known)
    }

    fn voted(&self) -> usize {
        self.views.iter().filter(|view| view.vote > 0).count()
    }
}

impl Lists {
    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    fn is_foreign(&self, process: &Process) -> bool {
        process.knows(Known::Foreign) && !self.is(Mutant::ForeignNodeCostsAVote)
    }

    fn asked_lately(&self, process: &Process) -> bool {
        process.asked > 0 || self.cut || self.is(Mutant::StoppedProcessGrants)
    }

    fn is_blocked(&self, process: &Process) -> bool {
        let reclaims = process.reclaims && !self.once && !self.is(Mutant::ReclaimedAtOnce);
        self.is_foreign(process) || reclaims && !self.is(Mutant::ForeignNodeCostsAVote)
    }

    /// Stores what a node said of itself, and judges the list as a whole.
    fn learn(&self, process: &mut Process, (which, place): (usize, usize), known: Known) {
        // Only the node in common can have been of others.
        let is_common = place == COMMON_PLACES[which];
        match (process.views[place].known, known) {
            (Known::Foreign, Known::Waits(_)) => process.reclaims = true,
            (_, Known::Foreign | Known::Votes) if is_common => process.reclaims = false,
            _ => {}
        }
        process.views[place].known = known;
        let accepts = |it: &&View| !matches!(it.known, Known::Nothing | Known::Foreign);
        let accepted = process.views.iter().filter(accepts).count();
        let enough = match self.is(Mutant::ListNeedsNoAcceptance) {
            true => needed(),
            false => process.views.len(),
        };
        if accepted < enough {
            process.complete = None;
        } else {
            process.complete.get_or_insert(0);
        }
    }

    fn check_in(&self, state: &mut State, which: usize, place: usize) {
        let list = which as u8 + 1;
        let node = &mut state.nodes[LISTS[which][place]];
        let process = &mut state.processes[which];
        if LISTS[which][place] == COMMON && !self.cut {
            process.asked = 1 + SKEW;
        }
        if node.list == 0 {
            node.list = list;
        }
        let known = match process.views[place].known {
            _ if node.list != list => Known::Foreign,
            _ if node.votes => Known::Votes,
            Known::Waits(waited) => Known::Waits(waited),
            _ => Known::Waits(0),
        };
        self.learn(process, (which, place), known);
    }

    /// How long a quarantine must be.
    fn wait(&self, process: &Process, (which, place): (usize, usize)) -> u8 {
        // Until the others have asked it once more.
        let reclaims = process.reclaims && !self.once && place == COMMON_PLACES[which];
        wait(TTL, 0) + u8::from(reclaims) * SKEW
    }

    fn promotes(&self, state: &State, which: usize, place: usize) -> bool {
        let process = &state.processes[which];
        let node = &state.nodes[LISTS[which][place]];
        let Known::Waits(waited) = process.views[place].known else {
            return false;
        };
        let ours = usize::from(node.list) == which + 1 && !node.votes;
        let votes = process.knows(Known::Votes);
        let since = match process.complete {
            _ if node.accepted || votes => waited,
            None => return false,
            Some(_) if self.is(Mutant::WaitsBeforeAllAccept) => waited,
            // The others may take a tick to see it.
            Some(complete) => complete.saturating_sub(SKEW).min(waited),
        };
        let wait = self.wait(process, (which, place));
        ours && !process.views[place].is_cut && !self.is_foreign(process) && since >= wait
    }

    fn of_process(&self, state: &State, which: usize, actions: &mut Vec<Action>) {
        let process = &state.processes[which];
        let open = !self.is_blocked(process);
        let counts = open && self.asked_lately(process);
        if process.voted() > 0 {
            actions.push(Action::Leave(which));
        }
        if !process.holds && counts && process.voted() >= needed() {
            actions.push(Action::Hold(which));
        }
        for (place, view) in process.views.iter().enumerate() {
            if view.is_cut {
                continue;
            }
            actions.push(Action::CheckIn(which, place));
            if self.promotes(state, which, place) {
                actions.push(Action::Promote(which, place));
            }
            let node = &state.nodes[LISTS[which][place]];
            let votes = usize::from(node.list) == which + 1 && node.votes && open;
            let free = node.owner == 0 || usize::from(node.owner) == which + 1;
            if votes && free && !process.holds && view.vote == 0 {
                actions.push(Action::Grant(which, place));
            }
            if votes && free && process.holds && counts && view.vote < TTL {
                actions.push(Action::Extend(which, place));
            }
        }
    }

    /// The attempt or the hold of a process is over.
    fn end(state: &mut State, which: usize) {
        let process = &mut state.processes[which];
        process.holds = false;
        process.views.iter_mut().for_each(|view| view.vote = 0);
        for node in &mut state.nodes {
            if usize::from(node.owner) == which + 1 {
                (node.owner, node.left) = (0, 0);
            }
        }
    }

    fn tick(state: &mut State) {
        for node in &mut state.nodes {
            node.left = node.left.saturating_sub(1);
            if node.left == 0 {
                node.owner = 0;
            }
        }
        for which in 0..2 {
            let process = &mut state.processes[which];
            process.asked = process.asked.saturating_sub(1);
            for view in &mut process.views {
                view.vote = view.vote.saturating_sub(1);
                if let Known::Waits(waited) = &mut view.known {
                    *waited = (*waited + 1).min(LONGEST);
                }
            }
            process.complete = process.complete.map(|it| (it + 1).min(LONGEST));
            // Votes do not count in a later tick, and a lock is lost without a quorum.
            if !process.holds || process.voted() < needed() {
                Self::end(state, which);
            }
        }
    }

    /// Whether time may go on. Where the node in common forgets twice, each process has asked it in this tick.
    fn may_tick(&self, state: &State) -> bool {
        let asked = |it: &Process| it.asked > SKEW;
        self.cut || self.once || state.processes.iter().all(asked)
    }
}

/// Of each list, the nodes that are not in common are alike.
fn sort(state: &mut State) {
    for (which, [one, other]) in [(0, [0, 1]), (1, [1, 2])] {
        let (a, b) = (LISTS[which][one], LISTS[which][other]);
        let (nodes, views) = (&mut state.nodes, &mut state.processes[which].views);
        if (nodes[a], views[one]) > (nodes[b], views[other]) {
            nodes.swap(a, b);
            views.swap(one, other);
        }
    }
}

impl Model for Lists {
    type State = State;
    type Action = Action;

    /// Each process may be cut off from one of its nodes, which leaves it a quorum.
    fn init_states(&self) -> Vec<State> {
        let mut states = Vec::new();
        for first in [None, Some(0), Some(2)] {
            for second in [None, Some(2), Some(0)] {
                let mut state = State::default();
                for (process, cut) in state.processes.iter_mut().zip([first, second]) {
                    let view = cut.map(|place| &mut process.views[place]);
                    view.into_iter().for_each(|view| view.is_cut = true);
                }
                let mut processes = state.processes.iter().zip(COMMON_PLACES);
                if self.cut || !processes.any(|(it, place)| it.views[place].is_cut) {
                    sort(&mut state);
                    states.push(state);
                }
            }
        }
        states
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if self.may_tick(state) {
            actions.push(Action::Tick);
        }
        for which in 0..2 {
            self.of_process(state, which, actions);
        }
        if !self.cut && state.forgot < 2 - u8::from(self.once) && state.nodes[COMMON].list != 0 {
            actions.push(Action::Forget);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = *last;
        match action {
            Action::Tick => Self::tick(&mut state),
            Action::CheckIn(which, place) => self.check_in(&mut state, which, place),
            Action::Promote(which, place) => {
                let node = &mut state.nodes[LISTS[which][place]];
                (node.votes, node.accepted) = (true, true);
                self.learn(&mut state.processes[which], (which, place), Known::Votes);
            }
            Action::Grant(which, place) | Action::Extend(which, place) => {
                let node = &mut state.nodes[LISTS[which][place]];
                (node.owner, node.left) = (which as u8 + 1, TTL);
                state.processes[which].views[place].vote = TTL;
            }
            Action::Hold(which) => state.processes[which].holds = true,
            Action::Leave(which) => Self::end(&mut state, which),
            Action::Forget => {
                state.forgot += 1;
                state.nodes[COMMON] = Node::default();
                // Whoever asks next sees another quarantine, and waits anew.
                for (process, place) in state.processes.iter_mut().zip(COMMON_PLACES) {
                    let known = &mut process.views[place].known;
                    if matches!(known, Known::Waits(_)) {
                        *known = Known::Waited;
                    }
                }
            }
        }
        sort(&mut state);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::<Self>::always(ONE_HOLDER, |_, state| {
                !state.processes.iter().all(|it| it.holds)
            }),
            Property::<Self>::sometimes("the first list grants", |_, state| {
                state.processes[0].holds
            }),
            Property::<Self>::sometimes("the second list grants", |_, state| {
                state.processes[1].holds
            }),
            Property::<Self>::sometimes("a list is refused for the other", |_, state| {
                state.processes[0].holds && state.processes[1].knows(Known::Foreign)
            }),
        ];
        if !self.cut {
            properties.push(Property::<Self>::sometimes(
                "the other list takes over",
                |_, state| {
                    let taken = state.processes[0].knows(Known::Foreign) && state.forgot > 0;
                    state.processes[1].holds && taken
                },
            ));
        }
        if self.recovers {
            properties.push(Property::<Self>::always(GRANTED_AGAIN, |model, state| {
                model.is_granted_again(state)
            }));
        }
        properties
    }
}

impl Lists {
    /// Whether a list grants the lock once all of its nodes can be reached and the other list was given up.
    fn is_granted_again(&self, state: &State) -> bool {
        let mut healed = *state;
        Self::end(&mut healed, 1);
        let views = &mut healed.processes[0].views;
        views.iter_mut().for_each(|view| view.is_cut = false);
        for node in &mut healed.nodes {
            if node.list == 2 {
                *node = Node::default();
            }
        }
        let rank = |state: &State, action: &Action| match action {
            Action::CheckIn(0, place) => {
                let known = state.processes[0].views[*place].known;
                let node = &state.nodes[LISTS[0][*place]];
                let is_news = !matches!(known, Known::Votes | Known::Waits(_))
                    || node.list == 0
                    || (known == Known::Votes) != node.votes;
                is_news.then_some(0)
            }
            Action::Promote(0, _) => Some(2),
            Action::Hold(0) => Some(3),
            Action::Grant(0, _) => Some(4),
            Action::Tick => Some(5),
            _ => None,
        };
        leads_to(self, healed, 60, rank, |state| state.processes[0].holds)
    }
}

const ONE_HOLDER: &str = "one list grants at a time";
const GRANTED_AGAIN: &str = "a list grants again once the other was given up";

/// Either process may be cut off from the node in common.
const CUT: Lists = Lists {
    cut: true,
    once: false,
    mutant: None,
    recovers: false,
};

/// The node in common can be reached, and forgets.
const FORGETFUL: Lists = Lists { cut: false, ..CUT };

/// The same, once.
const ONCE: Lists = Lists {
    once: true,
    ..FORGETFUL
};

#[test]
fn one_list_grants_at_a_time_though_the_node_in_common_forgets() {
    assert_holds("members, forgetful", FORGETFUL);
    assert_holds("members, forgetful once", ONCE);
}

#[test]
fn one_list_grants_at_a_time_and_again_once_the_other_was_given_up() {
    let model = Lists {
        recovers: true,
        ..CUT
    };
    assert_holds("members, cut off and recovery", model);
}

#[test]
fn each_rule_is_needed() {
    for (mutant, model) in [
        (Mutant::ListNeedsNoAcceptance, &CUT),
        (Mutant::ForeignNodeCostsAVote, &FORGETFUL),
        (Mutant::ReclaimedAtOnce, &FORGETFUL),
        (Mutant::WaitsBeforeAllAccept, &ONCE),
        (Mutant::StoppedProcessGrants, &ONCE),
    ] {
        let mutant = Some(mutant);
        let model = Lists { mutant, ..*model };
        assert_refuted(&format!("members, {mutant:?}"), model, ONE_HOLDER);
    }
}
