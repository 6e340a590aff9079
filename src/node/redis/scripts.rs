//! The commands that are sent to a server. A command on locks is one script run by its hash. Scripts use nothing newer
//! than Redis 6.2 and carry no flags line, so they run even when the server is out of memory.

use std::io::Write as _;
use std::time::Duration;

use redis::{Cmd, RedisWrite, ToRedisArgs};

use crate::moment::Moment;
use crate::namespace::Namespace;
use crate::node::redis::replies::millis;
pub(super) use crate::node::redis::script::{
    ACQUIRE, ALL, CHECK_IN, COMPLETE, EVICTIONS, EXTEND, PROMOTE, RAISE, RECALL, RELEASE, Script,
};
use crate::node::{
    AcquireRequest, CheckInMode, CheckInRequest, ClusterConfig, CompleteRequest, ExtendRequest,
    PromoteRequest, RaiseRequest, RecallRequest, ReleaseRequest,
};
use crate::token::FencingToken;

/// How many keys of locks one run of the extend script covers: a script holds up all other clients, so a big batch goes
/// out as several short runs.
pub(super) const EXTEND_CHUNK: usize = 100;

/// How long a tombstone lives: longer than a command can wait in the socket of a connection that was given up.
const TOMBSTONE: Duration = Duration::from_secs(60);

const FOREVER: Duration = Duration::from_secs(100 * 366 * 24 * 3_600);

/// In place of the server's identity if it does not matter what data it may have lost.
const ANY: &str = "any";

struct Parts<'a>(&'a [&'a str]);

impl ToRedisArgs for Parts<'_> {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        let mut writer = out.writer_for_next_arg();
        for part in self.0 {
            // Into memory, which does not fail.
            let _ = writer.write_all(part.as_bytes());
        }
    }
}

impl redis::ToSingleRedisArg for Parts<'_> {}

/// A fencing token as servers have it: nineteen digits, which compare as texts.
fn digits(token: FencingToken) -> String {
    format!("{:019}", token.get())
}

/// An expiry in milliseconds that a server accepts.
fn life(keep: Duration) -> u64 {
    millis(keep.min(FOREVER))
}

pub(super) fn acquire(request: &AcquireRequest, identity: &str) -> Cmd {
    take(&ACQUIRE, request, None, identity)
}

/// Whether `SET` serves this request as well as a script: one key, no fencing token, and no restart guard.
pub(super) fn is_bare(request: &AcquireRequest) -> bool {
    let config = request.config.as_deref();
    request.keys.as_slice().len() == 1
        && request.fence.is_none()
        && config.is_none_or(|config| !config.guarded)
}

/// The command for an acquire that [is bare](is_bare).
pub(super) fn set(request: &AcquireRequest) -> Cmd {
    let mut cmd = Cmd::with_capacity(6, 128);
    cmd.arg("SET")
        .arg(request.keys.first().as_str())
        .arg(request.token.expose())
        .arg("NX")
        .arg("PX")
        .arg(millis(request.ttl));
    cmd
}

pub(super) fn recall(request: &RecallRequest, identity: &str, replicated: bool) -> Cmd {
    let record = request.lock.keys.first().record_parts();
    let mut cmd = take(&RECALL, &request.lock, Some(Parts(&record)), identity);
    cmd.arg(flag(request.adopt))
        .arg(life(request.linger))
        .arg(flag(replicated));
    cmd
}

