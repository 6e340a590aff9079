//! Which servers vote now, while they fail in all ways, and restarting them one after the other.

use std::time::Duration;

use tokio::time::timeout;
use tower_redlock::Settings;
use tower_redlock::snapshot::VotingStatus;

use crate::support::eventually;
use crate::{Cluster, MS, connected};

/// A server that restarts waits for about a second.
fn brisk(cluster: &Cluster) -> Settings {
    let builder = cluster.short(1_000 * MS);
    builder.max_clock_skew(10 * MS)
}

#[tokio::test]
async fn a_server_votes_only_while_its_replies_count() {
    let mut cluster = Cluster::start();
    let locks = connected(brisk(&cluster)).await;
    assert!(locks.has_quorum());
    let is_failing = |node: usize| {
        matches!(
            locks.snapshot().nodes[node].voting,
            VotingStatus::Failing { .. }
        )
    };
    cluster.servers[0].kill();
    eventually("a killed server does not vote", || is_failing(0)).await;
    cluster.servers[1].run("ACL SETUSER default -evalsha -eval");
    eventually("nor one that rejects every command", || is_failing(1)).await;
    assert!(locks.has_quorum());
    cluster.servers[2].run("CONFIG SET maxmemory-policy allkeys-lru");
    eventually("nor a refused one", || is_failing(2)).await;
    cluster.servers[3].freeze();
    eventually("nor one that stands still", || is_failing(3)).await;
    let snapshot = locks.snapshot();
    let verdict = "quorum: 1 of 5 vote, 3 needed; no lock is granted";
    assert_eq!((&*snapshot.verdict, locks.has_quorum()), (verdict, false));
    cluster.servers[0].restart();
    cluster.servers[1].run("ACL SETUSER default +@all");
    cluster.servers[2].run("CONFIG SET maxmemory-policy noeviction");
    cluster.servers[3].thaw();
    eventually("a quorum", || locks.has_quorum()).await;
    locks.all_voting().await.unwrap();
    assert_eq!(locks.snapshot().verdict, "quorum: 5 of 5 vote, 3 needed");
}

#[tokio::test]
async fn a_full_server_does_not_vote_once_it_has_refused_a_lock() {
    let cluster = Cluster::start();
    let locks = cluster.manager().await;
    cluster.each(0..3, |server| {
        server.run("CONFIG SET maxmemory 1");
    });
    locks.try_acquire("k").await.unwrap_err();
    let verdict = "quorum: 2 of 5 vote, 3 needed; no lock is granted";
    assert_eq!(locks.snapshot().verdict, verdict);
    cluster.each(0..3, |server| {
        server.run("CONFIG SET maxmemory 0");
    });
    drop(locks.try_acquire("another").await.unwrap());
    eventually("they vote as they run commands", || locks.has_quorum()).await;
}

/// The recipe of the guide, while a server dies that nobody restarts.
#[tokio::test]
async fn a_roll_does_not_go_on_while_a_server_is_dead() {
    let mut cluster = Cluster::start();
    let locks = connected(brisk(&cluster)).await;
    for next in 0..5 {
        cluster.servers[next].restart();
        if next == 2 {
            // What was known of it a moment ago is that it votes.
            cluster.servers[4].kill();
            let wait = timeout(Duration::from_secs(4), locks.all_voting()).await;
            assert!(wait.is_err(), "went on with a dead server");
            let is_up = |node: usize| locks.snapshot().nodes[node].voting == VotingStatus::Voting;
            assert!(
                (0..4).all(is_up) && !is_up(4),
                "{:?}",
                locks.snapshot().nodes
            );
            assert!(locks.has_quorum());
            cluster.servers[4].restart();
        }
        locks.all_voting().await.unwrap();
        assert_eq!(locks.snapshot().verdict, "quorum: 5 of 5 vote, 3 needed");
        drop(locks.try_acquire("k").await.unwrap());
    }
}

#[tokio::test]
async fn a_key_of_another_type_is_no_fault_of_the_nodes() {
    let cluster = Cluster::start();
    let locks = cluster.manager().await;
    for server in &cluster.servers[..3] {
        server.run("RPUSH lk:order:1 item");
    }
    let error = locks.try_acquire("order:1").await.unwrap_err();
    assert!(error.to_string().contains("not a lock"), "{error}");
    assert!(locks.has_quorum(), "{}", locks.snapshot().verdict);
    drop(locks.try_acquire("order:2").await.unwrap());
}

/// A re-fill sets the keys before the one of another type. The release frees them.
#[tokio::test]
async fn of_several_keys_none_stays_where_one_is_of_another_type() {
    let cluster = Cluster::start();
    let locks = cluster.manager().await;
    let list = &cluster.servers[4];
    list.run("RPUSH lk:b item");
    let guard = locks.acquire(["a", "b"]).await.unwrap();
    let has_a = || list.command(&["EXISTS", "lk:a"]) == "1";
    eventually("a top-up that sets the first", has_a).await;
    guard.release().await.unwrap();
    eventually("it is free", || !has_a()).await;
}
