//! The table of commands: their names, how many words they have, and when they are refused.

use super::resp::Reply;
use super::{
    ConnectionId, Dialect, Server, connection, hashes, info, keys, pubsub, script, slots, strings,
    wait,
};

/// Changes keys. Refused by replicas, and by servers that cannot save.
pub(super) const WRITE: u16 = 1;
/// May need memory. Refused by servers that have none left.
const DENY_OOM: u16 = 2;
/// Not for scripts.
pub(super) const NO_SCRIPT: u16 = 4;
/// Older servers do not know it.
const SINCE_7_0: u16 = 8;
/// May need memory in the newest Redis.
const DENY_OOM_SINCE_8_6: u16 = 16;
/// Its second word is a part of its name.
const GROUP: u16 = 32;
const LISTENING: u16 = NO_SCRIPT | DENY_OOM_SINCE_8_6;

/// One call of a command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call<'a> {
    /// The name, then the arguments.
    pub(super) words: &'a [&'a [u8]],
    pub(super) connection: ConnectionId,
}

/// A command.
#[derive(Debug)]
pub(super) struct Command {
    /// In small letters; of a subcommand with that of its command and a bar before it.
    pub(super) name: &'static str,
    /// How many words it has; if negative, that many at least.
    arity: isize,
    flags: u16,
    run: fn(&mut Server, &Call<'_>) -> Reply,
}

const fn command(
    name: &'static str,
    arity: isize,
    flags: u16,
    run: fn(&mut Server, &Call<'_>) -> Reply,
) -> Command {
    Command {
        name,
        arity,
        flags,
        run,
    }
}

/// Those of the crate's scripts first. In Redis 6.2, a command with subcommands is one that runs if none of them is
/// meant.
static COMMANDS: &[Command] = &[
    command("get", 2, 0, strings::get),
    command("set", -3, WRITE | DENY_OOM, strings::set),
    command("mget", -2, 0, strings::mget),
    command("hmget", -3, 0, hashes::hmget),
    command("hset", -4, WRITE | DENY_OOM, hashes::hset),
    command("pttl", 2, 0, keys::pttl),
    command("pexpire", 3, WRITE, keys::pexpire),
    command("del", -2, WRITE, keys::del),
    command("evalsha", -3, NO_SCRIPT, script::evalsha),
    command("time", 1, 0, connection::time),
    command("hdel", -3, WRITE, hashes::hdel),
    command("publish", 3, 0, pubsub::publish),
    command("spublish", 3, SINCE_7_0, pubsub::spublish),
    command("cluster", -2, GROUP, no_such_subcommand),
    command("cluster|nodes", 2, 0, slots::nodes),
    command("info", -1, 0, info::info),
    command("wait", 3, NO_SCRIPT, wait::wait),
    command("ping", 1, 0, connection::ping),
    command("eval", -3, NO_SCRIPT, script::eval),
    command("script", -2, GROUP | NO_SCRIPT, no_such_subcommand),
    command("script|load", 3, NO_SCRIPT, script::load),
    command("script|flush", 2, NO_SCRIPT, script::flush),
    command("subscribe", -2, LISTENING, pubsub::subscribe),
    command("unsubscribe", -1, NO_SCRIPT, pubsub::unsubscribe),
    command("ssubscribe", -2, LISTENING | SINCE_7_0, pubsub::ssubscribe),
    command(
        "sunsubscribe",
        -1,
        NO_SCRIPT | SINCE_7_0,
        pubsub::sunsubscribe,
    ),
    command("hello", -1, NO_SCRIPT, connection::hello),
    command("client", -2, GROUP | NO_SCRIPT, no_such_subcommand),
    command("client|id", 2, NO_SCRIPT, connection::id),
    command("client|setname", 3, NO_SCRIPT, connection::set_name),
    command("client|kill", 4, NO_SCRIPT, connection::kill),
    // Those of tests alone.
    command("echo", 2, 0, connection::echo),
    command("type", 2, 0, keys::kind),
    command("pexpiretime", 2, SINCE_7_0, keys::pexpiretime),
    command("keys", 2, 0, keys::keys),
    command("flushall", 1, WRITE, keys::flushall),
    command("hgetall", 2, 0, hashes::hgetall),
];

impl Command {
    pub(super) const fn is(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    pub(super) fn run(&self, server: &mut Server, call: &Call<'_>) -> Reply {
        (self.run)(server, call)
    }

    /// Whether servers that have no memory left refuse it.
    pub(super) fn needs_memory(&self, dialect: Dialect) -> bool {
        self.is(DENY_OOM) || dialect == Dialect::Redis86 && self.is(DENY_OOM_SINCE_8_6)
    }

    /// Whether a client of the older protocol that has subscriptions may send it.
    pub(super) fn runs_beside_subscriptions(&self) -> bool {
        self.name.ends_with("subscribe") || self.name == "ping"
    }

    /// Its name, or that of the command that it is a part of.
    pub(super) fn group(&self) -> &'static str {
        self.name.split('|').next().unwrap_or(self.name)
    }

    fn is_known_to(&self, dialect: Dialect) -> bool {
        dialect != Dialect::Redis62 || !self.is(SINCE_7_0)
    }

    fn takes(&self, words: usize) -> bool {
        let least = self.arity.unsigned_abs();
        if self.arity < 0 {
            words >= least
        } else {
            words == least
        }
    }
}

/// Why a call cannot be made.
enum Wrong {
    Unknown,
    UnknownSub,
    Arity(&'static str),
}

fn look_up(words: &[&[u8]], dialect: Dialect) -> Result<&'static Command, Wrong> {
    let named = |name: &[u8]| {
        let is_meant = |it: &&Command| name.eq_ignore_ascii_case(it.name.as_bytes());
        COMMANDS
            .iter()
            .find(|it| it.is_known_to(dialect) && is_meant(it))
    };
    let name = words.first().copied().unwrap_or_default();
    let found = named(name).filter(|it| it.group() == it.name);
    let mut command = found.ok_or(Wrong::Unknown)?;
    if let (true, Some(sub)) = (command.is(GROUP), words.get(1)) {
        let found = named(&[name, sub].join(&b'|'));
        if dialect == Dialect::Redis62 {
            // All of them are one command, which looks at its words when it is run.
            return Ok(found
                .filter(|command| command.takes(words.len()))
                .unwrap_or(command));
        }
        command = found.ok_or(Wrong::UnknownSub)?;
    }
    if command.takes(words.len()) {
        Ok(command)
    } else {
        Err(Wrong::Arity(command.name))
    }
}

/// The command that a client means.
pub(super) fn find(words: &[&[u8]], dialect: Dialect) -> Result<&'static Command, Reply> {
    look_up(words, dialect).map_err(|wrong| match wrong {
        Wrong::Unknown => unknown_command(words, dialect),
        Wrong::UnknownSub => unknown_subcommand(words),
        Wrong::Arity(name) => wrong_arity(name),
    })
}

fn unknown_command(words: &[&[u8]], dialect: Dialect) -> Reply {
    let (quotes, between) = match dialect {
        Dialect::Redis62 => (*b"``", &b", "[..]),
        _ => (*b"''", &b" "[..]),
    };
    let quoted = |word, room| [&quotes[..1], shown(word, room), &quotes[1..]].concat();
    let mut text = b"ERR unknown command ".to_vec();
    text.extend(quoted(words[0], 128));
    if dialect != Dialect::Redis86 || words.len() > 1 {
        text.extend_from_slice(b", with args beginning with: ");
    }
    let begin = text.len();
    for word in &words[1..] {
        let room = 128_usize.saturating_sub(text.len() - begin);
        if room > 0 {
            text.extend(quoted(word, room));
            text.extend_from_slice(between);
        }
    }
    Reply::failure(text)
}

/// As much of a word as fits. Texts of C end at a zero.
pub(super) fn shown(word: &[u8], room: usize) -> &[u8] {
    let end = word.iter().take(room).position(|byte| *byte == 0);
    &word[..end.unwrap_or(word.len().min(room))]
}

fn unknown_subcommand(words: &[&[u8]]) -> Reply {
    try_help(b"ERR unknown subcommand '", words)
}

fn no_such_subcommand(_: &mut Server, call: &Call<'_>) -> Reply {
    let begin = b"ERR Unknown subcommand or wrong number of arguments for '";
    try_help(begin, call.words)
}

fn try_help(begin: &[u8], words: &[&[u8]]) -> Reply {
    let group = words[0].to_ascii_uppercase();
    let (group, sub) = (shown(&group, usize::MAX), shown(words[1], 128));
    Reply::failure([begin, sub, b"'. Try ", group, b" HELP."].concat())
}

/// The command that a script means.
pub(super) fn find_in_script(words: &[&[u8]], dialect: Dialect) -> Result<&'static Command, Reply> {
    const UNKNOWN: [Reply; 3] = [
        Reply::error("Unknown Redis command called from Lua script"),
        Reply::error("ERR Unknown Redis command called from script"),
        Reply::error("ERR Unknown command called from script"),
    ];
    const ARITY: [Reply; 3] = [
        Reply::error("Wrong number of args calling Redis command From Lua script"),
        Reply::error("ERR Wrong number of args calling Redis command from script"),
        Reply::error("ERR Wrong number of args calling command from script"),
    ];
    look_up(words, dialect).map_err(|wrong| match wrong {
        Wrong::UnknownSub if dialect == Dialect::Valkey91 => unknown_subcommand(words),
        Wrong::Unknown | Wrong::UnknownSub => dialect.pick_of_three(&UNKNOWN),
        Wrong::Arity(_) => dialect.pick_of_three(&ARITY),
    })
}

pub(super) fn wrong_arity(name: &str) -> Reply {
    Reply::failure(format!(
        "ERR wrong number of arguments for '{name}' command"
    ))
}

pub(super) const SYNTAX: Reply = Reply::error("ERR syntax error");
pub(super) const NO_INTEGER: Reply = Reply::error("ERR value is not an integer or out of range");
pub(super) const WRONG_TYPE: Reply =
    Reply::error("WRONGTYPE Operation against a key holding the wrong kind of value");
