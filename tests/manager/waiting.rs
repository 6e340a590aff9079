//! Waiting for a lock that another process holds: other managers over the same nodes.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_waiter_listens_and_is_woken_by_the_release() {
    for after in [1, 50, 950, 2_050, 4_111] {
        let (nodes, [a, b]) = five();
        let guard = a.try_acquire("order:1").await.unwrap();
        let waiter = wait_for(&b, "order:1").await;
        assert_eq!(nodes.subscriptions(), 5);
        sleep(after * MS).await;
        assert_eq!(b.snapshot().queues[0].longest_wait, after * MS);
        let before = Instant::now();
        guard.release().await.unwrap();
        let next = waiter.await.unwrap().unwrap();
        assert!(before.elapsed() <= 2 * MS, "{:?}", before.elapsed());
        assert_eq!(nodes.subscriptions(), 0, "who holds it does not listen");
        assert!(next.waited() >= after * MS);
        drop(next);
        nodes.assert_nothing_left(&[&b]).await;
    }
}

/// None of the others has a quorum, and none of them goes away.
#[tokio::test(start_paused = true)]
async fn a_vote_that_stays_split_is_waited_out_and_not_hammered_at() {
    let nodes = Nodes::five();
    let locks = lazy(nodes.builder().max_wait(20 * SECOND));
    meet(&locks).await;
    for (number, ttl) in [(0, 9), (1, 9), (2, 6)] {
        let node = &nodes.0[usize::from(number)];
        occupy(node, place("order:1"), number, ttl * SECOND).await;
    }
    let (began, before) = (Instant::now(), nodes.commands());
    let guard = locks.acquire("order:1").await.unwrap();
    let took = began.elapsed();
    assert!(took >= 6 * SECOND, "{took:?}");
    assert!(took <= 7 * SECOND + 10 * MS, "the next poll: {took:?}");
    // Five acquires and two releases each.
    let rounds = (nodes.commands() - before) / 7;
    assert!((10..=60).contains(&rounds), "{rounds} rounds");
    drop(guard);
    nodes.settle_on("order:1", 2).await;
}

#[tokio::test(start_paused = true)]
async fn who_gets_the_lock_at_once_never_listens() {
    let (nodes, [locks]) = five_met().await;
    let mut acquire = Box::pin(locks.acquire("order:1"));
    let guard = poll_once(&mut acquire).await.unwrap().unwrap();
    assert_eq!((nodes.commands(), nodes.subscriptions()), (5, 0));
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_looks_now_and_then_and_no_more() {
    // Pauses are random up to 0.1, 0.2, 0.4, 0.8 and then 1 s: 13 looks in 5 s on the average, and as good as never
    // more than 35. Without notices they are up to 4, 8 .. 100 ms: 100 on the average.
    for (silent, least, most) in [(false, 5, 35), (true, 60, 160)] {
        let (nodes, [a, b]) = five();
        if silent {
            nodes.each(0..5, MemoryNode::fall_silent);
        }
        let _guard = a.try_acquire("order:1").await.unwrap();
        let before = nodes.commands();
        b.acquire("order:1").await.unwrap_err();
        // Five of them are the holder's extension.
        let looks = (nodes.commands() - before) / 5;
        assert!((least..=most).contains(&looks), "{looks} looks in 5 s");
    }
}

/// Notices of a minority are as good as none.
#[tokio::test(start_paused = true)]
async fn without_notices_of_a_quorum_a_look_finds_the_lock_free() {
    for silent in [0..5, 0..3] {
        let mut longest = Duration::ZERO;
        for round in 0..20 {
            let (nodes, [a, b]) = five();
            nodes.each(silent.clone(), MemoryNode::fall_silent);
            let guard = a.try_acquire("order:1").await.unwrap();
            let waiter = wait_for(&b, "order:1").await;
            sleep(2 * SECOND + 7 * round * MS).await;
            nodes.each(0..5, MemoryNode::fall_silent);
            let before = Instant::now();
            guard.release().await.unwrap();
            let _next = waiter.await.unwrap().unwrap();
            longest = longest.max(before.elapsed());
        }
        assert!(longest <= 101 * MS, "{silent:?}: {longest:?}");
        assert!(longest > 10 * MS, "{silent:?}: somebody told");
    }
}

/// A node whose subscriptions are open, and whose notices of the key never arrive.
#[derive(Clone, Debug)]
struct Muffled(MemoryNode);

impl Between for Muffled {
    type Node = MemoryNode;

    fn node(&self) -> &MemoryNode {
        &self.0
    }

    fn pass<T: Send + 'static>(&self, _call: Call, reply: Reply<T>) -> Reply<T> {
        reply
    }

    fn notifier(&self) -> Option<Arc<dyn Notifier>> {
        Some(Arc::new(self.clone()))
    }
}

impl Notifier for Muffled {
    fn subscribe(&self, _key: &NodeKey, sender: NoticeSender) -> Subscription {
        let notifier = self.0.notifier().unwrap();
        notifier.subscribe(&place("another"), sender)
    }
}

#[tokio::test(start_paused = true)]
async fn a_notice_that_is_lost_without_a_sign_costs_a_second_at_most() {
    let mut longest = Duration::ZERO;
    for round in 0..20 {
        let (nodes, [a]) = five();
        let b = lazy(over(nodes.0.iter().cloned().map(|it| Wrapped(Muffled(it)))));
        let guard = a.try_acquire("order:1").await.unwrap();
        let waiter = wait_for(&b, "order:1").await;
        assert_eq!(nodes.subscriptions(), 5);
        sleep(2 * SECOND + 7 * round * MS).await;
        let before = Instant::now();
        guard.release().await.unwrap();
        let _next = waiter.await.unwrap().unwrap();
        longest = longest.max(before.elapsed());
    }
    assert!(longest <= 1_002 * MS, "{longest:?}");
    assert!(
        longest > 101 * MS,
        "it polled as if it were not subscribed: {longest:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_notice_that_was_lost_is_made_up_for_when_the_nodes_are_heard_again() {
    let (nodes, [a, b]) = five();
    let guard = a.try_acquire("order:1").await.unwrap();
    let mut waiter = wait_for(&b, "order:1").await;
    // It sleeps for long by now.
    sleep(2_500 * MS).await;
    nodes.each(0..5, MemoryNode::fall_silent);
    guard.release().await.unwrap();
    nodes.each(0..5, MemoryNode::speak_up);
    let before = Instant::now();
    let _next = (&mut waiter).await.unwrap().unwrap();
    assert!(before.elapsed() <= 2 * MS, "{:?}", before.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_vanished_is_followed_when_its_ttl_ends() {
    for (ttl, silent) in [(777, false), (3_000, false), (3_000, true)] {
        let (nodes, [locks]) = five();
        if silent {
            nodes.each(0..5, MemoryNode::fall_silent);
        }
        for node in &nodes.0 {
            occupy(node, place("order:1"), 1, ttl * MS).await;
        }
        let before = Instant::now();
        let _next = locks.acquire("order:1").await.unwrap();
        let waited = before.elapsed();
        assert!(waited >= ttl * MS && waited <= (ttl + 2) * MS, "{waited:?}");
    }
}
