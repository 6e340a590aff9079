//! The extractor: the handler runs under a lock or not at all.

use axum::Router;
use axum::body::Body;
use axum::routing::{any, post};
use http::{Method, Request};
use http_body_util::BodyExt as _;
use tower::ServiceExt as _;
use tower_redlock::layer::OnNoQuorum;
use tower_redlock::{Held, key};

use super::{Nodes, TTL, keyed, layer};

async fn send(app: Router, method: Method) -> (u16, String, Option<String>) {
    let request = Request::builder().method(method).uri("/");
    let response = app
        .oneshot(request.body(Body::empty()).unwrap())
        .await
        .unwrap();
    let status = response.status().as_u16();
    let kind = response.headers().get("content-type");
    let kind = kind.map(|value| value.to_str().unwrap().to_owned());
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(bytes.to_vec()).unwrap(), kind)
}

async fn strict(lock: Held) -> String {
    assert!(!lock.is_lost());
    lock.key().to_string()
}

async fn either(lock: Option<Held>) -> &'static str {
    lock.map_or("unlocked", |_| "locked")
}

#[tokio::test(start_paused = true)]
async fn a_handler_has_its_lock() {
    let nodes = Nodes::five();
    let app = Router::new().route("/", post(strict).route_layer(layer(&nodes.manager())));
    assert_eq!(send(app, Method::POST).await.1, "order:1");
    let app = Router::new().route("/", post(either).route_layer(layer(&nodes.manager())));
    assert_eq!(send(app, Method::POST).await.1, "locked");
    nodes.assert_free();
}

#[tokio::test(start_paused = true)]
async fn a_handler_is_told_how_long_its_request_waited() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    let layer = layer(&locks).max_wait(2 * TTL);
    let route = post(async |lock: Held| format!("{:?}", lock.waited())).route_layer(layer);
    let app = Router::new().route("/", route);
    assert_eq!(send(app.clone(), Method::POST).await.1, "0ns");
    let held = locks.try_acquire(super::KEY).await.unwrap();
    let sent = tokio::spawn(send(app, Method::POST));
    tokio::time::sleep(1_250 * super::MS).await;
    held.release().await.unwrap();
    assert_eq!(sent.await.unwrap().1, "1.25s");
}

/// The last word of the `type` of a problem.
fn problem(text: &str) -> String {
    let problem: serde_json::Value = serde_json::from_str(text).unwrap();
    let word = problem["type"].as_str().unwrap().rsplit(':').next();
    word.unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_missing_layer_is_a_problem_of_the_server() {
    for route in [post(strict), post(either)] {
        let (status, text, kind) = send(Router::new().route("/", route), Method::POST).await;
        assert_eq!((status, problem(&text)), (500, "misconfigured".into()));
        assert_eq!(kind.unwrap(), "application/problem+json");
        // The log says what, and a client cannot help it.
        assert!(!text.contains("RedlockLayer"), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_needs_a_lock_is_refused_where_its_request_runs_without_one() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    let app = |route: axum::routing::MethodRouter| Router::new().route("/", route);
    let got = send(app(any(strict).layer(layer(&locks))), Method::GET).await;
    assert_eq!((got.0, problem(&got.1)), (500, "misconfigured".into()));
    let got = send(app(any(either).layer(layer(&locks))), Method::GET).await;
    assert_eq!((got.0, got.1.as_str()), (200, "unlocked"));

    let optional = || keyed(&locks, key::header("x-id").optional());
    let got = send(app(post(strict).layer(optional())), Method::POST).await;
    assert_eq!((got.0, problem(&got.1)), (500, "misconfigured".into()));

    nodes.each(|n| n.go_down());
    let anyway = || layer(&locks).on_no_quorum(OnNoQuorum::RunUnlocked);
    let got = send(app(post(strict).layer(anyway())), Method::POST).await;
    assert_eq!((got.0, problem(&got.1)), (503, "no-quorum".into()));
    let got = send(app(post(either).layer(anyway())), Method::POST).await;
    assert_eq!((got.0, got.1.as_str()), (200, "unlocked"));
}
