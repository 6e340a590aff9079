//! Processes with different ttls on nodes that forget: a node votes again only when every lease that it may have
//! forgotten has ended, whoever is there to tell of it.

use super::*;

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

/// How long a node that has forgotten takes until it votes again.
async fn time_until_it_votes(locks: &LockManager, node: usize) -> Duration {
    let began = Instant::now();
    // By then it is noticed, and not over.
    sleep(2 * SECOND).await;
    while locks.snapshot().nodes[node].voting != VotingStatus::Voting {
        sleep(10 * MS).await;
    }
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn who_is_cut_off_from_those_who_granted_the_longest_ttl_waits_for_it_all_the_same() {
    let nodes = nodes(3);
    let (a, b) = (Process::on(&nodes), Process::on(&nodes));
    let short = connected(of(&b).ttl(SECOND)).await;
    a.0[2].cut();
    let long = lazy(of(&a).ttl(LONG));
    sleep(SECOND).await;
    let guard = long.try_acquire("k").await.unwrap();
    b.0[1].cut();
    nodes[0].forget();
    a.0[0].cut();
    let got = taken(&short, LONG).await;
    assert!(got.is_none() || guard.is_lost(), "two after {got:?}");
}

#[tokio::test(start_paused = true)]
async fn nodes_may_forget_one_after_the_other_while_a_long_lock_is_held() {
    let nodes = nodes(3);
    let (a, b) = (Process::on(&nodes), Process::on(&nodes));
    let short = connected(of(&b).ttl(SECOND)).await;
    let long = lazy(of(&a).ttl(LONG).max_hold(10 * LONG));
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
    assert!(got.is_none() || guard.is_lost(), "two after {got:?}");
}

#[tokio::test(start_paused = true)]
async fn a_vote_counts_though_it_comes_long_after_the_attempt_began() {
    for delay in [1_800 * MS, 3_000 * MS] {
        let nodes = nodes(3);
        let (a, b) = (Process::on(&nodes), Process::on(&nodes));
        // Nor are there numbers, which would have to be written to the one that forgets.
        let builder = |process: &Process| of(process).without_fencing();
        let short = connected(builder(&b).ttl(SECOND)).await;
        a.0[1].cut();
        let long = builder(&a).ttl(LONG);
        let long = lazy(long.node_timeout(4 * SECOND));
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
        let locks = lazy(process.builder().max_ttl(after));
        let began = Instant::now();
        locks.adopt_nodes(None).await.unwrap();
        let waited = began.elapsed();
        assert!(waits.contains(&waited), "{waited:?}");
        // From then on only what is agreed on now counts.
        nodes[0].forget();
        let waited = time_until_it_votes(&locks, 0).await;
        let due = after..after + 3 * SECOND;
        assert!(due.contains(&waited), "a restart: {waited:?}");
    }
    let nodes = nodes(3);
    nodes.iter().for_each(MemoryNode::forget);
    let locks = lazy(Process::on(&nodes).builder());
    let began = Instant::now();
    locks.adopt_nodes(Some(MINUTE)).await.unwrap();
    let waited = began.elapsed();
    assert!(waits.contains(&waited), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn the_nodes_of_a_list_wait_for_what_one_of_them_tells_of_the_list_before() {
    let nodes = nodes(5);
    let old = over(nodes[..3].to_vec()).ttl(LONG).max_ttl(LONG);
    let old = connected(old).await;
    // Two of three hold it that are not in the new list.
    let guard = old.try_acquire("k").await.unwrap();
    drop(old);
    // A process that is told by the operator, and one that is not.
    let new = || over(nodes[2..].to_vec()).ttl(SECOND).max_ttl(SECOND);
    let (adopting, other) = (lazy(new()), lazy(new()));
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
        let locks = connected(of(&process).ttl(SECOND)).await;
        nodes[0].forget();
        waited.push(time_until_it_votes(&locks, 0).await);
    }
    let longer = waited[1] - waited[0];
    assert!(longer >= 5 * SECOND && longer < 7 * SECOND, "{waited:?}");
}

/// Fencing tokens go on from the clock of whoever promotes a node. If it forgets again, the next clock may be behind.
#[tokio::test(start_paused = true)]
async fn a_quarantine_lasts_as_long_as_clocks_may_differ() {
    let nodes = nodes(1);
    let builder = over(nodes.clone()).ttl(SECOND).max_ttl(SECOND);
    let locks = connected(builder.max_clock_skew(5 * SECOND)).await;
    nodes[0].forget();
    let waited = time_until_it_votes(&locks, 0).await;
    assert!(waited >= 5 * SECOND && waited < 8 * SECOND, "{waited:?}");
}
