//! [`Sentinel`]: answers where a master is, as it was told.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::request::{self, Request};
use super::resp::Reply;
use super::{ConnectionId, Output};
use crate::dice::Dice;

/// Where a Sentinel thinks that a master is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opinion {
    pub host: String,
    pub port: u16,
    /// The number of the failover by which it became the master.
    pub epoch: u64,
}

/// One Sentinel. It has opinions of its own, which its caller sets, and does nothing by itself.
#[derive(Debug)]
pub struct Sentinel {
    id: String,
    masters: BTreeMap<String, Opinion>,
    /// What each connection has sent that is not answered yet.
    connections: BTreeMap<ConnectionId, Vec<u8>>,
}

impl Sentinel {
    pub fn new(seed: u64) -> Self {
        Self {
            id: Dice::new(seed).name(),
            masters: BTreeMap::new(),
            connections: BTreeMap::new(),
        }
    }

    /// Sets its opinion of a master; `None` if it knows none of that name.
    pub fn set(&mut self, master: &str, opinion: Option<Opinion>) {
        match opinion {
            Some(opinion) => self.masters.insert(master.to_owned(), opinion),
            None => self.masters.remove(master),
        };
    }

    /// Accepts a connection.
    pub fn connect(&mut self, connection: ConnectionId) {
        self.connections.insert(connection, Vec::new());
    }

    /// A connection has ended.
    pub fn disconnect(&mut self, connection: ConnectionId) {
        self.connections.remove(&connection);
    }

    /// Bytes arrive on a connection; answers all commands that are complete, in the older protocol.
    pub fn receive(&mut self, connection: ConnectionId, bytes: &[u8]) -> Vec<Output> {
        let Some(mut input) = self.connections.remove(&connection) else {
            return Vec::new();
        };
        input.extend_from_slice(bytes);
        let (mut read, mut sent) = (0, Vec::new());
        let broken = loop {
            let (words, length) = match request::read(&input[read..]) {
                Request::Incomplete => break false,
                Request::Broken(_) => break true,
                Request::Command(words, length) => (words, length),
            };
            read += length;
            let words = words.into_iter().map(String::from_utf8_lossy);
            let words: Vec<Cow<'_, str>> = words.collect();
            let words: Vec<&str> = words.iter().map(|word| &**word).collect();
            self.answer(&words).write(&mut sent, false);
        };
        let mut outputs = Vec::new();
        if !sent.is_empty() {
            outputs.push(Output::Send(connection, sent));
        }
        if broken {
            outputs.push(Output::Close(connection));
        } else {
            input.drain(..read);
            self.connections.insert(connection, input);
        }
        outputs
    }

    fn answer(&self, words: &[&str]) -> Reply {
        let capitals: Vec<String> = words.iter().map(|word| word.to_ascii_uppercase()).collect();
        let capitals: Vec<&str> = capitals.iter().map(String::as_str).collect();
        match capitals[..] {
            [] => Reply::NOTHING,
            ["SENTINEL", "MYID"] => Reply::bulk(&self.id),
            ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", _] => match self.masters.get(words[2]) {
                Some(Opinion { host, port, .. }) => {
                    Reply::Array(vec![Reply::bulk(host), Reply::bulk(port.to_string())])
                }
                None => Reply::NilArray,
            },
            ["SENTINEL", "MASTER", _] => match self.masters.get(words[2]) {
                Some(opinion) => describe(words[2], opinion),
                None => Reply::error("ERR No such master with that name"),
            },
            _ => Reply::failure(format!("ERR unknown command '{}'", words[0])),
        }
    }
}

/// The fields of a master.
fn describe(name: &str, Opinion { host, port, epoch }: &Opinion) -> Reply {
    let fields = [
        ("name", name.to_owned()),
        ("ip", host.clone()),
        ("port", port.to_string()),
        ("flags", "master".to_owned()),
        ("config-epoch", epoch.to_string()),
    ];
    let pair = |(name, value): (&str, String)| (Reply::bulk(name), Reply::bulk(value));
    Reply::Map(fields.map(pair).into())
}
