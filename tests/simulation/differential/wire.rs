//! The two sides that are compared: a real server and a simulated one, behind the same few calls.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, ErrorKind, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::dialects;
use super::plain::Plain;
use super::words::texts;
use crate::support::PATIENCE;
use crate::support::server::{Kind, Server as RealServer};
use tower_redlock_simulated::server::{Dialect, Output, Server};

/// What happens to a server beside the calls of its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// Its clock shows this, in microseconds since 1970, until it is set again.
    Clock(u64),
    /// It has no memory left, or has some again.
    OutOfMemory(bool),
    /// It evicts all keys, and has memory again.
    Evict,
}

/// A server and connections to it, by their numbers.
pub(super) trait Wire {
    /// Opens a connection, in place of the one with this number.
    fn open(&mut self, connection: usize);
    /// Sends bytes. What cannot be sent any more is lost, which the next [`read`](Self::read) tells.
    fn write(&mut self, connection: usize, bytes: &[u8]);
    /// The next message; `None` if the server has ended the connection.
    fn read(&mut self, connection: usize) -> Option<Plain>;
    fn do_event(&mut self, event: Event);
}

/// The bytes of a call.
pub(super) fn packed(words: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Sends a call and reads one message.
pub(super) fn ask(wire: &mut dyn Wire, connection: usize, words: &[&str]) -> Plain {
    wire.write(connection, &packed(&texts(words)));
    wire.read(connection).unwrap()
}

/// How long a server may take before it is nudged.
const NUDGE: Duration = Duration::from_millis(100);

/// A real server, whose clock stands still until it is set.
pub(super) struct Real {
    pub(super) server: RealServer,
    /// That of what the server says it is.
    pub(super) dialect: Dialect,
    connections: BTreeMap<usize, BufReader<UnixStream>>,
}

impl Real {
    pub(super) fn start(kind: Kind, now: u64) -> Self {
        let server = RealServer::start_clocked(kind);
        server.clocks().stop_at(now);
        let (dialect, remark) = dialects::of(&server.run("INFO server"));
        if let Some(remark) = remark {
            println!("{remark}");
        }
        Self {
            server,
            dialect,
            connections: BTreeMap::new(),
        }
    }

    pub(super) fn wait_until_expired_keys_are_gone(&self) {
        // Those in their last millisecond may go at any time.
        let early = if self.dialect.removes_early() { 0 } else { -2 };
        let seen = format!(
            "local seen = 0 for _, key in ipairs(redis.call('KEYS', '*')) do \
             if redis.call('PTTL', key) ~= {early} then seen = seen + 1 end end return seen"
        );
        let begin = Instant::now();
        let mut raw = self.server.raw();
        loop {
            let stored = raw.command(&["DBSIZE"]).unwrap();
            let seen = raw.command(&["EVAL", &seen, "0"]).unwrap();
            if stored == seen {
                break;
            }
            let waited = begin.elapsed();
            assert!(waited < PATIENCE, "{stored} keys, and {seen} that live");
        }
    }
}

impl Wire for Real {
    fn open(&mut self, connection: usize) {
        let stream = UnixStream::connect(self.server.socket()).unwrap();
        self.connections.insert(connection, BufReader::new(stream));
    }

    fn write(&mut self, connection: usize, bytes: &[u8]) {
        let stream = self.connections.get_mut(&connection).unwrap();
        let _ = stream.get_mut().write_all(bytes);
    }

    fn read(&mut self, connection: usize) -> Option<Plain> {
        let stream = self.connections.get_mut(&connection).unwrap();
        let begin = Instant::now();
        // A server that nobody talks to may not notice that its clock was set.
        stream.get_ref().set_read_timeout(Some(NUDGE)).unwrap();
        let is_silent = |error: std::io::Error| error.kind() == ErrorKind::WouldBlock;
        while stream.fill_buf().is_err_and(is_silent) {
            let waited = begin.elapsed();
            assert!(waited < PATIENCE, "the real server has not answered");
            self.server.run("PING");
        }
        stream.get_ref().set_read_timeout(Some(PATIENCE)).unwrap();
        Plain::parse(stream)
    }

    fn do_event(&mut self, event: Event) {
        match event {
            Event::Clock(now) => {
                self.server.clocks().stop_at(now);
                // A server looks at its clock now and then.
                let begin = Instant::now();
                let mut raw = self.server.raw();
                let shown = format!("server_time_usec:{now}\r\n");
                while !raw.command(&["INFO", "server"]).unwrap().contains(&shown) {
                    let waited = begin.elapsed();
                    assert!(waited < PATIENCE, "the real server's clock is not {now}");
                }
                if self.dialect.removes_early() && self.server.info("role") == "master" {
                    self.wait_until_expired_keys_are_gone();
                }
            }
            Event::OutOfMemory(yes) => {
                let limit = u8::from(yes);
                self.server.run(&format!("CONFIG SET maxmemory {limit}"));
            }
            Event::Evict => {
                // Keys that have expired would be counted, if they are still there.
                self.wait_until_expired_keys_are_gone();
                self.server
                    .run("CONFIG SET maxmemory-policy allkeys-random");
                self.server.run("CONFIG SET maxmemory 1");
                // Before each command it evicts for some time, and then goes on in the background.
                while self.server.run("INFO keyspace").contains("db") {}
                self.server.run("CONFIG SET maxmemory 0");
                self.server.run("CONFIG SET maxmemory-policy noeviction");
            }
        }
    }
}

/// A simulated server.
pub(super) struct Simulated {
    pub(super) server: Server,
    now: u64,
    /// The server's number of each connection.
    numbers: BTreeMap<usize, u64>,
    next: u64,
    /// What was sent on each, and whether it has ended.
    sent: BTreeMap<u64, (VecDeque<u8>, bool)>,
}

impl Simulated {
    pub(super) fn start(dialect: Dialect, now: u64) -> Self {
        Self::start_as(dialect, now, 0)
    }

    /// One of several, each of which has another number.
    pub(super) fn start_as(dialect: Dialect, now: u64, number: u64) -> Self {
        Self {
            server: Server::new(dialect, number, now),
            now,
            numbers: BTreeMap::new(),
            next: 0,
            sent: BTreeMap::new(),
        }
    }

    pub(super) const fn now(&self) -> u64 {
        self.now
    }

    /// Takes what the server sends.
    pub(super) fn take(&mut self, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Send(number, bytes) => {
                    self.sent.get_mut(&number).unwrap().0.extend(bytes);
                }
                Output::Close(number) => self.sent.get_mut(&number).unwrap().1 = true,
            }
        }
    }
}

