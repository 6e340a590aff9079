//! Hosts: a simulated server or Sentinel each, with a clock, and what happens to it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::agenda::Event;
use super::clock::SimClock;
use super::fault::Memory;
use super::network::Packet;
use super::replicas::Link;
use super::state::State;
use super::topology::{HostId, HostKind, Topology};
use crate::dice::Dice;
use crate::server::{Dialect, Image, Output, Sentinel, Server};

/// What runs on a host.
#[derive(Debug)]
pub(super) enum Service {
    Server(Box<Server>),
    Sentinel(Box<Sentinel>),
}

#[derive(Debug)]
pub(super) struct Host {
    pub(super) id: HostId,
    /// Which group it belongs to.
    pub(super) group: usize,
    pub(super) name: (String, u16),
    pub(super) service: Service,
    pub(super) clock: Arc<SimClock>,
    dice: Dice,
    pub(super) is_up: bool,
    /// It is down, and whoever tries to connect hears nothing.
    pub(super) fell_silent: bool,
    pub(super) is_frozen: bool,
    /// How often it has died.
    pub(super) life: u32,
    /// What it will have when it is back.
    kept: Option<Image>,
    /// Its master, if it is a replica.
    pub(super) link: Option<Link>,
    /// For when its next tick is planned.
    next_tick: Option<u64>,
}

/// A key of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredKey {
    pub key: Vec<u8>,
    /// What it holds, if that is a string.
    pub text: Option<Vec<u8>>,
    /// In how many milliseconds it ends, by the clock of the server.
    pub expires_in_ms: Option<i64>,
}

impl Host {
    pub(super) fn new(
        seed: u64,
        topology: &Topology,
        id: HostId,
        group: usize,
        kind: HostKind,
        start: Instant,
    ) -> Self {
        let uptime = Duration::from_secs(500_000 + 77 * u64::from(id.0));
        let clock = Arc::new(SimClock::new(start, uptime));
        let mut dice = Dice::of(seed, &format!("host {}", id.0));
        let name = topology.address(id);
        let service = match kind {
            HostKind::Sentinel(_) => Service::Sentinel(Box::new(super::replicas::new_sentinel(
                topology, group, &mut dice,
            ))),
            HostKind::Master | HostKind::Replica(_) => {
                let dialect = *dice.pick(&Dialect::ALL);
                let server = Server::new(dialect, dice.roll(), clock.unix_micros());
                Service::Server(Box::new(server))
            }
        };
        Self {
            id,
            group,
            name,
            service,
            clock,
            dice,
            is_up: true,
            fell_silent: false,
            is_frozen: false,
            life: 0,
            kept: None,
            link: None,
            next_tick: None,
        }
    }

    /// The server.
    ///
    /// # Panics
    ///
    /// If it is a Sentinel.
    pub(super) fn server(&mut self) -> &mut Server {
        match &mut self.service {
            Service::Server(server) => server,
            Service::Sentinel(_) => panic!("{} is a Sentinel", self.id),
        }
    }

    pub(super) const fn is_server(&self) -> bool {
        matches!(self.service, Service::Server(_))
    }

    /// What its clock shows, in microseconds since 1970.
    pub(super) fn date(&self) -> u64 {
        self.clock.unix_micros()
    }

    pub(super) fn connect(&mut self, connection: u64) {
        match &mut self.service {
            Service::Server(server) => server.connect(connection),
            Service::Sentinel(sentinel) => sentinel.connect(connection),
        }
    }

    pub(super) fn disconnect(&mut self, connection: u64) {
        match &mut self.service {
            Service::Server(server) => server.disconnect(connection),
            Service::Sentinel(sentinel) => sentinel.disconnect(connection),
        }
    }

    fn receive(&mut self, connection: u64, bytes: &[u8]) -> Vec<Output> {
        let now = self.date();
        match &mut self.service {
            Service::Server(server) => server.receive(connection, bytes, now),
            Service::Sentinel(sentinel) => sentinel.receive(connection, bytes),
        }
    }

    /// What clients would find now.
    pub(super) fn keys(&self) -> Vec<StoredKey> {
        let now = self.date();
        let Service::Server(server) = &self.service else {
            return Vec::new();
        };
        let stored = |(key, until): (Vec<u8>, Option<i64>)| StoredKey {
            text: server.text(&key, now).map(<[u8]>::to_vec),
            expires_in_ms: until.map(|until| until - (now / 1_000) as i64),
            key,
        };
        server.keys(now).into_iter().map(stored).collect()
    }

    /// What a field of a hash holds.
    pub(super) fn field(&mut self, key: &str, field: &str) -> Option<String> {
        let now = self.date();
        let text = self.server().field(key.as_bytes(), field.as_bytes(), now)?;
        Some(String::from_utf8_lossy(text).into_owned())
    }

