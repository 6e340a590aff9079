//! Taking a lock, and failing to.

use super::*;

#[tokio::test(start_paused = true)]
async fn one_holder_at_a_time_on_every_node() {
    let (nodes, [a, b]) = five();
    let guard = a.try_acquire("order:1").await.unwrap();
    assert_eq!(nodes.holding("order:1"), 5);

    assert_eq!(remaining(&b, "order:1").await, Some(TTL));
    let _other = b.try_acquire("order:2").await.unwrap();

    guard.release().await.unwrap();
    assert_eq!(nodes.holding("order:1"), 0);
    let _guard = b.try_acquire("order:1").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_minority_that_is_down_or_frozen_costs_no_time() {
    for away in [MemoryNode::go_down, MemoryNode::freeze] {
        let (nodes, [locks]) = five_met().await;
        nodes.each([0, 4], away);
        let before = Instant::now();
        let guard = locks.try_acquire("order:1").await.unwrap();
        assert_eq!(nodes.holding("order:1"), 3);
        guard.release().await.unwrap();
        assert_eq!(before.elapsed(), Duration::ZERO);
        assert_eq!(nodes.holding("order:1"), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_quorum_every_failed_node_is_named_and_nothing_stays() {
    let (nodes, [locks]) = five_met().await;
    nodes.each([0, 1], MemoryNode::go_down);
    nodes.each([2], MemoryNode::freeze);
    let before = Instant::now();
    let error = locks.try_acquire("order:1").await.unwrap_err();
    assert_eq!(before.elapsed(), 100 * MS, "the node time-out");
    assert_eq!(
        error.to_string(),
        "no quorum: 3 of 5 nodes must vote and these do not: \
         n0 (the node is down), n1 (the node is down), n2 (no answer within 100ms)"
    );
    nodes.settle_free("order:1").await;
    nodes.each([2], MemoryNode::thaw);
    nodes.settle_free("order:1").await;

    nodes.each([2], MemoryNode::go_down);
    let before = Instant::now();
    let error = no_quorum(&nodes.manager(), "order:1").await;
    assert!(!error.is_disagreement(), "{error}");
    assert_eq!(before.elapsed(), Duration::ZERO, "nobody is waited for");
    nodes.each([0, 1, 2], MemoryNode::come_up);
    let _guard = nodes.manager().try_acquire("order:1").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_late_grant_after_a_loss_is_released() {
    // Before and after the node time-out.
    for pause in [Duration::ZERO, 150 * MS] {
        let (nodes, [a, b]) = five_met().await;
        nodes.each([3, 4], MemoryNode::go_down);
        let held = a.try_acquire("order:1").await.unwrap();
        nodes.each([3, 4], MemoryNode::freeze);
        b.try_acquire("order:1").await.unwrap_err();
        sleep(pause).await;
        // The request waits in the sockets of the frozen nodes and is granted there when they go on.
        nodes.each([3, 4], MemoryNode::thaw);
        nodes
            .settle("late grants released", |n| n.commands() >= 3 + 3 + 2 * 2)
            .await;
        nodes.settle_on("order:1", 3).await;
        held.release().await.unwrap();
        nodes.settle_free("order:1").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_grant_after_a_win_is_kept_and_released_with_the_rest() {
    let (nodes, [locks]) = five_met().await;
    nodes.each([3, 4], MemoryNode::freeze);
    let guard = locks.try_acquire("order:1").await.unwrap();
    nodes.each([3, 4], MemoryNode::thaw);
    nodes.settle_on("order:1", 5).await;
    guard.release().await.unwrap();
    nodes.settle_free("order:1").await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_refused_late_is_topped_up_soon() {
    let (nodes, [locks]) = five_met().await;
    occupy(&nodes.0[3], place("order:1"), 1, 50 * MS).await;
    nodes.each([3, 4], MemoryNode::freeze);
    let _guard = locks.try_acquire("order:1").await.unwrap();
    nodes.each([3, 4], MemoryNode::thaw);
    // Long before a third of the ttl.
    sleep(300 * MS).await;
    let ours = nodes.token("order:1");
    for node in &nodes.0 {
        assert_eq!(node.holder("lk:order:1"), ours, "{node:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_acquire_dropped_before_it_is_polled_sends_nothing() {
    let nodes = Nodes::five();
    drop(nodes.manager().try_acquire("order:1"));
    tokio::task::yield_now().await;
    assert_eq!(nodes.commands(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_split_is_tried_again_within_a_few_round_trips() {
    // Without any, all attempts might be over before anybody else is heard of.
    const ROUND_TRIP: Duration = Duration::from_millis(4);
    let nodes = Nodes::five();
    let process = Process::on(&nodes.0);
    let locks = lazy(process.builder());
    meet(&locks).await;
    process.0.iter().for_each(|link| link.delay(ROUND_TRIP));
    // Two nodes are one's, and a third is another's.
    let owners = [(0, 1), (1, 1), (2, 2)];
    for (node, number) in owners {
        occupy(&nodes.0[node], place("order:1"), number, TTL).await;
    }
    let attempt = tokio::spawn(async move { locks.try_acquire("order:1").await });
    sleep(ROUND_TRIP + MS).await;
    // Nobody has a quorum, so nobody is told that it is busy.
    assert!(!attempt.is_finished());
    let released = Instant::now();
    for (node, number) in owners {
        let request = ReleaseRequest::new(place("order:1"), owner(number), true);
        nodes.0[node].release(request).await.unwrap();
    }
    let _guard = attempt.await.unwrap().unwrap();
    let took = released.elapsed();
    assert!(took <= 5 * ROUND_TRIP, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_grant_without_validity_left_is_released_and_says_so() {
    let nodes = Nodes::five();
    let locks = connected(nodes.builder().ttl(10 * MS).node_timeout(10 * MS)).await;
    nodes.each(0..5, MemoryNode::freeze);
    let thaw = async {
        sleep(9 * MS).await;
        nodes.each(0..5, MemoryNode::thaw);
    };
    let (result, ()) = tokio::join!(locks.try_acquire("order:1"), thaw);
    assert_eq!(
        result.unwrap_err().to_string(),
        "a quorum granted the lock, but after 9ms of a ttl of 10ms no validity was left; use a longer ttl"
    );
    nodes.settle_free("order:1").await;
}

#[tokio::test(start_paused = true)]
async fn what_seems_a_split_because_a_node_is_slow_does_not_hold_up_the_answer() {
    let (nodes, [locks]) = five_met().await;
    // A holder that does not top up.
    for node in &nodes.0[..3] {
        occupy(node, place("order:1"), 1, TTL).await;
    }
    // Two refuse, two are free, and the one that knows does not answer.
    nodes.each([0], MemoryNode::freeze);
    let before = Instant::now();
    assert_contended(locks.try_acquire("order:1").await);
    assert!(before.elapsed() < 400 * MS, "{:?}", before.elapsed());
}
