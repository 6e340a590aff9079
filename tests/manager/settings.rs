//! Settings that make no sense, and what the manager tells of itself.

use super::*;

#[tokio::test]
async fn a_manager_needs_nodes() {
    assert_eq!(
        LockManager::builder()
            .connect_lazy()
            .unwrap_err()
            .to_string(),
        "nodes: there is no node: give the URLs of servers, or `memory` with a number for nodes inside this process"
    );
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
    let nodes = Nodes::of(4);
    let manager = || lazy(nodes.builder().mask_losses(1));
    let (a, b) = (manager(), manager());
    assert!(a.snapshot().verdict.contains("3 needed"));
    let _guard = a.try_acquire("order:1").await.unwrap();
    nodes.0[0].forget();
    b.try_acquire("order:1").await.unwrap_err();
}
