//! The network: connections between processes and hosts, and what happens to their bytes on the way.

use std::collections::VecDeque;
use std::task::Waker;

use super::agenda::Event;
use super::fault::Way;
use super::process::{self, ProcessId};
use super::state::State;
use super::topology::HostId;
use crate::dice::Dice;

/// What is wrong between one place of processes and one host.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    pub(super) delay: (u64, u64),
    held: [bool; 2],
    lossy: [bool; 2],
    pub(super) refused: bool,
    pub(super) drain_late: u64,
    /// How many connections there were; each has dice of its own.
    made: u64,
    /// When something arrived at the host after it was held up, and for how long that had been.
    late: Vec<(u64, u64)>,
}

impl Default for Pair {
    fn default() -> Self {
        Self {
            delay: (0, 1),
            held: [false; 2],
            lossy: [false; 2],
            refused: false,
            drain_late: 0,
            made: 0,
            late: Vec::new(),
        }
    }
}

impl Pair {
    pub(super) fn hold(&mut self, way: Way) {
        mark(&mut self.held, way);
    }

    pub(super) fn lose(&mut self, way: Way) {
        mark(&mut self.lossy, way);
    }

    /// Ends everything that is wrong, but not what has happened.
    pub(super) fn heal(&mut self) {
        let (made, late) = (self.made, std::mem::take(&mut self.late));
        *self = Self {
            made,
            late,
            ..Self::default()
        };
    }

    /// Whether something arrived at the host since `from` that had been held up for longer than `span`.
    pub(super) fn was_late(&self, from: u64, span: u64) -> bool {
        self.late.iter().any(|(at, by)| *at >= from && *by > span)
    }

    fn blocks_new(&self) -> bool {
        self.held.contains(&true) || self.lossy.contains(&true)
    }
}

fn mark(lanes: &mut [bool; 2], way: Way) {
    lanes[THERE] |= way != Way::Back;
    lanes[BACK] |= way != Way::There;
}

/// From the process to the host.
pub(super) const THERE: usize = 0;
/// From the host to the process.
pub(super) const BACK: usize = 1;

/// What goes over a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Packet {
    Bytes(Vec<u8>),
    /// The sender sends nothing more.
    End,
    /// The other side knows nothing of the connection.
    Reset,
}

/// One direction of a connection. First in, first out.
#[derive(Debug, Default)]
struct Lane {
    /// Each with the time from which on it can arrive.
    packets: VecDeque<(u64, Packet)>,
    /// Something was lost, so that nothing can follow.
    lost: bool,
}

/// How the connection has ended for the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Closed,
    Reset,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) process: ProcessId,
    pub(super) host: HostId,
    dice: Dice,
    lanes: [Lane; 2],
    /// What has arrived at the process and was not read.
    pub(super) inbox: Vec<u8>,
    pub(super) reader: Option<Waker>,
    /// Whether the process has it still.
    has_client: bool,
    pub(super) ended: Option<Ended>,
    /// Whether the host has it still.
    pub(super) at_host: bool,
    /// What is written is delivered a second time, so much later, on that connection.
    double: Option<(u64, u64)>,
}

impl Connection {
    /// Between whom it is.
    const fn pair(&self) -> (u32, HostId) {
        (self.process.place, self.host)
    }

    pub(super) fn is_of(&self, place: u32, host: HostId) -> bool {
        self.pair() == (place, host)
    }

    /// Nothing of it is left that could still happen.
    fn is_over(&self) -> bool {
        !self.has_client && !self.at_host && self.lanes[THERE].packets.is_empty()
    }

    /// Nothing that is on its way to the host arrives.
    pub(super) fn lose_all(&mut self) {
        self.lanes[THERE].packets.clear();
        self.lanes[THERE].lost = true;
    }
}

/// What comes of an attempt to connect.
pub(super) enum Attempt {
    Made(u64),
    Refused,
    /// Until something changes.
    Wait,
}

/// How long a connection that carries nothing any more is there before it breaks.
const DEAD_FOR_MS: (u64, u64) = (4_000, 12_000);

impl State {
    pub(super) fn pair(&mut self, place: u32, host: HostId) -> &mut Pair {
        self.pairs.entry((place, host)).or_default()
    }

    /// How long a message takes one way.
    fn delay(&mut self, id: u64) -> u64 {
        let Some(connection) = self.connections.get_mut(&id) else {
            return 0;
        };
        let (least, most) = self.pairs.entry(connection.pair()).or_default().delay;
        connection.dice.between(least, most)
    }

