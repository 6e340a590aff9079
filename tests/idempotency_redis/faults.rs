//! Servers that die or freeze while a handler runs, so that its completion meets them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::Router;
use axum::routing::post;
use http::StatusCode;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tower::ServiceExt as _;

use crate::client::{Reply, request};
use crate::*;

/// Longer than what is done to the servers while a handler runs.
const TTL: Duration = Duration::from_secs(2);

/// One handler, served by two managers as if by two processes.
struct Site {
    servers: Vec<Server>,
    handler: Handler,
    first: Router,
    second: Router,
}

#[derive(Clone)]
struct Handler {
    runs: Arc<AtomicU32>,
    entered: Arc<Semaphore>,
    leave: Arc<Semaphore>,
}

impl Handler {
    async fn run(self) -> (StatusCode, [(&'static str, String); 1], String) {
        let run = self.runs.fetch_add(1, Ordering::SeqCst) + 1;
        self.entered.add_permits(1);
        self.leave.acquire().await.unwrap().forget();
        let text = format!("told by run {run}");
        (StatusCode::CREATED, [("x-run", run.to_string())], text)
    }

    fn serve(&self, locks: LockManager) -> Router {
        let handler = self.clone();
        let layer = IdempotencyLayer::new(locks, caller::nobody()).max_wait(MAX_WAIT);
        Router::new()
            .route("/orders", post(move || handler.run()))
            .layer(layer)
    }
}

async fn send(app: Router) -> (Reply, bool) {
    let request = request("/orders".to_owned(), "order-1");
    Reply::read(app.oneshot(request).await.unwrap()).await
}

impl Site {
    async fn open() -> Self {
        let servers = Server::start_many(Kind::Redis, 5);
        bootstrap(&servers, TTL, 0).await;
        let handler = Handler {
            runs: Arc::default(),
            entered: Arc::new(Semaphore::new(0)),
            leave: Arc::new(Semaphore::new(0)),
        };
        let locks = || connected(on(&servers, TTL));
        let (first, second) = tokio::join!(locks(), locks());
        Self {
            first: handler.serve(first),
            second: handler.serve(second),
            servers,
            handler,
        }
    }

    /// Sends the first request, and waits until its handler runs.
    async fn begin(&self) -> JoinHandle<(Reply, bool)> {
        let first = tokio::spawn(send(self.first.clone()));
        self.handler.entered.acquire().await.unwrap().forget();
        first
    }

    /// Lets the handler end. Its answer, and how long that took.
    async fn end(&self, first: JoinHandle<(Reply, bool)>) -> (Reply, Duration) {
        let begin = Stopwatch::start();
        self.handler.leave.add_permits(1);
        let (reply, replayed) = first.await.unwrap();
        assert!(!replayed);
        (reply, begin.elapsed())
    }

    /// Waits until all servers have the record, though nobody asks for it.
    async fn all_have_it(&self) {
        let has = |server: &Server| records(server).len() == 1;
        eventually("all have the record", || self.servers.iter().all(has)).await;
    }

    /// The answer to a repeat by another process, as soon as there is one. The handler does not run again.
    async fn repeat(&self) -> Reply {
        loop {
            let (reply, replayed) = send(self.second.clone()).await;
            if reply.status == StatusCode::SERVICE_UNAVAILABLE {
                // Nodes that came back do not vote yet.
                assert_eq!(reply.problem(), "no-quorum");
                sleep(Duration::from_millis(10)).await;
                continue;
            }
            assert!(replayed, "{reply:?}");
            assert_eq!(self.handler.runs.load(Ordering::SeqCst), 1);
            return reply;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_two_of_five_dead_the_answer_is_kept_and_those_that_come_back_are_given_it() {
    let mut site = Site::open().await;
    let first = site.begin().await;
    site.servers[..2].iter_mut().for_each(Server::kill);
    let (reply, took) = site.end(first).await;
    assert_eq!(reply.status, StatusCode::CREATED);
    assert!(took < NODE_TIMEOUT, "{took:?}");
    assert_eq!(site.repeat().await, reply);
    site.servers[..2].iter_mut().for_each(Server::restart);
    site.all_have_it().await;
    // Those that have forgotten everything since, and one of those that were given it.
    site.servers[2..4].iter_mut().for_each(Server::kill);
    assert_eq!(site.repeat().await, reply);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_three_of_five_dead_the_outcome_is_unknown_and_a_repeat_settles_it() {
    let mut site = Site::open().await;
    let first = site.begin().await;
    site.servers[..3].iter_mut().for_each(Server::kill);
    let (reply, took) = site.end(first).await;
    reply.assert_outcome_unknown();
    assert!(took < NODE_TIMEOUT * 2, "{took:?}");
    // Two have it. With one that has forgotten everything they are a quorum.
    site.servers[0].restart();
    let settled = site.repeat().await;
    assert_eq!(settled.number("x-run"), 1);
    assert_eq!(site.repeat().await, settled);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_node_does_not_delay_the_answer_and_is_given_the_record_when_it_thaws() {
    let site = Site::open().await;
    let first = site.begin().await;
    site.servers[0].freeze();
    let (reply, took) = site.end(first).await;
    assert_eq!(reply.status, StatusCode::CREATED);
    assert!(took < NODE_TIMEOUT, "{took:?}");
    assert_eq!(site.repeat().await, reply);
    site.servers[0].thaw();
    site.all_have_it().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_three_frozen_the_outcome_is_unknown_after_the_node_timeout() {
    let site = Site::open().await;
    let first = site.begin().await;
    site.servers[..3].iter().for_each(Server::freeze);
    let (reply, took) = site.end(first).await;
    site.servers[..3].iter().for_each(Server::thaw);
    reply.assert_outcome_unknown();
    assert!(took < NODE_TIMEOUT * 2, "{took:?}");
    site.all_have_it().await;
    let settled = site.repeat().await;
    assert_eq!((settled.status.as_u16(), settled.number("x-run")), (201, 1));
}
