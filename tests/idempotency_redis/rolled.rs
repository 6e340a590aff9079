//! Stored responses while all servers are restarted, one after the other, as the guide says.

use crate::*;

const TTL: Duration = Duration::from_millis(400);
const DAY: Duration = Duration::from_secs(86_400);
const RESULT: &[u8] = b"paid";

/// What `examples/ops` gives its servers.
const LOG: &[&str] = &["--appendonly", "yes"];

async fn begin(locks: &LockManager) -> IdempotentRun {
    let begun = locks.begin_idempotent("order:1", DAY, Duration::ZERO);
    begun.await.unwrap()
}

/// What a repeat gets after the roll.
async fn rolled(args: &[&str]) -> IdempotentRun {
    let mut servers = Server::start_many_with(Kind::Redis, 5, args);
    bootstrap(&servers, TTL, 0).await;
    let locks = connected(on(&servers, TTL)).await;
    let IdempotentRun::Execute(run) = begin(&locks).await else {
        panic!("nobody has done it");
    };
    run.complete(RESULT).await.unwrap();
    let has = |server: &Server| records(server).len() == 1;
    eventually("all have it", || servers.iter().all(has)).await;
    for server in &mut servers {
        server.restart();
        locks.all_voting().await.unwrap();
    }
    begin(&locks).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_roll_keeps_stored_responses_of_servers_with_an_append_only_file() {
    let repeat = rolled(LOG).await;
    assert!(
        matches!(&repeat, IdempotentRun::Replay(stored) if stored == RESULT),
        "{repeat:?}"
    );
}

/// The restart guard waits for locks alone, so every server votes again without the record.
#[tokio::test(flavor = "multi_thread")]
async fn a_roll_of_servers_without_persistence_forgets_them() {
    let repeat = rolled(&[]).await;
    assert!(matches!(repeat, IdempotentRun::Execute(_)), "{repeat:?}");
}
