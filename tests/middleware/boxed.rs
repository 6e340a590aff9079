//! A layer in a field of a struct, chosen by `if`, and its settings in any order.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Empty;
use tokio::time::timeout;
use tower::{Layer as _, ServiceExt as _, service_fn};
use tower_redlock::layer::OnDisconnect;
use tower_redlock::{Held, LockManager, RedlockLayer, key};

use super::{KEY, MS, Nodes, TTL, layer, ok, post, text};

struct App {
    one_at_a_time: RedlockLayer,
}

fn app(locks: &LockManager, by_header: bool) -> App {
    let one_at_a_time = if by_header {
        RedlockLayer::new(locks.clone(), key::header("x-order").prefix("order"))
    } else {
        layer(locks)
    };
    App { one_at_a_time }
}

fn order(number: &'static str) -> Request<Empty<Bytes>> {
    let mut request = post();
    let number = http::HeaderValue::from_static(number);
    request.headers_mut().insert("x-order", number);
    request
}

#[tokio::test(start_paused = true)]
async fn a_service_has_the_layer_that_an_if_has_chosen() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    for (by_header, expected) in [(true, "order:7"), (false, KEY)] {
        let layer = app(&locks, by_header)
            .one_at_a_time
            .busy_status(StatusCode::LOCKED);
        let service = layer.layer(service_fn(async |request: Request<Empty<Bytes>>| {
            let lock = Held::of(request.extensions()).unwrap();
            Ok::<_, Infallible>(ok(lock.key().to_string().leak()))
        }));
        let response = service.clone().oneshot(order("7")).await.unwrap();
        assert_eq!(text(response).await, expected);
        let held = locks.try_acquire(expected).await.unwrap();
        let response = service.oneshot(order("7")).await.unwrap();
        assert_eq!(response.status(), StatusCode::LOCKED);
        held.release().await.unwrap();
    }
    nodes.settle_free().await;
}

#[cfg(feature = "axum")]
#[tokio::test(start_paused = true)]
async fn so_has_a_route() {
    use axum::{Router, body::Body, routing};
    let nodes = Nodes::five();
    let locks = nodes.manager();
    let tell = async |lock: Held| lock.key().to_string();
    for (by_header, expected) in [(true, "order:7"), (false, KEY)] {
        let layer = app(&locks, by_header).one_at_a_time;
        let app = Router::new().route("/", routing::post(tell).route_layer(layer));
        let request = Request::post("/").header("x-order", "7");
        let response = app.oneshot(request.body(Body::empty()).unwrap()).await;
        let body = axum::body::to_bytes(response.unwrap().into_body(), 99);
        assert_eq!(body.await.unwrap(), expected);
    }
    nodes.settle_free().await;
}

/// `on_disconnect` changes the type of the layer, and takes none of the other settings away.
#[tokio::test(start_paused = true)]
async fn settings_come_in_any_order() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    for (on_disconnect, held_after) in [(OnDisconnect::RunToEnd, 5), (OnDisconnect::Cancel, 0)] {
        let layer = layer(&locks)
            .on_disconnect(OnDisconnect::Cancel)
            .max_wait(Duration::ZERO)
            .on_disconnect(on_disconnect)
            .busy_status(StatusCode::LOCKED);
        let service = layer
            .clone()
            .layer(service_fn(async |_: Request<Empty<Bytes>>| {
                tokio::time::sleep(TTL).await;
                Ok::<_, Infallible>(ok("ran"))
            }));
        let gone = timeout(100 * MS, service.clone().oneshot(post())).await;
        assert!(gone.is_err());
        tokio::time::sleep(100 * MS).await;
        assert_eq!(nodes.holding(KEY), held_after, "{on_disconnect:?}");
        if held_after > 0 {
            let busy = service.oneshot(post()).await.unwrap();
            assert_eq!(busy.status(), StatusCode::LOCKED);
        }
        tokio::time::sleep(2 * TTL).await;
        nodes.settle_free().await;
    }
}
