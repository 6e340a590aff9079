//! Slots that get another server.

use crate::support::server::Server;
use crate::*;

#[tokio::test]
async fn a_killed_master_costs_three_nodes_nothing() {
    let mut cluster = RedisCluster::start(Kind::Redis, 3, 1);
    let locks = connected(settings(node(&cluster), 2_000 * MS)).await;
    let guard = locks.acquire("held").await.unwrap();
    cluster.servers[0].kill();
    let promoted = || cluster.owner(SLOTS[0], 1) == Some(3);
    let mut fence = None;
    while !promoted() {
        let other = locks.try_acquire("other").await.unwrap();
        assert!(other.fence() > fence);
        fence = other.fence();
        other.release().await.unwrap();
    }
    assert!(!guard.is_lost());
    // Its quarantine over, the new master votes, too.
    all_vote(&locks).await;
    assert!(cluster.servers[3].run("KEYS *").contains("!node"));
    guard.release().await.unwrap();
}

/// A lock that the replica of the second master does not have, which takes the place of that.
async fn acquired_before_its_master_dies(
    cluster: &mut RedisCluster,
    locks: &LockManager,
) -> LockGuard {
    cluster.servers[4].freeze();
    cluster.servers[1].run("CLIENT KILL TYPE replica");
    let guard = locks.acquire("k").await.unwrap();
    cluster.servers[1].kill();
    cluster.servers[4].thaw();
    guard
}

#[tokio::test]
async fn one_shard_that_fails_over_is_quarantined() {
    let mut cluster = RedisCluster::start(Kind::Redis, 3, 1);
    // Longer than a failover takes: else the lock has ended before a second process could have it.
    let ttl = 6_000 * MS;
    let shard = || settings(node(&cluster).slots(1), ttl);
    let (first, second) = (connected(shard()).await, connected(shard()).await);
    let guard = acquired_before_its_master_dies(&mut cluster, &first).await;
    let since = std::time::Instant::now();
    let (got, refused) = granted(&second, "k").await;
    assert!(guard.is_lost(), "a second holder");
    assert!(refused > 0 && since.elapsed() > ttl);
    assert!(got.fence() > guard.fence());
    let identity = cluster.servers[4].run("KEYS *!node");
    let identity = cluster.servers[4].run(&format!("HGET {identity} identity"));
    assert!(identity.contains('|'), "with the config epoch: {identity}");
}

/// The replica has all that its master has acknowledged, as where a service writes a log.
#[tokio::test]
async fn a_durable_shard_counts_at_once_after_a_failover_and_not_after_a_flush() {
    for kind in Kind::ALL {
        let cluster = RedisCluster::start(kind, 3, 1);
        let shard = |durable| settings(node(&cluster).slots(1).durable(durable), LONG);
        let (durable, second) = (connected(shard(true)).await, connected(shard(true)).await);
        let other = connected(shard(false).namespace("other")).await;
        let error = shard(false).connect().await.unwrap_err();
        assert!(error.to_string().contains("durable"), "{error}");
        let guard = durable.acquire("k").await.unwrap();
        cluster.fail_over_to(4);
        let next = granted_soon(&second, "next").await;
        assert!(cluster.servers[4].run("KEYS *").contains("}lk:next"));
        assert!(next.fence() > guard.fence());
        let error = second.try_acquire("k").await.unwrap_err();
        assert!(is_contended(&error), "{error}");
        is_quarantined(&other).await;
        assert!(!guard.is_lost());
        guard.release().await.unwrap();

        assert_eq!(cluster.servers[4].run("FLUSHALL"), "OK");
        is_quarantined(&durable).await;
        let error = durable.try_acquire("k").await.unwrap_err();
        assert!(matches!(error, AcquireError::NoQuorum(_)), "{error}");
    }
}

async fn granted_soon(locks: &LockManager, key: &str) -> LockGuard {
    let soon = Duration::from_secs(10);
    let granted = tokio::time::timeout(soon, granted(locks, key)).await;
    granted.unwrap().0
}

async fn is_quarantined(locks: &LockManager) {
    let voting = || locks.snapshot().nodes.remove(0).voting;
    let is_quarantined = || matches!(voting(), VotingStatus::Quarantined { .. });
    eventually_or_tell("quarantined", is_quarantined, || format!("{:?}", voting())).await;
}

