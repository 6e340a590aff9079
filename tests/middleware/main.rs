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
mod boxed;
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

use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Extensions, Method, Request, Response};
use http_body_util::{BodyExt as _, Empty, Full};
use tower::BoxError;
use tower_redlock::clock::TokioClock;
use tower_redlock::layer::{KeyExtractor, LayerBody};
use tower_redlock::node::MemoryNode;
use tower_redlock::{Held, LockHandle, LockKey, LockManager, RedlockLayer, Settings};

const TTL: Duration = Duration::from_secs(10);
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
    RedlockLayer::new(locks.clone(), fixed_key)
}

fn fixed_key(_: &Parts) -> LockKey {
    LockKey::new(KEY).unwrap()
}

fn keyed(locks: &LockManager, extractor: impl KeyExtractor) -> RedlockLayer {
    RedlockLayer::new(locks.clone(), extractor)
}

fn request(method: Method) -> Request<Empty<Bytes>> {
    let mut request = Request::new(Empty::new());
    *request.method_mut() = method;
    request
}

fn post() -> Request<Empty<Bytes>> {
    request(Method::POST)
}

fn ok(text: &'static str) -> Response<Full<Bytes>> {
    Response::new(Full::from(text))
}

async fn text<B>(response: Response<LayerBody<B>>) -> String
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Owned by the inner future: notes at the moment it is dropped how many nodes hold the lock, none of them if its
/// guard is gone. (The nodes alone do not tell: what a dropped guard releases reaches them later.)
struct Spy {
    nodes: Nodes,
    seen: Seen,
}

#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Sight>>);

#[derive(Default)]
struct Sight {
    handle: Option<LockHandle>,
    dropped: Option<usize>,
}

impl Seen {
    fn spy(&self, nodes: &Nodes) -> Spy {
        Spy {
            nodes: nodes.clone(),
            seen: self.clone(),
        }
    }

    /// The lock whose end the inner work must not outlive.
    fn watch(&self, extensions: &Extensions) {
        self.0.lock().unwrap().handle = Held::of(extensions)
            .ok()
            .map(|held| LockHandle::clone(&held));
    }

    fn get(&self) -> Option<usize> {
        self.0.lock().unwrap().dropped
    }

    /// The inner work is gone, and when it went every node still held the lock.
    #[track_caller]
    fn assert_dropped_under_the_lock(&self) {
        let sight = self.0.lock().unwrap();
        assert!(sight.handle.is_some(), "the test watches the lock");
        assert_eq!(
            sight.dropped,
            Some(5),
            "dropped under the lock, held by all five nodes"
        );
    }
}

impl Drop for Spy {
    fn drop(&mut self) {
        let mut sight = self.seen.0.lock().unwrap();
        let ended = sight.handle.as_ref().is_some_and(LockHandle::is_lost);
        sight.dropped = Some(if ended { 0 } else { self.nodes.holding(KEY) });
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
