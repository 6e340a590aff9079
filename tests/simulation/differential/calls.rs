//! Random calls of commands.

use super::words::{CLIENT_ID, Words, texts};

/// How many connections there are. The first one speaks the older protocol and has no subscriptions.
pub(super) const CONNECTIONS: usize = 3;

/// A random call, and on which connection.
pub(super) fn call(words: &mut Words) -> (usize, Vec<Vec<u8>>) {
    let connection = words.dice.below(CONNECTIONS);
    let mut call = match words.dice.below(10) {
        0..4 => string(words),
        4..6 => time(words),
        6..8 => hash(words),
        8 => channel(words, connection),
        _ => other(words),
    };
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
    match words.dice.below(3) {
        0 => string(words),
        1 => time(words),
        _ => hash(words),
    }
}

fn with(name: &str, more: impl IntoIterator<Item = Vec<u8>>) -> Vec<Vec<u8>> {
    let mut call = texts(&name.split(' ').collect::<Vec<_>>());
    call.extend(more);
    call
}

/// So many of what `make` makes.
fn some(words: &mut Words, most: usize, make: fn(&mut Words) -> Vec<u8>) -> Vec<Vec<u8>> {
    let count = 1 + words.dice.below(most);
    (0..count).map(|_| make(words)).collect()
}

fn string(words: &mut Words) -> Vec<Vec<u8>> {
    let key = words.key();
    match words.dice.below(8) {
        0 => with("GET", [key]),
        1..4 => {
            let mut call = with("SET", [key, words.value()]);
            for _ in 0..words.dice.below(3) {
                match words.pick(&[
                    "NX", "xx", "GET", "KEEPTTL", "PX", "px", "EX", "PXAT", "EXAT",
                ]) {
                    at @ ("PXAT" | "EXAT") => call.extend([at.into(), words.moment()]),
                    span @ ("PX" | "px" | "EX") => call.extend([span.into(), words.span()]),
                    flag => call.push(flag.into()),
                }
            }
            call
        }
        4 => with("MGET", some(words, 4, Words::key)),
        5 => with("DEL", some(words, 3, Words::key)),
        6 => with("EXISTS", some(words, 3, Words::key)),
        _ => with("TYPE", [key]),
    }
}

fn time(words: &mut Words) -> Vec<Vec<u8>> {
    let key = words.key();
    let mut call = match words.dice.below(10) {
        0..3 => return with("PTTL", [key]),
        3 => return with("TTL", [key]),
        4 => return with("PEXPIRETIME", [key]),
        5 => return with("PERSIST", [key]),
        6 => with("PEXPIRE", [key, words.span()]),
        7 => with("EXPIRE", [key, words.span()]),
        8 => with("PEXPIREAT", [key, words.moment()]),
        _ => with("EXPIREAT", [key, words.moment()]),
    };
    for _ in 0..words.dice.below(3) {
        call.push(words.pick(&["NX", "XX", "GT", "LT", "lt"]).into());
    }
    call
}

fn hash(words: &mut Words) -> Vec<Vec<u8>> {
    let key = words.key();
    match words.dice.below(8) {
        0..3 => {
            let mut call = with("HSET", [key]);
            for _ in 0..=words.dice.below(3) {
                call.extend([words.field(), words.value()]);
            }
            call
        }
        3 => with("HGET", [key, words.field()]),
        4 => with("HMGET", [vec![key], some(words, 4, Words::field)].concat()),
        5 => with("HDEL", [vec![key], some(words, 4, Words::field)].concat()),
        6 => with("HGETALL", [key]),
        _ => with("HLEN", [key]),
    }
}

fn channel(words: &mut Words, connection: usize) -> Vec<Vec<u8>> {
    match words.dice.below(6) {
        0 | 1 if connection > 0 => with("SUBSCRIBE", some(words, 2, Words::channel)),
        2 if connection > 0 => with("UNSUBSCRIBE", some(words, 2, Words::channel)),
        3 | 4 => with("PUBSUB CHANNELS", []),
        _ => with("PUBLISH", [words.channel(), words.value()]),
    }
}

fn other(words: &mut Words) -> Vec<Vec<u8>> {
    match words.dice.below(24) {
        0 => with("PING", []),
        1 => with("PING", [words.value()]),
        2 => with("ECHO", [words.value()]),
        3 => with("TIME", []),
        4 => with("INFO", []),
        5 | 6 => {
            let section = words.pick(&[
                "server",
                "stats",
                "REPLICATION",
                "memory",
                "everything",
                "nosuch",
            ]);
            with("INFO", [section.into()])
        }
        7 => with("CLIENT ID", []),
        8 => with("CLIENT SETNAME", [words.value()]),
        9 => with("CLIENT GETNAME", []),
        10 => with(
            "CLIENT SETINFO",
            [
                words.pick(&["lib-name", "LIB-VER", "x"]).into(),
                b"y".to_vec(),
            ],
        ),
        11 => {
            let whom = words.dice.below(CONNECTIONS);
            with(
                "CLIENT KILL ID",
                [format!("{CLIENT_ID}{whom}").into_bytes()],
            )
        }
        12 => with(
            "SELECT",
            [words.pick(&["0", "0", "0", "1", "15", "16", "-1"]).into()],
        ),
        13 => with(
            "WAIT",
            [
                words.pick(&["0", "-1", "x"]).into(),
                words.pick(&["0", "1", "-1", "x"]).into(),
            ],
        ),
        14 => with(
            "SCRIPT EXISTS",
            ["0".repeat(40).into_bytes(), words.value()],
        ),
        15 => with(
            "SCRIPT LOAD",
            [words
                .pick(&["return 1", "return (", "", "return ARGV"])
                .into()],
        ),
        16 => with("EVALSHA", ["f".repeat(40).into_bytes(), b"0".to_vec()]),
        17 => with("EVALSHA", [words.value(), words.span()]),
        18 if words.chance(30) => with("QUIT", []),
        19 if words.chance(30) => with("FLUSHALL", []),
        20 => with(
            "KEYS",
            [words.pick(&["*", "k*", "?", "c?", "x", ""]).into()],
        ),
        21 => with("CLIENT NOSUCH", [words.value()]),
        22 => with("NOSUCH", some(words, 3, Words::value)),
        _ => with("DEL", [words.key()]),
    }
}
