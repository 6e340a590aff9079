//! Masters with their replicas and Sentinels: what is told whom, how late, and who becomes what.

use std::collections::VecDeque;

use super::agenda::Event;
use super::fault::Fault;
use super::hosts::{Host, Service};
use super::state::State;
use super::topology::{Group, HostId, HostKind, MASTER_NAME, Topology};
use crate::dice::Dice;
use crate::server::{Opinion, Sentinel};

/// A replica's way to its master.
#[derive(Debug)]
pub(super) struct Link {
    master: HostId,
    /// How late changes arrive, in milliseconds.
    lag: u64,
    /// Nothing arrives until it is healed.
    is_cut: bool,
    /// It knows its place in the master's history, and gets the changes from there on.
    is_in_sync: bool,
    /// Up to which offset it was sent the master's changes.
    told: u64,
    /// What is on its way: when it arrives, and up to which offset that is.
    under_way: VecDeque<(u64, u64)>,
}

impl Link {
    const fn to(master: HostId) -> Self {
        Self {
            master,
            lag: LAG_MS,
            is_cut: false,
            is_in_sync: false,
            told: 0,
            under_way: VecDeque::new(),
        }
    }
}

/// How late changes arrive if nothing is wrong.
const LAG_MS: u64 = 1;
/// After how long a replica tries again to reach its master.
const AGAIN_MS: u64 = 200;
/// How often masters remove keys that have expired.
const CLEAN_MS: u64 = 100;

/// A Sentinel that knows the master of its group.
pub(super) fn new_sentinel(topology: &Topology, group: usize, dice: &mut Dice) -> Sentinel {
    let (host, port) = topology.address(topology.master(group));
    let opinion = Opinion {
        host,
        port,
        epoch: 0,
    };
    let mut sentinel = Sentinel::new(dice.roll());
    sentinel.set(MASTER_NAME, Some(opinion));
    sentinel
}

impl Host {
    /// What was on its way to it does not arrive.
    fn lose_link(&mut self) {
        if let Some(link) = &mut self.link {
            link.is_in_sync = false;
            link.under_way.clear();
        }
    }
}

impl State {
    /// Attaches all replicas to their masters.
    pub(super) fn begin_hosts(&mut self) {
        for (id, group, kind) in self.topology.hosts() {
            if let HostKind::Replica(_) = kind {
                let master = self.topology.master(group);
                self.follow(id, master);
            }
            let Group { replicas, .. } = self.topology.groups[group];
            if replicas > 0 && !matches!(kind, HostKind::Sentinel(_)) {
                self.plan(CLEAN_MS, Event::Clean(id));
            }
        }
    }

    /// A server removes what has expired, and replicas learn of it.
    pub(super) fn clean(&mut self, id: HostId) {
        self.plan(self.now + CLEAN_MS, Event::Clean(id));
        if self.runs(id) {
            let host = self.host_mut(id);
            let date = host.date();
            let outputs = host.server().tick(date);
            self.emit(outputs);
            self.follow_up(id);
        }
    }

    /// Whether the host does anything.
    pub(super) fn runs(&self, id: HostId) -> bool {
        self.host(id).is_up && !self.host(id).is_frozen
    }

    /// A server becomes a replica of another, or will be one when it is back.
    pub(super) fn follow(&mut self, id: HostId, master: HostId) {
        let mut above = Some(master);
        while let Some(host) = above {
            if host == id {
                // It would follow itself.
                return;
            }
            above = self.host(host).link.as_ref().map(|link| link.master);
        }
        self.leave_master(id);
        self.host_mut(id).link = Some(Link::to(master));
        if !self.host(id).is_up {
            return;
        }
        let outputs = self.host_mut(id).server().follow();
        self.emit(outputs);
        self.join(id);
        // Those that followed it ask it anew.
        self.join_replicas(id);
    }

    /// A replica is none any more, or gets another master.
    fn leave_master(&mut self, id: HostId) {
        self.detach(id);
        self.host_mut(id).link = None;
    }

    /// Its master, if it has one, learns that a replica is gone.
    fn detach(&mut self, id: HostId) {
        let Some(link) = &self.host(id).link else {
            return;
        };
        // A master that cannot be reached goes on waiting for it.
        let master = link.master;
        if !self.is_cut(id, link) && self.host(master).is_up {
            let (name, port) = self.host(id).name.clone();
            self.host_mut(master).server().detach(&name, port);
        }
    }

    fn replicas_of(&self, master: HostId) -> Vec<HostId> {
        let hosts = self.hosts.iter();
        let of = hosts.filter(|host| host.link.as_ref().is_some_and(|link| link.master == master));
        of.map(|host| host.id).collect()
    }

