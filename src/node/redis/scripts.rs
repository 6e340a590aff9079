//! The commands that are sent to a server.
//!
//! A command on locks is one script run by its hash. The scripts use nothing newer than Redis 6.2, carry no flags
//! line, and therefore run even when the server is out of memory; only setting a new key is refused then.

use std::io::Write as _;
use std::time::Duration;

use redis::{Cmd, RedisWrite, ToRedisArgs};

use crate::moment::Moment;
use crate::mutant::{self, Mutant};
use crate::namespace::Namespace;
use crate::node::redis::replies::millis;
pub(super) use crate::node::redis::script::{
    ACQUIRE, ALL, CHECK_IN, COMPLETE, END_CLAIM, EVICTIONS, EXTEND, PROMOTE, RAISE, RECALL,
    RELEASE, RELEASE_LENT, RELEASE_ONE, Script, VERIFY,
};
use crate::node::{
    AcquireRequest, CheckInMode, CheckInRequest, ClusterConfig, CompleteRequest, EndClaim,
    ExtendRequest, PromoteRequest, RaiseRequest, RecallRequest, ReleaseRequest, VerifyRequest,
};
use crate::token::{FencingToken, OwnerHash};

/// How many keys of locks one run of the extend script covers, or else one lock. A script holds up everybody else on
/// the server, so a big batch goes out as several short runs (in one pipeline).
pub(super) const EXTEND_CHUNK: usize = 100;

/// How long a tombstone lives: longer, as far as can be told, than a command can wait in the socket of a connection
/// that was given up.
const TOMBSTONE: Duration = Duration::from_secs(60);

/// The longest expiry that is sent: servers refuse much longer ones.
const FOREVER: Duration = Duration::from_secs(100 * 366 * 24 * 3_600);

/// In place of the server's identity if it does not matter what data it may have lost.
const ANY: &str = "any";

/// One argument, of several parts: every command has such names, and a text of each would be thrown away at once.
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

/// An expiry in milliseconds that a server accepts.
fn life(keep: Duration) -> u64 {
    millis(keep.min(FOREVER))
}

/// The command for an acquire on the server known as `identity`.
pub(super) fn acquire(request: &AcquireRequest, identity: &str) -> Cmd {
    take(&ACQUIRE, request, None, identity)
}

/// Whether this is a request that `SET` serves as well as a script: one key, no fencing token, and no matter what data
/// the server may have lost. What the script would look at besides is the config, which was compared when the process
/// connected, and the owner's tombstone, without which a late command may set the key for one ttl.
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

/// The command for a recall on the server known as `identity`. If it is `replicated`, a record that is returned must be
/// written again, so that its replicas can be waited for.
pub(super) fn recall(request: &RecallRequest, identity: &str, replicated: bool) -> Cmd {
    let record = request.lock.keys.first().record_parts();
    let mut cmd = take(&RECALL, &request.lock, Some(Parts(&record)), identity);
    if request.lock.fence.is_none() {
        // In place of the other arguments of a fencing token.
        cmd.arg("").arg("");
    }
    cmd.arg(flag(request.adopt))
        .arg(life(request.linger))
        .arg(flag(replicated));
    cmd
}

