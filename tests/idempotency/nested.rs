//! The layer inside of itself, and inside of another.

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use http::StatusCode;
use http::request::Parts;
use http::response;
use tower_redlock::IdempotencyLayer;
use tower_redlock::idempotency::Idempotent;
use tower_redlock::layer::OnDisconnect;

use super::{MS, PATIENCE, Shop, layer, manager, nodes, request, send, sent};

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
    let direct = shop.open(inside.clone());
    let app = shop.open(inside).layer(says_so).layer(layer(&nodes));
    let first = sent(&direct, request("a", "tea"));
    tokio::time::sleep(50 * MS).await;
    let busy = send(&app, request("a", "tea")).await;
    busy.assert_problem(409, "request-in-progress");
    shop.let_go();
    assert_eq!(first.await.unwrap().body, "order 1: tea");
    assert_eq!(send(&app, request("a", "tea")).await.body, "order 1: tea");
}

/// As when a route has the layer, and the router around it has, too.
#[tokio::test(start_paused = true)]
async fn twice_is_as_good_as_once() {
    let once = layer(&nodes()).max_wait(PATIENCE);
    let app = Shop::new().open(once.clone()).layer(once);
    assert_eq!(send(&app, request("a", "tea")).await.body, "order 1: tea");
    let again = send(&app, request("a", "tea")).await;
    again.assert_replays("order 1: tea");
    let other = send(&app, request("a", "milk")).await;
    other.assert_problem(422, "idempotency-key-reused");
}

/// The steps of `docs::operating`: the old nodes, both, and the new ones.
#[tokio::test(start_paused = true)]
async fn a_response_is_replayed_across_each_step_of_a_move() {
    let (shop, old, new) = (Shop::new(), nodes(), nodes());
    let stores = |head: &response::Parts| {
        let status = head.status.as_u16();
        status < 500 && ![408, 409, 425, 429].contains(&status)
    };
    let on_old = shop.open(layer(&old));
    let outer = layer(&old).record_if(stores);
    let inner = layer(&new).on_disconnect(OnDisconnect::Cancel);
    let on_both = shop.open(inner).layer(outer);
    let on_new = shop.open(layer(&new));
    for (key, body, first, then) in [
        ("a", "order 1: tea", &on_old, &[&on_both] as &[&Router]),
        ("b", "order 2: tea", &on_both, &[&on_old, &on_both, &on_new]),
        ("c", "order 3: tea", &on_new, &[&on_both]),
    ] {
        assert_eq!(send(first, request(key, "tea")).await.body, body);
        for app in then {
            send(app, request(key, "tea")).await.assert_replays(body);
        }
    }
    assert_eq!(shop.orders(), 3);
}
