//! Random calls of commands.

use super::words::{CLIENT_ID, Words};

/// How many connections there are. The first one speaks the older protocol and has no subscriptions.
pub(super) const CONNECTIONS: usize = 3;

/// Calls about keys, as [`filled`] takes them: of strings, of times, of hashes.
const KEYED: [&[&str]; 3] = [
    &[
        "GET <key>",
        "SET <key> <value> <set>*",
        "SET <key> <value> <set>*",
        "SET <key> <value> <set>*",
        "MGET <key>+",
        "DEL <key>+",
        "EXISTS <key>+",
        "TYPE <key>",
    ],
    &[
        "PTTL <key>",
        "PTTL <key>",
        "TTL <key>",
        "PEXPIRETIME <key>",
        "PERSIST <key>",
        "PEXPIRE <key> <span> <when>*",
        "EXPIRE <key> <span> <when>*",
        "PEXPIREAT <key> <moment> <when>*",
        "EXPIREAT <key> <moment> <when>*",
    ],
    &[
        "HSET <key> <pair>+",
        "HSET <key> <pair>+",
        "HSET <key> <pair>+",
        "HGET <key> <field>",
        "HMGET <key> <field>+",
        "HDEL <key> <field>+",
        "HGETALL <key>",
        "HLEN <key>",
    ],
];

/// Options of `SET`.
const SET: [&str; 9] = [
    "NX",
    "xx",
    "GET",
    "KEEPTTL",
    "PX <span>",
    "px <span>",
    "EX <span>",
    "PXAT <moment>",
    "EXAT <moment>",
];

const PUBLISH: &str = "PUBLISH <channel> <value>";
const CHANNELS: [&str; 6] = [
    PUBLISH,
    "PUBSUB CHANNELS",
    "PUBSUB CHANNELS",
    "SUBSCRIBE <channel>+",
    "SUBSCRIBE <channel>+",
    "UNSUBSCRIBE <channel>+",
];

const OTHERS: [&str; 24] = [
    "PING",
    "PING <value>",
    "ECHO <value>",
    "TIME",
    "INFO",
    "INFO server|stats|REPLICATION|memory|everything|nosuch",
    "INFO server|stats|REPLICATION|memory|everything|nosuch",
    "CLIENT ID",
    "CLIENT SETNAME <value>",
    "CLIENT GETNAME",
    "CLIENT SETINFO lib-name|LIB-VER|x y",
    "CLIENT KILL ID <client>",
    "SELECT 0|0|0|1|15|16|-1",
    "WAIT 0|-1|x 0|1|-1|x",
    "SCRIPT EXISTS 0000000000000000000000000000000000000000 <value>",
    "SCRIPT LOAD <script>",
    "EVALSHA ffffffffffffffffffffffffffffffffffffffff 0",
    "EVALSHA <value> <span>",
    "QUIT",
    "FLUSHALL",
    "KEYS *|k*|?|c?|x|",
    "CLIENT NOSUCH <value>",
    "NOSUCH <value>+",
    "DEL <key>",
];

/// A random call, and on which connection.
pub(super) fn call(words: &mut Words) -> (usize, Vec<Vec<u8>>) {
    let connection = words.dice.below(CONNECTIONS);
    let template = match words.dice.below(10) {
        0..4 => words.pick(KEYED[0]),
        4..6 => words.pick(KEYED[1]),
        6..8 => words.pick(KEYED[2]),
        8 => match words.pick(&CHANNELS) {
            about if connection == 0 && about.contains("SUBSCRIBE") => PUBLISH,
            about => about,
        },
        _ => match words.pick(&OTHERS) {
            // Seldom: not much is left afterwards.
            "QUIT" | "FLUSHALL" if words.chance(70) => "DEL <key>",
            other => other,
        },
    };
    let mut call = filled(words, template);
    if words.chance(20) {
        call[0].make_ascii_lowercase();
    }
    let fixed = match call[0].to_ascii_uppercase().as_slice() {
        // Without a name it ends all subscriptions, in any order.
        b"UNSUBSCRIBE" => 2,
        // A time-out beyond all numbers wraps in Redis 7.0, and Valkey refuses it.
        b"WAIT" => 3,
        _ => 1,
    };
    words.spoil(&mut call, fixed);
    (connection, call)
}

/// A random call that is about keys.
pub(super) fn keyed(words: &mut Words) -> Vec<Vec<u8>> {
    let kind = words.pick(&KEYED);
    let template = words.pick(kind);
    filled(words, template)
}

/// The words of a template, in which `a|b` is one of these, and `<kind>` a random word of a kind, `<kind>+` one to three
/// and `<kind>*` up to two of them.
fn filled(words: &mut Words, template: &str) -> Vec<Vec<u8>> {
    let mut call = Vec::new();
    for part in template.split(' ') {
        let (kind, count) = match part.rsplit_once('>') {
            Some((kind, "+")) => (kind, 1 + words.dice.below(3)),
            Some((kind, "*")) => (kind, words.dice.below(3)),
            Some((kind, _)) => (kind, 1),
            None => (part, 1),
        };
        for _ in 0..count {
            match kind {
                "<key" => call.push(words.key()),
                "<value" => call.push(words.value()),
                "<span" => call.push(words.span()),
                "<moment" => call.push(words.moment()),
                "<field" => call.push(words.field()),
                "<channel" => call.push(words.channel()),
                "<pair" => call.extend([words.field(), words.value()]),
                "<when" => call.push(words.pick(&["NX", "XX", "GT", "LT", "lt"]).into()),
                "<set" => {
                    let option = words.pick(&SET);
                    call.extend(filled(words, option));
                }
                "<client" => {
                    let whom = words.dice.below(CONNECTIONS);
                    call.push(format!("{CLIENT_ID}{whom}").into());
                }
                "<script" => {
                    let scripts = ["return 1", "return (", "", "return ARGV"];
                    call.push(words.pick(&scripts).into());
                }
                _ => {
                    let choices: Vec<&str> = kind.split('|').collect();
                    call.push(words.pick(&choices).into());
                }
            }
        }
    }
    call
}
