//! Between processes: who releases a lock lets the others go first, and nobody stands back for nobody.

use super::*;

/// A manager so far from the nodes, without hand-off.
fn far(nodes: &Nodes, each_way: Duration) -> LockManager {
    lazy(Odd::slow(&nodes.0, each_way, each_way).hand_off(false))
}

/// In how many of 100 rounds `b`, who waits, has the lock before the next callers of `a`, who gives it back: one was
/// in line before, and one comes at once. `b` is farther from the nodes, so that it would come too late.
async fn rounds_of_the_other(releases: bool) -> usize {
    let mut rounds = 0;
    for round in 0..100 {
        let nodes = Nodes::five();
        let (a, b) = (far(&nodes, MS), far(&nodes, 4 * MS));
        let guard = a.try_acquire("order:1").await.unwrap();
        let other = wait_for(&b, "order:1").await;
        let line = wait_for(&a, "order:1").await;
        sleep((30 + 3 * round) * MS).await;
        if releases {
            guard.release().await.unwrap();
        } else {
            drop(guard);
        }
        let next = wait_for(&a, "order:1").await;
        let first = tokio::select! {
            biased;
            guard = line => (guard, 0),
            guard = next => (guard, 0),
            guard = other => (guard, 1),
        };
        rounds += first.1;
        drop(first);
    }
    rounds
}

#[tokio::test(start_paused = true)]
async fn who_releases_while_another_waits_stands_back() {
    for releases in [true, false] {
        let rounds = rounds_of_the_other(releases).await;
        // A look of the other that was under way at the release may be too early, and the next too late.
        assert!(rounds >= 90, "{rounds} of 100");
    }
}

#[tokio::test(start_paused = true)]
async fn who_comes_for_what_it_has_just_released_does_not_overtake() {
    let (_nodes, [a, b]) = five();
    let guard = a.try_acquire("order:1").await.unwrap();
    let other = wait_for(&b, "order:1").await;
    sleep(50 * MS).await;
    let before = Instant::now();
    // No other task runs between the two.
    guard.release().await.unwrap();
    let again = a.acquire("order:1");
    let theirs = async {
        let guard = other.await.unwrap().unwrap();
        assert_eq!(before.elapsed(), Duration::ZERO);
        sleep(100 * MS).await;
        drop(guard);
    };
    let (again, ()) = tokio::join!(again, theirs);
    drop(again.unwrap());
    assert!(before.elapsed() >= 100 * MS && before.elapsed() <= 105 * MS);
}

/// A release tells how long its holder had waited. The one that has waited for less is nearer to the nodes, and would be
/// first.
#[tokio::test(start_paused = true)]
async fn of_two_processes_the_one_that_has_waited_longer_comes_first() {
    let mut rounds = 0;
    for round in 0..100 {
        let nodes = Nodes::five();
        let [first, holder, older] = std::array::from_fn(|_| far(&nodes, 2 * MS));
        let younger = far(&nodes, MS);
        let guard = first.try_acquire("order:1").await.unwrap();
        let holder = wait_for(&holder, "order:1").await;
        sleep(500 * MS).await;
        guard.release().await.unwrap();
        let guard = holder.await.unwrap().unwrap();
        let older = wait_for(&older, "order:1").await;
        sleep((300 + round) * MS).await;
        let younger = wait_for(&younger, "order:1").await;
        sleep(250 * MS).await;
        drop(guard);
        rounds += tokio::select! {
            biased;
            _ = younger => 0,
            _ = older => 1,
        };
    }
    // As above: of two looks that chance brings at the release, one may be the younger's.
    assert!(rounds >= 90, "{rounds} of 100");
}

#[tokio::test(start_paused = true)]
async fn one_process_keeps_a_lock_for_as_long_as_it_may_pass_and_then_stands_back() {
    let nodes = Nodes::five();
    let builder = nodes.builder().hand_off_limits(4, SECOND);
    let (a, b) = (builder.connect_lazy().unwrap(), nodes.manager());
    let guard = a.try_acquire("order:1").await.unwrap();
    let other = wait_for(&b, "order:1").await;
    let mut callers = Vec::new();
    for _ in 0..20 {
        let a = a.clone();
        callers.push(tokio::spawn(async move {
            let _guard = a.acquire("order:1").await.unwrap();
            sleep(10 * MS).await;
        }));
    }
    sleep(10 * MS).await;
    let before = Instant::now();
    drop(guard);
    let theirs = other.await.unwrap().unwrap();
    // Four more of the first process, and then a release.
    assert!(before.elapsed() >= 40 * MS);
    assert!(before.elapsed() <= 45 * MS, "{:?}", before.elapsed());
    drop(theirs);
    for caller in callers {
        caller.await.unwrap();
    }
    assert_idle(&a).await;
}

#[tokio::test(start_paused = true)]
async fn many_processes_have_their_turns_one_at_a_time() {
    let (nodes, _locks, guard) = held("order:1").await;
    let held = Arc::new(AtomicUsize::new(0));
    let mut callers = Vec::new();
    let before = Instant::now();
    for _ in 0..8 {
        let locks = lazy(nodes.builder().max_wait(6 * TTL));
        for _ in 0..5 {
            let (locks, held) = (locks.clone(), Arc::clone(&held));
            callers.push(tokio::spawn(async move {
                let _guard = locks.acquire("order:1").await.unwrap();
                let others = held.fetch_add(1, Ordering::SeqCst);
                assert_eq!(others, 0, "two at a time");
                sleep(10 * MS).await;
                held.fetch_sub(1, Ordering::SeqCst);
            }));
        }
    }
    sleep(MS).await;
    drop(guard);
    for caller in callers {
        caller.await.unwrap();
    }
    // Forty turns of 10 ms, and eight changes of process, each with a few splits.
    assert!(before.elapsed() < SECOND, "{:?}", before.elapsed());
    assert_eq!(nodes.subscriptions(), 0);
    nodes.settle_free("order:1").await;
}

#[tokio::test(start_paused = true)]
async fn a_crowd_asks_the_nodes_once_for_each_release() {
    const CROWD: usize = 30;
    const TURNS: usize = 300;
    let nodes = Nodes::five();
    let turns = Arc::new(AtomicUsize::new(0));
    let mut crowd = JoinSet::new();
    for _ in 0..CROWD {
        let (locks, turns) = (far(&nodes, MS / 2), Arc::clone(&turns));
        crowd.spawn(async move {
            while turns.fetch_add(1, Ordering::SeqCst) < TURNS {
                let guard = locks.acquire("order:1").await.unwrap();
                sleep(MS).await;
                guard.release().await.unwrap();
            }
        });
    }
    crowd.join_all().await;
    // A round of each, and the release.
    let most = 5 * (CROWD + 1);
    let per_turn = usize::try_from(nodes.commands()).unwrap() / TURNS;
    assert!(per_turn <= most, "{per_turn} commands for each turn");
}