pub(super) fn complete(
    request: &CompleteRequest,
    identity: &str,
    connected: Moment,
    replicated: bool,
) -> Cmd {
    let release = &request.release;
    let (key, namespace) = (release.keys.first(), release.keys.namespace());
    let body = request
        .record
        .as_ref()
        .map_or(0, |record| record.body.len());
    let leaves = needs_tombstone(release, connected);
    let keys = 4 + usize::from(leaves);
    let mut cmd = COMPLETE.run_with(keys, keys + 9, body);
    cmd.arg(Parts(&namespace.marker_parts()))
        .arg(key.as_str())
        .arg(Parts(&key.counter_parts()))
        .arg(Parts(&key.record_parts()));
    if leaves {
        cmd.arg(namespace.tombstone(&release.token));
    }
    cmd.arg(release.token.expose()).arg(tombstone_life(leaves));
    match release.announce {
        true => cmd.arg(Parts(&key.channel_parts())),
        false => cmd.arg(""),
    };
    standing(&mut cmd, request.config.as_deref(), identity);
    match &request.record {
        Some(record) => cmd
            .arg(digits(record.ballot))
            .arg(&record.body[..])
            .arg(record.until),
        None => cmd.arg("").arg("").arg(""),
    };
    cmd.arg(flag(request.chosen)).arg(flag(replicated));
    cmd
}

/// Empty for no.
const fn flag(yes: bool) -> &'static str {
    if yes { "1" } else { "" }
}

fn take(
    script: &Script,
    request: &AcquireRequest,
    beside: Option<Parts<'_>>,
    identity: &str,
) -> Cmd {
    let keys = request.keys.as_slice();
    let namespace = request.keys.namespace();
    let count = 2 + 2 * keys.len() + usize::from(beside.is_some());
    let mut cmd = script.run(count, count + 10);
    cmd.arg(Parts(&namespace.marker_parts()))
        .arg(namespace.tombstone(&request.token));
    for key in keys {
        cmd.arg(key.as_str()).arg(Parts(&key.counter_parts()));
    }
    if let Some(key) = beside {
        cmd.arg(key);
    }
    cmd.arg(request.token.expose()).arg(millis(request.ttl));
    standing(&mut cmd, request.config.as_deref(), identity);
    match request.fence {
        Some(fence) => {
            let lowered = fence.token.get().checked_sub(FencingToken::STEP);
            // Less than every number: a proposal below one step is less than every next fencing token.
            let lowered = lowered.map_or_else(String::new, |lowered| format!("{lowered:019}"));
            cmd.arg(digits(fence.token))
                .arg(lowered)
                .arg(life(fence.keep))
        }
        None => cmd.arg("").arg("").arg(""),
    };
    cmd
}

pub(super) fn raise(request: &RaiseRequest, identity: &str) -> Cmd {
    let keys = request.keys.as_slice();
    let mut cmd = RAISE.run(1 + 2 * keys.len(), 5 + 2 * keys.len());
    cmd.arg(Parts(&request.keys.namespace().marker_parts()));
    for key in keys {
        cmd.arg(key.as_str()).arg(Parts(&key.counter_parts()));
    }
    cmd.arg(request.token.expose())
        .arg(digits(request.fence.token))
        .arg(life(request.fence.keep));
    standing(&mut cmd, request.config.as_deref(), identity);
    cmd
}

pub(super) fn release(request: &ReleaseRequest, connected: Moment) -> Cmd {
    let keys = request.keys.as_slice();
    let leaves = needs_tombstone(request, connected);
    let count = keys.len() + usize::from(leaves);
    let mut cmd = RELEASE.run(count, count + 2 + keys.len());
    for key in keys {
        cmd.arg(key.as_str());
    }
    if leaves {
        cmd.arg(request.keys.namespace().tombstone(&request.token));
    }
    cmd.arg(request.token.expose()).arg(tombstone_life(leaves));
    for key in keys {
        match request.announce {
            true => cmd.arg(Parts(&key.channel_parts())),
            false => cmd.arg(""),
        };
    }
    cmd
}

/// How long the tombstone lives in milliseconds; empty where none is left.
fn tombstone_life(leaves: bool) -> String {
    match leaves {
        true => millis(TOMBSTONE).to_string(),
        false => String::new(),
    }
}

fn needs_tombstone(request: &ReleaseRequest, connected: Moment) -> bool {
    request.since.is_some_and(|since| since <= connected)
}

