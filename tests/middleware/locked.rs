//! Locks that are taken inside the handler.

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRef, FromRequestParts, Path};
use axum::routing::post;
use http::request::Parts;
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use tower::ServiceExt as _;
use tower_redlock::Locked;
use tower_redlock::error::KeyError;
use tower_redlock::extract::AsLockKeys;
use tower_redlock::key::LockKeys;
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
    fn as_lock_keys(&self) -> Result<LockKeys, KeyError> {
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
    let locks = nodes.builder().max_wait(super::MS * 50).lazy().unwrap();
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
    nodes.each(tower_redlock::node::memory::MemoryNode::go_down);
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
