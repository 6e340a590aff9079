//! The layer inside of itself, and inside of another.

use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use http::StatusCode;
use http::request::Parts;
use tower_redlock::IdempotencyLayer;
use tower_redlock::idempotency::Idempotent;
use tower_redlock::layer::OnDisconnect;

use super::{Shop, layer, manager, nodes, request, send};

/// Who stands between two layers and does nothing says so, or else a client would be told for a day that its request is
/// being processed.
#[tokio::test(start_paused = true)]
async fn what_a_layer_inside_refuses_is_not_kept_if_one_in_between_says_so() {
    let (shop, nodes) = (Shop::slow(), nodes());
    let of_everybody = |_: &Parts| Some("everybody".to_owned());
    let inside = IdempotencyLayer::new(manager(&nodes), of_everybody);
    let says_so = from_fn(async |run: Idempotent, request: Request, next: Next| {
        let answer = next.run(request).await;
        match answer.status() {
            StatusCode::CONFLICT => run.not_processed(answer),
            _ => answer,
        }
    });
    let (direct, app) = (
        shop.open(inside.clone()),
        shop.open(inside).layer(says_so).layer(layer(&nodes)),
    );
    let first = tokio::spawn(async move { send(&direct, request("a", "tea")).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    let busy = send(&app, request("a", "tea")).await;
    assert_eq!(busy.problem(), (409, "request-in-progress".into()));
    shop.let_go();
    assert_eq!(first.await.unwrap().body, "order 1: tea");
    assert_eq!(send(&app, request("a", "tea")).await.body, "order 1: tea");
}

/// As when a route has the layer, and the router around it has, too.
#[tokio::test(start_paused = true)]
async fn twice_is_as_good_as_once() {
    let (shop, nodes) = (Shop::new(), nodes());
    let once = layer(&nodes).max_wait(Duration::from_secs(5));
    let app = shop.open(once.clone()).layer(once);
    assert_eq!(send(&app, request("a", "tea")).await.body, "order 1: tea");
    let again = send(&app, request("a", "tea")).await;
    assert_eq!(again.body, "order 1: tea");
    assert!(again.is_replayed());
    assert_eq!(
        send(&app, request("a", "milk")).await.problem(),
        (422, "idempotency-key-reused".into())
    );
}

/// The steps of `docs::operating`: the old nodes, both, and the new ones.
#[tokio::test(start_paused = true)]
async fn a_response_is_replayed_across_each_step_of_a_move() {
    let (shop, old, new) = (Shop::new(), nodes(), nodes());
    let stores = |head: &http::response::Parts| {
        let status = head.status.as_u16();
        status < 500 && ![408, 409, 425, 429].contains(&status)
    };
    let on_old = shop.open(layer(&old));
    let outer = layer(&old).record_if(stores);
    let inner = layer(&new).on_disconnect(OnDisconnect::Cancel);
    let on_both = shop.open(inner).layer(outer);
    let on_new = shop.open(layer(&new));
    let replayed = async |app: &Router, key: &str, body: &str| {
        let reply = send(app, request(key, "tea")).await;
        assert!(
            reply.is_replayed() && reply.body == body,
            "{key}: {reply:?}"
        );
    };
    assert_eq!(
        send(&on_old, request("a", "tea")).await.body,
        "order 1: tea"
    );
    replayed(&on_both, "a", "order 1: tea").await;
    assert_eq!(
        send(&on_both, request("b", "tea")).await.body,
        "order 2: tea"
    );
    for app in [&on_old, &on_both, &on_new] {
        replayed(app, "b", "order 2: tea").await;
    }
    assert_eq!(
        send(&on_new, request("c", "tea")).await.body,
        "order 3: tea"
    );
    replayed(&on_both, "c", "order 3: tea").await;
    assert_eq!(shop.orders(), 3);
}