    /// How long it takes to set up a connection.
    pub(super) fn round_trip(&mut self, process: ProcessId, host: HostId) -> u64 {
        let (least, most) = self.pair(process.place, host).delay;
        least + most
    }

    /// Tries to connect to a host.
    pub(super) fn try_connect(&mut self, process: ProcessId, host: HostId) -> Attempt {
        let pair = self.pair(process.place, host);
        if pair.refused {
            return Attempt::Refused;
        }
        if pair.blocks_new() {
            return Attempt::Wait;
        }
        let there = self.host(host);
        if !there.is_up {
            return match there.fell_silent {
                true => Attempt::Wait,
                false => Attempt::Refused,
            };
        }
        let id = self.open(process, host, true);
        let aside = if process::is_aside() { " aside" } else { "" };
        let text = format_args!("connects{aside} to {host} as #{id}");
        self.trace.detail(Some(process), text);
        Attempt::Made(id)
    }

    fn open(&mut self, process: ProcessId, host: HostId, has_client: bool) -> u64 {
        let pair = self.pair(process.place, host);
        pair.made += 1;
        let purpose = format!("connection {process} {} {}", host.0, pair.made);
        let id = self.next_connection;
        self.next_connection += 1;
        let connection = Connection {
            process,
            host,
            dice: Dice::of(self.seed, &purpose),
            lanes: Default::default(),
            inbox: Vec::new(),
            reader: None,
            has_client,
            ended: None,
            at_host: true,
            double: None,
        };
        self.connections.insert(id, connection);
        self.host_mut(host).connect(id);
        id
    }

    /// The process writes.
    pub(super) fn write(&mut self, id: u64, bytes: &[u8]) {
        let known = self.connections.get(&id);
        let double = known.and_then(|known| known.double);
        if let Some(known) = known {
            self.trace.written(known.process, known.host, id, bytes);
        }
        self.send(id, THERE, Packet::Bytes(bytes.to_vec()));
        if let Some((late, ghost)) = double {
            let due = self.now + late;
            self.send_at(ghost, THERE, Packet::Bytes(bytes.to_vec()), due);
        }
    }

    /// Puts something on its way.
    pub(super) fn send(&mut self, id: u64, lane: usize, packet: Packet) {
        let due = self.now + self.delay(id);
        self.send_at(id, lane, packet, due);
    }

    fn send_at(&mut self, id: u64, lane: usize, packet: Packet, due: u64) {
        let now = self.now;
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        let loses = self.pairs.entry(connection.pair()).or_default().lossy[lane];
        let (dice, on) = (&mut connection.dice, &mut connection.lanes[lane]);
        if on.lost || loses {
            if !on.lost {
                on.lost = true;
                let breaks = now + dice.between(DEAD_FOR_MS.0, DEAD_FOR_MS.1);
                self.plan(breaks, Event::Break(id));
            }
            return;
        }
        let last = on.packets.back().map_or(0, |(due, _)| *due);
        let due = due.max(last);
        on.packets.push_back((due, packet));
        self.plan(due, Event::Arrive(id, lane));
    }

    /// Delivers what can arrive in one direction of a connection.
    pub(super) fn arrive(&mut self, id: u64, lane: usize) {
        while let Some(packet) = self.next_packet(id, lane) {
            match lane {
                THERE => self.arrive_at_host(id, packet),
                _ => self.arrive_at_process(id, packet),
            }
        }
        if self.connections.get(&id).is_some_and(Connection::is_over) {
            self.connections.remove(&id);
        }
    }

    fn next_packet(&mut self, id: u64, lane: usize) -> Option<Packet> {
        let now = self.now;
        let connection = self.connections.get_mut(&id)?;
        let pair = self.pairs.entry(connection.pair()).or_default();
        if pair.held[lane] {
            return None;
        }
        let host = &self.hosts[connection.host.0 as usize];
        if lane == THERE && (!host.is_up || host.is_frozen) {
            return None;
        }
        let packets = &mut connection.lanes[lane].packets;
        packets.front().filter(|(due, _)| *due <= now)?;
        let (due, packet) = packets.pop_front()?;
        if lane == THERE && now > due {
            pair.late.push((now, now - due));
        }
        Some(packet)
    }

