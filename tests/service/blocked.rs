//! Handlers that block their threads. What must not wait for callers goes on meanwhile, on the manager's own thread.

use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::routing::post;
use http_body_util::BodyExt as _;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tower::ServiceExt as _;
use tower_redlock::error::LossReason;
use tower_redlock::idempotency::{IdempotencyLayer, caller};
use tower_redlock::{AcquireError, LockManager, RedlockLayer, Settings, key};

use super::support::server::{Kind, Server};

const TTL: Duration = Duration::from_millis(600);
/// A ttl has three renewals: so many take three ttls and a little.
const RENEWALS: usize = 10;
/// What tasks hold that do not block.
const HELD: [&str; 3] = ["held:0", "held:1", "held:2"];

/// A runtime with so many threads; none: that of its caller alone.
fn runtime(workers: usize) -> Runtime {
    let mut builder = match workers {
        0 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    builder.worker_threads(workers.max(1));
    builder.enable_all().build().unwrap()
}

fn settings(servers: &[Server]) -> Settings {
    let settings = LockManager::builder().bootstrap(true).ttl(TTL).max_ttl(TTL);
    // A busy machine is no dead node.
    let settings = settings.node_timeout(Duration::from_millis(150));
    settings.redis(servers.iter().map(Server::url))
}

/// Threads that stand still.
#[derive(Clone)]
struct Block {
    entered: Sender<()>,
    // Nobody sends anything. It ends for all when the sender is dropped.
    ended: Arc<Mutex<Receiver<()>>>,
}

impl Block {
    /// With what ends it when it is dropped, and what tells of each thread that has stopped.
    fn new() -> (Self, Sender<()>, Receiver<()>) {
        let ((entered, stopped), (end, ended)) = (channel(), channel());
        let ended = Arc::new(Mutex::new(ended));
        (Self { entered, ended }, end, stopped)
    }

    /// Blocks this thread, as code does that knows nothing of async.
    fn stand_still(&self) {
        self.entered.send(()).unwrap();
        let _ = self.ended.lock().unwrap().recv();
    }
}

/// Waits until `threads` stand still.
fn all_stopped(stopped: &Receiver<()>, threads: usize) {
    for _ in 0..threads {
        stopped.recv().unwrap();
    }
}

/// Waits until the server has seen that many renewals of a lock. Without one for ten seconds it panics.
fn see_renewals(server: &Server, key: &str) {
    let mut monitor = server.raw();
    assert_eq!(monitor.command(&["MONITOR"]).unwrap(), "OK");
    let key = format!("\"lk:{key}\"");
    let mut seen = 0;
    while seen < RENEWALS {
        let line = monitor.answer().expect("no renewal for ten seconds");
        let line = line.to_ascii_lowercase();
        seen += usize::from(line.contains("\"evalsha\"") && line.contains(&key));
    }
}

#[derive(Clone, Copy, Debug)]
enum Layer {
    Lock,
    Idempotency,
}

/// A service under a layer, whose handler reports each run and then does `work`.
fn service(
    layer: Layer,
    locks: &LockManager,
    runs: &Sender<String>,
    work: impl Fn() + Clone + Send + Sync + 'static,
) -> Router {
    let runs = runs.clone();
    let handler = move |path: axum::extract::Path<String>| {
        runs.send(path.0).unwrap();
        work();
        async { "paid" }
    };
    let routes = Router::new().route("/pay/{id}", post(async move |path| handler(path).await));
    let locks = locks.with_max_wait(Duration::ZERO);
    match layer {
        Layer::Lock => routes.route_layer(RedlockLayer::new(locks, key::path("id"))),
        Layer::Idempotency => {
            let layer = IdempotencyLayer::new(locks, caller::nobody()).max_wait(Duration::ZERO);
            routes.route_layer(layer)
        }
    }
}

async fn pay(service: Router, id: usize) -> (StatusCode, String) {
    let request = Request::post(format!("/pay/order-{id}")).header("idempotency-key", id);
    let request = request.body(Body::empty()).unwrap();
    let response = service.oneshot(request).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8_lossy(&body).into_owned())
}

