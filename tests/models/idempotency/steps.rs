//! What the callers decide, and what the nodes store.

use std::cmp::Reverse;
use std::time::Duration;

use super::{
    AT_A_TIME, Action, Caller, KEEP, Link, Mutant, NODES, Node, Phase, Record, Records, State,
};
use crate::moment::Moment;
use crate::protocol::on_nodes::{Keys, Landed, OnNodes, Verdict};
use crate::protocol::quorum::{FenceVerdict, Quorum, highest};
use crate::protocol::recall::{Life, Recalled, life, recalled, time_by};
use crate::token::FencingToken;

/// It is not known whether a record has ended.
#[derive(Debug)]
struct Open;

impl Node {
    /// The record, unless it has ended.
    fn live(&self) -> Option<Record> {
        self.record.filter(|it| it.until > self.clock)
    }

    /// Grants the lock to a round, or tells why not.
    pub(super) fn recall(&mut self, round: u8, adopts: bool) -> Link {
        let record = self.live();
        if let (Some(record), false) = (record, adopts) {
            return Link::Recorded(record);
        }
        self.record = record;
        (self.last, self.count) = (round, self.count + 1);
        self.promised = self.count;
        Link::Granted {
            count: self.count,
            clock: self.clock,
            record,
        }
    }
}

impl Caller {
    /// The owner token of the round that it makes now.
    pub(super) fn round(&self, number: usize) -> u8 {
        2 * number as u8 + 1 + u8::from(self.adopts)
    }
}

impl Records {
    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    fn masked(&self) -> usize {
        if self.is(Mutant::LossesNotMasked) {
            return 0;
        }
        usize::from(self.losses)
    }

    fn quorum(&self) -> Quorum {
        Quorum::masking(NODES, self.masked()).unwrap()
    }

    fn verdict(&self, state: &State, caller: usize, is_late: bool) -> Option<Recalled> {
        let mut nodes = OnNodes::new(self.quorum(), Keys::All, Duration::ZERO);
        let (mut ballots, sent) = (Vec::new(), Moment::ORIGIN);
        for (number, node) in state.nodes.iter().enumerate() {
            nodes.send(number);
            match node.links[caller] {
                Link::Granted { count, .. } => {
                    let fence = Some(token(count));
                    nodes.land(number, sent, Landed::Ours { fence, key: 0 });
                }
                Link::Recorded(record) if self.is(Mutant::RecordOfAMinority) => {
                    let ballot = token(record.ballot);
                    return Some(Recalled::Replay(ballot));
                }
                Link::Recorded(record) => {
                    nodes.land(number, sent, Landed::Withheld);
                    ballots.push(token(record.ballot));
                }
                _ => {}
            }
        }
        if is_late {
            nodes.abandon_all();
        }
        recalled(&nodes, self.quorum(), &ballots.iter().copied())
    }

    /// The record that is to be brought to a quorum, if there is one.
    fn adoptable(&self, state: &State, caller: usize) -> Result<Option<Record>, Open> {
        let (mut records, mut clocks) = (Vec::new(), Vec::new());
        for node in &state.nodes {
            if let Link::Granted { clock, record, .. } = node.links[caller] {
                clocks.push(u64::from(clock));
                records.extend(record);
            }
        }
        records.sort_by_key(|record| Reverse(record.ballot));
        if self.is(Mutant::LowestBallotAdopted) {
            records.reverse();
        }
        let lives = records.into_iter();
        let mut lives = lives.map(|it| (it, life(u64::from(it.until), &clocks, self.quorum())));
        match lives.find(|(_, life)| *life != Life::Over) {
            None => Ok(None),
            Some((record, Life::Kept)) => Ok(Some(record)),
            Some(_) => Err(Open),
        }
    }

    /// Whether the replies that have come tell what to do.
    fn decides(&self, state: &State, caller: usize, is_late: bool) -> bool {
        match self.verdict(state, caller, is_late) {
            Some(Recalled::Replay(_)) => true,
            Some(Recalled::Adopt) => !state.callers[caller].adopts,
            Some(Recalled::Lock(Verdict::Granted)) => self.adoptable(state, caller).is_ok(),
            _ => false,
        }
    }

