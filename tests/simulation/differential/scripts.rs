//! The crate's own scripts, as it loads them, and random calls of them.

use std::sync::OnceLock;

use tokio::runtime::Runtime;
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::timeout;

use super::words::{COUNTERS, LOCKS, MARKER, RECORD, RUN_ID, Words, texts};
use crate::support::fake::{Fake, sound};
use crate::support::{PATIENCE, nodes};

/// A script of the crate.
pub(super) struct Script {
    pub(super) text: String,
    pub(super) hash: String,
    /// A sentence of its text, by which it is known.
    pub(super) known_by: &'static str,
    make: Make,
}

/// Makes random keys and arguments of a script.
type Make = fn(&mut Words) -> Call;

/// What a script is called with.
#[derive(Default)]
struct Call {
    keys: Vec<Vec<u8>>,
    args: Vec<Vec<u8>>,
}

/// Each script by a sentence that no script before it has, in the order in which the crate loads them, and its calls.
const KINDS: [(&str, Make); 14] = [
    ("-- Acquires all keys of a lock or none.", acquire),
    (
        "-- Acquires the first of several locks that is free.",
        acquire,
    ),
    (
        "-- Renews the ttl of several locks, each only if its owner still holds it.",
        extend,
    ),
    (
        "-- Deletes the keys of a lock that its owner still holds, and announces that.",
        release,
    ),
    (
        "-- Writes the fencing token of a lock back, if the owner still has the lock",
        raise,
    ),
    ("-- Reports whether the node may vote", check_in),
    ("-- Ends the named quarantine.", promote),
    (
        "-- Checks whether the server has evicted keys since the last check.",
        evictions,
    ),
    ("-- Acquires a lock for a reader", acquire_shared),
    (
        "-- Renews the share of a reader, if it still has the lock.",
        extend_shared,
    ),
    ("-- Ends the share of a reader.", release_shared),
    ("-- Tries each command that locks need", rights),
    (
        "-- Acquires the lock of an idempotency key, or returns its record.",
        recall,
    ),
    (
        "-- Stores the record of an idempotency key and releases its lock",
        complete,
    ),
];

/// All of them.
pub(super) fn all() -> &'static [Script] {
    static SCRIPTS: OnceLock<Vec<Script>> = OnceLock::new();
    SCRIPTS.get_or_init(|| {
        let texts = Runtime::new().unwrap().block_on(loaded());
        let unknown = "the crate has other scripts than this test knows";
        assert_eq!(texts.len(), KINDS.len(), "{unknown}");
        let scripts = texts.into_iter().zip(KINDS);
        let scripts = scripts.map(|(text, (known_by, make))| {
            assert!(text.contains(known_by), "not `{known_by}`, but: {text}");
            Script {
                hash: sha1_smol::Sha1::from(&text).digest().to_string(),
                text,
                known_by,
                make,
            }
        });
        scripts.collect()
    })
}

/// The scripts that a node of the crate loads, in this order.
async fn loaded() -> Vec<String> {
    let (sender, mut receiver) = unbounded_channel();
    let fake = Fake::start(move |words| {
        let _ = sender.send(words.to_vec());
        sound(words)
    });
    let fake = fake.await;
    let _node = nodes::started(&fake.url());
    let mut scripts = Vec::new();
    loop {
        let words = timeout(PATIENCE, receiver.recv()).await.unwrap().unwrap();
        match words.as_slice() {
            // Each connection loads all of them.
            [_, load, text] if load == "LOAD" && !scripts.contains(text) => {
                scripts.push(text.clone());
            }
            // One of them has done so.
            [client, id] if client == "CLIENT" && id == "ID" => return scripts,
            _ => {}
        }
    }
}

