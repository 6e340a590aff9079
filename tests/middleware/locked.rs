//! Locks that are taken inside the handler.

use std::error::Error as _;
use std::fmt;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRef, Path, State};
use axum::response::IntoResponse as _;
use axum::routing::post;
use axum::{Json, Router};
use bytes::Bytes;
use futures_util::StreamExt as _;
use http::{Method, Request};
use tokio::sync::oneshot;
use tower_redlock::error::{KeyError, LossReason, RunError};
use tower_redlock::extract::{AsLockKeys, LockedRejection};
use tower_redlock::key::LockKeys;
use tower_redlock::layer::{Rejection, RejectionKind};
use tower_redlock::node::MemoryNode;
use tower_redlock::{LockHandle, LockKey, LockManager, LockScope, Locked, key};

use super::{Answer, MS, Nodes, keyed, send, to, with};

/// Two accounts, as the path or a JSON body names them.
#[derive(serde::Deserialize)]
struct Transfer {
    from: u64,
    to: u64,
}

impl AsLockKeys for Transfer {
    fn to_lock_keys(&self) -> Result<LockKeys, KeyError> {
        let account = |number: u64| match number {
            0 => LockKey::new(""),
            _ => LockKey::join(["account", &number.to_string()]),
        };
        LockKeys::new([account(self.from)?, account(self.to)?])
    }
}

#[derive(Clone)]
struct App(LockManager);

impl FromRef<App> for LockManager {
    fn from_ref(app: &App) -> Self {
        app.0.clone()
    }
}

/// Three routes: a lock on what the body names, the same of the path, and one that the handler takes.
fn app(locks: &LockManager) -> Router {
    fn told<T>(from: u64, to: u64, locked: &Locked<T>) -> String {
        let keys: Vec<_> = locked.guard().keys().iter().map(LockKey::as_str).collect();
        format!("{from} to {to} under {}", keys.join(" "))
    }
    let of_body = async |it: Locked<Json<Transfer>>| told(it.from, it.to, &it);
    let of_path = async |it: Locked<Path<Transfer>>| told(it.from, it.to, &it);
    let by_hand = async |State(App(locks)): State<App>, Json(it): Json<Transfer>| {
        let work = |lock: LockHandle| async move { lock.key().to_string() };
        Ok::<_, Rejection>(locks.run(it.to_lock_keys()?, work).await?)
    };
    let of_scope = async |scope: LockScope, State(App(locks)): State<App>, Json(it): Json<u64>| {
        let keys = Transfer { from: it, to: it }.to_lock_keys()?;
        let guard = locks.acquire_in(&scope, keys, Duration::ZERO).await?;
        Ok::<_, Rejection>(format!("{it} to {it} under {}", guard.key()))
    };
    Router::new()
        .route("/of-scope", post(of_scope))
        .route("/", post(of_body))
        .route("/{from}/{to}", post(of_path))
        .route("/by-hand", post(by_hand))
        .with_state(App(locks.clone()))
}

fn json(path: &str, body: impl Into<Body>) -> Request<Body> {
    let request = Request::post(path).header("content-type", "application/json");
    request.body(body.into()).unwrap()
}

const TRANSFER: &str = r#"{"from": 7, "to": 3}"#;

