//! Simulated servers beside real ones: random calls of commands and of scripts, the crate's own among them, with valid
//! and nonsensical words, while the clock is set, memory runs out and keys are evicted. All replies and messages on all
//! connections must be the same, and at the end of each sequence all keys with their types, values and times.
//!
//! The clock of the real server is set by the test and stands still in between (see `tests/support/clock.c`), so times
//! are compared as they are, to the millisecond. The simulated process is given the
//! name of the real one. What else differs by nature is not compared: client ids, the server's version and modules, and
//! of `INFO` all lines but those that somebody reads. Lists whose order nobody promises (of keys and fields)
//! are sorted.
//!
//! `REDLOCK_DIFFERENTIAL_CALLS` says how many calls are made to each kind of server, `REDLOCK_DIFFERENTIAL_SEED` with
//! which sequence to begin. Both kinds are looked for as everywhere (see `tests/support/server.rs`); the simulated
//! servers take the dialects of those that are found, whichever they are.

mod calls;
mod cluster;
mod dialects;
mod plain;
mod replicas;
mod scenes;
mod scripts;
mod snippets;
mod wire;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fmt::Write as _;
use std::thread;

use plain::Plain;
use wire::{Event, Real, Simulated, Wire, ask, packed};
use words::{CLIENT_ID, CONNECTIONS, RUN_ID, Words, texts};

use crate::support::server::Kind;
use tower_redlock_simulated::server::dice::Dice;

/// Where the clocks begin, in microseconds since 1970.
const BEGIN: u64 = 1_763_816_000_000_000;
/// How long a sequence is.
const SEQUENCE: usize = 200;

/// A server with connections, of which the first one speaks the older protocol.
struct Side<W> {
    wire: W,
    run_id: String,
    client_ids: Vec<String>,
    marks: usize,
}

impl<W: Wire> Side<W> {
    fn new(wire: W) -> Self {
        let mut side = Self {
            wire,
            run_id: String::new(),
            client_ids: vec![String::new(); CONNECTIONS],
            marks: 0,
        };
        (0..CONNECTIONS).for_each(|connection| side.open(connection));
        let info = ask(&mut side.wire, 0, &["INFO", "server"]);
        side.run_id = plain::field(&info, "run_id").unwrap();
        side
    }

    fn open(&mut self, connection: usize) {
        self.wire.open(connection);
        if connection > 0 {
            ask(&mut self.wire, connection, &["HELLO", "3"]);
        }
        let Plain::Int(id) = ask(&mut self.wire, connection, &["CLIENT", "ID"]) else {
            panic!("no client id");
        };
        self.client_ids[connection] = id.to_string();
    }

    /// Makes a call. Returns what comes on each connection, until all of it is there.
    fn call(&mut self, connection: usize, words: &[Vec<u8>]) -> Vec<Vec<Plain>> {
        let own = words.iter().map(|word| self.own(word));
        let own: Vec<Vec<u8>> = own.collect();
        self.wire.write(connection, &packed(&own));
        let asked = |other| match other == connection {
            true => words,
            false => &[],
        };
        let all = 0..CONNECTIONS;
        all.map(|other| self.read_all(other, asked(other)))
            .collect()
    }

    /// With this server's names in the places where they belong.
    fn own(&self, word: &[u8]) -> Vec<u8> {
        let mut own = plain::replace(word, RUN_ID, &self.run_id);
        for (number, id) in self.client_ids.iter().enumerate() {
            own = plain::replace(&own, &format!("{CLIENT_ID}{number}"), id);
        }
        own
    }

    /// Reads all that has been sent on a connection: a question is asked, and the answer comes last.
    fn read_all(&mut self, connection: usize, asked: &[Vec<u8>]) -> Vec<Plain> {
        self.marks += 1;
        let mark = format!("mark {}", self.marks);
        let echo = packed(&texts(&["ECHO", &mark]));
        self.wire.write(connection, &echo);
        let mut all = Vec::new();
        loop {
            match self.wire.read(connection) {
                Some(reply) if reply == plain::bulk(&mark) => return all,
                Some(reply) => all.push(reply.compared(asked)),
                None => {
                    all.push(Plain::Ended);
                    self.open(connection);
                    return all;
                }
            }
        }
    }

    /// Everything that the server stores.
    fn keys(&mut self) -> BTreeMap<String, Vec<Vec<Vec<Plain>>>> {
        let mut all = BTreeMap::new();
        let keys = self.call(0, &texts(&["KEYS", "*"]));
        for key in plain::strings(&keys[0]) {
            let about = ["TYPE", "GET", "HGETALL", "PTTL", "PEXPIRETIME"];
            let about = about.map(|what| self.call(0, &[what.into(), key.clone()]));
            let key = String::from_utf8_lossy(&key).into_owned();
            all.insert(key, about.into());
        }
        all
    }

    fn reset(&mut self) {
        (0..CONNECTIONS).for_each(|connection| self.open(connection));
        ask(&mut self.wire, 0, &["FLUSHALL"]);
        ask(&mut self.wire, 0, &["SCRIPT", "FLUSH"]);
        for script in scripts::all() {
            ask(&mut self.wire, 0, &["SCRIPT", "LOAD", &script.text]);
        }
    }
}

/// Both sides, and what was done to them.
struct Pair {
    real: Side<Real>,
    simulated: Side<Simulated>,
    log: Vec<String>,
    /// Which kinds of replies each script had.
    outcomes: BTreeMap<Vec<u8>, BTreeSet<String>>,
}

