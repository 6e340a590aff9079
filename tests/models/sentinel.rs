//! A node behind Sentinels that disagree.
//!
//! One node, so that its vote is a quorum, found through three Sentinels; two processes, one of which can reach the
//! first server only, and the other both. A Sentinel may start a failover at any time, which gives it a new master with
//! the next number (*epoch*), the two servers in turn; the other Sentinels hear of that at any later time or never. The
//! former master goes on serving who is connected to it. A server that becomes the master was a replica, and has lost
//! the lock and its identity; or it never heard that it was replaced, and has both still.
//!
//! A process asks single Sentinels at any time. The library judges from what they said, and when they were asked, which
//! server a majority names and whether it is still confirmed; so it does for what the models' processes send. Whoever
//! finds a server without a marker of its own waits for the ttl and for the time for which others may still count a
//! former one.
//!
//! Bounds: two failovers, a ttl of one tick, in one run of two, statements that count for two. Abstracted: a question is
//! answered in the step in which it is asked, which is the worst that can happen (its time counts from when it is sent),
//! and commands run in the step in which they are sent; servers have one address each. Not covered: Sentinels that
//! forget.

use stateright::{Model, Property};

use crate::check::{NOW, ago, assert_holds, assert_refuted, leads_to, reached, ticks, wait};
use crate::confirmation::{Confirmation, Place, Statement};

const SENTINELS: usize = 3;
const PROCESSES: usize = 2;
/// In ticks.
const LONG_TTL: u8 = 2;
/// For how long a statement of a Sentinel counts, in ticks.
const WITHIN: u8 = 2;
/// The longest wait.
const LONGEST: u8 = LONG_TTL + WITHIN;

/// A rule that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutant {
    /// A server counts however long ago most Sentinels named it.
    SentinelsNeverConfirm,
    /// A server counts that one Sentinel names.
    OneSentinelIsEnough,
    FailoverNotSettled,
    /// A server that becomes the master again is the one that it was.
    EpochIgnored,
    /// A holder's extension counts at a server in quarantine, as it does at a node without Sentinels.
    QuarantineCounts,
}

#[derive(Clone, Debug)]
struct Watched {
    failovers: u8,
    /// In ticks.
    ttl: u8,
    /// The servers that each process can reach, as bits.
    reached: [u8; PROCESSES],
    mutant: Option<Mutant>,
    /// Whether each state is followed until both processes were granted the lock.
    recovers: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
struct Sentinel {
    /// The failover after which it knows the master.
    epoch: u8,
    /// What it told each process, and how long ago that was asked.
    told: [Option<(u8, u8)>; PROCESSES],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
struct Server {
    /// The process whose token it has, from 1; 0: none.
    owner: u8,
    left: u8,
    /// The failover in its marker; 0: none.
    marked: u8,
    /// The failover for which its quarantine is; 0: none.
    quarantine: u8,
    /// For how long each process has seen that.
    waited: [Option<u8>; PROCESSES],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
struct State {
    sentinels: [Sentinel; SENTINELS],
    servers: [Server; 2],
    /// The failover by which each process knows the node's server.
    at: [u8; PROCESSES],
    /// For how long each process relies on the lock.
    holds: [u8; PROCESSES],
    last: u8,
}

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Tick,
    /// A Sentinel starts a failover; whether the next master has lost the lock.
    Failover(usize, bool),
    /// A Sentinel hears of the last failover.
    Hear(usize),
    Ask(usize, usize),
    Connect(usize, u8),
    CheckIn(usize),
    Promote(usize),
    Grant(usize),
    Extend(usize),
    Leave(usize),
}

/// The server that is the master after so many failovers.
fn server(epoch: u8) -> usize {
    usize::from(epoch % 2)
}

/// What Sentinels say that know the master after so many failovers.
fn place(epoch: u8) -> Place {
    let host = ["one", "other"][server(epoch)].to_owned();
    Place {
        address: (host, 6379),
        epoch: epoch.to_string(),
    }
}

impl Watched {
    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    fn reaches(&self, process: usize, epoch: u8) -> bool {
        self.reached[process] & (1 << server(epoch)) != 0
    }

