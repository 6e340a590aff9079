//! Locks that are held while their servers are killed and come back empty.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::time::{Instant, sleep};
use tower_redlock::node::{NodeError, NodeErrorKind};

use crate::support::wrapper::{Between, Call, Reply, Wrapped};
use crate::*;

const TTL: Duration = Duration::from_secs(3);

fn short(builder: Settings) -> Settings {
    builder.ttl(TTL).max_ttl(TTL).node_timeout(300 * MS)
}

#[tokio::test]
async fn a_lock_outlives_the_kill_of_its_only_server() {
    let mut server = Server::start(Kind::Redis, &[]);
    let builder = || short(LockManager::builder().redis([server.url()]).bootstrap(true));
    let locks = connected(builder()).await;
    let other = connected(builder().bootstrap(false)).await;
    let guard = locks.try_acquire("k").await.unwrap();
    let fence = guard.fence();
    let began = Instant::now();
    for kills in 1..=2 {
        sleep(TTL / 3).await;
        server.restart();
        // Longer than any lease from before: the new server alone has it.
        while began.elapsed() < kills * 3 * TTL / 2 {
            assert!(!guard.is_lost(), "after {:?}", began.elapsed());
            other.try_acquire("k").await.unwrap_err();
            sleep(50 * MS).await;
        }
    }
    // It votes again at last, and knows the lock.
    all_up(&other).await;
    let error = other.try_acquire("k").await.unwrap_err();
    assert!(is_contended(&error), "{error}");
    assert!(!guard.is_lost());
    guard.release().await.unwrap();
    let next = other.try_acquire("k").await.unwrap();
    assert!(next.fence() > fence);
}

#[tokio::test]
async fn a_lock_ends_whose_only_server_comes_back_too_late() {
    let mut server = Server::start(Kind::Redis, &[]);
    let builder = short(LockManager::builder().redis([server.url()]).bootstrap(true));
    let locks = connected(builder).await;
    let guard = locks.try_acquire("k").await.unwrap();
    server.kill();
    eventually("the end", || guard.is_lost()).await;
    server.restart();
    sleep(TTL / 2).await;
    assert!(guard.is_lost());
    assert_eq!(server.run("EXISTS lk:k"), "0", "it is not set again");
}

/// The way of one process to a server.
#[derive(Clone, Debug)]
struct Link {
    node: LiveNode,
    way: Arc<Way>,
}

#[derive(Debug, Default)]
struct Way {
    is_cut: AtomicBool,
    // Acquires arrive so many milliseconds late.
    late: AtomicU64,
}

impl Link {
    fn to(server: &Server) -> Self {
        Self {
            node: RedisNode::new(&server.url()).build().unwrap(),
            way: Arc::default(),
        }
    }

    fn cut(&self, is_cut: bool) {
        self.way.is_cut.store(is_cut, Ordering::SeqCst);
    }
}

impl Between for Link {
    type Node = LiveNode;

    fn node(&self) -> &LiveNode {
        &self.node
    }

    fn pass<T: Send + 'static>(&self, call: Call, reply: Reply<T>) -> Reply<T> {
        let way = Arc::clone(&self.way);
        Box::pin(async move {
            if way.is_cut.load(Ordering::SeqCst) && !matches!(call, Call::Ready | Call::Close) {
                let text = "the link is cut";
                return Err(NodeError::of(NodeErrorKind::Unavailable, text));
            }
            if call == Call::Acquire {
                sleep(Duration::from_millis(way.late.load(Ordering::SeqCst))).await;
            }
            reply.await
        })
    }
}

/// With time for a server to restart in the midst of it.
const LONGER: Duration = Duration::from_secs(5);

async fn process(links: &[Link], node_timeout: Duration) -> LockManager {
    let builder = LockManager::builder().nodes(links.iter().cloned().map(Wrapped));
    // One fencing token would have to be written to a server that has forgotten its own.
    let builder = builder.ttl(LONGER).max_ttl(LONGER).without_fencing();
    connected(builder.node_timeout(node_timeout).bootstrap(true)).await
}

/// One process holds the lock by two servers. Another was granted it by the third, which forgets that; the first writes
/// its lock there. If that counted, the second would be granted the lock by the server that the first has lost, too.
#[tokio::test]
async fn a_server_that_forgot_the_vote_of_another_does_not_count() {
    let mut servers = Server::start_many(Kind::Redis, 3);
    let a: Vec<Link> = servers.iter().map(Link::to).collect();
    let b: Vec<Link> = servers.iter().map(Link::to).collect();
    // The one asks again soon, the other waits for long.
    let (first, second) = (process(&a, 200 * MS).await, process(&b, LONGER).await);
    a[2].cut(true);
    let guard = first.try_acquire("k").await.unwrap();
    let began = Instant::now();
    // It keeps what the first server granted at that time, and hears no more of it.
    a[0].cut(true);
    sleep(LONGER / 2).await;
    b[1].cut(true);
    let late = u64::try_from((LONGER * 7 / 10).as_millis()).unwrap();
    b[0].way.late.store(late, Ordering::SeqCst);
    let attempt = tokio::spawn(async move { (second.try_acquire("k").await, second) });
    eventually("the third grants it", || {
        servers[2].run("EXISTS lk:k") == "1"
    })
    .await;
    servers[2].restart();
    a[2].cut(false);
    eventually("the first writes it there", || {
        servers[2].run("EXISTS lk:k") == "1"
    })
    .await;
    assert!(began.elapsed() < LONGER, "too late to show anything");
    let (other, _second) = attempt.await.unwrap();
    // Its first extension may have found by now that the third server has the token of the other.
    let _other = other.unwrap();
    assert!(guard.is_lost(), "two holders");
}
