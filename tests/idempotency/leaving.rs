//! Clients that go away, locks that are lost, handlers that panic.

use std::convert::Infallible;

use axum::body::Body;
use axum::routing::post;
use bytes::Bytes;
use futures_util::stream;
use tokio::time::{sleep, timeout};
use tower_redlock::layer::OnDisconnect;
use tower_redlock::node::MemoryNode;

use super::{MS, PATIENCE, Shop, TTL, at, layer, nodes, request, send, send_and_go, sent};

#[tokio::test(start_paused = true)]
async fn a_request_whose_client_has_gone_runs_to_its_end_or_is_cut_if_so_told() {
    for (policy, told) in [
        (OnDisconnect::RunToEnd, "order 1: tea"),
        // A repeat runs from the start.
        (OnDisconnect::Cancel, "order 2: tea"),
    ] {
        let (shop, nodes) = (Shop::slow(), nodes());
        let layer = layer(&nodes).max_wait(PATIENCE);
        // The first is how it is unless it is told otherwise.
        let app = shop.open(match policy {
            OnDisconnect::Cancel => layer.on_disconnect(policy),
            _ => layer,
        });
        send_and_go(&app, request("a", "tea")).await;
        assert_eq!(shop.orders(), 1);
        shop.let_go();
        assert_eq!(send(&app, request("a", "tea")).await.body, told);
    }
}

#[tokio::test(start_paused = true)]
async fn while_as_many_run_on_as_may_no_other_begins() {
    let (shop, nodes) = (Shop::slow(), nodes());
    let app = shop.open(layer(&nodes).max_detached(1));
    send_and_go(&app, request("a", "tea")).await;
    let second = send(&app, request("b", "tea")).await;
    second.assert_problem(503, "too-many-detached");
    assert_eq!(second.header("retry-after"), Some("1"));
    assert_eq!(shop.orders(), 1);
    shop.let_go();
    sleep(TTL / 100).await;
    assert!(send(&app, request("a", "tea")).await.is_replayed());
    shop.let_go();
    assert_eq!(send(&app, request("b", "tea")).await.body, "order 2: tea");
}

/// A handler may have answered and still be making the body.
#[tokio::test(start_paused = true)]
async fn a_request_that_loses_its_lock_is_cut_and_its_client_told() {
    let stuck = post(async || Body::from_stream(stream::pending::<Result<Bytes, Infallible>>()));
    let nodes = nodes();
    for app in [Shop::slow().open(layer(&nodes)), at(stuck, layer(&nodes))] {
        let first = sent(&app, request("a", "tea"));
        sleep(MS).await;
        nodes.iter().for_each(MemoryNode::go_down);
        let reply = timeout(TTL * 2, first).await.unwrap().unwrap();
        reply.assert_problem(503, "lock-lost");
        assert_eq!(reply.header("retry-after"), None);
        nodes.iter().for_each(MemoryNode::come_up);
        sleep(TTL * 2).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_the_handlers_own_and_frees_the_key() {
    let nodes = nodes();
    for (key, policy) in [("p", OnDisconnect::RunToEnd), ("q", OnDisconnect::Cancel)] {
        let crash = post(|| async { panic!("out of tea") as &'static str });
        let layer = layer(&nodes).on_disconnect(policy);
        let first = sent(&at(crash, layer.clone()), request(key, ""));
        let panic = first.await.unwrap_err().into_panic();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"out of tea"));
        let app = Shop::new().open(layer);
        sleep(MS).await;
        let status = send(&app, request(key, "")).await.status;
        assert_eq!(status, 201, "{policy:?}");
        let again = timeout(PATIENCE, send(&app, request(key, ""))).await;
        assert!(again.unwrap().is_replayed());
    }
}
