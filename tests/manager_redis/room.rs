//! What clients can make grow on the servers, and for how long it stays there.

use std::ops::RangeInclusive;

use tower_redlock::idempotency::{IdempotentRun, RunGuard};

use crate::*;

/// For how long anything stays that is kept beside a lock, but what a request came to.
const WHILE: i64 = 5 * 60 * 1_000;
/// How long what a request came to is kept.
const RETENTION: Duration = Duration::from_secs(7 * 24 * 60 * 60);

async fn begin(locks: &LockManager, key: &str) -> Result<IdempotentRun, AcquireError> {
    let begun = locks.begin_idempotent(key, RETENTION, Duration::ZERO);
    begun.await
}

async fn run(locks: &LockManager, key: &str) -> RunGuard {
    match begin(locks, key).await.unwrap() {
        IdempotentRun::Execute(run) => run,
        other => panic!("already done: {other:?}"),
    }
}

/// How much longer each key of `server` is there.
fn lives(server: &Server) -> Vec<(String, i64)> {
    let keys = server.run("KEYS *");
    let live = |key: &str| server.command(&["PTTL", key]).parse().unwrap();
    keys.lines()
        .map(|key| (key.to_owned(), live(key)))
        .collect()
}

/// Asserts that nothing stays for long on the servers of a cluster that were not killed.
#[track_caller]
fn assert_short(servers: &[Server], claim: &str) {
    for server in servers {
        for (key, left) in lives(server) {
            // The memory of itself is one for all keys.
            let stays = key.ends_with("!node");
            // After the three words of a grant there are those of a record, if there is one.
            let has_body = key.contains("!record:")
                && server.command(&["GET", &key]).split_whitespace().count() > 3;
            let most = if has_body {
                i64::try_from(RETENTION.as_millis()).unwrap()
            } else {
                WHILE
            };
            // -2: it has just gone.
            let short = left == -2 || (0..=most).contains(&left);
            assert!(stays || short, "{claim}: {key} stays for {left} ms");
        }
    }
}

#[tokio::test]
async fn nothing_that_a_client_names_stays_for_long() {
    let mut cluster = Cluster::start();
    let first = cluster.manager().await;
    let unnumbered = cluster.builder().namespace("bare").without_fencing();
    let unnumbered = connected(unnumbered).await;
    let fast = cluster.builder().ttl(300 * MS).node_timeout(200 * MS);
    let fast = connected(fast).await;

    drop(first.try_acquire("granted").await.unwrap());
    let pair = first.acquire(["a", "b"]).await.unwrap();
    let extended = fast.try_acquire("extended").await.unwrap();
    let mut least = extended.remaining();
    let is_extended = || {
        let before = least;
        least = extended.remaining();
        least > before
    };
    eventually("an extension", is_extended).await;
    fast.try_acquire("a").await.unwrap_err();
    pair.release().await.unwrap();
    extended.release().await.unwrap();
    assert_short(&cluster.servers, "locks");

    for locks in [&first, &unnumbered] {
        run(locks, "done").await.complete("it").await.unwrap();
        run(locks, "given up").await.abandon().await.unwrap();
        drop(run(locks, "dropped").await);
        let running = run(locks, "running").await;
        begin(locks, "running").await.unwrap_err();
        assert_short(&cluster.servers, "requests");
        drop(running);
    }

    cluster.servers[..3].iter_mut().for_each(Server::kill);
    for locks in [&first, &unnumbered] {
        let error = locks.try_acquire("nobody").await.unwrap_err();
        assert!(matches!(error, AcquireError::NoQuorum(_)), "{error}");
        let error = begin(locks, "nobody").await.unwrap_err();
        assert!(matches!(error, AcquireError::NoQuorum(_)), "{error}");
    }
    let counted = |server: &Server| server.run("EXISTS lk!fence:nobody") == "1";
    assert!(cluster.servers[3..].iter().any(counted), "nobody was asked");
    assert_short(&cluster.servers[3..], "refused");
}

/// The builder's time is at least its own ttl; the locks of another handle may last longer.
#[tokio::test]
async fn counters_outlive_the_leases_of_every_handle() {
    const SECOND: Duration = Duration::from_secs(1);
    let cluster = Cluster::start();
    let builder = cluster.builder().ttl(3 * SECOND).max_ttl(12 * SECOND);
    let builder = builder.node_timeout(200 * MS);
    let usual = connected(builder.fencing_keep(3 * SECOND)).await;
    let long = usual.with_ttl(12 * SECOND).unwrap();
    // For how many milliseconds most servers keep it.
    let is_kept = |counter: &str, bounds: RangeInclusive<u64>| {
        let lives = cluster.run(&format!("PTTL {counter}"));
        let lives = lives.iter().filter_map(|left| left.parse().ok());
        lives.filter(|left| bounds.contains(left)).count() >= 3
    };
    let first = usual.try_acquire("usual").await.unwrap();
    assert!(is_kept("lk!fence:usual", 1..=3_000));
    let second = long.try_acquire("long").await.unwrap();
    assert!(is_kept("lk!fence:long", 6_000..=12_000));
    // Each extension is a use, and a new life of that length.
    cluster.run("PEXPIRE lk!fence:long 8000");
    let extended = || is_kept("lk!fence:long", 8_001..=12_000);
    eventually("an extension", extended).await;
    first.release().await.unwrap();
    second.release().await.unwrap();
    let run = run(&long, "run").await;
    // A run may last for `max_hold`, and a ttl more where a node lost it early.
    assert!(is_kept("lk!idem!fence:run", 66_000..=72_001));
    run.abandon().await.unwrap();
}

#[tokio::test]
async fn on_the_server_a_lock_is_a_string_with_an_expiry_beside_its_counter_and_the_marker() {
    let cluster = Cluster::start();
    let locks = cluster.manager().await;
    let _guard = locks.acquire("order:42").await.unwrap();
    eventually("everywhere", || cluster.holding("order:42") == 5).await;
    let tokens = cluster.run("GET lk:order:42");
    assert!(tokens.iter().all(|token| *token == tokens[0]));
    for server in &cluster.servers {
        assert_eq!(server.locks(), ["lk:order:42"]);
        let all = ["lk:order:42", "lk!fence:order:42", "lk!node"];
        let types = all.map(|key| server.command(&["TYPE", key]));
        assert_eq!(types, ["string", "string", "hash"]);
        assert_eq!(server.run("DBSIZE"), "3");
        let left: u128 = server.run("PTTL lk:order:42").parse().unwrap();
        let ttl = LONG.as_millis();
        assert!(left <= ttl && left > ttl / 2, "{left}");
    }
}
