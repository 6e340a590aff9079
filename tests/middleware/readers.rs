//! A layer whose requests of some methods share their lock.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::{Method, Request, Response, StatusCode};
use tokio::sync::{Semaphore, mpsc};
use tower::ServiceExt as _;
use tower_redlock::layer::{Rejection, lock_scope};
use tower_redlock::{Held, LockKey, LockManager, RedlockLayer, key};

use super::{MS, Nodes};

/// Requests that stay until they are let go, and tell whether they share their lock.
struct App {
    router: Router,
    arrived: mpsc::UnboundedReceiver<Option<bool>>,
    go: Arc<Semaphore>,
}

fn layer(locks: &LockManager) -> RedlockLayer {
    RedlockLayer::new(locks.clone(), key::path("name").prefix("document"))
        .shared_for([Method::GET, Method::HEAD])
}

fn app(layer: RedlockLayer) -> App {
    let (tell, arrived) = mpsc::unbounded_channel();
    let go = Arc::new(Semaphore::new(0));
    let gate = go.clone();
    let handler = move |held: Option<Held>| async move {
        tell.send(held.map(|held| held.is_shared())).unwrap();
        gate.acquire().await.unwrap().forget();
    };
    let route = get(handler.clone()).put(handler.clone()).options(handler);
    App {
        router: Router::new().route("/{name}", route.route_layer(layer)),
        arrived,
        go,
    }
}

async fn send(router: &Router, method: Method, path: &str) -> Response<Body> {
    let request = Request::builder().method(method).uri(path);
    let request = request.body(Body::empty()).unwrap();
    router.clone().oneshot(request).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn requests_that_read_run_together_and_one_that_writes_alone() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    let mut app = app(layer(&locks));
    let mut running = Vec::new();
    for method in [Method::GET, Method::GET, Method::HEAD] {
        let router = app.router.clone();
        running.push(tokio::spawn(
            async move { send(&router, method, "/a").await },
        ));
        assert_eq!(app.arrived.recv().await, Some(Some(true)));
    }
    let refused = send(&app.router, Method::PUT, "/a").await;
    assert_eq!(refused.status(), StatusCode::CONFLICT);
    // Methods that are not named have no lock, or one for themselves alone, as ever.
    let router = app.router.clone();
    running.push(tokio::spawn(async move {
        send(&router, Method::OPTIONS, "/a").await
    }));
    assert_eq!(app.arrived.recv().await, Some(None));
    app.go.add_permits(4);
    for running in running {
        assert_eq!(running.await.unwrap().status(), StatusCode::OK);
    }
    let router = app.router.clone();
    let writing = tokio::spawn(async move { send(&router, Method::PUT, "/a").await });
    assert_eq!(app.arrived.recv().await, Some(Some(false)));
    let refused = send(&app.router, Method::GET, "/a").await;
    assert_eq!(refused.status(), StatusCode::CONFLICT);
    app.go.add_permits(1);
    assert_eq!(writing.await.unwrap().status(), StatusCode::OK);
    nodes.settle_free().await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_reads_waits_for_one_that_writes_and_the_other_way_round() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    let mut app = app(layer(&locks).max_wait(1_000 * MS));
    let mut last: Option<tokio::task::JoinHandle<Response<Body>>> = None;
    for method in [Method::PUT, Method::GET, Method::PUT, Method::GET] {
        let (router, is_read) = (app.router.clone(), method == Method::GET);
        let next = tokio::spawn(async move { send(&router, method, "/a").await });
        if let Some(last) = last.replace(next) {
            tokio::time::sleep(100 * MS).await;
            assert!(app.arrived.try_recv().is_err(), "it waits");
            app.go.add_permits(1);
            assert_eq!(last.await.unwrap().status(), StatusCode::OK);
        }
        assert_eq!(app.arrived.recv().await, Some(Some(is_read)));
    }
    app.go.add_permits(1);
    assert_eq!(last.unwrap().await.unwrap().status(), StatusCode::OK);
    nodes.settle_free().await;
}

/// Two that read and each wait for the other to end would wait for ever.
#[tokio::test(start_paused = true)]
async fn a_request_that_reads_cannot_go_on_to_write() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    let writer = locks.clone();
    let handler = move |mut request: Request<Body>| async move {
        let scope = lock_scope(request.extensions_mut());
        let key = LockKey::new("document:a")?;
        let wait = 1_000 * MS;
        drop(writer.acquire_in(&scope, key.into(), wait).await?);
        Ok::<_, Rejection>(())
    };
    let router = Router::new().route("/{name}", get(handler).route_layer(layer(&locks)));
    let began = tokio::time::Instant::now();
    let response = send(&router, Method::GET, "/a").await;
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert!(began.elapsed().is_zero());
    nodes.settle_free().await;
}
