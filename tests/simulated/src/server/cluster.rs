//! [`Cluster`]: what a server in cluster mode knows of the others: who has the slots, who has failed, and for whom it
//! votes. The caller carries the [`Packet`]s between them, and makes replicas of those that are to be replicas.
//!
//! As the Redis Cluster specification has it, with these limits. Who the servers are never changes. Slots go from a
//! master to one of its replicas, all at once, and in no other way. Nobody is told of a newer owner but by that owner
//! itself. A replica does not wait for its turn, however much it lacks. A master that restarts, or reaches most others
//! again, does not wait before it serves.

use std::collections::{BTreeMap, BTreeSet};

use crate::dice::Dice;

/// A server, as all of them number it.
pub type Member = usize;

/// What one server tells another. Sets of servers, and of ranges of slots, are bits.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    pub from: Member,
    /// The highest epoch that it has heard of.
    epoch: u64,
    /// The epoch of its slots, or of those of its master.
    config: u64,
    /// The master that it follows.
    master: Option<Member>,
    /// The ranges that it has, or its master.
    claims: u64,
    /// Those that it does not hear.
    silent: u64,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// Nothing but what every packet tells.
    Beat,
    /// Most masters do not hear this one.
    Failed(Member),
    /// A replica asks for votes; where it is forced, though its master has not failed.
    Ask {
        forced: bool,
    },
    Vote,
}

/// What is to be done for a server.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    Tell(Member, Packet),
    /// It was elected in this epoch, and is a master.
    Promote(u64),
    /// It is a replica of that one.
    Follow(Member),
}

/// What a server knows of one of them, itself included.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) master: Option<Member>,
    /// The epoch of its slots.
    pub(super) config: u64,
    /// When it was heard last.
    heard: u64,
    /// Since when most masters do not hear it.
    pub(super) failed: Option<u64>,
    /// The masters that do not hear it, and when they said so.
    reports: BTreeMap<Member, u64>,
}

#[derive(Debug)]
struct Election {
    /// When votes are asked for.
    at: u64,
    forced: bool,
    /// Once they were.
    epoch: Option<u64>,
    votes: BTreeSet<Member>,
}

impl Election {
    const fn new(at: u64, forced: bool) -> Self {
        Self {
            at,
            forced,
            epoch: None,
            votes: BTreeSet::new(),
        }
    }
}

/// A cluster as one server sees it. Times are microseconds by its clock, which may be set.
#[derive(Debug)]
pub struct Cluster {
    pub(super) own: Member,
    timeout: u64,
    epoch: u64,
    voted: u64,
    pub(super) members: Vec<Known>,
    /// Who has each range of slots.
    pub(super) owners: Vec<Option<Member>>,
    /// It did not reach most masters when it looked last. Then it refuses all commands.
    pub(super) is_down: bool,
    election: Option<Election>,
}

const MS: u64 = 1_000;
/// How long a replica waits until it asks for votes, and once more as long at most.
const DELAY: u64 = 500 * MS;
/// For how long votes count at least.
const VOTING: u64 = 2_000 * MS;

fn bits(set: impl Iterator<Item = usize>) -> u64 {
    set.fold(0, |bits, index| bits | 1 << index)
}

const fn has(bits: u64, index: usize) -> bool {
    bits >> index & 1 == 1
}

impl Cluster {
    /// The server `own` of these: host, port and, for a replica, its master. Each master has an even range of the slots,
    /// in the order of their numbers. `timeout_ms` is `cluster-node-timeout`.
    pub fn new(
        own: Member,
        servers: &[((String, u16), Option<Member>)],
        timeout_ms: u64,
        now: u64,
    ) -> Self {
        let masters = servers.iter().enumerate();
        let masters = masters.filter(|(_, (_, master))| master.is_none());
        let owners: Vec<_> = masters.map(|(member, _)| Some(member)).collect();
        let config = |member| owners.iter().position(|owner| *owner == Some(member));
        let known = |(member, ((host, port), master)): (Member, &((String, u16), _))| Known {
            host: host.clone(),
            port: *port,
            master: *master,
            config: config(member).map_or(0, |range| range as u64 + 1),
            heard: now,
            failed: None,
            reports: BTreeMap::new(),
        };
        Self {
            own,
            timeout: timeout_ms * MS,
            epoch: owners.len() as u64,
            voted: 0,
            members: servers.iter().enumerate().map(known).collect(),
            owners,
            is_down: false,
            election: None,
        }
    }

