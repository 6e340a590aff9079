//! The table of commands: their names, how many words they have, and when they are refused.

use std::borrow::Cow;

use super::resp::Reply;
use super::{
    ConnectionId, Flavor, Server, connection, hashes, info, keys, pubsub, script, strings, wait,
};

/// Changes keys. Refused by replicas, and by servers that cannot save.
pub(super) const WRITE: u8 = 1;
/// May need memory. Refused by servers that have none left.
pub(super) const DENY_OOM: u8 = 2;
/// Not for scripts.
pub(super) const NO_SCRIPT: u8 = 4;
/// Runs while the server is loading.
pub(super) const LOADING: u8 = 8;
/// Runs before the client has authenticated.
pub(super) const NO_AUTH: u8 = 16;

/// One call of a command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call<'a> {
    /// The name, then the arguments.
    pub(super) words: &'a [&'a [u8]],
    pub(super) connection: ConnectionId,
    /// The database.
    pub(super) base: usize,
}

/// A command.
#[derive(Debug)]
pub(super) struct Command {
    /// In small letters; of a subcommand with that of its command and a bar before it.
    pub(super) name: &'static str,
    /// How many words it has; if negative, that many at least.
    arity: isize,
    flags: u8,
    run: Action,
}

#[derive(Debug)]
enum Action {
    Run(fn(&mut Server, &Call<'_>) -> Reply),
    Sub(&'static [Command]),
}

const fn command(
    name: &'static str,
    arity: isize,
    flags: u8,
    run: fn(&mut Server, &Call<'_>) -> Reply,
) -> Command {
    Command {
        name,
        arity,
        flags,
        run: Action::Run(run),
    }
}

const fn group(name: &'static str, subcommands: &'static [Command]) -> Command {
    Command {
        name,
        arity: -2,
        flags: 0,
        run: Action::Sub(subcommands),
    }
}

/// Those of the crate's scripts first.
static COMMANDS: &[Command] = &[
    command("get", 2, 0, strings::get),
    command("set", -3, WRITE | DENY_OOM, strings::set),
    command("mget", -2, 0, strings::mget),
    command("hmget", -3, 0, hashes::hmget),
    command("hset", -4, WRITE | DENY_OOM, hashes::hset),
    command("pttl", 2, 0, keys::pttl),
    command("pexpire", -3, WRITE, keys::pexpire),
    command("del", -2, WRITE, keys::del),
    command("evalsha", -3, NO_SCRIPT, script::evalsha),
    command("time", 1, LOADING, connection::time),
    command("hdel", -3, WRITE, hashes::hdel),
    command("hget", 3, 0, hashes::hget),
    command("pexpireat", -3, WRITE, keys::pexpireat),
    command("publish", 3, LOADING, pubsub::publish),
    group(
        "pubsub",
        &[
            command("pubsub|numsub", -2, LOADING, pubsub::numsub),
            command("pubsub|channels", -2, LOADING, pubsub::channels),
        ],
    ),
    command("info", -1, LOADING, info::info),
    command("wait", 3, NO_SCRIPT, wait::wait),
    command("ping", -1, 0, connection::ping),
    command("eval", -3, NO_SCRIPT, script::eval),
    group(
        "script",
        &[
            command("script|load", 3, NO_SCRIPT, script::load),
            command("script|exists", -3, NO_SCRIPT, script::exists),
            command("script|flush", -2, NO_SCRIPT, script::flush),
        ],
    ),
    command("subscribe", -2, NO_SCRIPT | LOADING, pubsub::subscribe),
    command("unsubscribe", -1, NO_SCRIPT | LOADING, pubsub::unsubscribe),
    command(
        "hello",
        -1,
        NO_SCRIPT | LOADING | NO_AUTH,
        connection::hello,
    ),
    command("auth", -2, NO_SCRIPT | LOADING | NO_AUTH, connection::auth),
    command("quit", -1, NO_SCRIPT | LOADING | NO_AUTH, connection::quit),
    command("select", 2, LOADING, connection::select),
    group(
        "client",
        &[
            command("client|id", 2, NO_SCRIPT | LOADING, connection::id),
            command(
                "client|setname",
                3,
                NO_SCRIPT | LOADING,
                connection::set_name,
            ),
            command(
                "client|getname",
                2,
                NO_SCRIPT | LOADING,
                connection::get_name,
            ),
            command(
                "client|setinfo",
                4,
                NO_SCRIPT | LOADING,
                connection::set_info,
            ),
            command("client|kill", -3, NO_SCRIPT | LOADING, connection::kill),
        ],
    ),
    command("echo", 2, 0, connection::echo),
    command("exists", -2, 0, keys::exists),
    command("type", 2, 0, keys::kind),
    command("ttl", 2, 0, keys::ttl),
    command("expire", -3, WRITE, keys::expire),
    command("expireat", -3, WRITE, keys::expireat),
    command("pexpiretime", 2, 0, keys::pexpiretime),
    command("persist", 2, WRITE, keys::persist),
    command("keys", 2, 0, keys::keys),
    command("dbsize", 1, 0, keys::dbsize),
    command("flushall", -1, WRITE, keys::flushall),
    command("hgetall", 2, 0, hashes::hgetall),
    command("hlen", 2, 0, hashes::hlen),
];

impl Command {
    pub(super) const fn is(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub(super) fn run(&self, server: &mut Server, call: &Call<'_>) -> Reply {
        match self.run {
            Action::Run(run) => run(server, call),
            Action::Sub(_) => unreachable!("a subcommand was found"),
        }
    }

    /// Whether a client of the older protocol that has subscriptions may send it.
    pub(super) fn runs_beside_subscriptions(&self) -> bool {
        matches!(self.name, "ping" | "subscribe" | "unsubscribe" | "quit")
    }

    fn takes(&self, words: usize) -> bool {
        let least = self.arity.unsigned_abs();
        if self.arity < 0 {
            words >= least
        } else {
            words == least
        }
    }

    /// Whether this is its name, or its part after the bar.
    fn is_called(&self, word: &[u8]) -> bool {
        let own = self.name.rsplit('|').next().unwrap_or_default();
        own.as_bytes().eq_ignore_ascii_case(word)
    }
}

/// Why a call cannot be made.
enum Wrong {
    Unknown,
    UnknownSub,
    Arity(&'static str),
}

fn look_up(words: &[&[u8]]) -> Result<&'static Command, Wrong> {
    let named = |commands: &'static [Command], word: &[u8]| {
        let mut commands = commands.iter();
        commands.find(|command| command.is_called(word))
    };
    let name = words.first().copied().unwrap_or_default();
    let mut command = named(COMMANDS, name).ok_or(Wrong::Unknown)?;
    if let (Action::Sub(subcommands), Some(sub)) = (&command.run, words.get(1)) {
        command = named(subcommands, sub).ok_or(Wrong::UnknownSub)?;
    }
    if command.takes(words.len()) {
        Ok(command)
    } else {
        Err(Wrong::Arity(command.name))
    }
}

/// The command that a client means.
pub(super) fn find(words: &[&[u8]]) -> Result<&'static Command, Reply> {
    look_up(words).map_err(|wrong| {
        let mut text = Vec::new();
        match wrong {
            Wrong::Unknown => {
                text.extend_from_slice(b"ERR unknown command '");
                text.extend(words[0].iter().take(128));
                text.extend_from_slice(b"', with args beginning with: ");
                let begin = text.len();
                for word in &words[1..] {
                    let room = 128_usize.saturating_sub(text.len() - begin);
                    if room == 0 {
                        break;
                    }
                    text.push(b'\'');
                    text.extend(word.iter().take(room));
                    text.extend_from_slice(b"' ");
                }
            }
            Wrong::UnknownSub => {
                text.extend_from_slice(b"ERR unknown subcommand '");
                text.extend(words[1].iter().take(128));
                text.extend_from_slice(b"'. Try ");
                text.extend(words[0].to_ascii_uppercase());
                text.extend_from_slice(b" HELP.");
            }
            Wrong::Arity(name) => return wrong_arity(name),
        }
        Reply::Error(Cow::Owned(text))
    })
}

/// The command that a script means.
pub(super) fn find_in_script(words: &[&[u8]], flavor: Flavor) -> Result<&'static Command, Reply> {
    const UNKNOWN: [Reply; 2] = [
        Reply::error("ERR Unknown Redis command called from script"),
        Reply::error("ERR Unknown command called from script"),
    ];
    const ARITY: [Reply; 2] = [
        Reply::error("ERR Wrong number of args calling Redis command from script"),
        Reply::error("ERR Wrong number of args calling command from script"),
    ];
    look_up(words).map_err(|wrong| match wrong {
        Wrong::Unknown | Wrong::UnknownSub => flavor.pick(&UNKNOWN),
        Wrong::Arity(_) => flavor.pick(&ARITY),
    })
}

pub(super) fn wrong_arity(name: &str) -> Reply {
    let text = format!("ERR wrong number of arguments for '{name}' command");
    Reply::Error(Cow::Owned(text.into_bytes()))
}

pub(super) const SYNTAX: Reply = Reply::error("ERR syntax error");
pub(super) const NO_INTEGER: Reply = Reply::error("ERR value is not an integer or out of range");
pub(super) const WRONG_TYPE: Reply =
    Reply::error("WRONGTYPE Operation against a key holding the wrong kind of value");