/// Handlers block every worker for three ttls. No lock is lost, neither theirs nor those of tasks that do not run, and
/// another process gets none of them.
fn block_every_worker(workers: usize, layer: Layer) {
    let servers = Server::start_many(Kind::Redis, 5);
    let threads = workers.max(1);
    let (block, end, stopped) = Block::new();
    let (runs, ran) = channel();
    thread::scope(|scope| {
        let (servers, runs) = (&servers, &runs);
        let other_process = scope.spawn(move || {
            all_stopped(&stopped, threads);
            see_renewals(&servers[0], HELD[0]);
            runtime(0).block_on(async {
                let locks = settings(servers).connect().await.unwrap();
                for key in HELD {
                    let refused = locks.try_acquire(key).await.unwrap_err();
                    assert!(
                        matches!(refused, AcquireError::Contended { .. }),
                        "{refused}"
                    );
                }
                let service = service(layer, &locks, runs, || ());
                for id in 0..threads {
                    let (status, body) = pay(service.clone(), id).await;
                    assert_eq!(status, StatusCode::CONFLICT, "{body}");
                }
            });
            // Also if something above failed: else the others would stand still for ever.
        });
        let watched = scope.spawn(move || {
            let outcome = other_process.join();
            drop(end);
            outcome
        });
        runtime(workers).block_on(async {
            let locks = settings(servers).connect().await.unwrap();
            let (over, is_over) = watch::channel(());
            let mut holders = JoinSet::new();
            for key in HELD {
                let guard = locks.try_acquire(key).await.unwrap();
                let mut is_over = is_over.clone();
                holders.spawn(async move {
                    tokio::select! {
                        biased;
                        reason = guard.lost() => panic!("{key} is lost: {reason}"),
                        _ = is_over.changed() => guard.release().await.unwrap(),
                    }
                });
            }
            let work = move || block.stand_still();
            let service = service(layer, &locks, runs, work);
            let requests = (0..threads).map(|id| pay(service.clone(), id));
            for paid in requests.collect::<JoinSet<_>>().join_all().await {
                assert_eq!(paid, (StatusCode::OK, "paid".to_owned()));
            }
            over.send_replace(());
            holders.join_all().await;
        });
        if let Err(panic) = watched.join().unwrap() {
            resume_unwind(panic);
        }
    });
    drop(runs);
    assert_eq!(ran.iter().count(), threads, "each ran once");
}

#[test]
fn two_workers_may_be_blocked() {
    block_every_worker(2, Layer::Lock);
}

#[test]
fn an_idempotent_request_that_blocks_its_worker_runs_once() {
    block_every_worker(0, Layer::Idempotency);
    block_every_worker(2, Layer::Idempotency);
}

/// A task of another runtime holds a lock of a manager whose own runtime is blocked, and the servers go away.
#[test]
fn a_loss_is_told_in_time_while_the_runtime_of_the_manager_is_blocked() {
    let servers = Server::start_many(Kind::Redis, 5);
    let (block, end, stopped) = Block::new();
    let home = runtime(0);
    let locks = home.block_on(settings(&servers).connect()).unwrap();
    let guard = home.block_on(locks.acquire("order")).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| home.block_on(async { block.stand_still() }));
        all_stopped(&stopped, 1);
        let end = end;
        see_renewals(&servers[0], "order");
        servers.iter().for_each(Server::freeze);
        let frozen = Instant::now();
        let reason = runtime(0).block_on(guard.lost());
        assert_eq!(reason, LossReason::Expired);
        assert!(guard.is_lost() || guard.remaining() < TTL / 50);
        assert!(frozen.elapsed() < TTL + TTL / 2, "{:?}", frozen.elapsed());
        servers.iter().for_each(Server::thaw);
        drop(end);
    });
    home.block_on(locks.shutdown(TTL));
}