/// A random call of a random script.
pub(super) fn call(words: &mut Words) -> Vec<Vec<u8>> {
    let script = &all()[words.dice.below(KINDS.len())];
    let mut made = (script.make)(words);
    // A spoilt number of keys would have the script that loops over locks loop for ever.
    if !std::ptr::fn_addr_eq(script.make, extend as Make) {
        words.spoil(&mut made.keys, 0);
        words.spoil(&mut made.args, 0);
    }
    let mut call = texts(&["EVALSHA", &script.hash, &made.keys.len().to_string()]);
    call.extend(made.keys);
    call.extend(made.args);
    call
}

/// What a script is called with, as [`Words::fill`] takes both.
fn filled(words: &mut Words, keys: &str, args: &str) -> Call {
    Call {
        keys: words.fill(keys),
        args: words.fill(args),
    }
}

/// One to three locks, each with its counter.
fn locks(words: &mut Words) -> Vec<usize> {
    let mut locks = vec![0, 1, 2];
    while locks.len() > 1 && words.chance(60) {
        locks.remove(words.dice.below(locks.len()));
    }
    locks
}

/// The keys of locks, each with its counter.
fn counted(locks: &[usize]) -> impl Iterator<Item = Vec<u8>> {
    let keys = locks
        .iter()
        .flat_map(|lock| [LOCKS[*lock], COUNTERS[*lock]]);
    keys.map(Into::into)
}

fn take(words: &mut Words, locks: &[usize]) -> Call {
    let mut call = filled(words, "m <tombstone>", "<token> <span> <vote>");
    call.keys.extend(counted(locks));
    if words.chance(30) {
        call.args.extend(texts(&["", "", ""]));
        return call;
    }
    let number = words.number();
    let lowered = match std::str::from_utf8(&number).unwrap().parse::<u64>() {
        Ok(number) => format!("{:019}", number.saturating_sub(1_024)).into_bytes(),
        Err(_) => Vec::new(),
    };
    let keep = words.span();
    call.args.extend([number, lowered, keep]);
    call
}

fn acquire(words: &mut Words) -> Call {
    let locks = locks(words);
    take(words, &locks)
}

fn extend(words: &mut Words) -> Call {
    let per = 1 + words.dice.below(2);
    let keep = if words.chance(70) { "<span>" } else { "" };
    let args = format!("<vote> {per} <span> <flag> {keep}");
    let mut call = filled(words, MARKER, &args);
    let [refills, fenced] = [3, 4].map(|at: usize| !call.args[at].is_empty());
    let mut tombstones = Vec::new();
    for _ in 0..words.dice.below(4) {
        let mut locks = vec![0, 1, 2];
        while locks.len() > per {
            locks.remove(words.dice.below(locks.len()));
        }
        call.keys.extend(counted(&locks));
        if refills {
            tombstones.extend(words.fill("<tombstone>"));
        }
        call.args.push(words.token());
        if fenced {
            call.args.push(words.number());
        }
    }
    call.keys.extend(tombstones);
    call
}

/// How long a tombstone lives, if one is left, and that.
fn farewell(words: &mut Words) -> (&'static str, &'static str) {
    match words.chance(50) {
        true => ("<span>", " <tombstone>"),
        false => ("", ""),
    }
}

fn release(words: &mut Words) -> Call {
    let token = words.token();
    let locks = locks(words);
    if words.chance(50) {
        let mut set = texts(&["SET", LOCKS[locks[0]]]);
        set.push(token.clone());
        words.before = Some(set);
    }
    let mut call = Call {
        keys: Vec::new(),
        args: vec![token],
    };
    for lock in locks {
        call.keys.push(LOCKS[lock].into());
        call.args.extend(words.fill("|free:k1|free:k2"));
    }
    if words.chance(50) {
        call.args.extend(words.fill("0|5 <span>"));
        call.keys.extend(words.fill("<tombstone>"));
    } else if words.chance(50) {
        call.args.extend(words.fill("0|5 "));
    }
    call
}

fn acquire_shared(words: &mut Words) -> Call {
    let lock = words.dice.below(LOCKS.len());
    let mut call = take(words, &[lock]);
    // Another lock stands for the hint of a writer.
    call.keys.push(LOCKS[(lock + 1) % LOCKS.len()].into());
    call.args.extend(words.fill(HEAD));
    call
}

