//! Releases that are refused are repeated.

use crate::*;

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