/// What each route answers to this transfer.
async fn each_answers(app: &Router, transfer: [u64; 2]) -> [Answer; 3] {
    let [from, to_] = transfer;
    let body = format!(r#"{{"from": {from}, "to": {to_}}}"#);
    let of_path = to(Method::POST, &format!("/{from}/{to_}"));
    [
        send(app.clone(), json("/", body.clone())).await,
        send(app.clone(), of_path).await,
        send(app.clone(), json("/by-hand", body)).await,
    ]
}

#[tokio::test(start_paused = true)]
async fn a_handler_takes_the_lock_that_its_argument_names() {
    let nodes = Nodes::five();
    let answers = each_answers(&app(&nodes.manager()), [7, 3]).await;
    let told = "7 to 3 under account:3 account:7";
    let expected = [(200, told), (200, told), (200, "account:3")];
    assert_eq!(answers.each_ref().map(Answer::told), expected);
    nodes.settle_free().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_is_answered_as_the_layer_does() {
    let nodes = Nodes::five();
    let builder = nodes.builder().max_wait(50 * MS);
    let locks = builder.connect_lazy().unwrap();
    let app = app(&locks);
    let held = locks.try_acquire("account:7").await.unwrap();
    for answer in each_answers(&app, [7, 3]).await {
        assert_eq!(answer.told(), (409, "wait-timeout"));
        assert_eq!(answer.header("retry-after"), Some("1"));
    }
    held.release().await.unwrap();
    for answer in each_answers(&app, [7, 0]).await {
        assert_eq!(answer.told(), (400, "invalid-key"));
    }
    nodes.each(MemoryNode::go_down);
    for answer in each_answers(&app, [7, 3]).await {
        assert_eq!(answer.told(), (503, "no-quorum"));
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_layer_has_locked_is_shared_with_it() {
    let (nodes, locks) = Nodes::with_manager();
    let layer = keyed(&locks, key::header("x-from").prefix("account"));
    let app = app(&locks).route_layer(layer);
    let of_body = json("/", r#"{"from": 7, "to": 7}"#);
    let of_path = json("/7/7", "");
    let of_scope = json("/of-scope", "7");
    for request in [of_body, of_path, of_scope] {
        let answer = send(app.clone(), with(request, "x-from", "7")).await;
        assert_eq!(answer.told(), (200, "7 to 7 under account:7"));
        nodes.settle_free().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_comes_slowly_holds_no_lock() {
    let locks = Nodes::five().manager();
    let (rest, body) = oneshot::channel::<Bytes>();
    let begins = futures_util::stream::iter([Ok(Bytes::from(&TRANSFER.as_bytes()[..4]))]);
    let ends = futures_util::stream::once(body);
    let sent = json("/", Body::from_stream(begins.chain(ends)));
    let sent = tokio::spawn(send(app(&locks), sent));
    tokio::task::yield_now().await;
    let held = locks.try_acquire("account:3").await.unwrap();
    rest.send(Bytes::from(&TRANSFER.as_bytes()[4..])).unwrap();
    tokio::time::sleep(MS).await;
    assert!(!sent.is_finished(), "it waits for the lock");
    held.release().await.unwrap();
    assert_eq!(sent.await.unwrap().status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_body_without_a_key_is_refused_by_its_own_extractor() {
    let nodes = Nodes::five();
    let app = app(&nodes.manager());
    for path in ["/", "/by-hand"] {
        let answer = send(app.clone(), json(path, r#"{"from": 7}"#)).await;
        assert_eq!(answer.status, 422);
        assert!(
            answer.text.contains("missing field `to`"),
            "{}",
            answer.text
        );
    }
    assert_eq!(nodes.commands(), 0);
}

#[tokio::test]
async fn a_loss_is_answered_as_one_of_a_run_and_of_a_layer() {
    let loss = LossReason::Expired;
    for rejection in [Rejection::from(RunError::Lost(loss)), loss.into()] {
        assert_eq!(rejection.kind(), RejectionKind::LockLost);
        assert!(rejection.to_string().ends_with(&format!("({loss})")));
        let answer = Answer::of(rejection.into_response()).await;
        assert_eq!(answer.told(), (503, "lock-lost"));
        assert!(answer.is_problem());
        assert_eq!(answer.header("retry-after"), None);
    }
    let of_lock = LockedRejection::<fmt::Error>::Lock(loss.into());
    assert_eq!(of_lock.to_string(), Rejection::from(loss).to_string());
    let of_value = LockedRejection::Value(fmt::Error);
    assert_eq!(of_value.to_string(), fmt::Error.to_string());
    assert!(
        of_value
            .source()
            .is_some_and(|source| source.is::<fmt::Error>())
    );
}
