//! Shared locks: readers together, a writer alone.

use std::sync::atomic::AtomicI32;

use tower_redlock::node::ExtendRequest;

use super::*;

fn order() -> NodeKeys {
    NodeKeys::from(place("order")).shared()
}

/// A manager whose commands take a millisecond to the nodes, and their replies another one.
fn a_millisecond_away(nodes: &Nodes) -> LockManager {
    lazy(Odd::slow(&nodes.0, MS, MS))
}

/// A manager that knows who votes, and whose callers have time.
async fn patient(nodes: &Nodes) -> LockManager {
    nodes.met().await.with_max_wait(60 * SECOND)
}

/// Reads `key` for `read` again and again, with a pause in between.
async fn read_on(locks: LockManager, key: &'static str, read: Duration, pause: Duration) {
    loop {
        let guard = locks.acquire(key).await.unwrap();
        sleep(read).await;
        assert!(!guard.is_lost());
        drop(guard);
        sleep(pause).await;
    }
}

#[tokio::test(start_paused = true)]
async fn readers_of_all_processes_hold_a_key_together_and_a_writer_alone() {
    let (nodes, processes): (_, [_; 2]) = five_met().await;
    let mut reading = Vec::new();
    for locks in processes.iter().chain(&processes) {
        let guard = locks.shared().try_acquire("order").await.unwrap();
        assert!(guard.is_shared() && guard.fence().is_some());
        reading.push(guard);
    }
    for locks in &processes {
        assert!(remaining(locks, "order").await > Some(TTL / 2));
        let other = locks.try_acquire("other").await.unwrap();
        other.release().await.unwrap();
    }
    while let Some(guard) = reading.pop() {
        assert!(processes[0].try_acquire("order").await.is_err());
        guard.release().await.unwrap();
    }
    let writer = processes[0].try_acquire("order").await.unwrap();
    assert!(!writer.is_shared());
    for locks in &processes {
        assert_contended(locks.shared().try_acquire("order").await);
    }
    writer.release().await.unwrap();
    drop(processes[1].shared().try_acquire("order").await.unwrap());
    nodes.settle_free("order").await;
    for locks in &processes {
        assert_idle(locks).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_thousand_readers_of_a_process_ask_the_nodes_once() {
    let (nodes, [locks]) = five_met().await;
    let readers = locks.shared();
    let before = nodes.commands();
    let mut tasks = JoinSet::new();
    for _ in 0..1_000 {
        let readers = readers.clone();
        tasks.spawn(async move { readers.acquire("order").await.unwrap() });
    }
    let held = tasks.join_all().await;
    assert_eq!(nodes.commands() - before, 5);
    let fence = held[0].fence();
    assert!(held.iter().all(|guard| guard.fence() == fence));
    // Also those that come later, for a tenth of the ttl.
    sleep(TTL / 10 - MS).await;
    let late = readers.try_acquire("order").await.unwrap();
    assert_eq!(nodes.commands() - before, 5);
    sleep(MS).await;
    let later = readers.try_acquire("order").await.unwrap();
    assert_eq!(nodes.commands() - before, 10);
    assert!(later.fence() > fence);
    drop((held, late));
    sleep(MS).await;
    assert!(!later.is_lost());
    assert!(locks.try_acquire("order").await.is_err());
    drop(later);
    nodes.assert_nothing_left(&[&locks]).await;
}

#[tokio::test(start_paused = true)]
async fn handles_with_other_times_have_leases_of_their_own() {
    let nodes = Nodes::five();
    let locks = nodes.met().await.shared();
    let long = locks.try_acquire("order").await.unwrap();
    let other = locks.with_ttl(TTL / 2).unwrap();
    let short = other.try_acquire("order").await.unwrap();
    assert_ne!(long.fence(), short.fence());
    assert!(short.remaining() <= TTL / 2 && long.remaining() > TTL / 2);
    // Each of them is joined, by callers in turn.
    let before = nodes.commands();
    for _ in 0..3 {
        let joined = [&locks, &other].map(|locks| locks.try_acquire("order"));
        let [one, two] = joined;
        assert_eq!(one.await.unwrap().fence(), long.fence());
        assert_eq!(two.await.unwrap().fence(), short.fence());
    }
    assert_eq!(nodes.commands(), before);
    drop((long, short));
    nodes.settle_free("order").await;
}

/// Whoever of them asked the nodes.
#[tokio::test(start_paused = true)]
async fn a_reader_that_has_left_is_told_so_while_others_of_its_process_go_on() {
    let nodes = Nodes::five();
    let readers = nodes.met().await.shared();
    for leaves_first in [true, false] {
        let asked = readers.acquire("order").await.unwrap();
        let joined = readers.acquire("order").await.unwrap();
        assert_eq!(asked.fence(), joined.fence());
        let (leaver, stayer) = match leaves_first {
            true => (asked, joined),
            false => (joined, asked),
        };
        let (gone, more) = (leaver.handle(), leaver.reenter().unwrap());
        let told = tokio::spawn(gone.lost());
        leaver.release().await.unwrap();
        sleep(MS).await;
        assert!(!gone.is_lost() && !told.is_finished(), "it has a guard");
        more.release().await.unwrap();
        assert_eq!(told.await.unwrap(), LossReason::Released);
        assert!(gone.is_lost() && gone.remaining().is_zero());
        assert!(!stayer.is_lost() && !stayer.remaining().is_zero());
        sleep(3 * TTL).await;
        assert!(!stayer.is_lost());
        stayer.release().await.unwrap();
        nodes.settle_free("order").await;
    }
    assert_idle(&readers).await;
}

#[tokio::test(start_paused = true)]
async fn in_a_process_readers_and_writers_come_in_their_order() {
    let nodes = Nodes::five();
    let locks = patient(&nodes).await;
    let readers = locks.shared();
    let first = readers.acquire("order").await.unwrap();
    let writer = wait_for(&locks, "order").await;
    let second = wait_for(&readers, "order").await;
    let third = wait_for(&readers, "order").await;
    // Who does not wait does not overtake them either.
    assert!(readers.try_acquire("order").await.is_err());
    sleep(SECOND).await;
    assert!(!writer.is_finished() && !second.is_finished());
    first.release().await.unwrap();
    let writer = writer.await.unwrap().unwrap();
    sleep(SECOND).await;
    assert!(!second.is_finished());
    writer.release().await.unwrap();
    let second = second.await.unwrap().unwrap();
    let third = third.await.unwrap().unwrap();
    assert_eq!(second.fence(), third.fence(), "together");
    drop((second, third));
    nodes.assert_nothing_left(&[&locks]).await;
}

/// A lock that its holder would hand on to the next writer.
#[tokio::test(start_paused = true)]
async fn a_lock_is_not_handed_to_a_reader() {
    let nodes = Nodes::five();
    let locks = patient(&nodes).await;
    let writer = locks.acquire("order").await.unwrap();
    let reader = wait_for(&locks.shared(), "order").await;
    let next = wait_for(&locks, "order").await;
    writer.release().await.unwrap();
    let reader = reader.await.unwrap().unwrap();
    assert!(reader.is_shared());
    assert!(nodes.0[0].holder("lk:order").unwrap().ends_with(b":shared"));
    sleep(SECOND).await;
    assert!(!next.is_finished());
    reader.release().await.unwrap();
    assert!(!next.await.unwrap().unwrap().is_shared());
}

/// Four processes read without a pause, each several at once.
#[tokio::test(start_paused = true)]
async fn a_writer_waits_for_a_tenth_of_the_ttl_and_for_those_that_read_by_then() {
    let nodes = Nodes::five();
    let read = 50 * MS;
    let mut tasks = JoinSet::new();
    for process in 0..4 {
        let locks = patient(&nodes).await.shared();
        for task in 0..3 {
            let reading = read_on(locks.clone(), "order", read, Duration::ZERO);
            tasks.spawn(async move {
                sleep((process * 3 + task) * 7 * MS).await;
                reading.await
            });
        }
    }
    let writers = patient(&nodes).await;
    for _ in 0..20 {
        sleep(read).await;
        let began = Instant::now();
        let guard = writers.acquire("order").await.unwrap();
        let waited = began.elapsed();
        assert!(waited <= TTL / 10 + 2 * read, "{waited:?}");
        guard.release().await.unwrap();
    }
    tasks.abort_all();
}

/// Three processes write without a pause.
#[tokio::test(start_paused = true)]
async fn readers_get_their_chance_among_writers() {
    let nodes = Nodes::five();
    let mut tasks = JoinSet::new();
    for _ in 0..3 {
        let locks = lazy(Odd::slow(&nodes.0, MS / 2, MS / 2));
        let locks = locks.with_max_wait(60 * SECOND);
        tasks.spawn(async move {
            loop {
                let guard = locks.acquire("order").await.unwrap();
                sleep(10 * MS).await;
                guard.release().await.unwrap();
            }
        });
    }
    let locks = lazy(Odd::slow(&nodes.0, MS / 2, MS / 2));
    let readers = locks.shared().with_max_wait(60 * SECOND);
    let mut longest = Duration::ZERO;
    for _ in 0..30 {
        let began = Instant::now();
        drop(readers.acquire("order").await.unwrap());
        longest = longest.max(began.elapsed());
    }
    tasks.abort_all();
    assert!(longest < SECOND, "{longest:?}");
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_gives_up_lets_readers_in_again() {
    let nodes = Nodes::five();
    let (here, there) = (nodes.met().await, nodes.met().await.shared());
    let held = nodes.met().await.shared().acquire("order").await.unwrap();
    let writer = wait_for(&here.with_max_wait(60 * SECOND), "order").await;
    sleep(MS).await;
    assert_contended(there.try_acquire("order").await);
    // It does so for as long as it waits.
    sleep(20 * SECOND).await;
    assert!(there.try_acquire("order").await.is_err());
    cancel(writer).await;
    nodes.settle("no hint", no_hint).await;
    let reader = there.try_acquire("order").await.unwrap();
    drop((held, reader));
    nodes.settle_free("order").await;
}

fn no_hint(nodes: &Nodes) -> bool {
    let hint = |key| format!("lk!writer:{key}");
    let keys = ["order", "a", "b"].map(hint);
    let has_one = |node: &MemoryNode| keys.iter().any(|key| node.holder(key).is_some());
    !nodes.0.iter().any(has_one)
}

/// Each of them waits in a process of its own.
#[tokio::test(start_paused = true)]
async fn a_writer_that_gives_up_lets_nobody_past_another_one() {
    let nodes = Nodes::five();
    let held = nodes.met().await.shared().acquire("order").await.unwrap();
    let reader = nodes.met().await.shared();
    let mut writers = Vec::new();
    for _ in 0..3 {
        let locks = a_millisecond_away(&nodes);
        writers.push(wait_for(&locks.with_max_wait(60 * SECOND), "order").await);
        sleep(SECOND).await;
    }
    for (gone, writer) in writers.into_iter().enumerate() {
        assert!(reader.try_acquire("order").await.is_err(), "{gone}");
        cancel(writer).await;
        // Its release has arrived; to ask again takes the others twice as long.
        sleep(2 * MS).await;
    }
    assert!(no_hint(&nodes));
    drop((held, reader.try_acquire("order").await.unwrap()));
    nodes.settle_free("order").await;
}

/// Each key has its own readers, in two processes, without a pause.
#[tokio::test(start_paused = true)]
async fn a_writer_of_several_keys_comes_however_many_of_them_are_read() {
    let nodes = Nodes::five();
    let read = 400 * MS;
    let mut tasks = JoinSet::new();
    for process in 0..4 {
        let locks = patient(&nodes).await.shared();
        let key = ["a", "b"][process % 2];
        for _ in 0..3 {
            tasks.spawn(read_on(locks.clone(), key, read, MS));
            sleep(37 * MS).await;
        }
    }
    let writers = patient(&nodes).await;
    for _ in 0..5 {
        let began = Instant::now();
        let guard = writers.acquire(["a", "b"]).await.unwrap();
        let waited = began.elapsed();
        // For each of the two.
        assert!(waited <= 2 * (TTL / 10 + 2 * read), "{waited:?}");
        guard.release().await.unwrap();
        nodes.settle("no hint", no_hint).await;
        sleep(2 * SECOND).await;
    }
    tasks.abort_all();
}

/// The writer has found the second key read, and waits for the first.
#[tokio::test(start_paused = true)]
async fn a_writer_of_several_keys_and_a_reader_of_two_never_wait_for_each_other() {
    let (nodes, [here, there]) = five_met().await;
    let second = there.shared().acquire("b").await.unwrap();
    let writing = tokio::spawn({
        let locks = here.with_max_wait(60 * SECOND);
        async move { locks.acquire(["a", "b"]).await.unwrap() }
    });
    sleep(SECOND).await;
    let (readers, scope) = (there.shared(), LockScope::new());
    let key = |name| LockKey::new(name).unwrap().into();
    let first = readers.acquire_in(&scope, key("a"), SECOND).await.unwrap();
    drop(second);
    // The writer looks, finds the first one read, and the second free.
    sleep(SECOND).await;
    let wait = 60 * SECOND;
    let both = readers.with_max_wait(wait);
    let both = both.acquire_in(&scope, key("b"), wait).await.unwrap();
    assert!(!writing.is_finished());
    drop((first, both));
    drop(writing.await.unwrap());
    nodes.settle("no hint", no_hint).await;
}

/// The hint is a key of the manager as any other.
#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_until_the_hint_of_a_writer_that_gave_up_is_released() {
    let nodes = Nodes::five();
    let held = nodes.met().await.shared().acquire("order").await.unwrap();
    for freezes in [false, true] {
        let locks = a_millisecond_away(&nodes);
        let writer = locks.with_max_wait(100 * MS);
        assert_timed_out(writer.acquire("order").await);
        assert!(!no_hint(&nodes));
        if freezes {
            nodes.each(0..1, |node| node.freeze());
        }
        let report = locks.shutdown(SECOND).await;
        assert_eq!(report.is_all_released(), !freezes, "{report:?}");
        assert_eq!(no_hint(&nodes), !freezes);
        nodes.each(0..1, |node| node.thaw());
    }
    drop(held);
}

/// As many begin in each second, and each lasts for almost a minute.
#[tokio::test(start_paused = true)]
async fn a_process_has_few_leases_however_long_its_readers_read() {
    let nodes = Nodes::five();
    let locks = nodes.met().await.shared();
    let mut held = std::collections::VecDeque::new();
    let mut most = 0;
    for second in 0..180 {
        let guard = locks.acquire("order").await.unwrap();
        assert!(!guard.is_lost());
        held.push_back(guard);
        if second >= 45 {
            held.pop_front();
        }
        let fences: std::collections::BTreeSet<_> = held.iter().map(|it| it.fence()).collect();
        most = most.max(fences.len());
        sleep(SECOND).await;
    }
    assert!((5..=12).contains(&most), "{most}");
}

/// Each of so many has a task that waits for its end.
#[tokio::test(start_paused = true)]
async fn a_reader_that_leaves_wakes_no_other() {
    let nodes = Nodes::five();
    let readers = nodes.met().await.shared();
    let polls = Arc::new(AtomicI32::new(0));
    let (mut held, mut tasks) = (Vec::new(), JoinSet::new());
    for _ in 0..100 {
        let guard = readers.acquire("order").await.unwrap();
        let (mut lost, polls) = (Box::pin(guard.lost()), Arc::clone(&polls));
        tasks.spawn(std::future::poll_fn(move |cx| {
            polls.fetch_add(1, Ordering::SeqCst);
            lost.as_mut().poll(cx)
        }));
        held.push(guard);
    }
    sleep(MS).await;
    for guard in held {
        drop(guard);
        sleep(MS).await;
    }
    let ends = tasks.join_all().await;
    assert_eq!(ends, [LossReason::Released; 100]);
    assert_eq!(polls.load(Ordering::SeqCst), 200);
}

/// One writes two keys of which its own process reads one, and another process the other.
#[tokio::test(start_paused = true)]
async fn a_writer_of_several_keys_and_readers_of_its_process_come_in_turn() {
    let (_nodes, [here, there]) = five_met().await;
    let longest = Arc::new(AtomicI32::new(0));
    let mut tasks = JoinSet::new();
    for (locks, key) in [(&here, "a"), (&there, "b")] {
        let locks = locks.shared().with_max_wait(60 * SECOND);
        let longest = Arc::clone(&longest);
        tasks.spawn(async move {
            loop {
                let began = Instant::now();
                let guard = locks.acquire(key).await.unwrap();
                let waited = i32::try_from(began.elapsed().as_millis()).unwrap();
                longest.fetch_max(waited, Ordering::SeqCst);
                sleep(50 * MS).await;
                drop(guard);
            }
        });
    }
    let writers = here.with_max_wait(60 * SECOND);
    for _ in 0..5 {
        sleep(300 * MS).await;
        let began = Instant::now();
        let guard = writers.acquire(["a", "b"]).await.unwrap();
        let waited = began.elapsed();
        assert!(waited < 2 * (TTL / 10 + 100 * MS), "{waited:?}");
        drop(guard);
    }
    tasks.abort_all();
    let longest = longest.load(Ordering::SeqCst);
    assert!(longest < 2_000, "a reader waited {longest} ms");
}

/// Its process hears of their release.
#[tokio::test(start_paused = true)]
async fn a_writer_that_waits_for_readers_does_not_poll() {
    let nodes = Nodes::five();
    let held = nodes.met().await.shared().acquire("order").await.unwrap();
    let writer = wait_for(&patient(&nodes).await, "order").await;
    sleep(SECOND).await;
    let before = nodes.commands();
    sleep(20 * SECOND).await;
    // To each node one round a second at most with the hint, the extensions of readers, and questions whether it votes.
    let sent = nodes.commands() - before;
    assert!(sent < 5 * 20 * 5, "{sent}");
    let began = Instant::now();
    held.release().await.unwrap();
    drop(writer.await.unwrap().unwrap());
    assert!(began.elapsed() < 10 * MS, "{:?}", began.elapsed());
}

/// As one does whose process had the lock alone.
#[tokio::test(start_paused = true)]
async fn who_does_not_wait_may_wait_for_the_release_of_a_reader() {
    let nodes = Nodes::five();
    let locks = a_millisecond_away(&nodes);
    for _ in 0..10 {
        drop(locks.shared().acquire("order").await.unwrap());
        let writer = locks.try_acquire("order").await.unwrap();
        drop(writer);
        drop(locks.shared().try_acquire("order").await.unwrap());
    }
    drop(locks.try_acquire("order").await.unwrap());
    sleep(20 * MS).await;
    assert_eq!(nodes.holding("order"), 0);
    assert_idle(&locks).await;
}

/// It cannot take its hint back.
#[tokio::test(start_paused = true)]
async fn the_hint_of_a_writer_that_is_gone_ends_within_three_seconds() {
    let nodes = Nodes::five();
    let locks = patient(&nodes).await.shared();
    for node in &nodes.0 {
        let hint = order().first().writer();
        let ttl = 3 * SECOND;
        let hint = ExtendRequest::new(hint, owner(7), ttl, true);
        let set = node.extend([hint].into()).await.unwrap();
        assert!(set[0].is_ok());
    }
    let began = Instant::now();
    drop(locks.acquire("order").await.unwrap());
    let took = began.elapsed();
    assert!(took <= 3 * SECOND + 2 * MS, "{took:?}");
}

/// A later writer may meet a reader only at a node that counts less.
#[tokio::test(start_paused = true)]
async fn every_writer_s_fencing_token_is_above_those_of_readers_before_it() {
    let (nodes, [locks]) = five_met().await;
    let mut last: Option<FencingToken> = None;
    for round in 0..20_u64 {
        // One node is far ahead, each time another.
        let node = &nodes.0[usize::try_from(round % 5).unwrap()];
        let high = FencingToken::new((1 << 61) + round * (1 << 20)).unwrap();
        let fence = Fence::new(high, 600 * SECOND);
        let ahead = ExtendRequest::new(order(), owner(7), MS, true);
        let _ = node.extend([ahead.fenced(Some(fence))].into()).await;
        sleep(2 * MS).await;
        let locks = if round % 3 == 2 {
            locks.clone()
        } else {
            locks.shared()
        };
        let guard = locks.try_acquire("order").await.unwrap();
        let fence = guard.fence();
        assert!(fence > last, "{round}: {fence:?} {last:?}");
        last = fence;
        guard.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn work_that_reads_cannot_write_and_work_that_writes_may_read() {
    let (nodes, [locks]) = five_met().await;
    let (readers, scope) = (locks.shared(), LockScope::new());
    let order = || LockKey::new("order").unwrap().into();
    let reading = readers.acquire_in(&scope, order(), SECOND).await.unwrap();
    let again = readers.acquire_in(&scope, order(), SECOND).await.unwrap();
    assert_eq!(reading.fence(), again.fence());
    let began = Instant::now();
    let error = locks.acquire_in(&scope, order(), SECOND).await.unwrap_err();
    assert!(error.to_string().contains("release the key"), "{error}");
    assert_eq!(began.elapsed(), Duration::ZERO);
    drop((reading, again));
    let writing = locks.acquire_in(&scope, order(), SECOND).await.unwrap();
    let inner = readers.acquire_in(&scope, order(), SECOND).await.unwrap();
    assert!(!inner.is_shared());
    assert_eq!(writing.fence(), inner.fence());
    drop((writing, inner));
    nodes.settle_free("order").await;
    let several = readers.try_acquire(["a", "b"]).await.unwrap_err();
    assert!(matches!(several, AcquireError::InvalidKey(_)), "{several}");
}

/// Another request of its process reads all the time.
#[tokio::test(start_paused = true)]
async fn work_that_has_read_may_write_and_reads_past_no_writer() {
    let nodes = Nodes::five();
    let locks = patient(&nodes).await;
    let (readers, scope) = (locks.shared(), LockScope::new());
    let order = || LockKey::new("order").unwrap().into();
    let other = readers.acquire("order").await.unwrap();
    drop(readers.acquire_in(&scope, order(), SECOND).await.unwrap());
    let writing = tokio::spawn({
        let (locks, scope) = (locks.clone(), scope.clone());
        async move { locks.acquire_in(&scope, order(), 60 * SECOND).await }
    });
    sleep(SECOND).await;
    assert!(!writing.is_finished());
    cancel(writing).await;
    let writer = wait_for(&locks, "order").await;
    let error = readers.acquire_in(&scope, order(), Duration::ZERO).await;
    assert_contended(error);
    drop(other);
    drop(writer.await.unwrap().unwrap());
    nodes.assert_nothing_left(&[&locks]).await;
}

/// A round takes longer than a lease would be open from its beginning, and more wait for it than may wait for a turn.
#[tokio::test(start_paused = true)]
async fn readers_share_a_lease_also_where_the_nodes_are_slow() {
    let nodes = Nodes::five();
    let builder = Odd::slow(&nodes.0, 80 * MS, 80 * MS).ttl(SECOND);
    let locks = lazy(builder.node_timeout(500 * MS));
    drop(locks.acquire("other").await.unwrap());
    let readers = locks.shared().with_max_wait(60 * SECOND);
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for number in 0..1_000 {
        let wait = number % 2 * SECOND;
        let readers = readers.with_max_wait(wait);
        tasks.spawn(async move { readers.acquire("order").await.unwrap() });
    }
    let held = tasks.join_all().await;
    assert!(began.elapsed() < 200 * MS, "{:?}", began.elapsed());
    assert!(held.iter().all(|guard| guard.fence() == held[0].fence()));
}
