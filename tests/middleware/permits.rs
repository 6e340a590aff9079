//! A layer that lets a few requests to one resource run at once.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::routing::post;
use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use tokio::sync::{Semaphore, mpsc};
use tower::ServiceExt as _;
use tower_redlock::{Held, LockManager, RedlockLayer, key};

use super::{MS, Nodes};

/// Requests that stay until they are let go, and tell the slot that they have.
struct App {
    router: Router,
    arrived: mpsc::UnboundedReceiver<Option<u32>>,
    go: Arc<Semaphore>,
}

fn app(layer: impl FnOnce(Router) -> Router) -> App {
    let (tell, arrived) = mpsc::unbounded_channel();
    let go = Arc::new(Semaphore::new(0));
    let gate = go.clone();
    let handler = move |held: Held| async move {
        tell.send(held.slot()).unwrap();
        gate.acquire().await.unwrap().forget();
    };
    App {
        router: layer(Router::new().route("/{tenant}", post(handler))),
        arrived,
        go,
    }
}

async fn send(router: &Router, path: &str) -> Response<Body> {
    let request = Request::post(path).body(Body::empty()).unwrap();
    router.clone().oneshot(request).await.unwrap()
}

fn told(headers: &HeaderMap) -> [Option<&str>; 3] {
    ["ratelimit-policy", "ratelimit", "retry-after"]
        .map(|name| headers.get(name).map(|value| value.to_str().unwrap()))
}

fn layer(locks: &LockManager) -> RedlockLayer {
    RedlockLayer::new(
        locks.permits(2).unwrap(),
        key::path("tenant").prefix("report"),
    )
}

#[tokio::test(start_paused = true)]
async fn as_many_requests_run_as_there_are_permits_and_the_next_is_told() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    let mut app = app(|router| router.route_layer(layer(&locks).rate_limit("re\"ports\n")));
    let mut running = Vec::new();
    let mut slots = Vec::new();
    for _ in 0..2 {
        let router = app.router.clone();
        running.push(tokio::spawn(async move { send(&router, "/7").await }));
        slots.push(app.arrived.recv().await.unwrap());
    }
    slots.sort_unstable();
    assert_eq!(slots, [Some(0), Some(1)]);
    let refused = send(&app.router, "/7").await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    let policy = r#""reports";q=2;qu="concurrent-requests""#;
    let limit = r#""reports";r=0"#;
    assert_eq!(
        told(refused.headers()),
        [Some(policy), Some(limit), Some("1")]
    );
    // Another tenant has permits of its own.
    app.go.add_permits(3);
    assert_eq!(send(&app.router, "/8").await.status(), StatusCode::OK);
    for running in running {
        let response = running.await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(told(response.headers()), [None; 3]);
    }
    app.go.add_permits(1);
    assert_eq!(send(&app.router, "/7").await.status(), StatusCode::OK);
    nodes.settle_free().await;
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_a_permit_and_a_route_chooses_its_response() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    let waits = layer(&locks)
        .max_wait(MS * 1_000)
        .busy_status(StatusCode::LOCKED);
    let plain = |router: Router| {
        let response = |_: &_| Response::new(Bytes::from_static(b"busy"));
        router.route_layer(waits.rejection_response(response).rate_limit("reports"))
    };
    let mut app = app(plain);
    let permits = locks.permits(2).unwrap();
    let held = [
        permits.try_acquire("report:7").await.unwrap(),
        permits.try_acquire("report:7").await.unwrap(),
    ];
    let late = send(&app.router, "/7").await;
    assert_eq!(late.status(), StatusCode::OK, "as the route has it");
    assert!(late.headers().contains_key("ratelimit"));
    let router = app.router.clone();
    let waiting = tokio::spawn(async move { send(&router, "/7").await });
    tokio::time::sleep(MS * 100).await;
    assert!(app.arrived.try_recv().is_err());
    let [first, _second] = held;
    first.release().await.unwrap();
    assert!(app.arrived.recv().await.unwrap().is_some());
    app.go.add_permits(1);
    assert!(!waiting.await.unwrap().headers().contains_key("ratelimit"));
}

/// A request that has the one lock has a permit beside it.
#[tokio::test(start_paused = true)]
async fn a_permit_and_a_lock_on_one_key_are_two_things() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    let lock = RedlockLayer::new(locks.clone(), key::path("tenant").prefix("report"));
    let mut app = app(|router| router.route_layer(layer(&locks)).route_layer(lock));
    app.go.add_permits(1);
    assert_eq!(send(&app.router, "/7").await.status(), StatusCode::OK);
    assert!(app.arrived.recv().await.unwrap().is_some());
    nodes.settle_free().await;
}
