//! The records of one idempotency key, as single-decree Paxos.
//!
//! A caller asks three nodes for the lock or for the record. Of the replies that have come by any moment the library
//! judges what they mean: the response is there; or the lock is granted, and the caller runs the request; or some nodes
//! have a record and it is open whether a quorum has, and the caller asks once more, for the lock in any case, and
//! brings the record of the highest ballot to a quorum. A node stores a record by the rules of its script. A caller may
//! die between any two steps, and a lock is never in the way, because the time of whoever has it may be over at any
//! moment: then that caller's round fails, or it goes on too late if it has judged its round before. Or a lock ends on
//! a node before its time, as where the clock is set forward: then two rounds are judged, and only what nodes promised
//! keeps them apart.
//!
//! A record ends by the clock of each node, and these clocks run as they like. The response may change only when some
//! node has reached the end of the former one (more nodes than may forget unseen); whoever begins after the change gets
//! the new one; and a record keeps the end that was decided once.
//!
//! Bounds: three nodes; three callers, two of them at a time, without time; or two with clocks that go from 0 to 1 and
//! records that are kept for one, also after a first that has its response; or two and a node that forgets, which the
//! quorum masks; or three whose locks end early, of which the first may be granted the lock by a node when it has
//! judged its round; or two such, and nodes that forget to whom they granted the lock, as where clocks are set far
//! forward. Abstracted: other replies arrive when the command ran, or not at all; commands that were given up
//! do not run later ([`lease`](crate::lease) has those); a token is written back in the step in which the round is
//! judged ([`fence`](crate::fence) has the steps); a lock that an extension may have set again is taken to be there
//! where the node remembers no grant. Not covered: nodes in quarantine, the fingerprint of requests.

mod steps;

use stateright::{Model, Property};

use crate::check::{assert_holds, assert_refuted, leads_to, reached};

const NODES: usize = 3;
const CALLERS: usize = 3;
/// How many callers work at the same time.
const AT_A_TIME: usize = 2;
/// For how long a record is kept, in ticks of the nodes' clocks.
const KEEP: u8 = 1;

/// A rule that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutant {
    RecordOfAMinority,
    AnswerBeforeAQuorum,
    OvertakenRunIsStored,
    /// Where a node remembers no grant, a record is stored if the lock is there, whatever the counter says.
    ForgottenGrantCounts,
    /// A record replaces one of a higher ballot.
    BallotNotCompared,
    /// A record is stored under a lower ballot than the count that the node told.
    PromiseNotCompared,
    /// Of several records the one with the lowest ballot is brought to a quorum.
    LowestBallotAdopted,
    RecordLivesAnew,
    /// The quorum is a plain majority though nodes forget.
    LossesNotMasked,
}

