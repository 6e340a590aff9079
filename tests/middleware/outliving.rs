//! What goes on when the response is out or its client has gone: jobs, and requests that run to their end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::Router;
use axum::routing::{MethodRouter, post};
use http::{Method, StatusCode};
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;
use tower::limit::ConcurrencyLimitLayer;
use tower_redlock::layer::OnDisconnect;
use tower_redlock::node::MemoryNode;
use tower_redlock::{Held, RedlockLayer, key};

use super::{MS, Nodes, SECOND, TTL, keyed, layer, post as order, send, sent, to};

fn at_root(route: MethodRouter) -> Router {
    Router::new().route("/", route)
}

#[tokio::test(start_paused = true)]
async fn a_job_takes_the_lock_along_and_releases_it() {
    let nodes = Nodes::five();
    let (tell, job) = oneshot::channel();
    let tell = Arc::new(std::sync::Mutex::new(Some(tell)));
    let hand_over = post(async move |held: Held| {
        let tell = tell.lock().unwrap().take().unwrap();
        tell.send(held.into_guard()).unwrap();
        StatusCode::ACCEPTED
    });
    let app = at_root(hand_over.route_layer(layer(&nodes.manager())));
    assert_eq!(send(app, order()).await.status, 202);
    let guard = job.await.unwrap().unwrap();
    let holding = nodes.holding("order:1");
    assert_eq!(holding, 5, "the response did not release it");
    // The watchdog goes on.
    tokio::time::sleep(TTL * 3).await;
    assert!(!guard.is_lost());
    guard.release().await.unwrap();
    nodes.settle_free().await;
}

#[tokio::test(start_paused = true)]
async fn no_guard_is_made_of_a_lock_that_is_lost() {
    let nodes = Nodes::five();
    let (layer, of_handler) = (layer(&nodes.manager()), nodes.clone());
    let lose = post(async move |held: Held| {
        of_handler.each(MemoryNode::go_down);
        held.lost().await;
        held.into_guard().unwrap_err().to_string()
    });
    assert_eq!(
        send(at_root(lose.route_layer(layer)), order()).await.status,
        200
    );
}

/// Handlers that wait until they are let go, and are counted.
#[derive(Clone, Default)]
struct Slow {
    go: Arc<Notify>,
    running: Arc<AtomicU32>,
    ended: Arc<AtomicU32>,
}

impl Slow {
    fn route(&self) -> MethodRouter {
        let slow = self.clone();
        post(async move |_: Held| {
            slow.running.fetch_add(1, Ordering::SeqCst);
            slow.go.notified().await;
            slow.running.fetch_sub(1, Ordering::SeqCst);
            slow.ended.fetch_add(1, Ordering::SeqCst);
        })
    }

    fn app(&self, layer: RedlockLayer<OnDisconnect>) -> Router {
        at_root(self.route().route_layer(layer))
    }

    fn ended(&self) -> u32 {
        self.ended.load(Ordering::SeqCst)
    }
}

/// Sends a request whose client goes after a while.
async fn order_and_go(app: &Router) {
    let gone = timeout(MS * 100, send(app.clone(), order())).await;
    assert!(gone.is_err(), "it was answered");
}

/// The last word about clients that go counts, and it takes none of the other settings away.
#[tokio::test(start_paused = true)]
async fn a_payment_is_finished_under_its_lock_though_the_client_has_gone() {
    let (nodes, slow) = (Nodes::five(), Slow::default());
    let layer = layer(&nodes.manager()).busy_status(StatusCode::LOCKED);
    let layer = layer.on_disconnect(OnDisconnect::Cancel);
    let app = slow.app(layer.on_disconnect(OnDisconnect::RunToEnd));
    order_and_go(&app).await;
    tokio::time::sleep(TTL * 2).await;
    assert_eq!(nodes.holding("order:1"), 5, "it runs under its lock");
    let second = timeout(MS, send(app.clone(), order())).await.unwrap();
    assert_eq!(second.told(), (423, "contended"));
    slow.go.notify_one();
    nodes.settle_free().await;
    assert_eq!(slow.ended(), 1);
    // And one whose client stays is answered as ever.
    slow.go.notify_one();
    assert_eq!(send(app, order()).await.status, 200);
    nodes.settle_free().await;
}

