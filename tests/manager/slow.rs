//! Nodes that are slow rather than gone: everything they are asked is done, and the answer comes late.

use super::*;

#[tokio::test(start_paused = true)]
async fn the_releases_of_a_node_that_answers_after_the_time_out_come_to_an_end() {
    let nodes = Nodes::five();
    let locks = lazy(Odd::late(&nodes.0, 150 * MS));
    assert!(locks.node_timeout() < 150 * MS);
    for _ in 0..100 {
        let guard = locks.try_acquire("order:1").await.unwrap();
        guard.release().await.unwrap();
    }
    sleep(SECOND).await;
    let report = locks.shutdown(Duration::ZERO).await;
    assert_eq!(report.unconfirmed, 0, "long before the ttl");
}

#[tokio::test(start_paused = true)]
async fn more_releases_than_there_is_room_for_do_not_cost_a_lock_that_is_held() {
    let (nodes, [locks]) = five();
    let mut guards = Vec::new();
    for order in 2..11_000 {
        guards.push(locks.try_acquire(format!("order:{order}")).await.unwrap());
    }
    nodes.each([4], MemoryNode::freeze);
    drop(guards);
    let guard = locks.try_acquire("order:1").await.unwrap();
    // As long as the releases on the frozen node are tried, which is for a ttl.
    sleep(Duration::from_millis(9_950)).await;
    assert!(guard.remaining() > 5 * SECOND, "it was renewed");

    let guard = locks.try_acquire("order:0").await.unwrap();
    nodes.each([4], MemoryNode::thaw);
    guard.release().await.unwrap();
    nodes.settle_free("order:0").await;
}

#[tokio::test(start_paused = true)]
async fn nodes_that_are_slow_to_close_do_not_add_up() {
    let nodes = Nodes::five();
    let locks = lazy(Odd::slow(&nodes.0, Duration::ZERO, 10 * SECOND));
    let began = Instant::now();
    locks.shutdown(Duration::ZERO).await;
    assert!(began.elapsed() <= SECOND, "{:?}", began.elapsed());
}
