//! A server that comes back with the counters of an hour ago knows less than one that comes back with none: it does not
//! know that it lacks something.

use std::time::Duration;

use tower_redlock::node::RedisNode;
use tower_redlock::{FencingToken, LockManager, Settings};

use crate::settings;
use crate::support::server::{Kind, Server, free_port};
use crate::support::{AheadClock, all_vote, connected, eventually, voting};

/// Longer than any quarantine here, and shorter than what nodes take for a clock that went mad.
const AHEAD: Duration = Duration::from_secs(30 * 60);
const TTL: Duration = Duration::from_secs(1);
/// Nothing here depends on how fast the servers are, and a busy machine takes its time.
const NODE_TIMEOUT: Duration = Duration::from_millis(500);

/// A process that cannot reach the server `away`.
fn cut_off(servers: &[Server], away: Option<usize>) -> Settings {
    let nodes = servers.iter().enumerate().map(|(n, server)| {
        let url = match away {
            Some(away) if away == n => format!("redis://127.0.0.1:{}", free_port()),
            _ => server.url(),
        };
        let node = RedisNode::new(&url).name(format!("n{n}"));
        node.build().unwrap()
    });
    settings(LockManager::builder().nodes(nodes))
        .ttl(TTL)
        .max_ttl(TTL)
        .node_timeout(NODE_TIMEOUT)
}

/// Waits until all servers that `locks` reaches vote for it.
async fn settled(builder: Settings) -> LockManager {
    let locks = builder.connect().await.unwrap();
    eventually("two nodes vote", || voting(&locks) == 2).await;
    locks
}

async fn number(locks: &LockManager, key: &str) -> FencingToken {
    let guard = locks.acquire(key).await.unwrap();
    let number = guard.fence().unwrap();
    guard.release().await.unwrap();
    number
}

/// The first of three servers comes back with what it had saved; meanwhile a process took locks that did not reach the
/// third and whose clock is ahead. Then one goes on that does not reach the second.
#[tokio::test]
async fn tokens_go_on_after_a_server_came_back_with_an_old_snapshot() {
    let mut servers = Server::start_many(Kind::Redis, 3);
    let all = connected(cut_off(&servers, None).bootstrap(true)).await;
    for key in ["counted", "extended"] {
        number(&all, key).await;
    }
    assert_eq!(servers[0].run("SAVE"), "OK");
    let first = settled(cut_off(&servers, Some(2)).clock(AheadClock(AHEAD))).await;
    let mut lost = Vec::new();
    for key in ["counted", "new", "extended"] {
        lost.push((key, number(&first, key).await));
    }
    servers[0].restart();
    // It has its old marker. Only who reaches all servers can tell how far the numbers have come, and lets it vote.
    let run_id = servers[0].info("run_id");
    let knows_itself = || servers[0].run("HGET lk!node identity").starts_with(&run_id);
    eventually("it votes again", knows_itself).await;
    all_vote(&all).await;
    let second = settled(cut_off(&servers, Some(1))).await;
    drop(first);
    for (key, before) in lost {
        for _ in 0..2 {
            let after = number(&second, key).await;
            assert!(after > before, "{key}: {after} after {before}");
        }
    }
}
