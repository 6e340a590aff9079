//! Channels: who listens to them, and what is said on them.

use super::commands::{Call, unknown_subcommand};
use super::data::Change;
use super::keys::matches;
use super::resp::Reply;
use super::{ConnectionId, Dialect, Server};

pub(super) fn subscribe(server: &mut Server, call: &Call<'_>) -> Reply {
    let Some(client) = server.clients.get_mut(&call.connection) else {
        return Reply::NOTHING;
    };
    let mut replies = Vec::new();
    for channel in &call.words[1..] {
        client.channels.insert(channel.to_vec());
        let channel = Reply::bulk(channel);
        replies.push(confirmation("subscribe", channel, client.channels.len()));
    }
    Reply::Many(replies)
}

/// Without names, from all channels.
pub(super) fn unsubscribe(server: &mut Server, call: &Call<'_>) -> Reply {
    let Some(client) = server.clients.get_mut(&call.connection) else {
        return Reply::NOTHING;
    };
    let named = call.words[1..].iter().map(|channel| channel.to_vec());
    let mut channels: Vec<Vec<u8>> = named.collect();
    if channels.is_empty() {
        channels.extend(client.channels.iter().cloned());
    }
    if channels.is_empty() {
        return confirmation("unsubscribe", Reply::Nil, 0);
    }
    let mut replies = Vec::new();
    for channel in channels {
        client.channels.remove(&channel);
        let channel = Reply::Bulk(channel);
        replies.push(confirmation("unsubscribe", channel, client.channels.len()));
    }
    Reply::Many(replies)
}

fn confirmation(word: &str, channel: Reply, count: usize) -> Reply {
    Reply::Push(vec![Reply::bulk(word), channel, Reply::count(count)])
}

pub(super) fn publish(server: &mut Server, call: &Call<'_>) -> Reply {
    let (channel, message) = (call.words[1], call.words[2]);
    let heard = server.tell_listeners(channel, message, Some(call.connection));
    if server.is_master() {
        server.change(Change::Publish {
            channel: channel.to_vec(),
            message: message.to_vec(),
        });
    }
    Reply::count(heard)
}

pub(super) fn channels(server: &mut Server, call: &Call<'_>) -> Reply {
    let pattern = match call.words[2..] {
        [] => &b"*"[..],
        [pattern] => pattern,
        _ => return unknown_subcommand(call.words),
    };
    let clients = server.clients.values();
    let all = clients.flat_map(|client| &client.channels);
    let mut wanted: Vec<&Vec<u8>> = all.filter(|channel| matches(pattern, channel)).collect();
    wanted.sort_unstable();
    wanted.dedup();
    Reply::Array(wanted.into_iter().map(Reply::bulk).collect())
}

impl Server {
    /// Sends a message to all who listen. Returns how many they are.
    pub(super) fn tell_listeners(
        &mut self,
        channel: &[u8],
        message: &[u8],
        by: Option<ConnectionId>,
    ) -> usize {
        let clients = self.clients.iter();
        let listeners = clients.filter(|(_, client)| client.channels.contains(channel));
        let listeners: Vec<ConnectionId> = listeners.map(|(connection, _)| *connection).collect();
        for listener in &listeners {
            let text = Reply::Push(vec![
                Reply::bulk("message"),
                Reply::bulk(channel),
                Reply::bulk(message),
            ]);
            // Who publishes to itself gets the message before the reply from older servers.
            let later = by == Some(*listener) && self.settings.dialect > Dialect::Redis70;
            match self.clients.get_mut(listener) {
                Some(client) if later => client.later.push(text),
                _ => self.send(*listener, &text),
            }
        }
        listeners.len()
    }
}
