//! Connections: what is read from them, the order in which their commands are run, and what is sent on them.

use std::collections::BTreeSet;

use super::commands::{self, Call, Command, NO_SCRIPT, WRITE};
use super::request::{self, Request};
use super::resp::Reply;
use super::slots::not_local;
use super::wait::Waiting;
use super::{ConnectionId, Dialect, Output, Server};

pub(super) const OUT_OF_MEMORY: Reply =
    Reply::error("OOM command not allowed when used memory > 'maxmemory'.");
pub(super) const READ_ONLY: Reply =
    Reply::error("READONLY You can't write against a read only replica.");
const IS_BUSY: [Reply; 2] = [
    Reply::error(
        "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
    ),
    Reply::error(
        "BUSY Valkey is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
    ),
];
const CANNOT_SAVE: [Reply; 3] = [
    Reply::error(
        "MISCONF Redis is configured to save RDB snapshots, but it is currently not able to persist on disk. Commands that may modify the data set are disabled, because this instance is configured to report errors during writes if RDB snapshotting fails (stop-writes-on-bgsave-error option). Please check the Redis logs for details about the RDB error.",
    ),
    Reply::error(
        "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. Commands that may modify the data set are disabled, because this instance is configured to report errors during writes if RDB snapshotting fails (stop-writes-on-bgsave-error option). Please check the Redis logs for details about the RDB error.",
    ),
    Reply::error(
        "MISCONF Valkey is configured to save RDB snapshots, but it's currently unable to persist to disk. Commands that may modify the data set are disabled, because this instance is configured to report errors during writes if RDB snapshotting fails (stop-writes-on-bgsave-error option). Please check the Valkey logs for details about the RDB error.",
    ),
];

/// What a server knows of a connection.
#[derive(Debug, Default)]
pub(super) struct Client {
    /// As `CLIENT ID` tells it.
    pub(super) id: i64,
    /// Whether it speaks version 3 of the protocol.
    pub(super) resp3: bool,
    /// What was received and is not run yet.
    pub(super) input: Vec<u8>,
    pub(super) channels: BTreeSet<Vec<u8>>,
    /// Those of slots.
    pub(super) sharded: BTreeSet<Vec<u8>>,
    /// The offset after its last change.
    pub(super) written: u64,
    /// The `WAIT` that holds it up.
    pub(super) waiting: Option<Waiting>,
    /// Messages that go out after the reply to the command that is being run.
    pub(super) later: Vec<Reply>,
}

impl Server {
    /// Whoever made a call.
    pub(super) fn client(&mut self, call: &Call<'_>) -> &mut Client {
        let client = self.clients.get_mut(&call.connection);
        client.expect("who calls is connected")
    }

    /// Runs all whole commands of a connection, until one of them holds it up.
    pub(super) fn run_input(&mut self, connection: ConnectionId) {
        let Some(client) = self.clients.get_mut(&connection) else {
            return;
        };
        let input = std::mem::take(&mut client.input);
        let mut read = 0;
        let may_go_on = |server: &Self| {
            let client = server.clients.get(&connection);
            client.is_some_and(|client| client.waiting.is_none())
        };
        while may_go_on(self) {
            match request::read(&input[read..]) {
                Request::Incomplete => break,
                Request::Command(words, length) => {
                    read += length;
                    if !words.is_empty() {
                        self.run(connection, &words);
                    }
                }
                Request::Broken(why) => {
                    let why = format!("ERR Protocol error: {why}");
                    self.send(connection, &Reply::failure(why));
                    self.close(connection);
                }
            }
        }
        if let Some(client) = self.clients.get_mut(&connection) {
            client.input = input;
            client.input.drain(..read);
        }
    }

    /// Runs one command and sends its reply.
    fn run(&mut self, connection: ConnectionId, words: &[&[u8]]) {
        let before = self.data.offset();
        let reply = self.answer(&Call { words, connection });
        let after = self.data.offset();
        let Some(client) = self.clients.get_mut(&connection) else {
            return;
        };
        if after != before {
            client.written = after;
        }
        let later = std::mem::take(&mut client.later);
        self.send(connection, &reply);
        for message in later {
            self.send(connection, &message);
        }
    }

