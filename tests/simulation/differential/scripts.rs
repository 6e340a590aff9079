//! The crate's own scripts, as it loads them, and random calls of them.

use std::sync::OnceLock;

use tokio::runtime::Runtime;
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::timeout;

use super::words::{CHANNELS, COUNTERS, LOCKS, MARKER, RECORD, RUN_ID, TOMBSTONES, Words, texts};
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

fn standing(words: &mut Words) -> [Vec<u8>; 2] {
    [words.identity(), words.digest()]
}

/// The same as a vote is for them.
fn vote(words: &mut Words) -> Vec<u8> {
    let [identity, digest] = standing(words);
    [&digest[..], b" ", &identity].concat()
}

/// One to three locks, each with its counter.
fn locks(words: &mut Words) -> Vec<usize> {
    let mut locks = vec![0, 1, 2];
    while locks.len() > 1 && words.chance(60) {
        locks.remove(words.dice.below(locks.len()));
    }
    locks
}

fn tombstone(words: &mut Words) -> Vec<u8> {
    words.pick(&TOMBSTONES).into()
}

fn take(words: &mut Words, locks: &[usize]) -> Call {
    let mut call = Call {
        keys: vec![MARKER.into(), tombstone(words)],
        args: vec![words.token(), words.span()],
    };
    call.args.push(vote(words));
    for &lock in locks {
        call.keys
            .extend([LOCKS[lock].into(), COUNTERS[lock].into()]);
    }
    if words.chance(30) {
        call.args.extend([Vec::new(), Vec::new(), Vec::new()]);
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
    let (span, refill) = (words.span(), words.flag());
    let keep = match words.chance(70) {
        true => words.span(),
        false => Vec::new(),
    };
    let (fenced, refills) = (!keep.is_empty(), !refill.is_empty());
    let per_lock = per.to_string().into_bytes();
    let mut call = Call {
        keys: vec![MARKER.into()],
        args: vec![vote(words), per_lock, span, refill, keep],
    };
    let mut tombstones = Vec::new();
    for _ in 0..words.dice.below(4) {
        let mut locks = vec![0, 1, 2];
        while locks.len() > per {
            locks.remove(words.dice.below(locks.len()));
        }
        for &lock in &locks {
            call.keys
                .extend([LOCKS[lock].into(), COUNTERS[lock].into()]);
        }
        if refills {
            tombstones.push(tombstone(words));
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
fn farewell(words: &mut Words) -> (Vec<u8>, Option<Vec<u8>>) {
    match words.chance(50) {
        true => (words.span(), Some(tombstone(words))),
        false => (Vec::new(), None),
    }
}

fn channel(words: &mut Words) -> Vec<u8> {
    words.pick(&["", CHANNELS[0], CHANNELS[1]]).into()
}

fn release(words: &mut Words) -> Call {
    let (life, tombstone) = farewell(words);
    let token = words.token();
    let locks = locks(words);
    if words.chance(50) {
        let set = ["SET", LOCKS[locks[0]]].map(|word| word.as_bytes().to_vec());
        words.before = Some([&set[..], std::slice::from_ref(&token)].concat());
    }
    let mut call = Call {
        keys: Vec::new(),
        args: vec![token],
    };
    for lock in locks {
        call.keys.push(LOCKS[lock].into());
        call.args.push(channel(words));
    }
    if tombstone.is_some() || words.chance(50) {
        call.args.extend([words.pick(&["0", "5"]).into(), life]);
    }
    call.keys.extend(tombstone);
    call
}

/// How the value of readers begins.
fn head(words: &mut Words) -> Vec<u8> {
    words
        .pick(&["H:shared", "H:shared", "H:shared", "A"])
        .into()
}

fn acquire_shared(words: &mut Words) -> Call {
    let lock = words.dice.below(LOCKS.len());
    let mut call = take(words, &[lock]);
    // Another lock stands for the hint of a writer.
    call.keys.push(LOCKS[(lock + 1) % LOCKS.len()].into());
    call.args.push(head(words));
    call
}

fn extend_shared(words: &mut Words) -> Call {
    let lock = words.dice.below(LOCKS.len());
    readers(words, lock);
    let keys = [MARKER, LOCKS[lock], COUNTERS[lock]];
    let mut call = Call {
        keys: texts(&keys),
        args: vec![vote(words), words.token(), words.span(), words.flag()],
    };
    call.keys.extend([tombstone(words), tombstone(words)]);
    let number = match words.chance(70) {
        true => words.number(),
        false => Vec::new(),
    };
    call.args.extend([number, words.span(), head(words)]);
    call
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
        let set = ["SET", LOCKS[lock]].map(|word| word.as_bytes().to_vec());
        words.before = Some([&set[..], &[value]].concat());
    }
}

fn release_shared(words: &mut Words) -> Call {
    let lock = words.dice.below(LOCKS.len());
    readers(words, lock);
    let (life, tombstone) = farewell(words);
    let mut call = Call {
        keys: texts(&[LOCKS[lock]]),
        args: vec![words.token(), life, channel(words), head(words)],
    };
    call.keys.extend(tombstone);
    call
}

fn raise(words: &mut Words) -> Call {
    let mut keys = vec![MARKER.into()];
    for lock in locks(words) {
        keys.extend([LOCKS[lock].into(), COUNTERS[lock].into()]);
    }
    let args = vec![words.token(), words.number(), words.span(), vote(words)];
    Call { keys, args }
}

fn check_in(words: &mut Words) -> Call {
    let [identity, digest] = standing(words);
    Call {
        keys: texts(&[MARKER]),
        args: vec![
            identity,
            digest,
            b"the config".to_vec(),
            words.span(),
            words.pick(&["q1", "q2"]).into(),
            words.pick(&["0", "0", "1"]).into(),
            b"1".to_vec(),
        ],
    }
}

fn promote(words: &mut Words) -> Call {
    let [identity, digest] = standing(words);
    let prefix = words.pick(&[RUN_ID, RUN_ID, RUN_ID, "7|<run id>", "other"]);
    let name = words.pick(&["q1", "q2"]);
    let floor = if words.chance(60) {
        words.number()
    } else {
        Vec::new()
    };
    Call {
        keys: texts(&[MARKER]),
        args: vec![
            identity,
            digest,
            format!("{prefix}:{name}").into_bytes(),
            floor,
            words.span(),
        ],
    }
}

fn recall(words: &mut Words) -> Call {
    let lock = words.dice.below(LOCKS.len());
    let mut call = take(words, &[lock]);
    call.keys.push(RECORD.into());
    call.args.extend([words.flag(), words.span(), words.flag()]);
    call
}

fn complete(words: &mut Words) -> Call {
    let lock = words.dice.below(LOCKS.len());
    let (life, tombstone) = farewell(words);
    let mut call = Call {
        keys: texts(&[MARKER, LOCKS[lock], COUNTERS[lock], RECORD]),
        args: vec![words.token(), life, channel(words), vote(words)],
    };
    call.keys.extend(tombstone);
    if words.chance(80) {
        call.args
            .extend([words.number(), b"a body".to_vec(), words.moment()]);
    } else {
        call.args.extend([Vec::new(), Vec::new(), Vec::new()]);
    }
    call.args.extend([words.flag(), words.flag()]);
    call
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
        keys: vec![words.pick(&LOCKS).into(), words.pick(&LOCKS).into()],
        args: (0..4).map(|_| words.pick(&calls).into()).collect(),
    }
}

fn evictions(_: &mut Words) -> Call {
    Call {
        keys: texts(&[MARKER]),
        args: Vec::new(),
    }
}
