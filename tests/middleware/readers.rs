//! A layer whose requests of some methods share their lock.

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::{Method, Request};
use tower_redlock::layer::{Rejection, lock_scope};
use tower_redlock::{LockKey, LockManager, RedlockLayer, key};

use super::{Nodes, SECOND, Staying, sent};

fn layer(locks: &LockManager) -> RedlockLayer {
    RedlockLayer::new(locks.clone(), key::path("name").prefix("document"))
        .shared_for([Method::GET, Method::HEAD])
}

/// Requests that tell whether they share their lock.
fn staying(layer: RedlockLayer) -> Staying<Option<bool>> {
    Staying::new(layer, |held| held.map(|held| held.is_shared()))
}

#[tokio::test(start_paused = true)]
async fn requests_that_read_run_together_and_one_that_writes_alone() {
    let nodes = Nodes::five();
    let mut staying = staying(layer(&nodes.manager()));
    let send = |method| sent(&staying.app, method, "/a");
    let mut running = Vec::new();
    for (method, shares) in [
        (Method::GET, Some(true)),
        (Method::GET, Some(true)),
        (Method::HEAD, Some(true)),
        // Methods that are not named have no lock, or one for themselves alone, as ever.
        (Method::OPTIONS, None),
    ] {
        running.push(send(method));
        assert_eq!(staying.arrived.recv().await, Some(shares));
        assert_eq!(send(Method::PUT).await.unwrap().status, 409);
    }
    staying.go.add_permits(4);
    for running in running {
        assert_eq!(running.await.unwrap().status, 200);
    }
    let writing = send(Method::PUT);
    assert_eq!(staying.arrived.recv().await, Some(Some(false)));
    assert_eq!(send(Method::GET).await.unwrap().status, 409);
    staying.go.add_permits(1);
    assert_eq!(writing.await.unwrap().status, 200);
    nodes.settle_free().await;
}

/// Two that read and each wait for the other to end would wait for ever.
#[tokio::test(start_paused = true)]
async fn a_request_that_reads_cannot_go_on_to_write() {
    let (nodes, locks) = Nodes::with_manager();
    let writer = locks.clone();
    let handler = move |mut request: Request<Body>| async move {
        let scope = lock_scope(request.extensions_mut());
        let key = LockKey::new("document:a")?;
        drop(writer.acquire_in(&scope, key.into(), SECOND).await?);
        Ok::<_, Rejection>(())
    };
    let router = Router::new().route("/{name}", get(handler).route_layer(layer(&locks)));
    let began = tokio::time::Instant::now();
    assert_eq!(sent(&router, Method::GET, "/a").await.unwrap().status, 500);
    assert!(began.elapsed().is_zero());
    nodes.settle_free().await;
}