#[derive(Clone, Debug)]
struct Records {
    callers: usize,
    /// The latest time that clocks show.
    clocks: u8,
    /// How many nodes forget, which the quorum masks.
    losses: u8,
    /// How many nodes forget to whom they granted the lock.
    fading: u8,
    /// Whether a lock may end on a node while its caller counts on it.
    early: bool,
    /// Whether a node may grant the first caller the lock after its round was judged.
    late: bool,
    /// Whether the first caller has a response when the model begins.
    begun: bool,
    mutant: Option<Mutant>,
    /// Whether each state is followed until the last caller has a response.
    recovers: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
struct Record {
    ballot: u8,
    /// The caller that ran the request, from 1.
    body: u8,
    until: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
struct Node {
    clock: u8,
    /// The round to which it granted the lock last; 0: none.
    last: u8,
    count: u8,
    /// The count that it told that round.
    promised: u8,
    record: Option<Record>,
    links: [Link; CALLERS],
}

/// What a caller has asked of a node, and what came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
enum Link {
    #[default]
    None,
    Asked,
    Recorded(Record),
    Granted {
        count: u8,
        clock: u8,
        record: Option<Record>,
    },
    /// It was asked, and the round was judged without its reply.
    Late,
    /// It is sent the record.
    Store,
    Stored,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
enum Phase {
    #[default]
    Idle,
    Asking,
    /// It has run the request, or adopted a record.
    Storing(Record),
    /// It has responded; other nodes may be given the record.
    Answered(Record),
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
struct Caller {
    phase: Phase,
    adopts: bool,
    /// It ran the request itself.
    ran: bool,
    /// The response that had been given last when it began, and those that it had replaced, as bits.
    current: u8,
    past: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
struct State {
    nodes: [Node; NODES],
    callers: [Caller; CALLERS],
    /// When the record of each caller ends, as it was decided.
    ends: [u8; CALLERS],
    /// The response that was given last, from 1, and those that it replaced, as bits.
    current: u8,
    past: u8,
    losses: u8,
    faded: u8,
    is_wrong: bool,
}

/// A step of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Start(usize),
    Run(usize, usize),
    /// Whether it waits for no more replies.
    Decide(usize, bool),
    Store(usize, usize),
    Answer(usize),
    Spread(usize, usize),
    Die(usize),
    Tick(usize),
    Forget(usize),
    ForgetGrant(usize),
}

impl Model for Records {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut state = State::default();
        while self.begun && !matches!(state.callers[0].phase, Phase::Answered(_)) {
            let mut actions = Vec::new();
            self.actions(&state, &mut actions);
            let rank = |action: &Action| match action {
                Action::Answer(_) | Action::Decide(..) => 0,
                Action::Store(..) => 1,
                Action::Run(..) => 2,
                Action::Start(_) if state == State::default() => 3,
                _ => 4,
            };
            let next = actions.into_iter().min_by_key(rank).unwrap();
            state = self.next_state(&state, next).unwrap();
        }
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if self.is_over(state) {
            return;
        }
        // They differ in their clocks only, so they start in order.
        let idle = |it: &usize| state.callers[*it].phase == Phase::Idle;
        let works = |it: &&Caller| matches!(it.phase, Phase::Asking | Phase::Storing(_));
        let working = state.callers.iter().filter(works).count();
        if working < AT_A_TIME {
            actions.extend((0..self.callers).find(idle).map(Action::Start));
        }
        for caller in 0..self.callers {
            self.of_caller(state, caller, actions);
        }
        for (number, node) in state.nodes.iter().enumerate() {
            if node.clock < self.clocks {
                actions.push(Action::Tick(number));
            }
            if state.losses < self.losses && node.last != 0 {
                actions.push(Action::Forget(number));
            }
            // The grant is kept for as long as a record that is there.
            if state.faded < self.fading && node.last != 0 && node.record.is_none() {
                actions.push(Action::ForgetGrant(number));
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = *last;
        match action {
            Action::Start(caller) => {
                state.callers[caller].phase = Phase::Asking;
                if self.clocks > 0 {
                    state.callers[caller].current = state.current;
                    state.callers[caller].past = state.past;
                }
                for node in &mut state.nodes {
                    node.links[caller] = Link::Asked;
                }
            }
            Action::Run(caller, node) => {
                let it = &state.callers[caller];
                let (round, adopts) = (it.round(caller), it.adopts);
                let is_late = state.nodes[node].links[caller] == Link::Late;
                let reply = state.nodes[node].recall(round, adopts);
                state.nodes[node].links[caller] = if is_late { Link::Store } else { reply };
                if !self.early && matches!(reply, Link::Granted { .. }) {
                    self.overtake(&mut state, caller, node);
                }
            }
            Action::Decide(caller, is_late) => self.decide(&mut state, caller, is_late),
            Action::Store(caller, node) => self.store(&mut state, caller, node),
            Action::Answer(caller) => {
                if let Phase::Storing(record) = state.callers[caller].phase {
                    self.answer(&mut state, caller, record);
                }
            }
            Action::Spread(caller, node) => {
                if let Phase::Answered(record) = state.callers[caller].phase {
                    state.nodes[node].record = Some(record);
                }
            }
            Action::Die(caller) => steps::fail(&mut state, caller),
            Action::Tick(node) => state.nodes[node].clock += 1,
            Action::Forget(node) => {
                state.losses += 1;
                let node = &mut state.nodes[node];
                *node = Node {
                    clock: node.clock,
                    links: node.links,
                    ..Node::default()
                };
            }
            Action::ForgetGrant(node) => {
                state.faded += 1;
                (state.nodes[node].last, state.nodes[node].promised) = (0, 0);
            }
        }
        // Nodes are alike.
        state.nodes.sort_unstable();
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::<Self>::always(ONE_RESPONSE, |_, state| !state.is_wrong),
            Property::<Self>::always(ONE_END, |_, state| {
                let records = state.nodes.iter().filter_map(|node| node.record);
                let mut ends = records.map(|it| (it.until, state.ends[usize::from(it.body) - 1]));
                ends.all(|(until, decided)| until == decided)
            }),
            Property::<Self>::sometimes("all callers have a response", |model, state| {
                let answered = |it: &Caller| matches!(it.phase, Phase::Answered(_));
                state.callers[..model.callers].iter().all(answered)
            }),
            Property::<Self>::sometimes("the request ran twice", |_, state| {
                state.callers.iter().filter(|it| it.ran).count() > 1
            }),
            Property::<Self>::sometimes("a record is adopted", |_, state| {
                let adopted = |it: &Caller| matches!(it.phase, Phase::Answered(_)) && it.adopts;
                state.callers.iter().any(|it| adopted(it) && !it.ran)
            }),
        ];
        properties.extend(reached(&[
            (
                self.clocks > 0,
                "the response changes",
                |_: &Self, state: &State| state.past != 0,
            ),
            (self.losses > 0, "a node forgets a response", |_, state| {
                state.losses > 0 && state.current != 0
            }),
            (
                self.fading > 0,
                "a node forgets a grant before there is a response",
                |_, state| state.faded > 0 && state.current != 0,
            ),
        ]));
        if self.recovers {
            properties.push(Property::<Self>::always(ANSWERED, |model, state| {
                model.is_answered(state)
            }));
        }
        properties
    }
}

impl Records {
    /// Whether the last caller gets a response if all nodes reply and the locks of the others have ended.
    fn is_answered(&self, state: &State) -> bool {
        let last = self.callers - 1;
        if self.is_over(state) || state.callers[last].phase != Phase::Idle {
            return true;
        }
        let rank = |_: &State, action: &Action| match action {
            Action::Start(caller) if *caller != last => Some(0),
            Action::Run(caller, _) if *caller == last => Some(1),
            Action::Start(_) => Some(2),
            Action::Decide(caller, _) if *caller == last => Some(3),
            Action::Store(caller, _) | Action::Answer(caller) if *caller == last => Some(4),
            _ => None,
        };
        let answered = |state: &State| matches!(state.callers[last].phase, Phase::Answered(_));
        leads_to(self, *state, 60, rank, answered)
    }
}

const ONE_RESPONSE: &str = "all get one response until it ends";
const ONE_END: &str = "a record has one end";
const ANSWERED: &str = "a response can be had again";

/// Without time.
const TIMELESS: Records = Records {
    callers: 3,
    clocks: 0,
    losses: 0,
    fading: 0,
    early: false,
    late: false,
    begun: false,
    mutant: None,
    recovers: false,
};

/// With locks that end on a node while their callers count on them.
const EARLY: Records = Records {
    early: true,
    late: true,
    ..TIMELESS
};

/// With nodes that forget to whom they granted the lock.
const FADING: Records = Records {
    callers: 2,
    fading: 3,
    early: true,
    late: true,
    ..TIMELESS
};

/// With clocks that differ.
const ENDING: Records = Records {
    callers: 2,
    clocks: 1,
    early: true,
    ..TIMELESS
};

/// With a node that forgets.
const FORGETFUL: Records = Records {
    callers: 2,
    losses: 1,
    early: true,
    ..TIMELESS
};

/// With clocks that differ, from when the first caller has a response.
const BEGUN: Records = Records {
    callers: 3,
    early: false,
    begun: true,
    ..ENDING
};

#[test]
fn all_get_one_response_whatever_the_timing() {
    assert_holds("idempotency", TIMELESS);
}

#[test]
fn all_get_one_response_after_the_first_until_it_ends() {
    assert_holds("idempotency, after the first", BEGUN);
}

#[test]
fn all_get_one_response_though_a_node_forgets() {
    assert_holds("idempotency, one forgets", FORGETFUL);
}

#[test]
fn all_get_one_response_until_it_ends_and_it_can_be_had_again() {
    let model = Records {
        recovers: true,
        ..ENDING
    };
    assert_holds("idempotency, with an end and recovery", model);
}

#[test]
fn all_get_one_response_though_locks_end_too_early() {
    assert_holds("idempotency, locks end too early", EARLY);
}

#[test]
fn all_get_one_response_though_nodes_forget_their_grants() {
    assert_holds("idempotency, grants are forgotten", FADING);
}

#[test]
fn each_rule_is_needed() {
    for (mutant, model, promise) in [
        (Mutant::RecordOfAMinority, &TIMELESS, ONE_RESPONSE),
        (Mutant::AnswerBeforeAQuorum, &TIMELESS, ONE_RESPONSE),
        (Mutant::OvertakenRunIsStored, &TIMELESS, ONE_RESPONSE),
        (Mutant::LowestBallotAdopted, &TIMELESS, ONE_RESPONSE),
        (Mutant::BallotNotCompared, &BEGUN, ONE_RESPONSE),
        (Mutant::RecordLivesAnew, &ENDING, ONE_END),
        (Mutant::PromiseNotCompared, &EARLY, ONE_RESPONSE),
        (Mutant::ForgottenGrantCounts, &FADING, ONE_RESPONSE),
        (Mutant::LossesNotMasked, &FORGETFUL, ONE_RESPONSE),
    ] {
        let mutant = Some(mutant);
        let model = Records { mutant, ..*model };
        assert_refuted(&format!("idempotency, {mutant:?}"), model, promise);
    }
}