    /// What the process knows of its Sentinels, as the library has it.
    fn confirmation(state: &State, process: usize) -> Confirmation {
        let mut known = Confirmation::new(["a", "b", "c"].into_iter().take(SENTINELS));
        for (number, sentinel) in state.sentinels.iter().enumerate() {
            if let Some((epoch, age)) = sentinel.told[process] {
                let place = place(epoch);
                known.note(number, ago(age), Ok(Statement { place, id: None }));
            }
        }
        known
    }

    /// The failover after which the server is known that the process can take for the node's.
    fn masters(&self, state: &State, process: usize) -> Vec<u8> {
        let horizon = ago(WITHIN);
        let epochs = 1..=state.last;
        if self.is(Mutant::OneSentinelIsEnough) {
            let told = |epoch: &u8| {
                let mut told = state.sentinels.iter().filter_map(|it| it.told[process]);
                told.any(|(it, _)| it == *epoch)
            };
            return epochs.filter(told).collect();
        }
        let master = Self::confirmation(state, process).likely_master(horizon);
        epochs
            .filter(|it| master.as_ref() == Some(&place(*it)))
            .collect()
    }

    /// Whether the process may send a command to the node.
    fn counts(&self, state: &State, process: usize) -> bool {
        let at = state.at[process];
        if at == 0 || self.is(Mutant::SentinelsNeverConfirm) {
            return at != 0;
        }
        if self.is(Mutant::OneSentinelIsEnough) {
            return self.masters(state, process).contains(&at);
        }
        let mut known = Self::confirmation(state, process);
        let place = place(at);
        known.set_server("server", &place);
        let confirmed = known.confirmed("server", &place.epoch);
        let within = ticks(WITHIN);
        let same = |epoch: u8| self.is(Mutant::EpochIgnored) && server(epoch) == server(at);
        let told = state.sentinels.iter().filter_map(|it| it.told[process]);
        let by_address = told.filter(|(epoch, _)| same(*epoch)).count();
        confirmed.is_some_and(|asked| NOW < asked + within) || by_address >= 2
    }

    /// Whether the server votes for a process that knows it by this failover.
    fn votes(&self, server: &Server, at: u8) -> bool {
        let same = |marked: u8| marked == at || self.is(Mutant::EpochIgnored);
        server.marked != 0 && same(server.marked)
    }

    /// How long the process must have waited for the quarantine.
    fn wait(&self) -> u8 {
        let settles = !self.is(Mutant::FailoverNotSettled);
        wait(self.ttl, u8::from(settles) * WITHIN)
    }

    fn tick(state: &mut State) {
        for sentinel in &mut state.sentinels {
            for told in &mut sentinel.told {
                *told = told.map(|(epoch, age)| (epoch, age + 1));
            }
        }
        for server in &mut state.servers {
            server.left = server.left.saturating_sub(1);
            if server.left == 0 {
                server.owner = 0;
            }
            for waited in &mut server.waited {
                *waited = waited.map(|it| (it + 1).min(LONGEST));
            }
        }
        state.holds = state.holds.map(|it| it.saturating_sub(1));
    }

    fn check_in(server: &mut Server, process: usize, at: u8) {
        if server.quarantine != at {
            (server.marked, server.quarantine) = (0, at);
            server.waited = [None; PROCESSES];
        }
        server.waited[process].get_or_insert(0);
    }

    fn set(&self, state: &mut State, process: usize) {
        let server = &mut state.servers[server(state.at[process])];
        (server.owner, server.left) = (process as u8 + 1, self.ttl);
    }

    /// Forgets what has no effect any more, so that fewer states differ.
    fn tidy(state: &mut State) {
        for sentinel in &mut state.sentinels {
            for told in &mut sentinel.told {
                *told = told.filter(|(_, age)| *age < WITHIN);
            }
        }
        // Sentinels are alike.
        state.sentinels.sort_unstable();
    }