    fn join_replicas(&mut self, master: HostId) {
        for replica in self.replicas_of(master) {
            self.join(replica);
        }
    }

    /// A replica asks its master for all that it does not have, as soon as it can.
    pub(super) fn join(&mut self, id: HostId) {
        let host = self.host(id);
        let Some(link) = &host.link else {
            return;
        };
        let (master, is_cut) = (link.master, self.is_cut(id, link));
        if is_cut || !self.runs(id) || !self.runs(master) {
            if let Some(link) = &mut self.host_mut(id).link {
                link.is_in_sync = false;
            }
            if self.host(id).is_up {
                self.plan(self.now + AGAIN_MS, Event::Join(id));
            }
            return;
        }
        let (name, port) = self.host(id).name.clone();
        let has = self.host_mut(id).server().position();
        let there = self.host_mut(master).server();
        let sync = there.attach(&name, port, Some(&has));
        let host = self.host_mut(id);
        host.server().synchronize(sync);
        let has = host.server().position().offset;
        if let Some(link) = &mut host.link {
            (link.is_in_sync, link.told) = (true, has);
            link.under_way.clear();
        }
        // Its own replicas were detached by that.
        self.join_replicas(id);
        self.tell_replicas(master);
        self.acknowledge(id);
    }

    /// A replica tries again, if it has to.
    pub(super) fn join_if_needed(&mut self, id: HostId) {
        let link = self.host(id).link.as_ref();
        if link.is_some_and(|link| !link.is_in_sync) {
            self.join(id);
        }
    }

    /// Sends what a server has changed to its replicas.
    pub(super) fn tell_replicas(&mut self, master: HostId) {
        if self.topology.groups[self.host(master).group].replicas == 0 {
            return;
        }
        let Service::Server(server) = &self.host(master).service else {
            return;
        };
        let (now, offset) = (self.now, server.position().offset);
        for id in self.replicas_of(master) {
            let Some(link) = &mut self.host_mut(id).link else {
                continue;
            };
            if !link.is_in_sync || link.told >= offset {
                continue;
            }
            link.told = offset;
            let last = link.under_way.back().map_or(0, |(due, _)| *due);
            let due = last.max(now + link.lag);
            link.under_way.push_back((due, offset));
            self.plan(due, Event::Replicate(id));
        }
    }

    /// What a master has changed may arrive at a replica.
    pub(super) fn replicate(&mut self, id: HostId) {
        let (now, runs) = (self.now, self.runs(id));
        let link = self.host(id).link.as_ref();
        if !runs || link.is_none_or(|link| self.is_cut(id, link) || !link.is_in_sync) {
            return;
        }
        let Some(link) = &mut self.host_mut(id).link else {
            return;
        };
        let master = link.master;
        let mut until = None;
        while let Some((due, offset)) = link.under_way.front().copied()
            && due <= now
        {
            link.under_way.pop_front();
            until = Some(offset);
        }
        let Some(until) = until else {
            return;
        };
        let host = self.host_mut(id);
        let (date, has) = (host.date(), host.server().position().offset);
        let Some(changes) = self.host_mut(master).server().changes_after(has) else {
            return self.join(id);
        };
        for change in changes.iter().filter(|change| change.end <= until) {
            let outputs = self.host_mut(id).server().apply(change, date);
            self.emit(outputs);
        }
        self.tell_replicas(id);
        self.acknowledge(id);
    }

    /// A replica tells its master how far it has come.
    fn acknowledge(&mut self, id: HostId) {
        let host = self.host_mut(id);
        let offset = host.server().position().offset;
        let lag = host.link.as_ref().map_or(0, |link| link.lag);
        self.plan(self.now + lag, Event::Acknowledge(id, offset));
    }

    /// A master learns how far a replica has come.
    pub(super) fn acknowledged(&mut self, id: HostId, offset: u64) {
        let Some(link) = &self.host(id).link else {
            return;
        };
        let (master, arrives) = (link.master, !self.is_cut(id, link) && link.is_in_sync);
        if !arrives || !self.runs(master) {
            return;
        }
        let (name, port) = self.host(id).name.clone();
        let host = self.host_mut(master);
        let date = host.date();
        let outputs = host.server().acknowledge(&name, port, offset, date);
        self.emit(outputs);
        self.follow_up(master);
    }

    /// A server has died: its replicas notice that, and its master.
    pub(super) fn lose_replicas(&mut self, id: HostId) {
        if !self.host(id).is_server() {
            return;
        }
        for replica in self.replicas_of(id) {
            let host = self.host_mut(replica);
            host.lose_link();
            if host.is_up {
                self.plan(self.now + AGAIN_MS, Event::Join(replica));
            }
        }
        self.detach(id);
        self.host_mut(id).lose_link();
    }

