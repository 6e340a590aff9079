//! The layer over memory nodes, on paused time where no socket is involved. Services are driven by hand or by
//! tower-test's mock; that the inner future ends before its lock is seen by a value that the inner future owns and
//! that looks at the nodes when it is dropped.

#![cfg(feature = "test-util")]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking, also in its helpers"
)]

mod answers;
mod body;
mod contract;
#[cfg(feature = "axum")]
mod held;
#[cfg(feature = "axum")]
mod http_wire;
#[cfg(feature = "axum")]
mod injection;
mod keys;
#[cfg(feature = "axum")]
mod locked;
mod loss;
mod nested;
#[cfg(feature = "axum")]
mod outliving;
#[cfg(feature = "axum")]
mod permits;
mod queue;
#[cfg(feature = "axum")]
mod readers;
mod release;
#[cfg(feature = "axum")]
mod routes;
#[cfg(feature = "axum")]
mod sockets;
mod waits;

use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Extensions, HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt as _, Empty, Full};
use tower::{Service, ServiceExt as _};
use tower_redlock::clock::TokioClock;
use tower_redlock::layer::KeyExtractor;
use tower_redlock::node::MemoryNode;
use tower_redlock::{Held, LockHandle, LockKey, LockManager, RedlockLayer, Settings};

const TTL: Duration = Duration::from_secs(10);
const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
/// The one key of most tests, and the lock that `layer` takes.
const KEY: &str = "order:1";

/// Five memory nodes and what a test asks about them.
#[derive(Clone)]
struct Nodes(Vec<MemoryNode>);

impl Nodes {
    fn five() -> Self {
        Self((0..5).map(|n| MemoryNode::new(format!("n{n}"))).collect())
    }

    fn with_manager() -> (Self, LockManager) {
        let nodes = Self::five();
        let locks = nodes.manager();
        (nodes, locks)
    }

    fn builder(&self) -> Settings {
        LockManager::builder()
            .nodes(self.0.iter().cloned())
            .clock(TokioClock::new())
            .ttl(TTL)
    }

    fn manager(&self) -> LockManager {
        self.builder().connect_lazy().unwrap()
    }

    fn each(&self, act: impl Fn(&MemoryNode)) {
        self.0.iter().for_each(act);
    }

    /// How many nodes hold the lock `key`.
    fn holding(&self, key: &str) -> usize {
        let key = format!("lk:{key}");
        self.0.iter().filter(|n| n.holder(&key).is_some()).count()
    }

    /// Every key on every node.
    fn keys(&self) -> Vec<String> {
        self.0.iter().flat_map(MemoryNode::keys).collect()
    }

    fn commands(&self) -> u64 {
        self.0.iter().map(MemoryNode::commands).sum()
    }

    fn assert_free(&self) {
        assert_eq!(self.keys(), [""; 0], "no key is left on any node");
    }

