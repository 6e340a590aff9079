//! What a snapshot shows, and what it keeps to itself.

use serde_json::{Value, json};

use super::*;

fn shown(locks: &LockManager) -> Value {
    serde_json::to_value(locks.snapshot()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn it_tells_who_holds_and_who_waits_for_how_long() {
    let (_nodes, locks, guard) = held("order:1").await;
    sleep(SECOND).await;
    let waiters = [
        wait_for(&locks, "order:1").await,
        wait_for(&locks, "order:1").await,
    ];
    sleep(500 * MS).await;
    let snapshot = shown(&locks);
    let lock = &snapshot["locks"][0];
    assert_eq!(lock["keys"], json!(["order:1"]));
    assert_eq!(lock["held_for"], json!(1.5));
    assert_eq!(lock["waiting"], json!(2));
    assert_eq!(lock["fence"], json!(guard.fence().unwrap().to_string()));
    assert_eq!(lock["lost"], json!(false));
    let remaining = lock["remaining"].as_f64().unwrap();
    assert!((8.0..8.5).contains(&remaining), "{remaining}");
    let queue = json!([{"key": "order:1", "waiting": 2, "longest_wait": 0.5}]);
    assert_eq!(snapshot["queues"], queue);
    assert_eq!(
        (&snapshot["held"], &snapshot["waiting"]),
        (&json!(1), &json!(2))
    );
    guard.release().await.unwrap();
    for waiter in waiters {
        drop(waiter.await.unwrap().unwrap());
    }
    assert_idle(&locks).await;
    let snapshot = locks.snapshot();
    assert!(
        snapshot.locks.is_empty() && snapshot.queues.is_empty(),
        "{snapshot:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_lost_lock_and_a_node_that_is_down_are_shown_as_such() {
    let (nodes, locks, guard) = held("order:1").await;
    sleep(MS).await;
    nodes.each(0..5, MemoryNode::freeze);
    guard.lost().await;
    sleep(SECOND).await;
    nodes.each(0..4, MemoryNode::thaw);
    // They vote again once they say so.
    sleep(1_100 * MS).await;
    nodes.each([4], MemoryNode::go_down);
    let snapshot = shown(&locks);
    assert_eq!(snapshot["locks"][0]["lost"], json!(true));
    assert_eq!(snapshot["locks"][0]["remaining"], json!(0.0));
    assert_eq!(snapshot["nodes"][0]["state"], json!({"is": "up"}));
    assert_eq!(snapshot["nodes"][0]["voting"], json!({"is": "voting"}));
    let down = json!({"is": "down", "reason": "the node is down"});
    assert_eq!(snapshot["nodes"][4]["state"], down);
    let failing = json!({"is": "failing", "reason": "the node is down"});
    assert_eq!(snapshot["nodes"][4]["voting"], failing);
}

#[tokio::test(start_paused = true)]
async fn no_token_is_in_it_and_keys_only_if_they_may_be_read() {
    let nodes = Nodes::five();
    let (open, closed) = (nodes.manager(), nodes.builder().redact_keys(true));
    let closed = lazy(closed);
    let guards = (
        open.try_acquire("order:1").await.unwrap(),
        closed.try_acquire("order:2").await.unwrap(),
    );
    let _waiter = wait_for(&closed, "order:2").await;
    let token = String::from_utf8(nodes.token("order:1").unwrap()).unwrap();
    let text = shown(&open).to_string();
    assert!(text.contains("order:1") && !text.contains(&token), "{text}");
    let text = shown(&closed).to_string();
    let hidden = LockKey::new("order:2").unwrap().redacted();
    assert!(!text.contains("order:2"), "{text}");
    assert_eq!(text.matches(&hidden).count(), 2, "{hidden} in {text}");
    assert!(hidden.starts_with('#') && hidden.len() == 17, "{hidden}");
    let (guard, handle) = (&guards.1, guards.1.handle());
    let lost = handle.lost();
    for text in [
        format!("{guard:?}"),
        format!("{handle:?}"),
        format!("{lost:?}"),
    ] {
        assert!(
            text.contains(&hidden) && !text.contains("order:2"),
            "{text}"
        );
    }
    let (guard, node) = (guards.0, &nodes.0[0]);
    let (handle, lease, lost) = (guard.handle(), guard.lease(), guard.lost());
    let text = format!("{open:?} {guard:?} {handle:?} {lease:?} {lost:?} {node:?}");
    assert!(text.contains("order:1") && !text.contains(&token), "{text}");
}

#[tokio::test(start_paused = true)]
async fn it_is_bounded_and_shows_what_was_held_longest() {
    let (_nodes, [locks]) = five();
    let mut guards = Vec::new();
    for number in 0..=100 {
        guards.push(locks.try_acquire(format!("order:{number}")).await.unwrap());
        sleep(MS).await;
    }
    let snapshot = locks.snapshot();
    assert_eq!((snapshot.held, snapshot.locks.len()), (101, 100));
    assert_eq!(snapshot.locks[0].keys, ["order:0"]);
    assert!(snapshot.locks.iter().all(|lock| lock.keys != ["order:100"]));
}