/// How the value of readers begins.
const HEAD: &str = "H:shared|H:shared|H:shared|A";

fn extend_shared(words: &mut Words) -> Call {
    let lock = words.dice.below(LOCKS.len());
    readers(words, lock);
    let keys = format!(
        "m {} {} <tombstone> <tombstone>",
        LOCKS[lock], COUNTERS[lock]
    );
    let number = if words.chance(70) { "<number>" } else { "" };
    let args = format!("<vote> <token> <span> <flag> {number} <span> {HEAD}");
    filled(words, &keys, &args)
}

/// Readers have the lock: calls alone seldom bring that about.
fn readers(words: &mut Words, lock: usize) {
    if words.chance(50) {
        let [one, other] = [words.token(), words.token()];
        let mut value = b"H:shared".to_vec();
        for token in [one, other] {
            let end = words.now / 1_000 + words.pick(&[1, 100, 60_000]);
            value.extend([b" ", &token[..], b" ", end.to_string().as_bytes()].concat());
        }
        let mut set = texts(&["SET", LOCKS[lock]]);
        set.push(value);
        words.before = Some(set);
    }
}

fn release_shared(words: &mut Words) -> Call {
    let lock = words.dice.below(LOCKS.len());
    readers(words, lock);
    let (life, tombstone) = farewell(words);
    let keys = format!("{}{tombstone}", LOCKS[lock]);
    let args = format!("<token> {life} |free:k1|free:k2 {HEAD}");
    filled(words, &keys, &args)
}

fn raise(words: &mut Words) -> Call {
    let mut call = filled(words, MARKER, "<token> <number> <span> <vote>");
    let locks = locks(words);
    call.keys.extend(counted(&locks));
    call
}

fn check_in(words: &mut Words) -> Call {
    let args = "<identity> <digest> config <span> q1|q2 0|0|1 1";
    filled(words, MARKER, args)
}

fn promote(words: &mut Words) -> Call {
    let prefix = words.pick(&[RUN_ID, RUN_ID, RUN_ID, "7|<run id>", "other"]);
    let quarantine = format!("{prefix}:{}", words.pick(&["q1", "q2"]));
    let floor = if words.chance(60) { "<number>" } else { "" };
    let mut call = filled(
        words,
        MARKER,
        &format!("<identity> <digest> {floor} <span>"),
    );
    call.args.insert(2, quarantine.into());
    call
}

fn recall(words: &mut Words) -> Call {
    let lock = words.dice.below(LOCKS.len());
    let mut call = take(words, &[lock]);
    call.keys.push(RECORD.into());
    call.args.extend(words.fill("<flag> <span> <flag>"));
    call
}

fn complete(words: &mut Words) -> Call {
    let lock = words.dice.below(LOCKS.len());
    let (life, tombstone) = farewell(words);
    let keys = format!("m {} {} {RECORD}{tombstone}", LOCKS[lock], COUNTERS[lock]);
    let record = match words.chance(80) {
        true => "<number> body <moment>",
        false => "  ",
    };
    let args = format!("<token> {life} |free:k1|free:k2 <vote> {record} <flag> <flag>");
    filled(words, &keys, &args)
}

/// Of calls that change nothing, and of others.
fn rights(words: &mut Words) -> Call {
    let calls = [
        "get KEY",
        "mget KEY",
        "pttl KEY",
        "hmget KEY f",
        "time",
        "set KEY v PX 0",
        "del KEY",
        "pexpire KEY never",
        "hset KEY f v odd",
        "hdel KEY f",
        "set KEY v PX 9",
        "hset KEY f v",
    ];
    Call {
        keys: words.fill("<lock> <lock>"),
        args: (0..4).map(|_| words.pick(&calls).into()).collect(),
    }
}

fn evictions(_: &mut Words) -> Call {
    Call {
        keys: texts(&[MARKER]),
        args: Vec::new(),
    }
}
