//! Processes with different ttls on nodes that forget: a node votes again only when every lease that it may have
//! forgotten has ended, whoever is there to tell of it.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tower_redlock::node::MemoryNode;
use tower_redlock::snapshot::VotingStatus;
use tower_redlock::{LockManager, Settings};

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

/// A process that may use any of the two ttls.
fn of(process: &Process) -> Settings {
    process.builder().max_ttl(LONG)
}

#[tokio::test(start_paused = true)]
async fn who_is_cut_off_from_those_who_granted_the_longest_ttl_waits_for_it_all_the_same() {
    let nodes = nodes(3);
    let (a, b) = (Process::on(&nodes), Process::on(&nodes));
    let short = of(&b).ttl(SECOND).connect().await.unwrap();
    a.0[2].cut();
    let long = of(&a).ttl(LONG).connect_lazy().unwrap();
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
async fn nodes_may_forget_one_after_the_other_while_a_long_lock_is_held() {
    let nodes = nodes(3);
    let (a, b) = (Process::on(&nodes), Process::on(&nodes));
    let short = of(&b).ttl(SECOND).connect().await.unwrap();
    let long = of(&a).ttl(LONG).max_hold(10 * LONG).connect_lazy().unwrap();
    sleep(SECOND).await;
    let guard = long.try_acquire("k").await.unwrap();
    sleep(SECOND).await;
    // A process of one of its nodes forgets, and is back in time.
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
async fn a_vote_counts_though_it_comes_long_after_the_attempt_began() {
    for delay in [1_800 * MS, 3_000 * MS] {
        let nodes = nodes(3);
        let (a, b) = (Process::on(&nodes), Process::on(&nodes));
        // Nor are there numbers, which would have to be written to the one that forgets.
        let builder = |process: &Process| of(process).without_fencing();
        let short = builder(&b).ttl(SECOND).connect().await.unwrap();
        a.0[1].cut();
        let long = builder(&a).ttl(LONG);
        let long = long.node_timeout(4 * SECOND).connect_lazy().unwrap();
        sleep(10 * MS).await;
        a.0[2].delay(delay);
        let attempt = tokio::spawn(async move { long.try_acquire("k").await });
        sleep(10 * MS).await;
        nodes[0].forget();
        // Others find that at once.
        drop(short.try_acquire("probe").await);
        let guard = attempt.await.unwrap().unwrap();
        b.0[2].cut();
        let got = taken(&short, 5 * SECOND).await;
        assert!(got.is_none(), "two holders after {got:?}");
        assert!(!guard.is_lost());
    }
}

/// Whether the ttl becomes longer or shorter, and whether the nodes tell or an operator has to.
#[tokio::test(start_paused = true)]
async fn the_longer_quarantine_is_waited_for_when_another_longest_ttl_is_agreed_on() {
    const MINUTE: Duration = Duration::from_secs(60);
    // The wait begins when others must have noticed.
    let waits = MINUTE + 2 * SECOND..MINUTE + 4 * SECOND;
    for (before, after) in [(MINUTE, LONG), (LONG, MINUTE)] {
        let nodes = nodes(3);
        let process = Process::on(&nodes);
        let old = process.builder().ttl(LONG).max_ttl(before);
        drop(old.connect().await.unwrap().try_acquire("k").await.unwrap());
        let locks = process.builder().max_ttl(after).connect_lazy().unwrap();
        let began = Instant::now();
        locks.adopt_nodes(None).await.unwrap();
        let waited = began.elapsed();
        assert!(waits.contains(&waited), "{waited:?}");
        // From then on only what is agreed on now counts.
        nodes[0].forget();
        let began = Instant::now();
        sleep(2 * SECOND).await;
        while locks.snapshot().nodes[0].voting != VotingStatus::Voting {
            sleep(100 * MS).await;
        }
        let waited = began.elapsed();
        assert!(
            waited > after && waited < after + 3 * SECOND,
            "a restart: {waited:?}"
        );
    }
    let nodes = nodes(3);
    nodes.iter().for_each(MemoryNode::forget);
    let locks = Process::on(&nodes).builder().connect_lazy().unwrap();
    let began = Instant::now();
    locks.adopt_nodes(Some(MINUTE)).await.unwrap();
    let waited = began.elapsed();
    assert!(waits.contains(&waited), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn the_nodes_of_a_list_wait_for_what_one_of_them_tells_of_the_list_before() {
    let nodes = nodes(5);
    let old = Process::on(&nodes[..3]).builder().ttl(LONG).max_ttl(LONG);
    let old = old.connect().await.unwrap();
    // Two of three hold it that are not in the new list.
    let guard = old.try_acquire("k").await.unwrap();
    drop(old);
    let new = Process::on(&nodes[2..])
        .builder()
        .ttl(SECOND)
        .max_ttl(SECOND);
    let (adopting, other) = (new.connect_lazy().unwrap(), Process::on(&nodes[2..]));
    // A process that is told nothing by the operator.
    let other = other
        .builder()
        .ttl(SECOND)
        .max_ttl(SECOND)
        .connect_lazy()
        .unwrap();
    let began = Instant::now();
    let took = tokio::spawn(async move { taken(&other, 2 * LONG).await });
    adopting.adopt_nodes(None).await.unwrap();
    assert!(began.elapsed() > LONG, "{:?}", began.elapsed());
    assert!(took.await.unwrap().unwrap() > LONG && guard.is_lost());
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
        while locks.snapshot().nodes[0].voting != VotingStatus::Voting {
            sleep(10 * MS).await;
        }
        waited.push(began.elapsed());
    }
    let longer = waited[1] - waited[0];
    assert!(longer >= 5 * SECOND && longer < 7 * SECOND, "{waited:?}");
}

/// Fencing tokens go on from the clock of whoever promotes a node. If it forgets again, the next clock may be behind.
#[tokio::test(start_paused = true)]
async fn a_quarantine_lasts_as_long_as_clocks_may_differ() {
    let nodes = nodes(1);
    let process = Process::on(&nodes);
    let builder = process.builder().ttl(SECOND).max_ttl(SECOND);
    let builder = builder.max_clock_skew(5 * SECOND);
    let locks = builder.connect().await.unwrap();
    nodes[0].forget();
    let began = Instant::now();
    // By then it is noticed, and not over.
    sleep(2 * SECOND).await;
    while locks.snapshot().nodes[0].voting != VotingStatus::Voting {
        sleep(10 * MS).await;
    }
    let waited = began.elapsed();
    assert!(waited >= 5 * SECOND && waited < 8 * SECOND, "{waited:?}");
}