    fn arrive_at_host(&mut self, id: u64, packet: Packet) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        let (process, host) = (connection.process, connection.host);
        match packet {
            // The host was started anew meanwhile, or has ended the connection.
            Packet::Bytes(_) if !connection.at_host => self.send(id, BACK, Packet::Reset),
            Packet::Bytes(bytes) => {
                self.trace.carried(process, host, id, true, &bytes);
                self.host_receives(host, id, &bytes);
            }
            Packet::End | Packet::Reset => self.leave_host(id),
        }
    }

    /// The host learns that the connection has ended.
    fn leave_host(&mut self, id: u64) {
        if let Some(connection) = self.connections.get_mut(&id)
            && std::mem::take(&mut connection.at_host)
        {
            let host = connection.host;
            self.host_mut(host).disconnect(id);
        }
    }

    fn arrive_at_process(&mut self, id: u64, packet: Packet) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        if !connection.has_client || connection.ended.is_some() {
            return;
        }
        match packet {
            Packet::Bytes(bytes) => {
                let (process, host) = (connection.process, connection.host);
                connection.inbox.extend_from_slice(&bytes);
                self.trace.carried(process, host, id, false, &bytes);
            }
            Packet::End => connection.ended = Some(Ended::Closed),
            Packet::Reset => connection.ended = Some(Ended::Reset),
        }
        let reader = connection.reader.take();
        self.wakers.extend(reader);
    }

    /// The process gives up the connection. What it wrote may still arrive.
    pub(super) fn close(&mut self, id: u64) {
        let now = self.now;
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        if !std::mem::take(&mut connection.has_client) {
            return;
        }
        let reader = connection.reader.take();
        let pair = self.pairs.get(&connection.pair());
        let late = pair.map_or(0, |pair| pair.drain_late);
        if late > 0 {
            for (due, _) in &mut connection.lanes[THERE].packets {
                *due = (*due).max(now + late);
            }
        }
        // Never under the lock: what wakes may be the last that holds something.
        self.wakers.extend(reader);
        self.send(id, THERE, Packet::End);
        self.arrive(id, BACK);
    }

    /// The connection breaks on both sides, at once.
    pub(super) fn break_connection(&mut self, id: u64) {
        self.leave_host(id);
        if let Some(connection) = self.connections.get_mut(&id) {
            for lane in &mut connection.lanes {
                lane.packets.clear();
                lane.lost = true;
            }
            if connection.ended.is_none() {
                connection.ended = Some(Ended::Reset);
            }
            let reader = connection.reader.take();
            self.wakers.extend(reader);
        }
        self.arrive(id, THERE);
    }

    /// The host has ended the connection, after what it sent before; or it died.
    pub(super) fn end_at_host(&mut self, id: u64, last: Packet) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.at_host = false;
        }
        self.send(id, BACK, last);
    }

    /// A host dies: its connections end, and what it had not read is gone. In silence nobody learns of it.
    pub(super) fn cut_off(&mut self, host: HostId, silent: bool) {
        for id in self.connections_of(|known| known.host == host) {
            let Some(connection) = self.connections.get_mut(&id) else {
                continue;
            };
            let was_there = std::mem::take(&mut connection.at_host);
            connection.lanes[THERE].packets.clear();
            // Some of what it had sent may not have left the machine.
            if silent || connection.dice.chance(1, 2) {
                connection.lanes[BACK].packets.clear();
            }
            if was_there && !silent {
                self.send(id, BACK, Packet::Reset);
            }
            self.arrive(id, THERE);
        }
    }

    /// Everything that is written on connections of the pair from now on arrives twice.
    pub(super) fn double(&mut self, place: u32, host: HostId, late_ms: u64) {
        let carries = |known: &Connection| known.has_client && known.at_host;
        for id in self.connections_of(|known| known.is_of(place, host) && carries(known)) {
            let process = self.connections[&id].process;
            let ghost = self.open(process, host, false);
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.double = Some((late_ms, ghost));
            }
            self.plan(self.now + GHOST_FOR_MS, Event::Break(ghost));
        }
    }

    /// Ends the doubling of what a pair carries.
    pub(super) fn double_no_more(&mut self, place: u32, host: HostId) {
        for connection in self.connections.values_mut() {
            if connection.is_of(place, host) {
                connection.double = None;
            }
        }
    }

    /// The connections for which this is true, in order.
    pub(super) fn connections_of(&self, of: impl Fn(&Connection) -> bool) -> Vec<u64> {
        let all = self.connections.iter();
        let found = all.filter(|(_, connection)| of(connection));
        found.map(|(id, _)| *id).collect()
    }

    /// Something changed for a host or one of its pairs: what waited may arrive now.
    pub(super) fn stir(&mut self, of: impl Fn(&Connection) -> bool) {
        for id in self.connections_of(of) {
            self.plan(self.now, Event::Arrive(id, THERE));
            self.plan(self.now, Event::Arrive(id, BACK));
        }
        self.has_changed = true;
    }
}

/// How long a connection of doubles is there.
const GHOST_FOR_MS: u64 = 60_000;
