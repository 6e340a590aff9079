//! Locks that are taken inside the handler.

use axum::body::Body;
use axum::extract::{FromRef, FromRequestParts, Path, State};
use axum::response::IntoResponse as _;
use axum::routing::post;
use axum::{Json, Router};
use bytes::Bytes;
use futures_util::StreamExt as _;
use http::request::Parts;
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use tokio::sync::oneshot;
use tower::ServiceExt as _;
use tower_redlock::Locked;
use tower_redlock::error::{KeyError, LossReason, RunError};
use tower_redlock::extract::AsLockKeys;
use tower_redlock::key::LockKeys;
use tower_redlock::layer::{Rejection, RejectionKind};
use tower_redlock::{LockKey, LockManager, RedlockLayer, key};

use super::Nodes;

/// Two accounts, as the path names them.
struct Transfer(String, String);

impl<S: Send + Sync> FromRequestParts<S> for Transfer {
    type Rejection = axum::extract::rejection::PathRejection;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        let Path((from, to)) = Path::from_request_parts(parts, state).await?;
        Ok(Self(from, to))
    }
}

impl AsLockKeys for Transfer {
    fn to_lock_keys(&self) -> Result<LockKeys, KeyError> {
        LockKeys::new([
            LockKey::join(["account", &self.0])?,
            LockKey::join(["account", &self.1])?,
        ])
    }
}

#[derive(Clone)]
struct App(LockManager);

impl FromRef<App> for LockManager {
    fn from_ref(app: &App) -> Self {
        app.0.clone()
    }
}

fn app(locks: &LockManager) -> Router {
    let handler = |locked: Locked<Transfer>| async move {
        let keys: Vec<_> = locked.guard().keys().iter().map(LockKey::as_str).collect();
        format!("{} to {} under {}", locked.0, locked.1, keys.join(" "))
    };
    let route = post(handler);
    Router::new()
        .route("/{from}/{to}", route)
        .with_state(App(locks.clone()))
}

async fn send(app: &Router, path: &str) -> (StatusCode, String) {
    let request = Request::post(path).body(Body::empty()).unwrap();
    let response = app.clone().oneshot(request).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_handler_takes_the_lock_that_its_argument_names() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    let (status, body) = send(&app(&locks), "/b/a").await;
    assert_eq!(
        (status, &*body),
        (StatusCode::OK, "b to a under account:a account:b")
    );
    nodes.settle_free().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_is_answered_as_the_layer_does() {
    let nodes = Nodes::five();
    let locks = nodes
        .builder()
        .max_wait(super::MS * 50)
        .connect_lazy()
        .unwrap();
    let held = locks.try_acquire("account:a").await.unwrap();
    let (status, body) = send(&app(&locks), "/a/b").await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert!(
        body.contains("urn:tower-redlock:problem:wait-timeout"),
        "{body}"
    );
    held.release().await.unwrap();
    let long = "x".repeat(600);
    let (status, body) = send(&app(&locks), &format!("/a/{long}")).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(
        body.contains("urn:tower-redlock:problem:invalid-key"),
        "{body}"
    );
    nodes.each(tower_redlock::node::MemoryNode::go_down);
    let (status, body) = send(&app(&locks), "/a/b").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(
        body.contains("urn:tower-redlock:problem:no-quorum"),
        "{body}"
    );
}

#[tokio::test(start_paused = true)]
async fn what_a_layer_has_locked_is_shared_with_it() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    let layer = RedlockLayer::new(locks.clone(), key::path("from").prefix("account"));
    let app = app(&locks).route_layer(layer);
    let (status, body) = send(&app, "/a/a").await;
    assert_eq!((status, &*body), (StatusCode::OK, "a to a under account:a"));
    nodes.settle_free().await;
}

/// The same, as a JSON body names them.
#[derive(serde::Deserialize)]
struct Wire {
    from: u64,
    to: u64,
}

impl AsLockKeys for Wire {
    fn to_lock_keys(&self) -> Result<LockKeys, KeyError> {
        LockKeys::new([self.from, self.to].map(|account| format!("account:{account}")))
    }
}

/// Three routes: a lock on what the body names, the same of the path, and one that the handler takes.
fn wires(locks: &LockManager) -> Router {
    let of_body = async |wire: Locked<Json<Wire>>| {
        let keys: Vec<_> = wire.guard().keys().iter().map(LockKey::as_str).collect();
        format!("{} to {} under {}", wire.from, wire.to, keys.join(" "))
    };
    let of_path = async |wire: Locked<Path<Wire>>| wire.guard().keys().len().to_string();
    let by_hand = async |State(App(locks)): State<App>, Json(wire): Json<Wire>| {
        let keys = wire.to_lock_keys()?;
        let work = |lock: tower_redlock::LockHandle| async move { lock.key().to_string() };
        let done = locks.run(keys, work).await?;
        Ok::<_, Rejection>(done)
    };
    Router::new()
        .route("/", post(of_body))
        .route("/{from}/{to}", post(of_path))
        .route("/by-hand", post(by_hand))
        .with_state(App(locks.clone()))
}

