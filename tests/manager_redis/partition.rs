//! Both sides of a partition have a master: one that its Sentinels have replaced, and one that they have not all heard
//! of.

use std::sync::{Arc, Mutex};

use tokio::time::{Instant, sleep, sleep_until};
use tower_redlock::node::NodeError;

use crate::support::fake::Fake;
use crate::support::sentinel::says;
use crate::*;

const TTL: Duration = Duration::from_secs(2);
/// For how long the word of the Sentinels counts.
const WITHIN: Duration = Duration::from_millis(800);

/// What each of three Sentinels tells: the port of the master and the number of failovers, or nothing.
type View = [Option<(u16, u32)>; 3];

/// A node with two masters, and two nodes beside it.
struct Scene {
    old: Server,
    new: Server,
    // Who must acknowledge what the masters are told, if anybody must.
    replicas: Vec<Server>,
    second: Server,
    third: Server,
    sentinels: Vec<Fake>,
    // What the two processes are told.
    views: Arc<Mutex<[View; 2]>>,
}

impl Scene {
    async fn start(replicated: bool) -> Self {
        let old = Server::start(Kind::Redis, &[]);
        let new = Server::replica_of(&old, &[]);
        let view = [Some((old.port(), 0)); 3];
        let views = Arc::new(Mutex::new([view; 2]));
        let mut sentinels = Vec::new();
        for index in 0..3 {
            let views = Arc::clone(&views);
            let fake = Fake::start_for_users(move |user, words| {
                if words[0] != "SENTINEL" {
                    return "+OK\r\n".to_owned();
                }
                let process = usize::from(user == "p2");
                let told = views.lock().unwrap()[process][index];
                told.map_or_else(String::new, |(port, epoch)| {
                    says(words, &format!("s{index}"), "127.0.0.1", port, epoch)
                })
            });
            sentinels.push(fake.await);
        }
        let replica = replicated.then(|| Server::replica_of(&old, &[]));
        let scene = Self {
            replicas: replica.into_iter().collect(),
            old,
            new,
            second: Server::start(Kind::Redis, &[]),
            third: Server::start(Kind::Redis, &[]),
            sentinels,
            views,
        };
        for server in [&scene.second, &scene.third] {
            for user in ["p1", "p2"] {
                server.run(&format!("ACL SETUSER {user} on >x ~* &* +@all"));
            }
        }
        scene
    }

    fn tell(&self, process: usize, view: View) {
        self.views.lock().unwrap()[process] = view;
    }

    /// The node with two masters.
    fn node(&self, user: &str) -> RedisNode {
        let urls = self.sentinels.iter().map(|fake| fake.url_as(user));
        let node = RedisNode::sentinel(urls, "mymaster").confirm_within(WITHIN);
        match self.replicas.is_empty() {
            true => node,
            false => node.require(1).within(300 * MS),
        }
    }

    /// A process that has `node` with two masters.
    fn with(&self, node: RedisNode, user: &str) -> Settings {
        let others = [&self.second, &self.third];
        let others = others.map(|server| RedisNode::new(&server.url_as(user, "x")));
        let builder = LockManager::builder().redis_nodes([node]);
        builder.redis_nodes(others).ttl(TTL).max_ttl(TTL)
    }

    async fn process(&self, user: &str) -> LockManager {
        let builder = self.with(self.node(user), user).bootstrap(true);
        connected(builder.max_clock_skew(10 * MS).node_timeout(600 * MS)).await
    }

    /// The first process is left with the old master and the second node; the other one with the new master and the
    /// third. Returns when the Sentinels had said their last word for the old master.
    fn part(&mut self) -> Instant {
        self.new.run("REPLICAOF NO ONE");
        if !self.replicas.is_empty() {
            self.replicas.push(Server::replica_of(&self.new, &[]));
        }
        let (old, new) = ((self.old.port(), 0), (self.new.port(), 1));
        self.tell(0, [Some(old), None, None]);
        self.tell(1, [None, Some(new), Some(new)]);
        let parted = Instant::now();
        for (server, user) in [(&self.third, "p1"), (&self.second, "p2")] {
            server.run(&format!("ACL SETUSER {user} off"));
            server.run(&format!("CLIENT KILL USER {user}"));
        }
        parted
    }

    fn heal(&self) {
        let new = Some((self.new.port(), 1));
        for (process, user) in ["p1", "p2"].iter().enumerate() {
            self.tell(process, [new; 3]);
            for server in [&self.second, &self.third] {
                server.run(&format!("ACL SETUSER {user} on"));
            }
        }
    }
}

/// Tries until the lock is granted. Fails if the other one still holds it then.
async fn granted_after(locks: &LockManager, other: &LockGuard) -> LockGuard {
    let begin = Instant::now();
    loop {
        match locks.try_acquire("order:1").await {
            Ok(guard) => {
                assert!(other.is_lost(), "a second holder");
                return guard;
            }
            Err(AcquireError::NoQuorum(_)) => {}
            Err(error) => assert!(is_contended(&error), "{error}"),
        }
        assert!(begin.elapsed() < 2 * PATIENCE, "it is never granted");
        sleep(5 * MS).await;
    }
}

