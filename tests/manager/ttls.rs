//! Processes with different ttls on nodes that forget: a node votes again only when every lease that it may have
//! forgotten has ended, whoever is there to tell of it.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tower_redlock::LockManager;
use tower_redlock::config::Fencing;
use tower_redlock::snapshot::VotingStatus;

use super::MS;
use super::links::{Process, nodes};

const SECOND: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(20);

/// Tries for `time` to take `k` with `locks`; returns after how long that worked.
async fn taken(locks: &LockManager, time: Duration) -> Option<Duration> {
    let began = Instant::now();
    while began.elapsed() < time {
        if let Ok(guard) = locks.try_acquire("k").await {
            drop(guard);
            return Some(began.elapsed());
        }
        sleep(17 * MS).await;
    }
    None
}

#[tokio::test(start_paused = true)]
async fn who_is_cut_off_from_those_who_know_the_longest_ttl_waits_for_it_all_the_same() {
    let nodes = nodes(3);
    let (a, b) = (Process::on(&nodes), Process::on(&nodes));
    let short = b.builder().ttl(SECOND).connect().await.unwrap();
    a.0[2].cut();
    let long = a.builder().ttl(LONG).lazy().unwrap();
    sleep(SECOND).await;
    let guard = long.try_acquire("k").await.unwrap();
    b.0[1].cut();
    nodes[0].forget();
    a.0[0].cut();
    let got = taken(&short, LONG).await;
    assert!(
        got.is_none() || guard.is_lost(),
        "two holders after {got:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_extension_counts_only_where_so_long_a_ttl_is_known() {
    let nodes = nodes(3);
    let (a, b) = (Process::on(&nodes), Process::on(&nodes));
    let short = b.builder().ttl(SECOND).connect().await.unwrap();
    a.0[2].hush();
    let long = a.builder().ttl(LONG).max_hold(10 * LONG).lazy().unwrap();
    sleep(SECOND).await;
    let guard = long.try_acquire("k").await.unwrap();
    sleep(SECOND).await;
    // A process of one of the nodes that know it forgets, and is back in time.
    a.0[0].cut();
    nodes[0].forget();
    sleep(LONG + 2 * SECOND).await;
    assert!(taken(&short, SECOND).await.is_none() || guard.is_lost());
    // And then the other.
    nodes[1].forget();
    a.0[1].cut();
    a.0[2].cut();
    let got = taken(&short, LONG).await;
    assert!(
        got.is_none() || guard.is_lost(),
        "two holders after {got:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_vote_that_comes_long_after_the_attempt_began_does_not_count() {
    // In time, by which a node is not let in again; and too late.
    for (delay, told) in [(1_800 * MS, 1_500 * MS), (3_000 * MS, 2_500 * MS)] {
        let nodes = nodes(3);
        let (a, b) = (Process::on(&nodes), Process::on(&nodes));
        // Nor are there numbers, which would have to be written to the one that forgets.
        let builder = |process: &Process| process.builder().max_ttl(LONG).fencing(Fencing::OFF);
        let short = builder(&b).ttl(SECOND).connect().await.unwrap();
        a.0[1].cut();
        a.0[2].hush();
        let long = builder(&a).ttl(LONG);
        let long = long.node_timeout(2 * SECOND).lazy().unwrap();
        sleep(10 * MS).await;
        a.0[2].delay(delay);
        // It tells the first node of its ttl no more.
        a.0[0].hush();
        let began = Instant::now();
        let attempt = tokio::spawn(async move { long.try_acquire("k").await });
        sleep(10 * MS).await;
        nodes[0].forget();
        // Others find that at once, and the rest of the nodes tell them of no long ttl.
        drop(short.try_acquire("probe").await);
        sleep(told.saturating_sub(began.elapsed())).await;
        // The last it needs, before that grants.
        a.0[2].listen();
        let guard = attempt.await.unwrap();
        assert_eq!(guard.is_ok(), delay < 2 * SECOND, "{guard:?}");
        b.0[2].cut();
        let got = taken(&short, 5 * SECOND).await;
        let lost = guard.map_or(true, |guard| guard.is_lost());
        assert!(got.is_none() || lost, "two holders after {got:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_longest_ttl_of_old_is_forgotten_when_a_shorter_one_is_agreed_on() {
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    let nodes = nodes(3);
    let process = Process::on(&nodes);
    let batch = process.builder().ttl(DAY).max_ttl(DAY).connect();
    drop(batch.await.unwrap().try_acquire("k").await.unwrap());
    sleep(DAY).await;
    let locks = process.builder().lazy().unwrap();
    let began = Instant::now();
    locks.adopt_nodes().await.unwrap();
    // Once more for what they agreed on now, as the others may not have been stopped.
    let waited = began.elapsed();
    assert!(waited < 65 * SECOND && waited > 60 * SECOND, "{waited:?}");
    nodes[0].forget();
    let began = Instant::now();
    sleep(2 * SECOND).await;
    while locks.nodes()[0].voting != VotingStatus::Voting {
        sleep(100 * MS).await;
    }
    let waited = began.elapsed();
    assert!(waited < 12 * SECOND, "a restart: {waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_node_with_a_new_server_waits_until_nobody_counts_the_one_before() {
    let mut waited = Vec::new();
    for settle in [Duration::ZERO, 5 * SECOND] {
        let nodes = nodes(3);
        let process = Process::on(&nodes);
        process.0[0].settle(settle);
        let builder = process.builder().ttl(SECOND).max_ttl(LONG);
        let locks = builder.connect().await.unwrap();
        nodes[0].forget();
        let began = Instant::now();
        // By then it is noticed, and not over.
        sleep(2 * SECOND).await;
        while locks.nodes()[0].voting != VotingStatus::Voting {
            sleep(10 * MS).await;
        }
        waited.push(began.elapsed());
    }
    let longer = waited[1] - waited[0];
    assert!(longer >= 5 * SECOND && longer < 7 * SECOND, "{waited:?}");
}
