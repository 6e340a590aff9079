//! The whole path on five real servers: real HTTP requests take quorum locks on real Redis nodes and give them
//! back, while servers die, freeze and come back.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking, also in its helpers"
)]

mod blocked;
mod load;
mod stalls;
#[path = "../support/mod.rs"]
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{Request, StatusCode};
use axum::routing::post;
use http_body_util::BodyExt as _;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tower_redlock::RedlockLayer;
use tower_redlock::{Held, LockManager, Settings, key};

use support::eventually;
use support::server::{Kind, Server};
use support::stalls::Stopwatch;

/// An order service over five servers.
struct Site {
    servers: Vec<Server>,
    locks: LockManager,
    desk: Arc<Desk>,
    client: Client<HttpConnector, Body>,
    address: std::net::SocketAddr,
}

/// What the handlers share, and what an auditor would see.
#[derive(Default)]
struct Desk {
    inside: [AtomicU32; KEYS],
    most_inside: AtomicU32,
    entered: AtomicU32,
    left: AtomicU32,
}

const KEYS: usize = 8;

/// Counts a handler in, and out when it is dropped.
struct Visit {
    desk: Arc<Desk>,
    order: usize,
}

impl Desk {
    fn enter(self: &Arc<Self>, order: usize) -> Visit {
        let inside = self.inside[order].fetch_add(1, Ordering::SeqCst) + 1;
        self.most_inside.fetch_max(inside, Ordering::SeqCst);
        self.entered.fetch_add(1, Ordering::SeqCst);
        Visit {
            desk: Arc::clone(self),
            order,
        }
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.desk.inside[self.order].fetch_sub(1, Ordering::SeqCst);
        self.desk.left.fetch_add(1, Ordering::SeqCst);
    }
}

impl Site {
    async fn open(ttl: Duration) -> Self {
        // A busy machine is no dead node.
        let builder = LockManager::builder().ttl(ttl).max_ttl(ttl);
        Self::with(builder.node_timeout(ttl / 4)).await
    }

    async fn with(builder: Settings) -> Self {
        let servers = Server::start_many(Kind::Redis, 5);
        let builder = builder
            .bootstrap(true)
            .redis(servers.iter().map(Server::url));
        let locks = builder.connect().await.unwrap();
        let desk = Arc::new(Desk::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = app(&locks, &desk);
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self {
            servers,
            locks,
            desk,
            client: Client::builder(TokioExecutor::new()).build(HttpConnector::new()),
            address,
        }
    }

    fn request(&self, path: &str) -> Request<Body> {
        Request::post(format!("http://{}/{path}", self.address))
            .body(Body::empty())
            .unwrap()
    }

    /// Sends one request; the status and the body, or the error that the connection ended with.
    async fn send(&self, path: &str) -> Result<(StatusCode, Bytes), Box<dyn std::error::Error>> {
        let response = self.client.request(self.request(path)).await?;
        let status = response.status();
        Ok((status, response.into_body().collect().await?.to_bytes()))
    }

    async fn status(&self, path: &str) -> StatusCode {
        self.send(path).await.unwrap().0
    }

    /// How many of the servers that run hold any key.
    fn holding(&self) -> usize {
        let servers = self.servers.iter();
        servers.filter(|server| !server.locks().is_empty()).count()
    }

    /// Waits until all handlers are gone and no server holds a key; both long before any ttl.
    async fn all_free(&self) {
        eventually("the handlers are gone", || {
            self.desk.left.load(Ordering::SeqCst) == self.desk.entered.load(Ordering::SeqCst)
        })
        .await;
        let begin = Stopwatch::start();
        eventually("no key is left", || self.holding() == 0).await;
        // A round trip is far below a millisecond here; the rest is what a busy machine may need.
        let took = begin.elapsed();
        assert!(took < Duration::from_millis(500), "{took:?}");
    }
}

fn app(locks: &LockManager, desk: &Arc<Desk>) -> Router {
    let order = key::path("id").parse::<usize>().prefix("order");
    let layer = RedlockLayer::new(locks.clone(), order);
    Router::new()
        .route("/pay/{id}", post(pay))
        .route_layer(layer)
        .with_state(Arc::clone(desk))
}

async fn pay(_lock: Held, State(desk): State<Arc<Desk>>, Path(id): Path<usize>) -> &'static str {
    let _visit = desk.enter(id);
    tokio::time::sleep(Duration::from_millis(1)).await;
    "paid"
}
