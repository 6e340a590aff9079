//! Calls that are dropped while servers are asked leave no key on any server, and releases that are refused are repeated.

use std::pin::pin;

use futures_util::FutureExt as _;
use tokio::task::yield_now;

use crate::*;

/// Polls `future` so many times, with the other tasks and the servers at work in between, and drops it.
///
/// Returns its output if it was ready by then. `pause` chooses how long the pauses are.
async fn poll_and_drop<F: Future>(future: F, polls: usize, pause: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    for _ in 0..polls {
        if let Some(output) = future.as_mut().now_or_never() {
            return Some(output);
        }
        for _ in 0..pause {
            yield_now().await;
        }
    }
    None
}

#[tokio::test]
async fn an_acquire_dropped_anywhere_leaves_nothing() {
    let cluster = Cluster::start();
    let locks = cluster.manager().await;
    let (mut early, mut late) = (0, 0);
    for round in 0..240 {
        // The points differ in how often the future was polled and how far the connections came in between.
        let (polls, pause) = (1 + round % 12, round / 12);
        match poll_and_drop(locks.acquire("order:1"), polls, pause).await {
            None => early += 1,
            Some(guard) => {
                late += 1;
                drop(guard.unwrap());
            }
        }
        if round % 4 == 0 {
            cluster.settle_free("a dropped acquire").await;
        }
    }
    assert!(early > 20 && late > 20, "{early} before, {late} after");
    cluster.settle_free("all dropped acquires").await;
}

const NONE: &str = "rejected_calls=0,failed_calls=0";

/// What a server says for a moment: while somebody's script runs, a replica is away, or an operator changes a right.
#[tokio::test]
async fn a_release_that_is_refused_for_a_moment_is_tried_again() {
    let server = Server::start(Kind::Redis, &[]);
    server.run("ACL SETUSER locks on >s3cret ~* &* +@all");
    server.run("CONFIG SET lua-time-limit 10");
    let builder = LockManager::builder().bootstrap(true);
    let builder = builder.ttl(LONG).max_ttl(LONG);
    let url = server.url_as("locks", "s3cret");
    let locks = builder.redis([url]).connect().await.unwrap();
    let is_held = || server.run("EXISTS lk:order:1") == "1";
    for (set, refuse, allow) in [
        ("ACL SETUSER locks", "-evalsha", "+evalsha"),
        ("CONFIG SET min-replicas-to-write", "1", "0"),
    ] {
        for awaits in [true, false] {
            locks.all_voting().await.unwrap();
            let guard = locks.acquire("order:1").await.unwrap();
            server.run("CONFIG RESETSTAT");
            server.run(&format!("{set} {refuse}"));
            if awaits {
                guard.release().await.unwrap_err();
            } else {
                drop(guard);
            }
            // Before Redis 7.0 the error of a call inside a script has no statistics of its own.
            let was_refused = || {
                let stats = server.run("INFO commandstats");
                let script = |line: &&str| line.starts_with("cmdstat_evalsha:");
                let of_script = stats.lines().find(script).unwrap_or_default();
                of_script.contains("_calls=") && !of_script.contains(NONE)
            };
            eventually("refused", was_refused).await;
            assert!(is_held(), "{set}");
            server.run(&format!("{set} {allow}"));
            eventually("released", || !is_held()).await;
        }
    }
    locks.all_voting().await.unwrap();
    let guard = locks.acquire("order:1").await.unwrap();
    let mut other = server.raw();
    let script = std::thread::spawn(move || {
        other.command(&["EVAL", "for i = 1, 1e8 do end return 'over'", "0"])
    });
    eventually("busy", || server.run("PING").contains("BUSY")).await;
    guard.release().await.unwrap_err();
    assert_eq!(script.join().unwrap().unwrap(), "over");
    eventually("released", || !is_held()).await;
}