    /// The node has granted the lock to `caller`, so the time of whoever had it before is over.
    pub(super) fn overtake(&self, state: &mut State, caller: usize, node: usize) {
        for other in (0..self.callers).filter(|it| *it != caller) {
            let had = matches!(state.nodes[node].links[other], Link::Granted { .. });
            if had && state.callers[other].phase == Phase::Asking {
                fail(state, other);
            }
        }
    }

    pub(super) fn decide(&self, state: &mut State, caller: usize, is_late: bool) {
        match self.verdict(state, caller, is_late) {
            Some(Recalled::Replay(ballot)) => {
                let links = state.nodes.iter().map(|node| node.links[caller]);
                let mut records = links.filter_map(|link| match link {
                    Link::Recorded(record) if token(record.ballot) == ballot => Some(record),
                    _ => None,
                });
                let record = records.next().unwrap();
                self.answer(state, caller, record);
            }
            Some(Recalled::Adopt) => {
                state.callers[caller].adopts = true;
                for node in &mut state.nodes {
                    node.links[caller] = Link::Asked;
                }
            }
            _ => self.run_or_adopt(state, caller),
        }
    }

    /// The lock is granted: settles its token, and runs the request if there is no record.
    fn run_or_adopt(&self, state: &mut State, caller: usize) {
        let adopted = self.adoptable(state, caller).unwrap();
        let round = state.callers[caller].round(caller);
        let (mut counts, mut clocks) = (Vec::new(), vec![self.own_clock(caller)]);
        for node in &state.nodes {
            if let Link::Granted { count, clock, .. } = node.links[caller] {
                counts.push(token(count));
                clocks.push(u64::from(clock));
            }
        }
        let needed = self.quorum().needed();
        let (ballot, is_open) = match highest(counts.iter().copied(), needed) {
            FenceVerdict::Agreed(ballot) => (ballot, false),
            FenceVerdict::Open(ballot) => (ballot, true),
            FenceVerdict::None => unreachable!("all who granted have told"),
        };
        let (ballot, mut have) = (u8::try_from(ballot.get()).unwrap(), 0);
        for node in &mut state.nodes {
            let link = &mut node.links[caller];
            let count = match *link {
                Link::Granted { count, .. } => count,
                Link::Asked if self.late && caller == 0 => {
                    *link = Link::Late;
                    continue;
                }
                _ => {
                    *link = Link::None;
                    continue;
                }
            };
            let raised = is_open && count < ballot && node.last == round;
            if raised {
                node.count = node.count.max(ballot);
            }
            have += usize::from(raised || count >= ballot);
            *link = Link::Store;
        }
        if have < needed {
            fail(state, caller);
            return;
        }
        let fresh = u8::try_from(time_by(clocks)).unwrap() + KEEP;
        let (body, until) = match adopted {
            Some(record) if self.is(Mutant::RecordLivesAnew) => (record.body, fresh),
            Some(record) => (record.body, record.until),
            None => {
                state.ends[caller] = fresh;
                state.callers[caller].ran = true;
                (caller as u8 + 1, fresh)
            }
        };
        state.callers[caller].phase = Phase::Storing(Record {
            ballot,
            body,
            until,
        });
    }

    /// The clocks of the callers are as wrong as can be, one way or the other.
    fn own_clock(&self, caller: usize) -> u64 {
        if caller.is_multiple_of(2) {
            0
        } else {
            u64::from(self.clocks)
        }
    }

    /// Whether a node stores a record; `chosen`: a quorum has it.
    fn may_store(&self, node: &Node, record: Record, round: u8, chosen: bool) -> bool {
        let known = node.live();
        if record.until <= node.clock {
            return false;
        }
        let lower = known.is_some_and(|known| record.ballot < known.ballot);
        if lower && !self.is(Mutant::BallotNotCompared) {
            return false;
        }
        let same = known.is_some_and(|known| record.ballot == known.ballot);
        let promised = record.ballot >= node.promised || self.is(Mutant::PromiseNotCompared);
        // The lock may have been set again by an extension; the counter says whether anybody came since.
        let surpassed = record.ballot < node.count && !self.is(Mutant::ForgottenGrantCounts);
        let forgotten = node.last == 0 && self.fading > 0 && !surpassed;
        let granted = (node.last == round || forgotten) && promised;
        same || granted || chosen || self.is(Mutant::OvertakenRunIsStored)
    }