/// The command for a completion on the server known as `identity`, over a connection that was made at `connected`; for
/// `replicated` see [`recall`].
pub(super) fn complete(
    request: &CompleteRequest,
    identity: &str,
    connected: Moment,
    replicated: bool,
) -> Cmd {
    let key = request.release.keys.first();
    let beside = [key.counter_parts(), key.record_parts()];
    let body = request
        .record
        .as_ref()
        .map_or(0, |record| record.body.len());
    let beside = [Parts(&beside[0]), Parts(&beside[1])];
    let mut cmd = give_back(&COMPLETE, &request.release, &beside, connected, body);
    standing(&mut cmd, request.config.as_deref(), identity);
    match &request.record {
        Some(record) => cmd
            .arg(record.ballot.get())
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

/// A run of `script`, which acquires a lock, with the extra key `beside` after the lock's keys.
fn take(
    script: &Script,
    request: &AcquireRequest,
    beside: Option<Parts<'_>>,
    identity: &str,
) -> Cmd {
    let keys = request.keys.as_slice();
    let namespace = request.keys.namespace();
    let count = 1 + 2 * keys.len() + usize::from(beside.is_some());
    let mut cmd = script.run(count, count + 10);
    cmd.arg(Parts(&namespace.marker_parts()));
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
            let proposal = fence.token.get();
            cmd.arg(proposal);
            match proposal.checked_sub(FencingToken::STEP) {
                Some(lowered) => cmd.arg(lowered),
                // Less than every number: a proposal below one step is less than every next fencing token.
                None => cmd.arg(""),
            };
            cmd.arg(life(fence.keep));
        }
        None => {
            cmd.arg("");
        }
    }
    cmd
}

/// The command for a raise.
pub(super) fn raise(request: &RaiseRequest, identity: &str) -> Cmd {
    let keys = request.keys.as_slice();
    let mut cmd = RAISE.run(1 + 2 * keys.len(), 6 + 2 * keys.len());
    cmd.arg(Parts(&request.keys.namespace().marker_parts()));
    for key in keys {
        cmd.arg(key.as_str()).arg(Parts(&key.counter_parts()));
    }
    cmd.arg(request.token.expose())
        .arg(request.fence.token.get())
        .arg(life(request.fence.keep));
    let agreed = request.config.as_deref();
    config(
        &mut cmd,
        agreed.filter(|_| !mutant::is(Mutant::RaisedInQuarantine)),
        identity,
    );
    cmd
}

/// The script for a release on a connection that was made at `connected`, and the command.
pub(super) fn release(request: &ReleaseRequest, connected: Moment) -> (&'static Script, Cmd) {
    if request.lent {
        let (namespace, owner) = (request.keys.namespace(), OwnerHash::of(&request.token));
        let [loans, borrowers] = [namespace.loans(&owner), namespace.borrowers(&owner)];
        let beside = [Parts(&[&loans]), Parts(&[&borrowers])];
        let cmd = give_back(&RELEASE_LENT, request, &beside, connected, 0);
        return (&RELEASE_LENT, cmd);
    }
    match request.keys.as_slice() {
        [key] if !needs_tombstone(request, connected) => {
            let mut cmd = RELEASE_ONE.run(1, 3);
            cmd.arg(key.as_str()).arg(request.token.expose());
            match request.announce {
                true => cmd.arg(Parts(&key.channel_parts())),
                false => cmd.arg(""),
            };
            (&RELEASE_ONE, cmd)
        }
        _ => (&RELEASE, give_back(&RELEASE, request, &[], connected, 0)),
    }
}

/// Whether commands of this owner may have been given up with an earlier connection.
fn needs_tombstone(request: &ReleaseRequest, connected: Moment) -> bool {
    let is_new = request.since.is_some_and(|since| since <= connected);
    is_new && !mutant::is(Mutant::NoTombstone)
}

