//! What goes on when the response is out or its client has gone: jobs, sockets, and requests that run to their end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::post;
use http::{Request, StatusCode};
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;
use tower::ServiceExt as _;
use tower::limit::ConcurrencyLimitLayer;
use tower_redlock::error::LossReason;
use tower_redlock::layer::OnDisconnect;
use tower_redlock::node::MemoryNode;
use tower_redlock::{Held, LockGuard, key};

use super::{MS, Nodes, TTL, keyed, layer};

fn order() -> Request<Body> {
    Request::post("/").body(Body::empty()).unwrap()
}

/// A handler that answers 202 and hands its guard to a job.
fn hands_over(to: oneshot::Sender<Result<LockGuard, LossReason>>) -> axum::routing::MethodRouter {
    let to = Arc::new(std::sync::Mutex::new(Some(to)));
    post(move |held: Held| async move {
        let to = to.lock().unwrap().take().unwrap();
        to.send(held.into_guard()).unwrap();
        StatusCode::ACCEPTED
    })
}

#[tokio::test(start_paused = true)]
async fn a_job_takes_the_lock_along_and_releases_it() {
    let nodes = Nodes::five();
    let (to, job) = oneshot::channel();
    let app = Router::new().route("/", hands_over(to).route_layer(layer(&nodes.manager())));
    let response = app.oneshot(order()).await.unwrap();
    assert_eq!(response.status(), StatusCode::ACCEPTED);
    drop(response);
    let guard = job.await.unwrap().unwrap();
    assert_eq!(
        nodes.holding("order:1"),
        5,
        "the response did not release it"
    );
    // The watchdog goes on.
    tokio::time::sleep(TTL * 3).await;
    assert!(!guard.is_lost());
    guard.release().await.unwrap();
    nodes.settle_free().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_dropped_releases_the_lock() {
    let nodes = Nodes::five();
    let (to, job) = oneshot::channel();
    let app = Router::new().route("/", hands_over(to).route_layer(layer(&nodes.manager())));
    app.oneshot(order()).await.unwrap();
    drop(job.await.unwrap().unwrap());
    nodes.settle_free().await;
}

#[tokio::test(start_paused = true)]
async fn no_guard_is_made_of_a_lock_that_is_lost() {
    let nodes = Nodes::five();
    let lose = {
        let nodes = nodes.clone();
        post(move |held: Held| async move {
            nodes.each(MemoryNode::go_down);
            held.lost().await;
            held.into_guard().unwrap_err().to_string()
        })
    };
    let app = Router::new().route("/", lose.route_layer(layer(&nodes.manager())));
    assert_eq!(app.oneshot(order()).await.unwrap().status(), StatusCode::OK);
}

/// A handler that waits until it is let go, and counts how often it ended.
fn slow(go: &Arc<Notify>, ended: &Arc<AtomicU32>) -> axum::routing::MethodRouter {
    let (go, ended) = (Arc::clone(go), Arc::clone(ended));
    post(move |_: Held| async move {
        go.notified().await;
        ended.fetch_add(1, Ordering::SeqCst);
        "paid"
    })
}

#[tokio::test(start_paused = true)]
async fn a_payment_is_finished_under_its_lock_though_the_client_has_gone() {
    let nodes = Nodes::five();
    let (go, ended) = (Arc::new(Notify::new()), Arc::default());
    let layer = layer(&nodes.manager()).on_disconnect(OnDisconnect::RunToEnd);
    let app = Router::new().route("/", slow(&go, &ended).route_layer(layer));
    let gone = timeout(MS * 100, app.clone().oneshot(order())).await;
    assert!(gone.is_err());
    tokio::time::sleep(TTL * 2).await;
    assert_eq!(nodes.holding("order:1"), 5, "it runs under its lock");
    let second = timeout(MS, app.clone().oneshot(order()))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(second.status(), StatusCode::CONFLICT);
    go.notify_one();
    nodes.settle_free().await;
    assert_eq!(ended.load(Ordering::SeqCst), 1);
    // And one whose client stays is answered as ever.
    go.notify_one();
    assert_eq!(app.oneshot(order()).await.unwrap().status(), StatusCode::OK);
    nodes.settle_free().await;
}

tokio::task_local! { static TENANT: u8; }

#[tokio::test(start_paused = true)]
async fn while_its_client_is_there_it_finds_the_task_locals_of_the_server() {
    let nodes = Nodes::five();
    let layer = layer(&nodes.manager()).on_disconnect(OnDisconnect::RunToEnd);
    let tell = post(|_: Held| async { TENANT.get().to_string() });
    let app = Router::new().route("/", tell.route_layer(layer));
    let response = TENANT.scope(7, app.oneshot(order())).await.unwrap();
    let body = axum::body::to_bytes(response.into_body(), 9).await.unwrap();
    assert_eq!(body, "7");
}

#[tokio::test(start_paused = true)]
async fn by_default_it_goes_with_its_client() {
    let nodes = Nodes::five();
    let (go, ended) = (Arc::new(Notify::new()), Arc::default());
    let app = Router::new().route("/", slow(&go, &ended).route_layer(layer(&nodes.manager())));
    assert!(timeout(MS * 100, app.oneshot(order())).await.is_err());
    nodes.settle_free().await;
    go.notify_one();
    tokio::time::sleep(MS).await;
    assert_eq!(ended.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn one_that_waits_for_its_lock_goes_with_its_client() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    let held = locks.try_acquire("order:1").await.unwrap();
    let (go, ended) = (Arc::new(Notify::new()), Arc::default());
    let layer = layer(&locks)
        .max_wait(TTL)
        .on_disconnect(OnDisconnect::RunToEnd);
    let app = Router::new().route("/", slow(&go, &ended).route_layer(layer));
    assert!(timeout(MS * 100, app.oneshot(order())).await.is_err());
    held.release().await.unwrap();
    nodes.settle_free().await;
    go.notify_one();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(ended.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn what_runs_to_its_end_ends_when_its_lock_is_lost() {
    let nodes = Nodes::five();
    let (go, ended) = (Arc::new(Notify::new()), Arc::default());
    let layer = layer(&nodes.manager()).on_disconnect(OnDisconnect::RunToEnd);
    let app = Router::new().route("/", slow(&go, &ended).route_layer(layer));
    // With its client, who is told.
    let first = tokio::spawn(app.clone().oneshot(order()));
    tokio::time::sleep(MS).await;
    nodes.each(MemoryNode::go_down);
    let answer = first.await.unwrap().unwrap();
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    nodes.each(MemoryNode::come_up);
    // Until the ttl has ended what could not be released.
    tokio::time::sleep(TTL).await;
    // And without.
    assert!(timeout(MS * 100, app.oneshot(order())).await.is_err());
    nodes.each(MemoryNode::go_down);
    tokio::time::sleep(TTL * 2).await;
    go.notify_waiters();
    go.notify_one();
    tokio::time::sleep(MS).await;
    assert_eq!(ended.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_panic_reaches_the_server_and_frees_the_lock() {
    let nodes = Nodes::five();
    let layer = layer(&nodes.manager()).on_disconnect(OnDisconnect::RunToEnd);
    let crash = post(|| async { panic!("no money") as &'static str });
    let app = Router::new().route("/", crash.route_layer(layer));
    let panic = tokio::spawn(app.oneshot(order()))
        .await
        .unwrap_err()
        .into_panic();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"no money"));
    nodes.settle_free().await;
}

/// The limit gives its permit back with a client that goes, but no more handlers run than those that may run on and those
/// whose clients are there.
#[tokio::test(start_paused = true)]
async fn no_more_run_than_have_their_clients_and_may_run_on_without() {
    let nodes = Nodes::five();
    let (running, go) = (Arc::new(AtomicU32::new(0)), Arc::new(Notify::new()));
    let handler = {
        let (running, go) = (Arc::clone(&running), Arc::clone(&go));
        post(move |_: Held| async move {
            running.fetch_add(1, Ordering::SeqCst);
            go.notified().await;
            running.fetch_sub(1, Ordering::SeqCst);
        })
    };
    let orders = key::path("order").prefix("order");
    let layer = keyed(&nodes.manager(), orders).on_disconnect(OnDisconnect::RunToEnd);
    let layer = layer.max_detached(3);
    let limit = ConcurrencyLimitLayer::new(2);
    let app = Router::new().route("/{order}", handler.route_layer(layer).layer(limit));
    let order = |number: u32| Request::post(format!("/{number}")).body(Body::empty());
    let send = |number| app.clone().oneshot(order(number).unwrap());
    let mut refused = 0;
    for number in 0..30 {
        let both = async { tokio::join!(send(2 * number), send(2 * number + 1)) };
        if let Ok((first, second)) = timeout(MS * 100, both).await {
            for response in [first, second] {
                let response = response.unwrap();
                assert_eq!(response.headers()["retry-after"], "1");
                let body = axum::body::to_bytes(response.into_body(), 999).await;
                let body = String::from_utf8(body.unwrap().to_vec()).unwrap();
                assert!(body.contains(":too-many-detached\""), "{body}");
                refused += 1;
            }
        }
    }
    assert!(running.load(Ordering::SeqCst) <= 4, "{running:?}");
    assert!(refused >= 56, "{refused}");
    // They end, and so does that.
    go.notify_waiters();
    tokio::time::sleep(MS).await;
    assert_eq!(running.load(Ordering::SeqCst), 0);
    go.notify_one();
    assert_eq!(send(99).await.unwrap().status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn where_none_may_run_on_it_goes_with_its_client() {
    let nodes = Nodes::five();
    let (go, ended) = (Arc::new(Notify::new()), Arc::default());
    let layer = layer(&nodes.manager()).on_disconnect(OnDisconnect::RunToEnd);
    let layer = slow(&go, &ended).route_layer(layer.max_detached(0));
    let app = Router::new().route("/", layer);
    assert!(
        timeout(MS * 100, app.clone().oneshot(order()))
            .await
            .is_err()
    );
    nodes.settle_free().await;
    assert_eq!(ended.load(Ordering::SeqCst), 0);
    go.notify_one();
    assert_eq!(app.oneshot(order()).await.unwrap().status(), StatusCode::OK);
}