    pub(super) fn store(&self, state: &mut State, caller: usize, node: usize) {
        let Phase::Storing(record) = state.callers[caller].phase else {
            unreachable!("nothing else is stored");
        };
        let round = state.callers[caller].round(caller);
        let node = &mut state.nodes[node];
        let stores = self.may_store(node, record, round, false);
        node.links[caller] = if stores { Link::Stored } else { Link::None };
        if stores {
            node.record = Some(record);
        }
    }

    /// A caller responds.
    pub(super) fn answer(&self, state: &mut State, caller: usize, record: Record) {
        let it = &mut state.callers[caller];
        let ballot = if self.clocks > 0 { record.ballot } else { 0 };
        it.phase = Phase::Answered(Record { ballot, ..record });
        state.is_wrong |= it.past & (1 << record.body) != 0;
        let began_before = it.current != state.current;
        let has_ended = |body: u8| {
            let end = state.ends[usize::from(body) - 1];
            let ended = state.nodes.iter().filter(|node| node.clock >= end);
            ended.count() > self.masked()
        };
        // Replies may have been under way for long: who began before the change may get either response.
        let is_known = record.body == state.current || state.past & (1 << record.body) != 0;
        if !is_known && (state.current == 0 || has_ended(state.current)) {
            state.past |= if state.current == 0 {
                0
            } else {
                1 << state.current
            };
            state.current = record.body;
        } else if !is_known {
            state.is_wrong |= !(began_before && has_ended(record.body));
            state.past |= 1 << record.body;
        }
        for node in &mut state.nodes {
            node.links[caller] = Link::None;
        }
    }

    pub(super) fn of_caller(&self, state: &State, caller: usize, actions: &mut Vec<Action>) {
        let links = || {
            state
                .nodes
                .iter()
                .map(|node| node.links[caller])
                .enumerate()
        };
        let phase = state.callers[caller].phase;
        // Where another is to come, it matters whether this one is out of the way.
        let is_waited_for = self.callers > AT_A_TIME && caller + 1 < self.callers;
        if is_waited_for && matches!(phase, Phase::Asking | Phase::Storing(_)) {
            actions.push(Action::Die(caller));
        }
        match phase {
            Phase::Asking => {
                let asked = links().filter(|(_, link)| *link == Link::Asked);
                actions.extend(asked.map(|(node, _)| Action::Run(caller, node)));
                // If the time would change nothing, it need not be over.
                let is_late = !self.decides(state, caller, false);
                if self.decides(state, caller, is_late) {
                    actions.push(Action::Decide(caller, is_late));
                }
            }
            Phase::Storing(_) => {
                let stores = links().filter(|(_, link)| *link == Link::Store);
                actions.extend(stores.map(|(node, _)| Action::Store(caller, node)));
                let late = links().filter(|(_, link)| *link == Link::Late);
                actions.extend(late.map(|(node, _)| Action::Run(caller, node)));
                let stored = links().filter(|(_, link)| *link == Link::Stored).count();
                let is_enough = match self.is(Mutant::AnswerBeforeAQuorum) {
                    true => stored > 0,
                    false => stored >= self.quorum().needed(),
                };
                if is_enough {
                    actions.push(Action::Answer(caller));
                }
            }
            Phase::Answered(record) => {
                let lacks = |node: &Node| {
                    let chosen = self.may_store(node, record, 0, true);
                    chosen && node.record != Some(record)
                };
                let nodes = state.nodes.iter().enumerate();
                let lacking = nodes.filter(|(_, node)| self.clocks > 0 && lacks(node));
                actions.extend(lacking.map(|(node, _)| Action::Spread(caller, node)));
            }
            Phase::Idle | Phase::Failed => {}
        }
    }

    /// Whether nobody can respond any more.
    pub(super) fn is_over(&self, state: &State) -> bool {
        let ends = |it: &Caller| matches!(it.phase, Phase::Answered(_) | Phase::Failed);
        state.is_wrong || state.callers[..self.callers].iter().all(ends)
    }
}

pub(super) fn fail(state: &mut State, caller: usize) {
    state.callers[caller].phase = Phase::Failed;
    for node in &mut state.nodes {
        node.links[caller] = Link::None;
    }
}

fn token(count: u8) -> FencingToken {
    FencingToken::new(u64::from(count)).unwrap()
}