/// A run of `script`, which releases a lock, with the extra keys `beside` after the lock's keys, and with room for so
/// many bytes more.
fn give_back(
    script: &Script,
    request: &ReleaseRequest,
    beside: &[Parts<'_>],
    connected: Moment,
    room: usize,
) -> Cmd {
    let keys = request.keys.as_slice();
    let count = 2 + keys.len() + beside.len();
    let mut cmd = script.run_with(count, count + 2 + keys.len() + 6, room);
    let namespace = request.keys.namespace();
    cmd.arg(Parts(&namespace.marker_parts()))
        .arg(namespace.tombstone(&request.token));
    for key in keys {
        cmd.arg(key.as_str());
    }
    for key in beside {
        cmd.arg(key);
    }
    cmd.arg(request.token.expose());
    if needs_tombstone(request, connected) {
        cmd.arg(millis(TOMBSTONE));
    } else {
        cmd.arg("");
    }
    for key in request.keys.as_slice() {
        if request.announce {
            cmd.arg(Parts(&key.channel_parts()));
        } else {
            cmd.arg("");
        }
    }
    cmd
}

/// The command for one chunk of an extend: locks that are [alike].
pub(super) fn extend(requests: &[ExtendRequest], identity: &str) -> Cmd {
    let keys: usize = requests.iter().map(|r| 2 * r.keys.as_slice().len()).sum();
    let mut cmd = EXTEND.run(1 + keys, 8 + keys + 2 * requests.len());
    let Some(first) = requests.first() else {
        return cmd;
    };
    cmd.arg(Parts(&first.keys.namespace().marker_parts()));
    for request in requests {
        for key in request.keys.as_slice() {
            cmd.arg(key.as_str()).arg(Parts(&key.counter_parts()));
        }
    }
    config(&mut cmd, first.config.as_deref(), identity);
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
            cmd.arg(fence.token.get());
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

/// The requests in chunks that fit one run of the script each.
pub(super) fn chunks(requests: &[ExtendRequest]) -> impl Iterator<Item = &[ExtendRequest]> {
    requests.chunk_by(alike).flat_map(|same| {
        let keys = same.first().map_or(1, |first| first.keys.as_slice().len());
        same.chunks((EXTEND_CHUNK / keys.max(1)).max(1))
    })
}

/// The command for a verify.
pub(super) fn verify(request: &VerifyRequest, identity: &str) -> Cmd {
    let keys = request.keys.as_slice();
    let namespace = request.keys.namespace();
    let mut cmd = VERIFY.run(3 + keys.len(), 9 + keys.len());
    cmd.arg(Parts(&namespace.marker_parts()));
    for key in keys {
        cmd.arg(key.as_str());
    }
    cmd.arg(namespace.loans(&request.owner))
        .arg(namespace.borrowers(&request.owner));
    config(&mut cmd, request.config.as_deref(), identity);
    cmd.arg(request.owner.as_str());
    match &request.claim {
        Some(claim) => cmd
            .arg(claim.loan)
            .arg(claim.borrower.expose())
            .arg(life(claim.keep)),
        None => cmd.arg(""),
    };
    cmd
}

/// The command for the end of a claim.
pub(super) fn end_claim(request: &EndClaim) -> Cmd {
    let (namespace, claim) = (request.keys.namespace(), &request.claim);
    let mut cmd = END_CLAIM.run(3, 8);
    cmd.arg(namespace.loans(&request.owner))
        .arg(namespace.borrowers(&request.owner))
        .arg(request.keys.first().as_str())
        .arg(claim.loan)
        .arg(claim.borrower.expose())
        .arg(flag(request.ran))
        .arg(request.owner.as_str())
        .arg(life(claim.keep));
    cmd
}

/// The command for a check-in.
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

/// The command for a promotion.
pub(super) fn promote(request: &PromoteRequest, identity: &str) -> Cmd {
    let mut cmd = PROMOTE.run(1, 5);
    cmd.arg(Parts(&request.namespace.marker_parts()))
        .arg(identity)
        .arg(&request.config.digest)
        .arg(&request.quarantine);
    match request.floor {
        Some(floor) => cmd.arg(floor.get()),
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

/// The server's identity, as far as it matters under `config`.
const fn identity_for<'a>(config: &ClusterConfig, identity: &'a str) -> &'a str {
    if config.guarded { identity } else { ANY }
}

/// Adds what a node's vote must be for: the digest of the config and the server's identity; an empty argument without a
/// config.
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

/// Adds the server's identity and the digest of the config; two empty arguments without a config.
fn config(cmd: &mut Cmd, config: Option<&ClusterConfig>, identity: &str) {
    match config {
        Some(config) => cmd.arg(identity_for(config, identity)).arg(&config.digest),
        None => cmd.arg("").arg(""),
    };
}