    fn of_process(&self, state: &State, process: usize, actions: &mut Vec<Action>) {
        let ask = |sentinel| Action::Ask(process, sentinel);
        actions.extend((0..SENTINELS).map(ask));
        let at = state.at[process];
        let masters = self.masters(state, process).into_iter();
        let others = masters.filter(|it| *it != at);
        actions.extend(others.map(|it| Action::Connect(process, it)));
        if state.holds[process] > 0 {
            actions.push(Action::Leave(process));
        }
        if !self.counts(state, process) {
            return;
        }
        let server = &state.servers[server(at)];
        let mine = usize::from(server.owner) == process + 1;
        if !self.votes(server, at) {
            let free = mine || server.owner == 0;
            if self.is(Mutant::QuarantineCounts) && state.holds[process] > 0 && free {
                actions.push(Action::Extend(process));
            }
            let waited = (server.quarantine == at).then_some(server.waited[process]);
            match waited.flatten() {
                None => actions.push(Action::CheckIn(process)),
                Some(waited) if waited >= self.wait() => actions.push(Action::Promote(process)),
                Some(_) => {}
            }
        } else if state.holds[process] > 0 && (mine || server.owner == 0) {
            actions.push(Action::Extend(process));
        } else if state.holds[process] == 0 && server.owner == 0 {
            actions.push(Action::Grant(process));
        }
    }
}

impl Model for Watched {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut state = State {
            last: 1,
            ..State::default()
        };
        for sentinel in &mut state.sentinels {
            sentinel.epoch = 1;
        }
        state.servers[server(1)].marked = 1;
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.push(Action::Tick);
        for (number, sentinel) in state.sentinels.iter().enumerate() {
            if state.last <= self.failovers {
                let failovers = [false, true].map(|lost| Action::Failover(number, lost));
                actions.extend(failovers);
            }
            if sentinel.epoch < state.last {
                actions.push(Action::Hear(number));
            }
        }
        for process in 0..PROCESSES {
            self.of_process(state, process, actions);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = *last;
        match action {
            Action::Tick => Self::tick(&mut state),
            Action::Failover(sentinel, lost) => {
                let next = server(state.last + 1);
                state.last += 1;
                state.sentinels[sentinel].epoch = state.last;
                if lost {
                    // It was a replica that lags, and its promotion made another server of it.
                    state.servers[next] = Server::default();
                }
            }
            Action::Hear(sentinel) => state.sentinels[sentinel].epoch = state.last,
            Action::Ask(process, sentinel) => {
                let sentinel = &mut state.sentinels[sentinel];
                // To be told of a server that cannot be reached is as good as to be told nothing.
                let told = Some((sentinel.epoch, 0));
                let is_reached = self.reaches(process, sentinel.epoch);
                sentinel.told[process] = told.filter(|_| is_reached);
            }
            Action::Connect(process, epoch) => state.at[process] = epoch,
            Action::CheckIn(process) => {
                let at = state.at[process];
                Self::check_in(&mut state.servers[server(at)], process, at);
            }
            Action::Promote(process) => {
                let at = state.at[process];
                let server = &mut state.servers[server(at)];
                (server.marked, server.quarantine) = (at, 0);
                server.waited = [None; PROCESSES];
            }
            Action::Grant(process) | Action::Extend(process) => {
                self.set(&mut state, process);
                state.holds[process] = self.ttl;
            }
            Action::Leave(process) => {
                state.holds[process] = 0;
                for server in &mut state.servers {
                    if usize::from(server.owner) == process + 1 {
                        (server.owner, server.left) = (0, 0);
                    }
                }
            }
        }
        Self::tidy(&mut state);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::<Self>::always(ONE_HOLDER, |_, state| !state.holds.iter().all(|it| *it > 0)),
            Property::<Self>::sometimes(
                "a lock is held on the old side of a failover",
                |_, state| {
                    let holds = |it: usize| state.holds[it] > 0 && state.at[it] < state.last;
                    (0..PROCESSES).any(holds)
                },
            ),
            Property::<Self>::sometimes("a lock is granted by the new master", |_, state| {
                (0..PROCESSES).any(|it| state.holds[it] > 0 && state.at[it] > 1)
            }),
        ];
        properties.extend(reached(&[
            (
                self.reached[0] != self.reached[1],
                "processes have different masters",
                |model: &Self, state: &State| {
                    let different = state.at[0] != state.at[1];
                    different && (0..PROCESSES).all(|it| model.counts(state, it))
                },
            ),
            (
                self.failovers > 1,
                "a server is the master again",
                |_, state| (0..PROCESSES).any(|it| state.holds[it] > 0 && state.at[it] == 3),
            ),
        ]));
        if self.recovers {
            properties.push(Property::<Self>::always(GRANTED_AGAIN, |model, state| {
                let reaching = |it: &usize| model.reaches(*it, state.last);
                let mut processes = (0..PROCESSES).filter(reaching);
                processes.all(|process| model.is_granted_again(state, process))
            }));
        }
        properties
    }
}

impl Watched {
    /// Whether the process is granted the lock once all Sentinels have heard of the last failover.
    fn is_granted_again(&self, state: &State, process: usize) -> bool {
        let mine = |it: &usize| *it == process;
        let rank = |state: &State, action: &Action| match action {
            Action::Hear(_) => Some(0),
            Action::Leave(it) if !mine(it) => Some(1),
            Action::Ask(it, sentinel) if mine(it) => {
                let sentinel = &state.sentinels[*sentinel];
                let is_news = sentinel.told[process] != Some((sentinel.epoch, 0));
                is_news.then_some(2)
            }
            Action::Connect(it, _) if mine(it) => Some(3),
            Action::Grant(it) | Action::Promote(it) | Action::CheckIn(it) if mine(it) => Some(4),
            Action::Tick => Some(5),
            _ => None,
        };
        let goal = |state: &State| state.holds[process] > 0 && state.at[process] == state.last;
        leads_to(self, *state, 60, rank, goal)
    }
}

const ONE_HOLDER: &str = "one holder at a time";
const GRANTED_AGAIN: &str = "the lock is granted again once the Sentinels agree";

/// One failover; one process can reach both servers, and the other the first only.
const ONCE: Watched = Watched {
    failovers: 1,
    ttl: 1,
    reached: [0b10, 0b11],
    mutant: None,
    recovers: false,
};

/// The same with a longer ttl.
const LONG: Watched = Watched {
    ttl: LONG_TTL,
    ..ONCE
};

/// A failover there and back; each process can reach one of the servers.
const BACK: Watched = Watched {
    failovers: 2,
    reached: [0b10, 0b01],
    ..ONCE
};

/// A failover there and back; both processes can reach the first server only.
const SAME: Watched = Watched {
    reached: [0b10, 0b10],
    ..BACK
};

#[test]
fn one_holder_at_a_time_while_masters_change_there_and_back() {
    assert_holds("sentinel, there and back", BACK);
}

#[test]
fn one_holder_at_a_time_while_a_master_is_replaced_and_comes_back() {
    assert_holds("sentinel, away and back", SAME);
}

#[test]
fn one_holder_at_a_time_while_sentinels_disagree_and_again_once_they_agree() {
    let model = Watched {
        recovers: true,
        ..ONCE
    };
    assert_holds("sentinel, once and recovery", model);
}

/// While others may still count the former server, it may grant them the lock, and both servers stand for the node.
#[test]
fn one_holder_at_a_time_with_a_ttl_as_long_as_statements_count() {
    assert_holds("sentinel, long ttl", LONG);
}

#[test]
fn each_rule_is_needed() {
    for (mutant, model) in [
        (Mutant::SentinelsNeverConfirm, &ONCE),
        (Mutant::OneSentinelIsEnough, &ONCE),
        (Mutant::FailoverNotSettled, &ONCE),
        (Mutant::QuarantineCounts, &LONG),
        (Mutant::EpochIgnored, &BACK),
    ] {
        let mutant = Some(mutant);
        let model = Watched { mutant, ..*model };
        assert_refuted(&format!("sentinel, {mutant:?}"), model, ONE_HOLDER);
    }
}