#[tokio::test(start_paused = true)]
async fn it_goes_with_its_client_if_it_is_so_set_or_none_may_run_on() {
    let nodes = Nodes::five();
    let layer = layer(&nodes.manager());
    for layer in [
        layer.clone().on_disconnect(OnDisconnect::Cancel),
        layer.on_disconnect(OnDisconnect::RunToEnd).max_detached(0),
    ] {
        let slow = Slow::default();
        let app = slow.app(layer);
        order_and_go(&app).await;
        nodes.settle_free().await;
        assert_eq!(slow.ended(), 0);
        slow.go.notify_one();
        assert_eq!(send(app, order()).await.status, 200);
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_waits_for_its_lock_goes_with_its_client() {
    let (nodes, slow) = (Nodes::five(), Slow::default());
    let locks = nodes.manager();
    let held = locks.try_acquire("order:1").await.unwrap();
    let layer = layer(&locks).max_wait(TTL);
    let app = slow.app(layer.on_disconnect(OnDisconnect::RunToEnd));
    order_and_go(&app).await;
    held.release().await.unwrap();
    nodes.settle_free().await;
    slow.go.notify_one();
    tokio::time::sleep(SECOND).await;
    assert_eq!(slow.ended(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_runs_to_its_end_ends_when_its_lock_is_lost() {
    let (nodes, slow) = (Nodes::five(), Slow::default());
    let app = slow.app(layer(&nodes.manager()).on_disconnect(OnDisconnect::RunToEnd));
    // With its client, who is told.
    let first = sent(&app, Method::POST, "/");
    tokio::time::sleep(MS).await;
    nodes.each(MemoryNode::go_down);
    assert_eq!(first.await.unwrap().told(), (503, "lock-lost"));
    nodes.each(MemoryNode::come_up);
    // Until the ttl has ended what could not be released.
    tokio::time::sleep(TTL).await;
    // And without.
    order_and_go(&app).await;
    nodes.each(MemoryNode::go_down);
    tokio::time::sleep(TTL * 2).await;
    slow.go.notify_waiters();
    slow.go.notify_one();
    tokio::time::sleep(MS).await;
    assert_eq!(slow.ended(), 0);
}

/// The limit gives its permit back with a client that goes, but no more handlers run than those that may run on and those
/// whose clients are there.
#[tokio::test(start_paused = true)]
async fn no_more_run_than_have_their_clients_and_may_run_on_without() {
    let (nodes, slow) = (Nodes::five(), Slow::default());
    let orders = key::path("order").prefix("order");
    let layer = keyed(&nodes.manager(), orders).on_disconnect(OnDisconnect::RunToEnd);
    let route = slow.route().route_layer(layer.max_detached(3));
    let limit = ConcurrencyLimitLayer::new(2);
    let app = Router::new().route("/{order}", route.layer(limit));
    let send = |number: u32| send(app.clone(), to(Method::POST, &format!("/{number}")));
    let mut refused = 0;
    for number in 0..30 {
        let both = async { tokio::join!(send(2 * number), send(2 * number + 1)) };
        if let Ok((first, second)) = timeout(MS * 100, both).await {
            for answer in [first, second] {
                assert_eq!(answer.header("retry-after"), Some("1"));
                assert_eq!(answer.told(), (503, "too-many-detached"));
                refused += 1;
            }
        }
    }
    let running = || slow.running.load(Ordering::SeqCst);
    assert!(running() <= 4, "{}", running());
    assert!(refused >= 56, "{refused}");
    // They end, and so does that.
    slow.go.notify_waiters();
    tokio::time::sleep(MS).await;
    assert_eq!(running(), 0);
    slow.go.notify_one();
    assert_eq!(send(99).await.status, 200);
}