    /// The reply to a command of a client.
    fn answer(&mut self, call: &Call<'_>) -> Reply {
        let command = match commands::find(call.words, self.dialect) {
            Ok(command) => command,
            Err(unknown) => return unknown,
        };
        match self.refusal(command, call) {
            Some(refusal) => refusal,
            None => command.run(self, call),
        }
    }

    /// Why the server does not run a command now. In the order of real servers.
    fn refusal(&self, command: &Command, call: &Call<'_>) -> Option<Reply> {
        let (dialect, trouble) = (self.dialect, self.trouble);
        if trouble.no_scripts && matches!(command.name, "eval" | "evalsha") {
            let (who, rest) = match dialect {
                Dialect::Redis62 => ("this user", " or its subcommand"),
                _ => ("User locks", ""),
            };
            let name = command.name;
            return Some(Reply::failure(format!(
                "NOPERM {who} has no permissions to run the '{name}' command{rest}"
            )));
        }
        if let Some(elsewhere) = self.elsewhere(command, call.words) {
            return Some(elsewhere);
        }
        if trouble.out_of_memory && command.needs_memory(dialect) {
            return Some(OUT_OF_MEMORY);
        }
        if trouble.cannot_save && self.is_master() && (command.is(WRITE) || command.name == "ping")
        {
            return Some(dialect.pick_of_three(&CANNOT_SAVE));
        }
        if !self.is_master() && command.is(WRITE) {
            return Some(READ_ONLY);
        }
        let client = self.clients.get(&call.connection)?;
        let listens = !client.channels.is_empty() || !client.sharded.is_empty();
        if !client.resp3 && listens && !command.runs_beside_subscriptions() {
            let (name, any) = match dialect {
                Dialect::Redis62 => (command.group(), "P"),
                _ => (command.name, "P|S"),
            };
            return Some(Reply::failure(format!(
                "ERR Can't execute '{name}': only ({any})SUBSCRIBE / ({any})UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"
            )));
        }
        (trouble.busy && command.name != "hello").then(|| dialect.pick(&IS_BUSY))
    }

    /// The reply to a command of a script; an error if the server does not run it. The script `wrote` if one of its
    /// commands may have.
    pub(super) fn answer_script(
        &mut self,
        call: &Call<'_>,
        wrote: &mut bool,
    ) -> Result<Reply, Reply> {
        let dialect = self.dialect;
        let command = commands::find_in_script(call.words, dialect)?;
        if command.is(NO_SCRIPT) {
            return Err(Reply::error(match dialect {
                Dialect::Redis62 => "This Redis command is not allowed from scripts",
                Dialect::Valkey91 => "ERR This Valkey command is not allowed from script",
                _ => "ERR This Redis command is not allowed from script",
            }));
        }
        if self.elsewhere(command, call.words).is_some() {
            return Err(not_local(dialect));
        }
        // A script that has written something is not stopped half-way.
        if !*wrote && let Some(refusal) = self.refusal_in_script(command) {
            return Err(match refusal {
                Reply::Error(text) if dialect == Dialect::Redis62 => {
                    // As it would be sent.
                    Reply::failure([b"-", &*text, b"\r\n"].concat())
                }
                refusal => refusal,
            });
        }
        *wrote |= command.is(WRITE);
        self.in_script = true;
        let reply = command.run(self, call);
        self.in_script = false;
        Ok(reply)
    }

    fn refusal_in_script(&self, command: &Command) -> Option<Reply> {
        let dialect = self.dialect;
        if command.is(WRITE) && !self.is_master() {
            return Some(READ_ONLY);
        }
        if command.is(WRITE) && self.trouble.cannot_save {
            return Some(dialect.pick_of_three(&CANNOT_SAVE));
        }
        (command.needs_memory(dialect) && self.trouble.out_of_memory).then_some(OUT_OF_MEMORY)
    }

    /// Sends a reply or a message.
    pub(super) fn send(&mut self, connection: ConnectionId, reply: &Reply) {
        let Some(client) = self.clients.get(&connection) else {
            return;
        };
        if *reply == Reply::NOTHING {
            return;
        }
        if let Some(Output::Send(last, bytes)) = self.outbox.last_mut()
            && *last == connection
        {
            reply.write(bytes, client.resp3);
            return;
        }
        let mut bytes = Vec::with_capacity(64);
        reply.write(&mut bytes, client.resp3);
        self.outbox.push(Output::Send(connection, bytes));
    }
}
