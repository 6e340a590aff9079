//! What a refused request leaves on the servers: a counter for some minutes, and nothing else.

use tower_redlock::AcquireError;

use crate::*;

const TTL: Duration = Duration::from_secs(2);
const DAY: Duration = Duration::from_secs(86_400);

/// The keys of requests that the server has, without tombstones, which last for a minute after a connection broke.
fn keys(server: &Server) -> Vec<String> {
    let found = server.command(&["KEYS", "lk!idem*"]);
    let mut found: Vec<String> = found.lines().map(str::to_owned).collect();
    found.retain(|key| !key.contains("!dead:"));
    found.sort();
    found
}

fn is_counter(key: &str) -> bool {
    key.contains("!fence:")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_request_leaves_a_counter_and_nothing_else() {
    let mut servers = Server::start_many(Kind::Redis, 3);
    bootstrap(&servers, TTL, 0).await;
    let locks = connected(on(&servers, TTL)).await;
    let begin = async |key: &str| locks.begin_idempotent(key, DAY, Duration::ZERO).await;

    // The key is in use: no server grants it, and none is left anything.
    let Ok(IdempotentRun::Execute(first)) = begin("order:1").await else {
        panic!("nobody has done it");
    };
    let before: Vec<_> = servers.iter().map(keys).collect();
    let refused = begin("order:1").await.unwrap_err();
    assert!(matches!(refused, AcquireError::Contended { .. }));
    assert_eq!(servers.iter().map(keys).collect::<Vec<_>>(), before);
    // What the layer does where a lock inside of it refuses the request.
    first.abandon().await.unwrap();
    for server in &servers {
        let is_left = || keys(server).iter().all(|key| is_counter(key));
        eventually("a counter is left", is_left).await;
    }

    // One server alone grants it.
    servers[1].kill();
    servers[2].kill();
    let refused = begin("order:2").await.unwrap_err();
    assert!(matches!(refused, AcquireError::NoQuorum(_)));
    let is_left = || {
        let left = keys(&servers[0]);
        left.len() == 2 && left.iter().all(|key| is_counter(key))
    };
    eventually("the counter of the second is left", is_left).await;
}