    /// A server that died is back: it is what it was.
    pub(super) fn join_again(&mut self, id: HostId) {
        if self.host(id).link.is_some() {
            let outputs = self.host_mut(id).server().follow();
            self.emit(outputs);
            self.join(id);
        }
        self.join_replicas(id);
    }

    /// The way to its master works again, and is as fast as ever.
    pub(super) fn heal_replica(&mut self, id: HostId) {
        if let Some(link) = &mut self.host_mut(id).link {
            link.lag = LAG_MS;
            self.cut_replica(id, false);
        }
    }

    /// Groups without Sentinels the address of which leads to a replica: nobody tells processes of the new master.
    pub(super) fn misled(&self) -> Vec<u32> {
        let main = |group: usize| self.host(self.topology.master(group));
        let groups = self.unwatched().into_iter();
        let misled = groups.filter(|group| main(*group).link.is_some());
        misled.map(|group| group as u32).collect()
    }

    fn unwatched(&self) -> Vec<usize> {
        let Topology { groups, cluster } = &self.topology;
        let is_unwatched = |group: &usize| {
            let Group {
                replicas,
                sentinels,
            } = groups[*group];
            cluster.is_none() && replicas > 0 && sentinels == 0
        };
        (0..groups.len()).filter(is_unwatched).collect()
    }

    /// Where no Sentinels do that: the first master of each group is its master again, and all others follow it.
    pub(super) fn restore_roles(&mut self) {
        for group in self.unwatched() {
            let servers = self.topology.servers(group);
            let (main, others) = (servers[0], &servers[1..]);
            if self.host(main).link.is_some() {
                self.promote(main);
            }
            for other in others {
                let link = self.host(*other).link.as_ref();
                if link.is_none_or(|link| link.master != main) {
                    self.follow(*other, main);
                }
            }
        }
    }

    fn is_cut(&self, id: HostId, link: &Link) -> bool {
        link.is_cut || self.bus.is_cut(id, link.master)
    }

    fn cut_replica(&mut self, id: HostId, on: bool) {
        if let Some(link) = &mut self.host_mut(id).link {
            link.is_cut = on;
            if !on {
                self.join_soon(id);
            }
        }
    }

    /// The way to its master may work again.
    pub(super) fn join_soon(&mut self, id: HostId) {
        self.plan(self.now, Event::Replicate(id));
        self.plan(self.now, Event::Join(id));
    }

    pub(super) fn apply_to_group(&mut self, fault: &Fault) {
        match *fault {
            Fault::ReplicaLag { host, ms } => {
                if let Some(link) = &mut self.host_mut(host).link {
                    link.lag = ms.max(LAG_MS);
                }
            }
            Fault::ReplicaCut { host, on } => self.cut_replica(host, on),
            Fault::Promote { host } if self.topology.cluster.is_some() => self.demand(host),
            Fault::Promote { host } => self.promote(host),
            Fault::Bus { host, to, ms } => self.set_way(host, to, ms),
            Fault::Demote { host, of } => self.follow(host, of),
            Fault::Opinion {
                sentinel,
                master,
                epoch,
            } => {
                let (host, port) = self.host(master).name.clone();
                if let Service::Sentinel(sentinel) = &mut self.host_mut(sentinel).service {
                    sentinel.set(MASTER_NAME, Some(Opinion { host, port, epoch }));
                }
            }
            Fault::Failover {
                group,
                to,
                epoch,
                learn_ms,
                demote_ms,
            } => self.fail_over(group as usize, to, epoch, (learn_ms, demote_ms)),
            _ => {}
        }
    }

    pub(super) fn promote(&mut self, id: HostId) {
        if !self.host(id).is_up {
            return;
        }
        self.leave_master(id);
        self.host_mut(id).server().promote();
        self.join_replicas(id);
    }

    fn fail_over(&mut self, group: usize, to: HostId, epoch: u64, (learn, demote): (u64, u64)) {
        self.promote(to);
        self.failovers.insert(group, epoch);
        let mut dice = Dice::of(self.seed, &format!("failover {group} {epoch}"));
        for sentinel in 0..self.topology.groups[group].sentinels {
            let sentinel = self.topology.sentinel(group, sentinel);
            let opinion = Fault::Opinion {
                sentinel,
                master: to,
                epoch,
            };
            let at = self.now + dice.between(0, learn);
            self.plan(at, Event::Follow(group, epoch, opinion));
        }
        for host in self.topology.servers(group) {
            if host != to {
                let demoted = Fault::Demote { host, of: to };
                self.plan(self.now + demote, Event::Follow(group, epoch, demoted));
            }
        }
    }
}