    /// Another client overwrites a counter, if there is one.
    pub(super) fn scribble(&mut self, seed: u64) {
        let is_counter =
            |stored: &StoredKey| String::from_utf8_lossy(&stored.key).contains("!fence:");
        let counters: Vec<StoredKey> = self.keys().into_iter().filter(is_counter).collect();
        if counters.is_empty() {
            return;
        }
        let mut dice = Dice::of(seed, "scribble");
        let StoredKey {
            key, expires_in_ms, ..
        } = dice.pick(&counters).clone();
        // It stays for as long as what it replaces.
        let time = expires_in_ms.unwrap_or(10_000).max(1).to_string();
        const NONSENSE: [&[u8]; 5] = [b"nonsense", b"9223372036854775807", b"-5", b"007", b""];
        let text = *dice.pick(&NONSENSE);
        self.command(&[b"DEL", &key]);
        match dice.chance(1, 6) {
            true => self.command(&[b"HSET", &key, b"field", text]),
            false => self.command(&[b"SET", &key, text, b"PX", time.as_bytes()]),
        }
    }

    /// A client that no process is runs a command.
    fn command(&mut self, words: &[&[u8]]) {
        const OTHER: u64 = u64::MAX;
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            bytes.extend_from_slice(word);
            bytes.extend_from_slice(b"\r\n");
        }
        self.connect(OTHER);
        self.receive(OTHER, &bytes);
        self.disconnect(OTHER);
    }

    /// What it will know after a crash.
    fn image_after_crash(&mut self, memory: Memory) -> Option<Image> {
        let now = self.date();
        let mut dice = self.dice.clone();
        let server = self.server();
        let image = match memory {
            Memory::All => server.image(),
            Memory::None => return None,
            Memory::Some { percent } => {
                let lost = |_: &[u8]| !dice.chance(percent as usize, 100);
                server.image().without(lost)
            }
            Memory::Old { age_ms } => server.image_before(now.saturating_sub(age_ms * 1_000)),
        };
        self.dice = dice;
        Some(image)
    }
}

impl State {
    /// The host whose address this is.
    pub(super) fn host_called(&self, name: &str, port: u16) -> Option<HostId> {
        let is_it = |host: &&Host| host.name.0 == name && host.name.1 == port;
        self.hosts.iter().find(is_it).map(|host| host.id)
    }

    /// Bytes arrive at a host that runs.
    pub(super) fn host_receives(&mut self, id: HostId, connection: u64, bytes: &[u8]) {
        let outputs = self.host_mut(id).receive(connection, bytes);
        self.emit(outputs);
        self.follow_up(id);
    }

    /// Sends what a host says.
    pub(super) fn emit(&mut self, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Send(connection, bytes) => {
                    self.send(connection, super::network::BACK, Packet::Bytes(bytes));
                }
                Output::Close(connection) => self.end_at_host(connection, Packet::End),
            }
        }
    }

    /// Plans what follows from what a server did: its next tick, and the way of its changes to its replicas.
    pub(super) fn follow_up(&mut self, id: HostId) {
        self.tell_replicas(id);
        let now = self.now;
        let host = self.host_mut(id);
        let date = host.date();
        let Service::Server(server) = &host.service else {
            return;
        };
        let Some(due) = server.next_due() else {
            host.next_tick = None;
            return;
        };
        let at = now + due.saturating_sub(date).div_ceil(1_000);
        if host.next_tick != Some(at) {
            host.next_tick = Some(at);
            self.plan(at, Event::Tick(id));
        }
    }

    /// Time has passed on a server.
    pub(super) fn tick(&mut self, id: HostId) {
        let now = self.now;
        let host = self.host_mut(id);
        if !host.is_up || host.is_frozen || host.next_tick != Some(now) {
            return;
        }
        host.next_tick = None;
        let date = host.date();
        let outputs = host.server().tick(date);
        self.emit(outputs);
        self.follow_up(id);
    }

    /// A host dies, and is back after some time.
    pub(super) fn crash(&mut self, id: HostId, memory: Memory, back_after_ms: u64, silent: bool) {
        let back_at = self.now + back_after_ms;
        let host = self.host_mut(id);
        host.life += 1;
        let life = host.life;
        // One that dies again while it is down keeps what it had, or less.
        if host.is_up && host.is_server() {
            host.kept = host.image_after_crash(memory);
        } else if memory == Memory::None {
            host.kept = None;
        }
        host.is_up = false;
        host.is_frozen = false;
        host.fell_silent = silent;
        host.next_tick = None;
        self.cut_off(id, silent);
        self.lose_replicas(id);
        self.plan(back_at, Event::Back(id, life));
    }

    /// A host that died is back, unless it has died again.
    pub(super) fn come_back(&mut self, id: HostId, life: u32) {
        let host = self.host_mut(id);
        if host.is_up || host.life != life {
            return;
        }
        host.is_up = true;
        let (kept, date) = (host.kept.take(), host.date());
        match &mut host.service {
            Service::Server(server) => server.restart(kept, date),
            // Sentinels write down what they know.
            Service::Sentinel(_) => {}
        }
        self.trace.note(None, format_args!("{id} is back"));
        self.join_again(id);
        self.stir(|known| known.host == id);
    }

    /// A host that stood still goes on.
    pub(super) fn thaw(&mut self, id: HostId) {
        self.host_mut(id).is_frozen = false;
        self.stir(|known| known.host == id);
        if self.host(id).is_server() && self.host(id).is_up {
            self.follow_up(id);
        }
    }
}