    /// Lets everything that is ready run, without any time passing, until no node holds a key.
    async fn settle_free(&self) {
        for _ in 0..1_000 {
            if self.keys().is_empty() {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("left behind: {:?}", self.keys());
    }
}

/// A layer that locks [`KEY`] whatever the request.
fn layer(locks: &LockManager) -> RedlockLayer {
    keyed(locks, |_: &Parts| LockKey::new(KEY).unwrap())
}

fn keyed(locks: &LockManager, extractor: impl KeyExtractor) -> RedlockLayer {
    RedlockLayer::new(locks.clone(), extractor)
}

fn to(method: Method, uri: &str) -> Request<Empty<Bytes>> {
    let request = Request::builder().method(method).uri(uri);
    request.body(Empty::new()).unwrap()
}

fn post() -> Request<Empty<Bytes>> {
    to(Method::POST, "/")
}

/// `request` with one more header.
fn with<B>(mut request: Request<B>, name: &'static str, value: &str) -> Request<B> {
    request.headers_mut().insert(name, value.parse().unwrap());
    request
}

fn ok(text: &str) -> Response<Full<Bytes>> {
    Response::new(Full::from(text.to_owned()))
}

/// A response, whole.
struct Answer {
    status: u16,
    headers: HeaderMap,
    text: String,
}

impl Answer {
    async fn of<B>(response: Response<B>) -> Self
    where
        B: http_body::Body<Error: Debug>,
    {
        let (head, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        Self {
            status: head.status.as_u16(),
            headers: head.headers,
            text: String::from_utf8(bytes.to_vec()).unwrap(),
        }
    }

    fn header(&self, name: &str) -> Option<&str> {
        let value = self.headers.get(name);
        value.map(|value| value.to_str().unwrap())
    }

    fn is_problem(&self) -> bool {
        self.header("content-type") == Some("application/problem+json")
    }

    /// The kind of a problem, or the text of any other response.
    fn said(&self) -> &str {
        let kind = self.text.split_once("urn:tower-redlock:problem:");
        kind.map_or(&self.text, |(_, rest)| rest.split_once('"').unwrap().0)
    }

    fn told(&self) -> (u16, &str) {
        (self.status, self.said())
    }
}

async fn send<S, B, R>(service: S, request: Request<B>) -> Answer
where
    S: Service<Request<B>, Response = Response<R>, Error: Debug>,
    R: http_body::Body<Error: Debug>,
{
    Answer::of(service.oneshot(request).await.unwrap()).await
}

/// Nodes, and what inner work saw of them when it ended.
#[derive(Clone)]
struct Scene {
    nodes: Nodes,
    sight: Arc<Mutex<Sight>>,
}

#[derive(Default)]
struct Sight {
    handle: Option<LockHandle>,
    dropped: Option<usize>,
}

impl Scene {
    fn new() -> Self {
        Self {
            nodes: Nodes::five(),
            sight: Arc::default(),
        }
    }

    fn layer(&self) -> RedlockLayer {
        layer(&self.nodes.manager())
    }

    /// What the work of a request with these extensions owns.
    fn spy(&self, extensions: &Extensions) -> Spy {
        self.watch(extensions);
        Spy(self.clone())
    }

    /// The lock whose end the inner work must not outlive.
    fn watch(&self, extensions: &Extensions) {
        let held = Held::of(extensions).ok();
        self.sight.lock().unwrap().handle = held.map(|held| LockHandle::clone(&held));
    }

    /// A handler that never ends.
    async fn stuck(self, extensions: Extensions) -> Response<Full<Bytes>> {
        let _spy = self.spy(&extensions);
        std::future::pending().await
    }

    /// How many nodes held the lock when the inner work was dropped.
    fn dropped(&self) -> Option<usize> {
        self.sight.lock().unwrap().dropped
    }

    /// The inner work is gone, and when it went every node still held the lock.
    #[track_caller]
    fn assert_dropped_under_the_lock(&self) {
        let sight = self.sight.lock().unwrap();
        assert!(sight.handle.is_some(), "the test watches the lock");
        let held = "dropped under the lock, held by all five nodes";
        assert_eq!(sight.dropped, Some(5), "{held}");
    }
}

/// Owned by the inner future: notes at the moment it is dropped how many nodes hold the lock, none of them if its
/// guard is gone. (The nodes alone do not tell: what a dropped guard releases reaches them later.)
struct Spy(Scene);

impl Drop for Spy {
    fn drop(&mut self) {
        let mut sight = self.0.sight.lock().unwrap();
        let ended = sight.handle.as_ref().is_some_and(LockHandle::is_lost);
        sight.dropped = Some(if ended { 0 } else { self.0.nodes.holding(KEY) });
    }
}

/// Polls until `done`, without any time passing; the future must not end before.
async fn drive<F: Future + Unpin>(future: &mut F, done: impl Fn() -> bool) {
    for _ in 0..1_000 {
        if done() {
            return;
        }
        let poll =
            std::future::poll_fn(|cx| Poll::Ready(std::pin::Pin::new(&mut *future).poll(cx))).await;
        assert!(poll.is_pending(), "it ended early");
        tokio::task::yield_now().await;
    }
    panic!("it did not come so far");
}

/// A request that is under way.
#[cfg(feature = "axum")]
fn sent(app: &axum::Router, method: Method, uri: &str) -> tokio::task::JoinHandle<Answer> {
    tokio::spawn(send(app.clone(), to(method, uri)))
}

/// Handlers that stay until they are let go, and tell what they have found of their lock.
#[cfg(feature = "axum")]
struct Staying<T> {
    app: axum::Router,
    arrived: tokio::sync::mpsc::UnboundedReceiver<T>,
    go: Arc<tokio::sync::Semaphore>,
}

#[cfg(feature = "axum")]
impl<T: Send + 'static> Staying<T> {
    /// On a route with the path parameter `name`.
    fn new(layer: RedlockLayer, found: fn(Option<Held>) -> T) -> Self {
        let (tell, arrived) = tokio::sync::mpsc::unbounded_channel();
        let go = Arc::new(tokio::sync::Semaphore::new(0));
        let gate = Arc::clone(&go);
        let handler = move |held: Option<Held>| async move {
            tell.send(found(held)).unwrap();
            gate.acquire().await.unwrap().forget();
        };
        let route = axum::routing::any(handler).layer(layer);
        Self {
            app: axum::Router::new().route("/{name}", route),
            arrived,
            go,
        }
    }
}
