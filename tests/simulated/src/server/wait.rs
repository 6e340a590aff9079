//! `WAIT`: holds up a connection until replicas have what was written on it.

use super::commands::{Call, NO_INTEGER};
use super::numbers::integer;
use super::resp::Reply;
use super::{ConnectionId, Server};

const UNBLOCKED: Reply = Reply::error(
    "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
);

/// A `WAIT` that is not answered yet.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    /// How many replicas, as a server keeps it while it waits: so many bits are left of it.
    count: i32,
    /// Until when, in milliseconds since 1970, unless for ever.
    until: Option<i64>,
    /// What they must have.
    offset: u64,
}

pub(super) fn wait(server: &mut Server, call: &Call<'_>) -> Reply {
    if !server.is_master() {
        return Reply::error(
            "ERR WAIT cannot be used with replica instances. Please also note that since Redis 4.0 if a replica is configured to be writable (which is not the default) writes to replicas are just local and are not propagated.",
        );
    }
    let Some(count) = integer(call.words[1]) else {
        return NO_INTEGER;
    };
    let until = match integer(call.words[2]) {
        None => return Reply::error("ERR timeout is not an integer or out of range"),
        Some(..0) => return Reply::error("ERR timeout is negative"),
        Some(0) => None,
        Some(millis) => match server.millis().checked_add(millis) {
            None => return Reply::error("ERR timeout is out of range"),
            until => until,
        },
    };
    let offset = server.client(call).written;
    let acknowledged = server.replication.count_acknowledged(offset);
    if acknowledged >= count {
        return Reply::Int(acknowledged);
    }
    server.client(call).waiting = Some(Waiting {
        count: count as i32,
        until,
        offset,
    });
    Reply::NOTHING
}

impl Server {
    /// When the first `WAIT` has waited for long enough, in microseconds since 1970.
    pub(super) fn first_deadline(&self) -> Option<u64> {
        let clients = self.clients.values();
        let first = clients.filter_map(|client| client.waiting.as_ref()?.until);
        let first = first.min()?;
        // In the millisecond after it, as servers do.
        Some(u64::try_from(first + 1).unwrap() * 1_000)
    }

    /// Answers each `WAIT` that has enough replicas, or has waited for long enough, and goes on with its connection.
    pub(super) fn answer_waits(&mut self) {
        let now = self.millis();
        let ready = self.waiting(|waiting| {
            self.replication.count_acknowledged(waiting.offset) >= waiting.count.into()
                || waiting.until.is_some_and(|until| now > until)
        });
        for connection in ready {
            let client = self.clients.get_mut(&connection);
            if let Some(waiting) = client.and_then(|client| client.waiting.take()) {
                let reply = Reply::Int(self.replication.count_acknowledged(waiting.offset));
                self.send(connection, &reply);
                self.run_input(connection);
            }
        }
    }

    /// Ends the connections that wait: they would get an answer of another role.
    pub(super) fn unblock_all(&mut self) {
        for connection in self.waiting(|_| true) {
            self.send(connection, &UNBLOCKED);
            self.close(connection);
        }
    }

    fn waiting(&self, wanted: impl Fn(&Waiting) -> bool) -> Vec<ConnectionId> {
        let clients = self.clients.iter();
        let waiting = clients.filter(|(_, client)| client.waiting.as_ref().is_some_and(&wanted));
        waiting.map(|(connection, _)| *connection).collect()
    }
}
