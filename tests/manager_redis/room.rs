//! What clients can make grow on the servers, and for how long it stays there.

use std::time::Duration;

use tower_redlock::idempotency::{IdempotentRun, RunGuard};
use tower_redlock::{AcquireError, LockManager};

use crate::support::server::Server;
use crate::{Cluster, MS, connected};

/// For how long anything stays that is kept beside a lock, but what a request came to.
const WHILE: i64 = 5 * 60 * 1_000;
/// How long what a request came to is kept.
const RETENTION: Duration = Duration::from_secs(7 * 24 * 60 * 60);

async fn run(locks: &LockManager, key: &str) -> RunGuard {
    match locks
        .begin_idempotent(key, RETENTION, Duration::ZERO)
        .await
        .unwrap()
    {
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
    crate::support::eventually("an extension", is_extended).await;
    fast.try_acquire("a").await.unwrap_err();
    pair.release().await.unwrap();
    extended.release().await.unwrap();
    assert_short(&cluster.servers, "locks");

    for locks in [&first, &unnumbered] {
        run(locks, "done").await.complete("it").await.unwrap();
        run(locks, "given up").await.abandon().await.unwrap();
        drop(run(locks, "dropped").await);
        let running = run(locks, "running").await;
        let again = locks
            .begin_idempotent("running", RETENTION, Duration::ZERO)
            .await;
        again.unwrap_err();
        assert_short(&cluster.servers, "requests");
        drop(running);
    }

    for server in &mut cluster.servers[..3] {
        server.kill();
    }
    for locks in [&first, &unnumbered] {
        let error = locks.try_acquire("nobody").await.unwrap_err();
        assert!(matches!(error, AcquireError::NoQuorum(_)), "{error}");
        let refused = locks
            .begin_idempotent("nobody", RETENTION, Duration::ZERO)
            .await;
        assert!(
            matches!(refused, Err(AcquireError::NoQuorum(_))),
            "{refused:?}"
        );
    }
    let counted = |server: &Server| server.run("EXISTS lk!fence:nobody") == "1";
    assert!(cluster.servers[3..].iter().any(counted), "nobody was asked");
    assert_short(&cluster.servers[3..], "refused");
}