impl Pair {
    fn start(kind: Kind) -> Self {
        let real = Side::new(Real::start(kind, BEGIN));
        let dialect = real.wire.dialect;
        println!("{kind:?}: {dialect:?}");
        let mut simulated = Simulated::start(dialect, BEGIN);
        simulated.server.set_run_id(&real.run_id);
        Self {
            real,
            simulated: Side::new(simulated),
            log: Vec::new(),
            outcomes: BTreeMap::new(),
        }
    }

    fn do_event(&mut self, event: Event) {
        self.log.push(format!("{event:?}"));
        self.real.wire.do_event(event);
        self.simulated.wire.do_event(event);
    }

    /// Makes a call on both sides, which must answer the same. Returns that.
    fn call(&mut self, connection: usize, words: &[Vec<u8>]) -> Vec<Vec<Plain>> {
        let mut line = format!("{connection}:");
        for word in words {
            // Of a script the begin is enough.
            let begin = String::from_utf8_lossy(&word[..word.len().min(200)]);
            write!(line, " {begin:?}").unwrap();
        }
        self.log.push(line);
        let real = self.real.call(connection, words);
        let simulated = self.simulated.call(connection, words);
        assert_eq!(simulated, real, "simulated, then real");
        self.log.push(format!("  {real:?}"));
        // What ends right now goes at any time in this millisecond: at once, on both sides.
        let now = self.simulated.wire.now();
        if self.real.wire.dialect.removes_early() {
            self.real.wire.wait_until_expired_keys_are_gone();
            self.simulated.wire.do_event(Event::Clock(now));
        }
        simulated
    }

    /// Runs the sequence of a seed.
    fn run(&mut self, seed: u64) {
        self.log = vec![format!("REDLOCK_DIFFERENTIAL_SEED={seed}")];
        let mut words = Words {
            dice: Dice::new(seed),
            now: BEGIN + (seed % 1_000) * 10_000_000_000,
            asks: true,
            before: None,
        };
        self.do_event(Event::OutOfMemory(false));
        self.do_event(Event::Clock(words.now));
        self.real.reset();
        self.simulated.reset();
        // Either kind of calls alone rarely meets the keys of the other.
        let scripts = words.pick(&[20, 50, 80]);
        for _ in 0..SEQUENCE {
            if words.chance(12) {
                self.random_event(&mut words);
            }
            if words.chance(scripts) {
                let connection = words.dice.below(CONNECTIONS);
                let call = scripts::call(&mut words);
                if let Some(before) = words.before.take() {
                    self.call(connection, &before);
                }
                let replies = self.call(connection, &call);
                let outcome = plain::outcome(&replies[connection]);
                let outcomes = self.outcomes.entry(call[1].clone());
                outcomes.or_default().insert(outcome);
            } else if words.chance(30) {
                let connection = words.dice.below(CONNECTIONS);
                self.call(connection, &snippets::call(&mut words));
            } else {
                let (connection, call) = calls::call(&mut words);
                self.call(connection, &call);
            }
        }
        let (real, simulated) = (self.real.keys(), self.simulated.keys());
        assert_eq!(simulated, real, "the keys, simulated, then real");
    }

    fn random_event(&mut self, words: &mut Words) {
        match words.dice.below(20) {
            0 | 1 => self.do_event(Event::OutOfMemory(true)),
            2..6 => self.do_event(Event::OutOfMemory(false)),
            6 => self.do_event(Event::Evict),
            7 => {
                self.call(0, &texts(&["SCRIPT", "FLUSH"]));
                let script = &scripts::all()[words.dice.below(scripts::all().len())];
                self.call(0, &texts(&["EVALSHA", &script.hash, "0"]));
                for script in scripts::all() {
                    self.call(1, &texts(&["SCRIPT", "LOAD", &script.text]));
                }
            }
            _ => {
                let steps = [
                    0, 1, 1_000, 49_000, 50_000, 51_000, 99_000, 100_000, 101_000, 1_000_000,
                ];
                words.now += words.pick(&steps);
                self.do_event(Event::Clock(words.now));
            }
        }
    }
}

impl Drop for Pair {
    /// Whatever fails, and be it that no answer comes: tells the seed and the end of what was done.
    fn drop(&mut self) {
        if let (true, Some((seed, calls))) = (thread::panicking(), self.log.split_first()) {
            let last = &calls[calls.len().saturating_sub(40)..];
            println!("{seed}, after:\n{}", last.join("\n"));
        }
    }
}

fn number_from(variable: &str) -> Option<u64> {
    env::var(variable).ok().map(|text| text.parse().unwrap())
}

fn compare(kind: Kind) {
    let calls = number_from("REDLOCK_DIFFERENTIAL_CALLS").unwrap_or(4_000);
    let first = number_from("REDLOCK_DIFFERENTIAL_SEED");
    let first = first.unwrap_or_else(|| getrandom::u64().unwrap() >> 20);
    println!("{kind:?}: REDLOCK_DIFFERENTIAL_SEED={first}");
    let mut pair = Pair::start(kind);
    for seed in first..first + calls.div_ceil(SEQUENCE as u64) {
        pair.run(seed);
    }
    // A script that fails whatever it is called with would compare nothing.
    for script in scripts::all() {
        let outcomes = &pair.outcomes[script.hash.as_bytes()];
        let known_by = script.known_by;
        println!("{known_by} {outcomes:?}");
        assert!(outcomes.len() > 1, "too few kinds of replies: {known_by}");
    }
}

#[test]
fn a_simulated_server_does_what_redis_does() {
    compare(Kind::Redis);
}

#[test]
fn a_simulated_server_does_what_valkey_does() {
    compare(Kind::Valkey);
}