#[tokio::test]
async fn a_planned_failover_is_followed() {
    for kind in Kind::ALL {
        let cluster = RedisCluster::start(kind, 3, 1);
        let locks = connected(settings(node(&cluster), 1_500 * MS)).await;
        let guard = locks.acquire("k").await.unwrap();
        cluster.fail_over_to(3);
        eventually_or_tell("left", || voting(&locks) == 2, String::new).await;
        assert!(locks.try_acquire("other").await.is_ok());
        all_vote(&locks).await;
        assert!(!guard.is_lost());
        guard.release().await.unwrap();
        let nodes = cluster.servers[3].run("KEYS *!node");
        assert!(nodes.contains("lk!node"), "{nodes}");
    }
}

#[tokio::test]
async fn a_slot_that_moves_is_a_node_that_forgot() {
    for kind in Kind::ALL {
        let cluster = RedisCluster::start(kind, 3, 0);
        let ttl = 1_500 * MS;
        let one = || settings(node(&cluster).slots(1), ttl);
        let (first, second) = (connected(one()).await, connected(one()).await);
        let guard = first.acquire("k").await.unwrap();
        let slot = SLOTS[1];
        cluster.begin_migration(slot, 1, 2);
        // The keys are neither all here nor all there: that is no vote.
        let error = first.try_acquire("other").await.unwrap_err();
        assert!(error.to_string().contains("is being moved"), "{error}");
        cluster.end_migration(slot, 1, 2);
        let (got, refused) = granted(&second, "k").await;
        assert!(guard.is_lost(), "a second holder");
        assert!(refused > 0, "it was not quarantined");
        assert!(got.fence() > guard.fence());
        assert!(cluster.servers[2].run("KEYS *").contains("}lk:k"));
    }
}

#[tokio::test]
async fn a_slot_of_a_durable_node_moves_with_its_locks() {
    for kind in Kind::ALL {
        let cluster = RedisCluster::start(kind, 3, 0);
        let one = || settings(node(&cluster).slots(1).durable(true), LONG);
        let (first, second) = (connected(one()).await, connected(one()).await);
        let guard = first.acquire("k").await.unwrap();
        cluster.begin_migration(SLOTS[1], 1, 2);
        cluster.end_migration(SLOTS[1], 1, 2);
        let next = granted_soon(&second, "next").await;
        assert!(cluster.servers[2].run("KEYS *").contains("}lk:next"));
        let error = second.try_acquire("k").await.unwrap_err();
        assert!(is_contended(&error), "{error}");
        assert!(!guard.is_lost() && next.fence() > guard.fence());
    }
}

/// A master that does not hear that another server has taken its slot over, and that alone can be reached.
#[tokio::test]
async fn a_master_on_the_minority_side_does_not_count() {
    let cluster = RedisCluster::start(Kind::Redis, 3, 1);
    let one = settings(node(&cluster).slots(1), 2_000 * MS);
    let locks = connected(one).await;
    let (slot, old, new) = (SLOTS[1], 1, 4);
    let others = || {
        let others = (0..6).filter(|server| *server != old);
        others.map(|server| &cluster.servers[server])
    };
    for other in others() {
        let id = other.run("CLUSTER MYID");
        cluster.servers[old].run(&format!("CLUSTER FORGET {id}"));
    }
    cluster.servers[new].run("CLUSTER FAILOVER TAKEOVER");
    let takes_over = || cluster.owner(slot, 0) == Some(new);
    eventually_or_tell("taken over", takes_over, String::new).await;
    others().for_each(Server::freeze);
    let error = loop {
        match locks.try_acquire("k").await {
            Ok(guard) => guard.release().await.unwrap(),
            Err(error) => break error,
        }
    };
    // As far as it knows it has the slot, and grants what it is asked for.
    assert_eq!(cluster.owner(slot, old), Some(old));
    let marker = cluster.servers[old].run("KEYS *!node");
    let key = marker.replace("!node", ":other");
    assert_eq!(cluster.servers[old].run(&format!("SET {key} x")), "OK");
    assert!(matches!(error, AcquireError::NoQuorum(_)), "{error}");
    for _ in 0..20 {
        locks.try_acquire("k").await.unwrap_err();
        tokio::time::sleep(100 * MS).await;
    }
    others().for_each(Server::thaw);
    all_vote(&locks).await;
    assert!(locks.try_acquire("k").await.is_ok());
    assert!(cluster.servers[new].run("KEYS *").contains("!node"));
}