fn json(path: &str, body: impl Into<Body>) -> Request<Body> {
    let request = Request::post(path).header("content-type", "application/json");
    request.body(body.into()).unwrap()
}

async fn answer(app: &Router, request: Request<Body>) -> (StatusCode, String) {
    let response = app.clone().oneshot(request).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

const WIRE: &str = r#"{"from": 7, "to": 3}"#;

#[tokio::test(start_paused = true)]
async fn a_lock_is_taken_on_what_the_body_names() {
    let nodes = Nodes::five();
    let app = wires(&nodes.manager());
    let (status, body) = answer(&app, json("/", WIRE)).await;
    assert_eq!(
        (status, &*body),
        (StatusCode::OK, "7 to 3 under account:3 account:7")
    );
    assert_eq!(send(&app, "/7/3").await, (StatusCode::OK, "2".to_owned()));
    let (status, body) = answer(&app, json("/by-hand", WIRE)).await;
    assert_eq!((status, &*body), (StatusCode::OK, "account:3"));
    nodes.settle_free().await;
}

#[tokio::test(start_paused = true)]
async fn a_body_that_comes_slowly_holds_no_lock() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    let app = wires(&locks);
    let (rest, body) = oneshot::channel::<Bytes>();
    let begins = futures_util::stream::iter([Ok(Bytes::from(&WIRE.as_bytes()[..4]))]);
    let ends = futures_util::stream::once(body);
    let sent = json("/", Body::from_stream(begins.chain(ends)));
    let sent = tokio::spawn(async move { answer(&app, sent).await });
    tokio::task::yield_now().await;
    let held = locks.try_acquire("account:3").await.unwrap();
    rest.send(Bytes::from(&WIRE.as_bytes()[4..])).unwrap();
    tokio::time::sleep(super::MS).await;
    assert!(!sent.is_finished(), "it waits for the lock");
    held.release().await.unwrap();
    assert_eq!(sent.await.unwrap().0, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn a_body_without_a_key_is_refused_by_its_own_extractor() {
    let nodes = Nodes::five();
    let app = wires(&nodes.manager());
    for path in ["/", "/by-hand"] {
        let (status, body) = answer(&app, json(path, r#"{"from": 7}"#)).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
        assert!(body.contains("missing field `to`"), "{body}");
    }
    assert_eq!(nodes.commands(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_locks_by_itself_answers_as_the_layer_does() {
    let nodes = Nodes::five();
    let locks = nodes
        .builder()
        .max_wait(super::MS * 50)
        .connect_lazy()
        .unwrap();
    let app = wires(&locks);
    let held = locks.try_acquire("account:7").await.unwrap();
    for path in ["/", "/by-hand"] {
        let response = app.clone().oneshot(json(path, WIRE)).await.unwrap();
        assert_eq!(response.status(), StatusCode::CONFLICT);
        assert_eq!(response.headers()["retry-after"], "1");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body = String::from_utf8(body.to_vec()).unwrap();
        assert!(
            body.contains("urn:tower-redlock:problem:wait-timeout"),
            "{body}"
        );
    }
    drop(held);
}

#[tokio::test]
async fn a_loss_is_answered_as_one_of_a_run_and_of_a_layer() {
    let loss = LossReason::Expired;
    for rejection in [Rejection::from(RunError::Lost(loss)), loss.into()] {
        assert_eq!(rejection.kind(), RejectionKind::LockLost);
        assert!(rejection.to_string().ends_with(&format!("({loss})")));
        let response = rejection.into_response();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        let kind = &response.headers()["content-type"];
        assert_eq!(kind, "application/problem+json");
        assert!(!response.headers().contains_key("retry-after"));
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_layer_has_locked_is_shared_with_a_key_of_the_body() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    let layer = RedlockLayer::new(locks.clone(), key::header("x-from").prefix("account"));
    let app = wires(&locks).route_layer(layer);
    let mut request = json("/", r#"{"from": 7, "to": 7}"#);
    request.headers_mut().insert("x-from", "7".parse().unwrap());
    let (status, body) = answer(&app, request).await;
    assert_eq!((status, &*body), (StatusCode::OK, "7 to 7 under account:7"));
    nodes.settle_free().await;
}