impl Wire for Simulated {
    fn open(&mut self, connection: usize) {
        let number = self.next;
        self.next += 1;
        if let Some(old) = self.numbers.insert(connection, number) {
            self.server.disconnect(old);
            self.sent.remove(&old);
        }
        self.sent.insert(number, (VecDeque::new(), false));
        self.server.connect(number);
    }

    fn write(&mut self, connection: usize, bytes: &[u8]) {
        let number = self.numbers[&connection];
        let outputs = self.server.receive(number, bytes, self.now);
        self.take(outputs);
    }

    fn read(&mut self, connection: usize) -> Option<Plain> {
        let (bytes, ended) = self.sent.get_mut(&self.numbers[&connection]).unwrap();
        let is_answered = !bytes.is_empty() || *ended;
        assert!(is_answered, "the simulated server has not answered");
        Plain::parse(bytes)
    }

    fn do_event(&mut self, event: Event) {
        match event {
            Event::Clock(now) => {
                self.now = now;
                let outputs = self.server.tick(now);
                self.take(outputs);
            }
            Event::OutOfMemory(yes) => self.server.trouble().out_of_memory = yes,
            Event::Evict => {
                let outputs = self.server.tick(self.now);
                self.take(outputs);
                self.server.set_policy("allkeys-random");
                self.server.evict(usize::MAX, self.now);
                self.server.set_policy("noeviction");
                self.server.trouble().out_of_memory = false;
            }
        }
    }
}