pub(super) fn extend(requests: &[ExtendRequest], identity: &str) -> Cmd {
    let first = requests.first();
    let refills = first.is_some_and(|first| first.refill);
    let locks: usize = requests.iter().map(|r| r.keys.as_slice().len()).sum();
    let keys = 1 + 2 * locks + if refills { requests.len() } else { 0 };
    let mut cmd = EXTEND.run(keys, 7 + keys + 2 * requests.len());
    let Some(first) = first else {
        return cmd;
    };
    let namespace = first.keys.namespace();
    cmd.arg(Parts(&namespace.marker_parts()));
    for key in requests.iter().flat_map(|request| request.keys.as_slice()) {
        cmd.arg(key.as_str()).arg(Parts(&key.counter_parts()));
    }
    for request in requests.iter().filter(|_| refills) {
        cmd.arg(namespace.tombstone(&request.token));
    }
    standing(&mut cmd, first.config.as_deref(), identity);
    cmd.arg(first.keys.as_slice().len())
        .arg(millis(first.ttl))
        .arg(flag(first.refill));
    match first.fence {
        Some(fence) => cmd.arg(life(fence.keep)),
        None => cmd.arg(""),
    };
    cmd.arg(flag(first.touch));
    for request in requests {
        cmd.arg(request.token.expose());
        if let Some(fence) = request.fence {
            cmd.arg(digits(fence.token));
        }
    }
    cmd
}

/// Whether one run of the script extends both.
fn alike(a: &ExtendRequest, b: &ExtendRequest) -> bool {
    let shape = |request: &ExtendRequest| {
        let keep = request.fence.map(|fence| fence.keep);
        let keys = request.keys.as_slice().len();
        (keys, request.ttl, request.refill, keep, request.touch)
    };
    shape(a) == shape(b) && a.keys.namespace() == b.keys.namespace() && a.config == b.config
}

pub(super) fn chunks(requests: &[ExtendRequest]) -> impl Iterator<Item = &[ExtendRequest]> {
    requests.chunk_by(alike).flat_map(|same| {
        let keys = same.first().map_or(1, |first| first.keys.as_slice().len());
        same.chunks((EXTEND_CHUNK / keys.max(1)).max(1))
    })
}

pub(super) fn check_in(request: &CheckInRequest, identity: &str) -> Cmd {
    let mut cmd = CHECK_IN.run(1, 8);
    cmd.arg(Parts(&request.namespace.marker_parts()))
        .arg(identity_for(&request.config, identity))
        .arg(&request.config.digest)
        .arg(&request.config.text)
        .arg(millis(request.quarantine))
        .arg(&request.fresh);
    match request.mode {
        CheckInMode::Normal => cmd.arg(""),
        CheckInMode::Adopt { former } => cmd.arg(millis(former)),
    };
    cmd.arg(ClusterConfig::FORMAT);
    cmd
}

pub(super) fn promote(request: &PromoteRequest, identity: &str) -> Cmd {
    let mut cmd = PROMOTE.run(1, 5);
    cmd.arg(Parts(&request.namespace.marker_parts()))
        .arg(identity)
        .arg(&request.config.digest)
        .arg(&request.quarantine);
    match request.floor {
        Some(floor) => cmd.arg(digits(floor)),
        None => cmd.arg(""),
    };
    cmd
}

/// The command that looks for evicted keys.
pub(super) fn evictions(namespace: &Namespace) -> Cmd {
    let mut cmd = EVICTIONS.run(1, 1);
    cmd.arg(Parts(&namespace.marker_parts()));
    cmd
}

const fn identity_for<'a>(config: &ClusterConfig, identity: &'a str) -> &'a str {
    if config.guarded { identity } else { ANY }
}

fn standing(cmd: &mut Cmd, config: Option<&ClusterConfig>, identity: &str) {
    match config {
        Some(config) => cmd.arg(Parts(&[
            &config.digest,
            " ",
            identity_for(config, identity),
        ])),
        None => cmd.arg(""),
    };
}
