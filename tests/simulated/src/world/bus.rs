//! The bus of a cluster: what its servers tell each other, over ways that can be slow or cut, and what becomes of them.
//!
//! A message is lost if the way is cut, or its receiver down or frozen, when it arrives. Those of one way stay in order.

use std::collections::BTreeMap;

use super::agenda::Event;
use super::state::State;
use super::topology::{HostId, HostKind};
use crate::dice::Dice;
use crate::server::{Cluster, Packet, Server, Step};

/// What a server of a cluster becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The master of its slots.
    Master,
    Replica,
}

#[derive(Debug)]
pub(super) struct Bus {
    /// How many milliseconds messages take, where that is not as ever; none: the way is cut.
    ways: BTreeMap<(HostId, HostId), Option<u64>>,
    /// When the last message arrives, each way.
    last: BTreeMap<(HostId, HostId), u64>,
    dice: Dice,
    pub(super) turns: Vec<(HostId, Turn)>,
}

/// How often servers tell what they know.
const BEAT_MS: u64 = 100;
/// How long a message takes at most, if nothing is wrong.
const DELAY_MS: u64 = 3;

fn both(one: HostId, two: HostId) -> (HostId, HostId) {
    (one.min(two), one.max(two))
}

impl Bus {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            ways: BTreeMap::new(),
            last: BTreeMap::new(),
            dice: Dice::of(seed, "bus"),
            turns: Vec::new(),
        }
    }

    pub(super) fn is_cut(&self, one: HostId, two: HostId) -> bool {
        self.ways.get(&both(one, two)) == Some(&None)
    }

    pub(super) fn heal(&mut self) {
        self.ways.clear();
    }

    /// When a message that is sent now arrives.
    fn arrival(&mut self, from: HostId, to: HostId, now: u64) -> Option<u64> {
        let delay = match self.ways.get(&both(from, to)) {
            Some(way) => (*way)?,
            None => self.dice.between(1, DELAY_MS),
        };
        let last = self.last.entry((from, to)).or_default();
        *last = (now + delay).max(*last);
        Some(*last)
    }
}

impl State {
    pub(super) fn begin_bus(&mut self) {
        let Some(timeout) = self.topology.cluster else {
            return;
        };
        let hosts = self.topology.hosts();
        let main = |(id, group, kind): &(HostId, usize, HostKind)| match kind {
            HostKind::Master => (self.host(*id).name.clone(), None),
            _ => {
                let master = self.topology.master(*group);
                (self.host(*id).name.clone(), Some(master.0 as usize))
            }
        };
        let servers: Vec<_> = hosts.iter().map(main).collect();
        for (id, ..) in hosts {
            let host = self.host_mut(id);
            let date = host.date();
            let cluster = Cluster::new(id.0 as usize, &servers, timeout, date);
            host.server().join_cluster(cluster);
            self.plan(1 + 7 * u64::from(id.0), Event::Beat(id));
        }
    }

    pub(super) fn beat(&mut self, id: HostId) {
        self.plan(self.now + BEAT_MS, Event::Beat(id));
        self.in_cluster(id, Server::tick_cluster);
    }

    pub(super) fn hear(&mut self, id: HostId, packet: &Packet) {
        if !self.bus.is_cut(HostId(packet.from as u32), id) {
            self.in_cluster(id, |server, date| server.hear(packet, date));
        }
    }

    /// A server is told to take the place of its master.
    pub(super) fn demand(&mut self, id: HostId) {
        self.in_cluster(id, Server::demand_failover);
    }

    fn in_cluster(&mut self, id: HostId, work: impl FnOnce(&mut Server, u64) -> Vec<Step>) {
        if self.runs(id) {
            let host = self.host_mut(id);
            let date = host.date();
            let steps = work(host.server(), date);
            self.take_steps(id, steps);
        }
    }

    pub(super) fn set_way(&mut self, one: HostId, two: HostId, ms: Option<u64>) {
        match ms {
            Some(0) => self.bus.ways.remove(&both(one, two)),
            _ => self.bus.ways.insert(both(one, two), ms),
        };
        if ms.is_some() {
            self.join_soon(one);
            self.join_soon(two);
        }
    }

    fn take_steps(&mut self, id: HostId, steps: Vec<Step>) {
        for step in steps {
            match step {
                Step::Tell(to, packet) => {
                    let to = HostId(to as u32);
                    if let Some(at) = self.bus.arrival(id, to, self.now) {
                        self.plan(at, Event::Hear(to, packet));
                    }
                }
                Step::Promote(epoch) => {
                    self.promote(id);
                    self.turns(id, Turn::Master, &format!("is elected in epoch {epoch}"));
                }
                Step::Follow(master) => {
                    self.follow(id, HostId(master as u32));
                    self.turns(id, Turn::Replica, &format!("follows h{master}"));
                }
            }
        }
        let outputs = self.host_mut(id).server().take_outputs();
        self.emit(outputs);
    }

    fn turns(&mut self, id: HostId, turn: Turn, text: &str) {
        self.trace.note(None, format_args!("{id} {text}"));
        self.bus.turns.push((id, turn));
    }
}