    /// The process starts anew: it has read its file, and has heard nobody yet.
    pub(super) fn restart(&mut self, now: u64) {
        for member in &mut self.members {
            (member.heard, member.failed) = (now, member.failed.map(|_| now));
            member.reports.clear();
        }
        (self.is_down, self.election) = (false, None);
    }

    /// The master that it follows, or itself.
    fn main(&self) -> Member {
        self.members[self.own].master.unwrap_or(self.own)
    }

    /// Those that vote: the masters with slots.
    fn voters(&self) -> BTreeSet<Member> {
        self.owners.iter().flatten().copied().collect()
    }

    fn is_most(&self, count: usize) -> bool {
        count > self.voters().len() / 2
    }

    /// Whether it has not heard that one for too long.
    fn is_silent(&self, member: Member, now: u64) -> bool {
        let since = now.saturating_sub(self.members[member].heard);
        member != self.own && since > self.timeout
    }

    /// Whether it has failed, or is suspected to have, as `CLUSTER NODES` says it.
    pub(super) fn silent(&self, member: Member, now: u64) -> Option<&'static str> {
        let has_failed = self.members[member].failed.is_some();
        let suspected = || self.is_silent(member, now).then_some("fail?");
        has_failed.then_some("fail").or_else(suspected)
    }

    fn ranges(&self, of: Member) -> impl Iterator<Item = usize> {
        let ranges = self.owners.iter().enumerate();
        ranges.filter_map(move |(range, owner)| (*owner == Some(of)).then_some(range))
    }

    /// All others are told something.
    fn tell_all(&self, what: What, now: u64) -> Vec<Step> {
        let others = (0..self.members.len()).filter(|member| *member != self.own);
        let packet = self.packet(what, now);
        others.map(|member| Step::Tell(member, packet)).collect()
    }

    fn packet(&self, what: What, now: u64) -> Packet {
        let main = self.main();
        let all = 0..self.members.len();
        Packet {
            from: self.own,
            epoch: self.epoch,
            config: self.members[main].config,
            master: self.members[self.own].master,
            claims: bits(self.ranges(main)),
            silent: bits(all.filter(|member| self.silent(*member, now).is_some())),
            what,
        }
    }

    /// Time has passed: to be called ten times a second.
    pub(super) fn tick(&mut self, now: u64) -> Vec<Step> {
        let mut steps = Vec::new();
        for member in 0..self.members.len() {
            if self.has_failed(member, now) {
                self.members[member].failed = Some(now);
                steps.extend(self.tell_all(What::Failed(member), now));
            }
        }
        let voters = self.voters();
        let is_near = |member: &&Member| self.silent(**member, now).is_none();
        self.is_down = !self.is_most(voters.iter().filter(is_near).count());
        steps.extend(self.tell_all(What::Beat, now));
        steps
    }

    /// Whether most masters do not hear that one, which nobody knew.
    fn has_failed(&self, member: Member, now: u64) -> bool {
        if self.members[member].failed.is_some() || !self.is_silent(member, now) {
            return false;
        }
        let voters = self.voters();
        let recent = |(by, at): &(&Member, &u64)| {
            voters.contains(by) && now.saturating_sub(**at) <= 2 * self.timeout
        };
        let reports = self.members[member].reports.iter().filter(recent).count();
        self.is_most(reports + usize::from(voters.contains(&self.own)))
    }

    /// A replica asks for votes at once, as if its master had failed.
    pub(super) fn demand(&mut self, now: u64) {
        if self.members[self.own].master.is_some() {
            self.election = Some(Election::new(now, true));
        }
    }

    /// A replica whose master has failed asks for votes, some time after that.
    pub(super) fn elect(&mut self, now: u64, dice: &mut Dice) -> Vec<Step> {
        let voting = VOTING.max(2 * self.timeout);
        // No election outlives its votes, and the next one waits as long once more.
        let is_over = |election: &mut Election| now.abs_diff(election.at) > 2 * voting;
        self.election.take_if(is_over);
        let Some(master) = self.members[self.own].master else {
            self.election = None;
            return Vec::new();
        };
        let is_needed = self.members[master].failed.is_some() && self.ranges(master).count() > 0;
        if is_needed && self.election.is_none() {
            let at = now + DELAY + dice.below(DELAY as usize) as u64;
            self.election = Some(Election::new(at, false));
        }
        let is_due = |election: &&mut Election| {
            election.epoch.is_none()
                && (election.at..election.at + voting).contains(&now)
                && (is_needed || election.forced)
        };
        let Some(election) = self.election.as_mut().filter(is_due) else {
            return Vec::new();
        };
        self.epoch += 1;
        election.epoch = Some(self.epoch);
        let forced = election.forced;
        self.tell_all(What::Ask { forced }, now)
    }

    /// Something arrives from another server.
    pub(super) fn hear(&mut self, packet: &Packet, now: u64) -> Vec<Step> {
        let from = packet.from;
        self.epoch = self.epoch.max(packet.epoch);
        self.note_alive(packet, now);
        self.note_role(packet);
        let mut steps = self.note_claims(packet);
        match packet.what {
            What::Failed(member) if member != self.own => {
                self.members[member].failed.get_or_insert(now);
            }
            What::Ask { forced } if self.votes_for(packet, forced) => {
                steps.push(Step::Tell(from, self.packet(What::Vote, now)));
            }
            What::Vote => steps.extend(self.count(packet, now)),
            _ => {}
        }
        steps
    }

    fn note_alive(&mut self, packet: &Packet, now: u64) {
        let from = packet.from;
        let (is_voter, undo) = (self.voters().contains(&from), 2 * self.timeout);
        let member = &mut self.members[from];
        (member.heard, member.config) = (now, member.config.max(packet.config));
        // The slots of a master stay free for its replicas for some time.
        let is_back = |since: &mut u64| !is_voter || now.abs_diff(*since) > undo;
        member.failed.take_if(is_back);
        for (index, member) in self.members.iter_mut().enumerate() {
            match is_voter && has(packet.silent, index) {
                true => member.reports.insert(from, now),
                false => member.reports.remove(&from),
            };
        }
    }

    fn note_role(&mut self, packet: &Packet) {
        let from = packet.from;
        if packet.master.is_some() && self.members[from].master.is_none() {
            // Whoever has them now will say so.
            let theirs = self.owners.iter_mut().filter(|owner| **owner == Some(from));
            theirs.for_each(|owner| *owner = None);
        }
        self.members[from].master = packet.master;
    }

    /// A master says which ranges it has. Whose master has no more follows the one that took the last.
    fn note_claims(&mut self, packet: &Packet) -> Vec<Step> {
        let (from, main) = (packet.from, self.main());
        let mut is_taken = false;
        for range in (0..self.owners.len()).filter(|range| has(packet.claims, *range)) {
            let before = self.owners[range];
            let is_older = |owner: Member| self.members[owner].config < packet.config;
            if packet.master.is_none() && before != Some(from) && before.is_none_or(is_older) {
                is_taken |= before == Some(main);
                self.owners[range] = Some(from);
            }
        }
        if !is_taken || self.ranges(main).count() > 0 {
            return Vec::new();
        }
        self.members[self.own].master = Some(from);
        vec![Step::Follow(from)]
    }

    /// Whether a replica that asks gets the vote of this one.
    fn votes_for(&mut self, packet: &Packet, forced: bool) -> bool {
        let Some(master) = packet.master else {
            return false;
        };
        let claimed = (0..self.owners.len()).filter(|range| has(packet.claims, *range));
        let is_newer = |owner: Member| self.members[owner].config > packet.config;
        let mut newer = claimed.filter(|range| self.owners[*range].is_some_and(is_newer));
        if !self.voters().contains(&self.own)
            || packet.epoch < self.epoch
            || packet.epoch <= self.voted
            || self.members[master].failed.is_none() && !forced
            || newer.next().is_some()
        {
            return false;
        }
        self.voted = packet.epoch;
        true
    }

    /// A vote arrives. With most of them this server has the slots of its master.
    fn count(&mut self, packet: &Packet, now: u64) -> Vec<Step> {
        let is_voter = self.voters().contains(&packet.from);
        let Some(Election {
            epoch: Some(epoch),
            votes,
            ..
        }) = &mut self.election
        else {
            return Vec::new();
        };
        let epoch = *epoch;
        if packet.epoch >= epoch && is_voter {
            votes.insert(packet.from);
        }
        let count = votes.len();
        let (Some(master), true) = (self.members[self.own].master, self.is_most(count)) else {
            return Vec::new();
        };
        self.election = None;
        (self.members[self.own].master, self.members[self.own].config) = (None, epoch);
        for owner in &mut self.owners {
            if *owner == Some(master) {
                *owner = Some(self.own);
            }
        }
        let mut steps = vec![Step::Promote(epoch)];
        steps.extend(self.tell_all(What::Beat, now));
        steps
    }
}
