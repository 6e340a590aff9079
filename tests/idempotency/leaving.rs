//! Clients that go away, locks that are lost, handlers that panic.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tower_redlock::layer::OnDisconnect;
use tower_redlock::node::MemoryNode;

use super::{Shop, TTL, layer, nodes, request, send};

const PATIENCE: Duration = Duration::from_secs(5);

#[tokio::test(start_paused = true)]
async fn a_request_runs_to_its_end_though_its_client_has_gone_and_a_repeat_gets_the_answer() {
    let (shop, nodes) = (Shop::slow(), nodes());
    let app = shop.open(layer(&nodes).max_wait(PATIENCE));
    let first = send(&app, request("a", "tea"));
    assert!(
        tokio::time::timeout(Duration::from_millis(100), first)
            .await
            .is_err()
    );
    assert_eq!(shop.orders(), 1);
    shop.let_go();
    let again = send(&app, request("a", "tea")).await;
    assert_eq!(again.body, "order 1: tea");
    assert_eq!(shop.orders(), 1);
}

#[tokio::test(start_paused = true)]
async fn while_as_many_run_on_as_may_no_other_begins() {
    let (shop, nodes) = (Shop::slow(), nodes());
    let app = shop.open(layer(&nodes).max_detached(1));
    let first = send(&app, request("a", "tea"));
    assert!(tokio::time::timeout(TTL / 100, first).await.is_err());
    let second = send(&app, request("b", "tea")).await;
    assert_eq!(second.problem(), (503, "too-many-detached".into()));
    assert_eq!(
        (second.header("retry-after"), shop.orders()),
        (Some("1"), 1)
    );
    shop.let_go();
    tokio::time::sleep(TTL / 100).await;
    assert!(send(&app, request("a", "tea")).await.is_replayed());
    shop.let_go();
    assert_eq!(send(&app, request("b", "tea")).await.body, "order 2: tea");
}

tokio::task_local! { static TENANT: u8; }

#[tokio::test(start_paused = true)]
async fn a_request_finds_the_task_locals_of_the_server() {
    use axum::Router;
    use axum::routing::post;
    let tell = post(|| async { TENANT.get().to_string() });
    let app = Router::new()
        .route("/orders/{shop}", tell)
        .layer(layer(&nodes()));
    let reply = TENANT.scope(7, send(&app, request("a", "tea"))).await;
    assert_eq!(reply.body, "7");
}

#[tokio::test(start_paused = true)]
async fn if_so_told_it_is_cut_and_a_repeat_runs_from_the_start() {
    let (shop, nodes) = (Shop::slow(), nodes());
    let layer = layer(&nodes)
        .max_wait(PATIENCE)
        .on_disconnect(OnDisconnect::Cancel);
    let app = shop.open(layer);
    let first = send(&app, request("a", "tea"));
    assert!(
        tokio::time::timeout(Duration::from_millis(100), first)
            .await
            .is_err()
    );
    shop.let_go();
    assert_eq!(send(&app, request("a", "tea")).await.body, "order 2: tea");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_loses_its_lock_is_cut_and_its_client_told() {
    let (shop, nodes) = (Shop::slow(), nodes());
    let app = shop.open(layer(&nodes));
    let first = tokio::spawn(async move { send(&app, request("a", "tea")).await });
    tokio::time::sleep(Duration::from_millis(1)).await;
    nodes.iter().for_each(MemoryNode::go_down);
    let reply = first.await.unwrap();
    assert_eq!(reply.problem(), (503, "lock-lost".into()));
    assert_eq!(reply.header("retry-after"), None);
}

/// A handler may have answered and still be making the body.
#[tokio::test(start_paused = true)]
async fn so_is_one_whose_answer_has_begun() {
    use axum::Router;
    use axum::body::Body;
    use axum::routing::post;
    let nodes = nodes();
    let stuck = post(|| async { Body::new(Stuck) });
    let app = Router::new()
        .route("/orders/{shop}", stuck)
        .layer(layer(&nodes));
    let first = tokio::spawn(async move { send(&app, request("a", "tea")).await });
    tokio::time::sleep(Duration::from_millis(1)).await;
    nodes.iter().for_each(MemoryNode::go_down);
    let reply = tokio::time::timeout(TTL * 2, first).await.unwrap().unwrap();
    assert_eq!(reply.problem(), (503, "lock-lost".into()));
}

/// A body that never comes.
struct Stuck;

impl http_body::Body for Stuck {
    type Data = bytes::Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<bytes::Bytes>, Self::Error>>> {
        Poll::Pending
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_the_handlers_own_and_frees_the_key() {
    use axum::Router;
    use axum::routing::post;
    let nodes = nodes();
    for (key, policy) in [("p", OnDisconnect::RunToEnd), ("q", OnDisconnect::Cancel)] {
        let crash = post(|| async { panic!("out of tea") as &'static str });
        let layer = layer(&nodes).on_disconnect(policy);
        let app = Router::new()
            .route("/orders/{shop}", crash)
            .layer(layer.clone());
        let first = tokio::spawn(async move { send(&app, request(key, "")).await });
        let panic = first.await.unwrap_err().into_panic();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"out of tea"));
        let shop = Shop::new();
        let app = shop.open(layer);
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(
            send(&app, request(key, "")).await.status.as_u16(),
            201,
            "{policy:?}"
        );
        let again = tokio::time::timeout(PATIENCE, send(&app, request(key, ""))).await;
        assert!(again.unwrap().is_replayed());
    }
}
