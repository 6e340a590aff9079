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
        "TYPE <key>",
    ],
    &[
        "PTTL <key>",
        "PTTL <key>",
        "PEXPIRETIME <key>",
        "PEXPIRE <key> <span>",
        "PEXPIRE <key> <span>",
    ],
    &[
        "HSET <key> <pair>+",
        "HSET <key> <pair>+",
        "HSET <key> <pair>+",
        "HMGET <key> <field>+",
        "HDEL <key> <field>+",
        "HGETALL <key>",
    ],
];

const PUBLISH: &str = "PUBLISH <channel> <value>";
const CHANNELS: [&str; 4] = [
    PUBLISH,
    "SUBSCRIBE <channel>+",
    "SUBSCRIBE <channel>+",
    "UNSUBSCRIBE <channel>+",
];

const OTHERS: [&str; 17] = [
    "PING",
    "ECHO <value>",
    "TIME",
    "INFO",
    "INFO server|stats|REPLICATION|memory|nosuch",
    "INFO server|stats|REPLICATION|memory|nosuch",
    "CLIENT ID",
    "CLIENT SETNAME me",
    "CLIENT KILL ID <client>",
    "WAIT 0|-1|x 0|1|-1|x",
    "SCRIPT LOAD <script>",
    "EVALSHA ffffffffffffffffffffffffffffffffffffffff 0",
    "EVALSHA <value> <span>",
    "FLUSHALL",
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
            "FLUSHALL" if words.chance(70) => "DEL <key>",
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
        // Of these, one form is simulated.
        b"PEXPIRE" | b"INFO" | b"CLIENT" => usize::MAX,
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