async fn one_side_of_a_partition_holds_at_a_time(replicated: bool) {
    let mut scene = Scene::start(replicated).await;
    let (first, second) = (scene.process("p1").await, scene.process("p2").await);
    let held = first.acquire("order:1").await.unwrap();
    let parted = scene.part();
    // It is renewed until the last word for the old master has grown old.
    let lost = async {
        sleep_until(parted + WITHIN + TTL).await;
        held.is_lost()
    };
    let (guard, lost) = tokio::join!(granted_after(&second, &held), lost);
    assert!(lost, "held on a node that was replaced");
    assert!(
        parted.elapsed() >= TTL + WITHIN,
        "the old one may have counted"
    );
    assert!(guard.fence() > held.fence(), "and it is a later one");
    let state = &first.snapshot().nodes[0].state;
    let is_told = |reason: &NodeError| reason.to_string().contains("most of its Sentinels");
    assert!(
        matches!(state, NodeState::Down(reason) if is_told(reason)),
        "{state:?}"
    );
    let error = first.try_acquire("order:2").await.unwrap_err();
    assert!(matches!(error, AcquireError::NoQuorum(_)), "{error}");
    // It goes on being held by the side that has most Sentinels, and by that alone.
    sleep(2 * TTL).await;
    assert!(!guard.is_lost());
    guard.release().await.unwrap();

    scene.heal();
    all_vote(&first).await;
    all_vote(&second).await;
    let _held = first.acquire("order:1").await.unwrap();
    let error = second.try_acquire("order:1").await.unwrap_err();
    assert!(is_contended(&error), "{error}");
}

#[tokio::test]
async fn a_master_that_was_replaced_behind_a_partition_no_longer_counts() {
    one_side_of_a_partition_holds_at_a_time(false).await;
}

#[tokio::test]
async fn a_master_with_a_replica_that_was_replaced_behind_a_partition_no_longer_counts() {
    one_side_of_a_partition_holds_at_a_time(true).await;
}

/// What most Sentinels have not heard of yet is no master, though it takes itself for one.
#[tokio::test]
async fn the_quarantine_begins_when_most_sentinels_know_the_new_master() {
    let scene = Scene::start(false).await;
    let first = scene.process("p1").await;
    let held = first.acquire("order:1").await.unwrap();
    scene.new.run("REPLICAOF NO ONE");
    let (old, new) = ((scene.old.port(), 0), (scene.new.port(), 1));
    // One Sentinel has made it the master; the others are cut off from it.
    scene.tell(1, [Some(new), None, None]);
    let builder = LockManager::builder().redis_nodes([scene.node("p2")]);
    let alone = builder.connect_lazy().unwrap();
    eventually("looked for", || is_down(&alone, 0)).await;
    assert_eq!(scene.new.run("HEXISTS lk!node quarantine"), "0");
    assert!(!held.is_lost(), "most Sentinels stand by the old one");
    scene.tell(0, [Some(new), Some(old), Some(old)]);
    sleep(2 * WITHIN + TTL).await;
    assert!(!held.is_lost(), "and still do");
}

/// A failover there and back again, faster than Sentinel demotes who was replaced: in its own eyes nothing has happened
/// to the old master, and it has none of the locks that were granted meanwhile.
#[tokio::test]
async fn a_master_that_is_made_so_once_more_is_quarantined_though_it_was_never_demoted() {
    let scene = Scene::start(false).await;
    let locks = scene.process("p1").await;
    scene.new.run("REPLICAOF NO ONE");
    for (server, epoch) in [(&scene.new, 1), (&scene.old, 2)] {
        scene.tell(0, [Some((server.port(), epoch)); 3]);
        let is_new = || server.run("HEXISTS lk!node quarantine") == "1";
        eventually("in quarantine", is_new).await;
        assert_eq!(server.run("HEXISTS lk!node identity"), "0");
        eventually("known", || is_quarantined(&locks, 0)).await;
    }
    all_vote(&locks).await;
    assert!(scene.old.run("HGET lk!node identity").starts_with("2|"));
}

#[tokio::test]
async fn processes_with_other_sentinels_are_refused() {
    let scene = Scene::start(false).await;
    let _first = scene.process("p1").await;
    let urls = scene.sentinels.iter().map(|fake| fake.url_as("p2"));
    let urls: Vec<String> = urls.collect();
    let fewer = RedisNode::sentinel(&urls[..2], "mymaster").confirm_within(WITHIN);
    let named = urls.iter().map(|url| url.replace("127.0.0.1", "localhost"));
    let named = RedisNode::sentinel(named, "mymaster").confirm_within(WITHIN);
    let longer = scene.node("p2").confirm_within(WITHIN + MS);
    for node in [fewer, named, longer] {
        let error = scene.with(node, "p2").connect().await.unwrap_err();
        let text = error.to_string();
        let both = text.matches("master `mymaster` as most of").count();
        assert!(both >= 2 && text.contains("said within 800ms"), "{text}");
    }
}
