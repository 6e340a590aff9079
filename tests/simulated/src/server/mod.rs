//! A server as a state machine: bytes of clients and the time go in, bytes come out. It does no I/O, has no clock and
//! no randomness of its own, so that a run of a whole cluster can be repeated.
//!
//! It answers what the crate and its tests send, with the words of real servers, and runs the crate's scripts by the
//! Lua that real servers have. `tests/simulation/differential.rs` compares it with them, call by call.
//!
//! What it lacks: transactions, modules, functions, passwords, access lists, databases besides the first one,
//! persistence (the caller keeps an [`Image`]), the types besides strings and hashes, and time limits of scripts.
//!
//! One call of a method is one instant: a script sees one time from its begin to its end, as on real servers.

mod clients;
mod cluster;
mod commands;
mod connection;
mod data;
mod dialect;
#[cfg(test)]
mod elections;
mod hashes;
mod image;
mod info;
mod keys;
mod lua;
mod memory;
mod numbers;
mod pubsub;
mod replication;
mod request;
pub mod resp;
mod script;
mod sentinel;
mod slots;
mod strings;
#[cfg(test)]
mod tests;
mod wait;

use std::collections::BTreeMap;
use std::sync::Arc;

use clients::Client;
use data::Data;
use replication::Replication;

use crate::dice::Dice;

pub use crate::dice;
pub use cluster::{Cluster, Member, Packet, Step};
pub use data::Change;
pub use dialect::Dialect;
pub use image::Image;
pub use replication::{Logged, Position, Sync};
pub(crate) use request::commands_in;
pub use sentinel::{Opinion, Sentinel};

/// A connection, as the caller numbers it. A number is used once.
pub type ConnectionId = u64;

/// What a server does after it was called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Sends bytes on a connection.
    Send(ConnectionId, Vec<u8>),
    /// Ends a connection, after all that was sent on it. It is forgotten; what arrives on it later is ignored.
    Close(ConnectionId),
}

/// What is wrong with a server. All of it ends with a restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trouble {
    /// It has no memory left: commands that may need some are refused with `OOM`, in scripts only before their first
    /// write.
    pub out_of_memory: bool,
    /// It cannot save: writes are refused with `MISCONF`.
    pub cannot_save: bool,
    /// A script does not end: everything but a few commands is refused with `BUSY`.
    pub busy: bool,
    /// Its users may not run scripts: these are refused with `NOPERM`.
    pub no_scripts: bool,
}

/// One server process.
#[derive(Debug)]
pub struct Server {
    dialect: Dialect,
    /// `maxmemory-policy`.
    policy: &'static str,
    dice: Dice,
    trouble: Trouble,
    /// Its clock: microseconds since 1970, as of the last call.
    now: u64,
    run_id: String,
    evicted_keys: u64,
    /// Whether it runs a command of a script.
    in_script: bool,
    data: Data,
    replication: Replication,
    /// In cluster mode.
    cluster: Option<Cluster>,
    clients: BTreeMap<ConnectionId, Client>,
    next_client_id: i64,
    /// The texts of the scripts by their hashes.
    scripts: BTreeMap<String, Arc<[u8]>>,
    outbox: Vec<Output>,
}

impl Server {
    /// A server without data that started at `now`, in microseconds since 1970 by its own clock. The seed decides its
    /// random names.
    pub fn new(dialect: Dialect, seed: u64, now: u64) -> Self {
        let mut dice = Dice::new(seed);
        let (run_id, replication) = (dice.name(), Replication::new(dice.name()));
        Self {
            dialect,
            policy: "noeviction",
            dice,
            trouble: Trouble::default(),
            now,
            run_id,
            evicted_keys: 0,
            in_script: false,
            data: Data::default(),
            replication,
            cluster: None,
            clients: BTreeMap::new(),
            next_client_id: 3,
            scripts: BTreeMap::new(),
            outbox: Vec::new(),
        }
    }

    /// Accepts a connection.
    pub fn connect(&mut self, connection: ConnectionId) {
        let client = Client {
            id: self.next_client_id,
            ..Client::default()
        };
        self.next_client_id += 1;
        self.clients.insert(connection, client);
    }

    /// A connection has ended. What was received on it before was run.
    pub fn disconnect(&mut self, connection: ConnectionId) {
        self.clients.remove(&connection);
    }

    /// Bytes arrive on a connection; runs all commands that are complete. An unknown connection is ignored.
    pub fn receive(&mut self, connection: ConnectionId, bytes: &[u8], now: u64) -> Vec<Output> {
        self.now = now;
        if let Some(client) = self.clients.get_mut(&connection) {
            client.input.extend_from_slice(bytes);
            self.run_input(connection);
        }
        std::mem::take(&mut self.outbox)
    }

    /// Time passes: answers each `WAIT` whose time is up, and removes keys that have expired, as servers do now and
    /// then. Clients cannot tell whether it was called, but for `WAIT` and, in Redis 8, in a key's last millisecond;
    /// replicas can.
    pub fn tick(&mut self, now: u64) -> Vec<Output> {
        self.now = now;
        self.remove_expired();
        self.answer_waits();
        std::mem::take(&mut self.outbox)
    }

    /// When a `WAIT` is to be answered by [`tick`](Self::tick), by this server's clock. Clocks may be stepped: ask
    /// again after each call.
    pub fn next_due(&self) -> Option<u64> {
        self.first_deadline()
    }

    /// Sets `maxmemory-policy`.
    pub const fn set_policy(&mut self, policy: &'static str) {
        self.policy = policy;
    }

    /// The name of the process, as `INFO` tells it.
    pub fn run_id(&self) -> &str {
        &self.run_id
    }

    /// Gives the process another name: that of one with which it is compared.
    pub fn set_run_id(&mut self, run_id: &str) {
        run_id.clone_into(&mut self.run_id);
    }

    /// What is wrong with it, to be changed at will.
    pub const fn trouble(&mut self) -> &mut Trouble {
        &mut self.trouble
    }

    /// Forgets all scripts, as `SCRIPT FLUSH` does.
    pub fn forget_scripts(&mut self) {
        self.scripts.clear();
    }

    /// Ends all connections, as `CLIENT KILL` does.
    pub fn close_all(&mut self) {
        let all = std::mem::take(&mut self.clients);
        self.outbox.extend(all.into_keys().map(Output::Close));
    }

    /// What its clients are told after that.
    pub fn take_outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.outbox)
    }
}
