//! Channels: who listens to them, and what is said on them.

use std::collections::BTreeSet;

use super::clients::Client;
use super::commands::Call;
use super::data::Change;
use super::resp::Reply;
use super::{ConnectionId, Dialect, Server};

pub(super) fn subscribe(server: &mut Server, call: &Call<'_>) -> Reply {
    join(server, call, &ALL)
}

pub(super) fn ssubscribe(server: &mut Server, call: &Call<'_>) -> Reply {
    join(server, call, &SHARDED)
}

pub(super) fn unsubscribe(server: &mut Server, call: &Call<'_>) -> Reply {
    leave(server, call, &ALL)
}

pub(super) fn sunsubscribe(server: &mut Server, call: &Call<'_>) -> Reply {
    leave(server, call, &SHARDED)
}

/// A kind of channels: where a client has those that it listens to, and how it is told of them.
struct Kind {
    of: fn(&mut Client) -> &mut BTreeSet<Vec<u8>>,
    join: &'static str,
    leave: &'static str,
    message: &'static str,
}

const ALL: Kind = Kind {
    of: |client| &mut client.channels,
    join: "subscribe",
    leave: "unsubscribe",
    message: "message",
};

/// Those of slots.
const SHARDED: Kind = Kind {
    of: |client| &mut client.sharded,
    join: "ssubscribe",
    leave: "sunsubscribe",
    message: "smessage",
};

fn join(server: &mut Server, call: &Call<'_>, kind: &Kind) -> Reply {
    let channels = (kind.of)(server.client(call));
    let join = |channel: &&[u8]| {
        channels.insert(channel.to_vec());
        confirmation(kind.join, Reply::bulk(channel), channels.len())
    };
    Reply::Many(call.words[1..].iter().map(join).collect())
}

/// Without names, from all channels.
fn leave(server: &mut Server, call: &Call<'_>, kind: &Kind) -> Reply {
    let channels = (kind.of)(server.client(call));
    let named = call.words[1..].iter().map(|channel| channel.to_vec());
    let mut names: Vec<Vec<u8>> = named.collect();
    if names.is_empty() {
        names.extend(channels.iter().cloned());
    }
    if names.is_empty() {
        return confirmation(kind.leave, Reply::Nil, 0);
    }
    let leave = |name: Vec<u8>| {
        channels.remove(&name);
        confirmation(kind.leave, Reply::Bulk(name), channels.len())
    };
    Reply::Many(names.into_iter().map(leave).collect())
}

fn confirmation(word: &str, channel: Reply, count: usize) -> Reply {
    Reply::Push(vec![Reply::bulk(word), channel, Reply::count(count)])
}

pub(super) fn publish(server: &mut Server, call: &Call<'_>) -> Reply {
    let (channel, message) = (call.words[1], call.words[2]);
    let heard = server.tell(&ALL, channel, message, Some(call.connection));
    if server.is_master() {
        server.change(Change::Publish {
            channel: channel.to_vec(),
            message: message.to_vec(),
        });
    }
    Reply::count(heard)
}

/// Those who listen at another server of the slot hear nothing.
pub(super) fn spublish(server: &mut Server, call: &Call<'_>) -> Reply {
    let (channel, message) = (call.words[1], call.words[2]);
    Reply::count(server.tell(&SHARDED, channel, message, Some(call.connection)))
}

impl Server {
    /// A message that a replica gets from its master.
    pub(super) fn tell_listeners(&mut self, channel: &[u8], message: &[u8]) {
        self.tell(&ALL, channel, message, None);
    }

    /// Sends a message to all who listen. Returns how many they are.
    fn tell(
        &mut self,
        kind: &Kind,
        channel: &[u8],
        message: &[u8],
        by: Option<ConnectionId>,
    ) -> usize {
        let clients = self.clients.iter_mut();
        let listens = |(connection, client): (&ConnectionId, _)| {
            (kind.of)(client).contains(channel).then_some(*connection)
        };
        let listeners: Vec<ConnectionId> = clients.filter_map(listens).collect();
        for listener in &listeners {
            let text = Reply::Push(vec![
                Reply::bulk(kind.message),
                Reply::bulk(channel),
                Reply::bulk(message),
            ]);
            // Who publishes to itself gets the message before the reply from older servers.
            let later = by == Some(*listener) && self.dialect > Dialect::Redis70;
            match self.clients.get_mut(listener) {
                Some(client) if later => client.later.push(text),
                _ => self.send(*listener, &text),
            }
        }
        listeners.len()
    }

    /// Those who listen to these channels of slots are told that they do so no more.
    pub(super) fn end_sharded(&mut self, is_over: impl Fn(&[u8]) -> bool) {
        let mut told = Vec::new();
        for (connection, client) in &mut self.clients {
            let over = client.sharded.iter().filter(|channel| is_over(channel));
            for channel in over.cloned().collect::<Vec<_>>() {
                client.sharded.remove(&channel);
                let channel = Reply::Bulk(channel);
                let text = confirmation(SHARDED.leave, channel, client.sharded.len());
                told.push((*connection, text));
            }
        }
        told.iter()
            .for_each(|(connection, text)| self.send(*connection, text));
    }
}
