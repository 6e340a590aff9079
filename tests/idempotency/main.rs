//! The idempotency layer around axum routes over memory nodes: what a client gets that sends a request again.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking, also in its helpers"
)]

mod answers;
mod buffers;
mod effects;
mod leaving;
mod nested;
mod scopes;
mod shapes;
mod transaction;
mod with_locks;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, post};
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tower::ServiceExt as _;
use tower_redlock::clock::TokioClock;
use tower_redlock::idempotency::caller;
use tower_redlock::node::MemoryNode;
use tower_redlock::{IdempotencyLayer, LockManager};

const TTL: Duration = Duration::from_secs(10);
const MS: Duration = Duration::from_millis(1);
/// How long those wait that wait.
const PATIENCE: Duration = Duration::from_secs(5);

fn nodes() -> Vec<MemoryNode> {
    (0..5).map(|n| MemoryNode::new(format!("n{n}"))).collect()
}

fn manager(nodes: &[MemoryNode]) -> LockManager {
    let builder = LockManager::builder().nodes(nodes.iter().cloned());
    builder
        .clock(TokioClock::new())
        .ttl(TTL)
        .connect_lazy()
        .unwrap()
}

fn layer(nodes: &[MemoryNode]) -> IdempotencyLayer {
    IdempotencyLayer::new(manager(nodes), caller::nobody())
}

/// A shop: every order that it takes is another.
#[derive(Clone)]
struct Shop {
    orders: Arc<AtomicU32>,
    // Orders wait for leave to go on.
    leave: Arc<Semaphore>,
}

impl Shop {
    /// One whose orders are taken at once.
    fn new() -> Self {
        let shop = Self::slow();
        shop.leave.add_permits(1_000);
        shop
    }

    /// One whose orders wait until they are [let](Self::let_go).
    fn slow() -> Self {
        Self {
            orders: Arc::default(),
            leave: Arc::new(Semaphore::new(0)),
        }
    }

    fn let_go(&self) {
        self.leave.add_permits(1);
    }

    fn orders(&self) -> u32 {
        self.orders.load(Ordering::SeqCst)
    }

    async fn order(&self, body: Bytes) -> Response {
        let number = self.orders.fetch_add(1, Ordering::SeqCst) + 1;
        self.leave.acquire().await.unwrap().forget();
        let said = String::from_utf8_lossy(&body).into_owned();
        let text = format!("order {number}: {said}");
        (StatusCode::CREATED, [("x-order", number.to_string())], text).into_response()
    }

    /// The shop behind a layer, with one route.
    fn open(&self, layer: IdempotencyLayer) -> Router {
        let shop = self.clone();
        let order = post(move |body: Bytes| async move { shop.order(body).await });
        at(order, layer)
    }
}

/// A route behind a layer.
fn at(route: MethodRouter, layer: IdempotencyLayer) -> Router {
    Router::new().route("/orders/{shop}", route).layer(layer)
}

fn request(key: &str, body: &'static str) -> Request<Body> {
    let request = Request::post("/orders/1").header("idempotency-key", key);
    request.body(Body::from(body)).unwrap()
}

/// An answer, whole.
#[derive(Clone, Debug, PartialEq)]
struct Reply {
    status: StatusCode,
    headers: Vec<(String, String)>,
    body: String,
}

impl Reply {
    fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(n, _)| n == name);
        let value = found.next().map(|(_, value)| value.as_str());
        assert!(found.next().is_none(), "{name} twice");
        value
    }

    fn is_replayed(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    /// It is a repeat of a response with this body.
    #[track_caller]
    fn assert_replays(&self, body: &str) {
        assert!(self.is_replayed() && self.body == body, "{self:?}");
    }

    /// It is a refusal of this kind.
    #[track_caller]
    fn assert_problem(&self, status: u16, kind: &str) {
        let problem: serde_json::Value = serde_json::from_str(&self.body).unwrap();
        let urn = format!("urn:tower-redlock:problem:{kind}");
        assert_eq!(
            (self.status.as_u16(), &problem["type"]),
            (status, &urn.into())
        );
        assert_eq!(problem["status"], status);
        let content_type = self.header("content-type");
        assert_eq!(content_type, Some("application/problem+json"));
    }
}

async fn send(app: &Router, request: Request<Body>) -> Reply {
    let response = app.clone().oneshot(request).await.unwrap();
    let (head, body) = response.into_parts();
    let headers = head.headers.iter();
    let mut headers: Vec<_> = headers
        .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
        .collect();
    headers.sort();
    let body = body.collect().await.unwrap().to_bytes();
    Reply {
        status: head.status,
        headers,
        body: String::from_utf8(body.to_vec()).unwrap(),
    }
}

/// A request that is under way.
fn sent(app: &Router, request: Request<Body>) -> JoinHandle<Reply> {
    let app = app.clone();
    tokio::spawn(async move { send(&app, request).await })
}

/// Sends a request whose client goes before it is answered.
async fn send_and_go(app: &Router, request: Request<Body>) {
    let gone = timeout(50 * MS, send(app, request)).await;
    assert!(gone.is_err(), "{gone:?}");
}
