//! Random calls of commands.

use super::words::{CONNECTIONS, Words};

/// Calls about keys, as [`Words::fill`] takes them: of strings, of times, of hashes.
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
    let mut call = words.fill(template);
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
    words.fill(template)
}
