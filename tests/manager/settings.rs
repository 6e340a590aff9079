//! Settings that make no sense, and what the manager tells of itself.

use std::time::Duration;

use tower_redlock::LockManager;
use tower_redlock::clock::TokioClock;
use tower_redlock::error::ConnectError;
use tower_redlock::node::MemoryNode;
use tower_redlock::node::NodeState;

use super::Nodes;

#[tokio::test]
async fn mistakes_are_reported_before_anything_is_connected() {
    let error = |builder: tower_redlock::Settings| builder.connect_lazy().unwrap_err().to_string();
    assert_eq!(
        error(LockManager::builder()),
        "nodes: there is no node: give the URLs of servers, or `memory` with a number for nodes inside this process"
    );
    assert_eq!(
        error(LockManager::builder().memory(3).ttl(Duration::ZERO)),
        "ttl is 0ns; it must be at least 10ms"
    );
    assert_eq!(
        error(LockManager::builder().nodes([MemoryNode::new("a"), MemoryNode::new("a")])),
        "nodes[1].name: two nodes are called a; give each a name of its own"
    );
    assert!(error(LockManager::builder().memory(usize::MAX)).contains("at most 32"));
}

#[test]
fn outside_a_runtime_it_says_what_to_do() {
    assert_eq!(
        LockManager::builder()
            .memory(1)
            .connect_lazy()
            .unwrap_err()
            .to_string(),
        "there is no tokio runtime here: build the manager inside one, for its tasks live there"
    );
}

#[tokio::test(start_paused = true)]
async fn connect_needs_a_quorum_and_names_who_is_missing() {
    let nodes = Nodes::five();
    // Without all of them nobody begins.
    nodes.each([0, 1], MemoryNode::go_down);
    let error = nodes.builder().connect().await.unwrap_err().to_string();
    for node in [
        "n0 (the node is down)",
        "n2 (it does not vote before every node",
    ] {
        assert!(error.contains(node), "{error}");
    }
    nodes.each([0, 1], MemoryNode::come_up);
    drop(nodes.builder().connect().await.unwrap());
    nodes.each([0, 1], MemoryNode::go_down);
    let locks = nodes.builder().connect().await.unwrap();
    let down: Vec<_> = locks
        .snapshot()
        .nodes
        .into_iter()
        .filter(|node| matches!(node.state, NodeState::Down(_)))
        .map(|node| node.name)
        .collect();
    assert_eq!(down, ["n0", "n1"]);

    nodes.each([2], MemoryNode::go_down);
    let error = nodes.builder().connect().await.unwrap_err();
    assert!(matches!(error, ConnectError::NoQuorum(_)), "{error:?}");
    assert_eq!(
        error.to_string(),
        "no quorum: 3 of 5 nodes must vote and these do not: \
         n0 (the node is down), n1 (the node is down), n2 (the node is down)"
    );
}

#[tokio::test(start_paused = true)]
async fn four_nodes_that_mask_a_loss_need_three() {
    let nodes: Vec<_> = (0..4).map(|n| MemoryNode::new(format!("n{n}"))).collect();
    let builder = || {
        LockManager::builder()
            .clock(TokioClock::new())
            .nodes(nodes.iter().cloned())
    };
    let (a, b) = (
        builder().mask_losses(1).connect_lazy().unwrap(),
        builder().mask_losses(1).connect_lazy().unwrap(),
    );
    assert!(a.snapshot().verdict.contains("3 needed"));
    let _guard = a.try_acquire("order:1").await.unwrap();
    nodes[0].forget();
    b.try_acquire("order:1").await.unwrap_err();
}

#[tokio::test]
async fn debug_texts_hold_no_token() {
    let node = MemoryNode::new("n0");
    let locks = LockManager::builder()
        .nodes([node.clone()])
        .connect_lazy()
        .unwrap();
    let guard = locks.try_acquire("order:1").await.unwrap();
    let secret = String::from_utf8(node.holder("lk:order:1").unwrap()).unwrap();
    let text = format!(
        "{locks:?} {guard:?} {:?} {:?} {:?} {node:?}",
        guard.handle(),
        guard.lease(),
        guard.lost()
    );
    assert!(!text.contains(&secret));
    assert!(text.contains("order:1"), "{text}");
}
