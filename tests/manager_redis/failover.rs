//! A master that is killed, and the replica that takes its place.

use crate::support::sentinel::Sentinel;
use crate::*;

/// One node: a master, its replica, and the Sentinel that watches them.
struct Scene {
    master: Server,
    replica: Server,
    sentinel: Sentinel,
}

impl Scene {
    fn start(kind: Kind) -> Self {
        let master = Server::start(kind, &[]);
        let replica = Server::replica_of(&master, &[]);
        let sentinel = Sentinel::start(kind, &master, 1);
        Self {
            master,
            replica,
            sentinel,
        }
    }

    /// The node as one that takes the master's word.
    fn plain(&self) -> RedisNode {
        RedisNode::sentinel([self.sentinel.url()], "mymaster")
    }

    /// The node as one that needs the replica's word, too.
    fn strict(&self) -> RedisNode {
        self.plain().require(1).within(300 * MS)
    }

    /// Cuts the replica off: what the master takes from now on does not reach it, not even late.
    fn cut_off(&self) {
        self.replica.freeze();
        self.master.run("CLIENT KILL TYPE replica");
    }

    /// Kills the master and waits until the replica has taken its place.
    async fn fail_over(&mut self) {
        self.master.kill();
        self.replica.thaw();
        let port = self.replica.port();
        eventually("promoted", || self.sentinel.master() == Some(port)).await;
    }
}

/// A process of its own that takes locks on this one node, whatever that may have forgotten.
async fn process(node: RedisNode) -> LockManager {
    let builder = LockManager::builder().redis_nodes([node]);
    let builder = builder.without_restart_guard();
    connected(builder.ttl(LONG).max_ttl(LONG).node_timeout(1_000 * MS)).await
}

/// The same, but the node has to sit out what it may have forgotten.
async fn guarded(node: RedisNode, ttl: Duration) -> LockManager {
    let builder = LockManager::builder().redis_nodes([node]);
    let builder = builder.bootstrap(true).max_clock_skew(10 * MS);
    connected(builder.ttl(ttl).max_ttl(ttl).node_timeout(300 * MS)).await
}

/// Tries until the node gives an answer: whether the lock was free.
async fn is_free(locks: &LockManager) -> bool {
    let asked = async {
        loop {
            match locks.try_acquire("order:1").await {
                Ok(_) => return true,
                Err(error) if is_contended(&error) => return false,
                Err(AcquireError::NoQuorum(_)) => tokio::time::sleep(5 * MS).await,
                Err(error) => panic!("{error}"),
            }
        }
    };
    tokio::time::timeout(PATIENCE, asked).await.unwrap()
}

#[tokio::test]
async fn a_lock_that_the_replica_has_outlives_the_master() {
    for kind in Kind::ALL {
        let mut scene = Scene::start(kind);
        let first = process(scene.strict()).await;
        let second = process(scene.plain()).await;
        let guard = first.acquire("order:1").await.unwrap();
        assert!(!is_free(&second).await);
        scene.fail_over().await;
        assert!(!is_free(&second).await, "{kind:?}: a second holder");
        assert!(!guard.is_lost());
        all_vote(&first).await;
        guard.release().await.unwrap();
        assert!(is_free(&second).await, "it could be had all the time");
    }
}

/// Why it needs the replica's word: the same scene as above without it.
#[tokio::test]
async fn without_the_replicas_word_a_failover_makes_two_holders() {
    let mut scene = Scene::start(Kind::Redis);
    let first = process(scene.plain()).await;
    let second = process(scene.plain()).await;
    scene.cut_off();
    let guard = first.acquire("order:1").await.unwrap();
    scene.fail_over().await;
    assert!(is_free(&second).await, "the test no longer shows anything");
    assert!(!guard.is_lost(), "and nobody tells the first");
}

/// The same scene once more: the guard takes the replica for a node that forgot, and so it is one.
#[tokio::test]
async fn without_the_replicas_word_the_guard_keeps_a_second_holder_out() {
    // A failover that outlasts the lease shows nothing, and how long it takes is up to Sentinel and the machine.
    for _ in 0..3 {
        if guarded_fail_over().await {
            return;
        }
    }
    panic!("each failover outlasted the lease");
}

/// Returns whether the failover was over before the lease.
async fn guarded_fail_over() -> bool {
    let mut scene = Scene::start(Kind::Redis);
    let ttl = Duration::from_secs(4);
    let first = guarded(scene.plain(), ttl).await;
    let second = guarded(scene.plain(), ttl).await;
    scene.cut_off();
    let guard = first.acquire("order:1").await.unwrap();
    scene.fail_over().await;
    let is_up = || second.snapshot().nodes[0].state == NodeState::Up;
    eventually("the new master is used", is_up).await;
    if guard.is_lost() {
        return false;
    }
    let mut refused = 0;
    let got = loop {
        let early = !guard.is_lost();
        match second.try_acquire("order:1").await {
            // Asked for before the first had lost it, it is not granted after.
            Ok(got) => break (got, early),
            Err(AcquireError::NoQuorum(_)) => refused += 1,
            Err(error) => assert!(is_contended(&error), "{error}"),
        }
        tokio::time::sleep(5 * MS).await;
    };
    assert!(!got.1 && guard.is_lost(), "a second holder");
    assert!(refused > 0);
    let identity = scene.replica.run("HGET lk!node identity");
    assert!(identity.starts_with("1|"), "the first failover: {identity}");
    assert!(got.0.fence() > guard.fence(), "and a later one");
    true
}

/// A server that has each write on its disk before it answers.
#[tokio::test]
async fn a_durable_server_counts_at_once_after_a_restart_and_not_after_a_flush() {
    for kind in Kind::ALL {
        let mut server = Server::start(kind, &["--appendonly", "yes", "--appendfsync", "always"]);
        let node = || RedisNode::new(&server.url()).durable(true);
        let (durable, second) = (guarded(node(), LONG).await, guarded(node(), LONG).await);
        let other = LockManager::builder()
            .redis(server.url())
            .namespace("other");
        let other = connected(other.bootstrap(true).ttl(LONG).max_ttl(LONG)).await;
        let guard = durable.acquire("order:1").await.unwrap();
        server.kill();
        eventually("down", || !durable.has_quorum() && !other.has_quorum()).await;
        server.restart();
        assert!(!is_free(&second).await, "{kind:?}: a second holder");
        eventually("quarantined", || is_quarantined(&other, 0)).await;
        assert!(!guard.is_lost());
        guard.release().await.unwrap();
        assert_eq!(server.run("FLUSHALL"), "OK");
        eventually("quarantined", || is_quarantined(&durable, 0)).await;
        let error = durable.try_acquire("order:1").await.unwrap_err();
        assert!(matches!(error, AcquireError::NoQuorum(_)), "{error}");
    }
}
