//! Every way in which a request can end gives its lock back on every node, after the inner work is gone, and
//! without any time passing.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{Empty, Full};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tower::util::BoxCloneService;
use tower::{Service as _, ServiceBuilder, ServiceExt as _, service_fn};
use tower_redlock::RedlockLayer;
use tower_redlock::layer::LayerBody;

use super::{KEY, MS, Nodes, Seen, Spy, drive, layer, ok, post};

type Answer = Result<Response<LayerBody<Full<Bytes>>>, Infallible>;

type Waiting = BoxCloneService<Request<Empty<Bytes>>, Response<LayerBody<Full<Bytes>>>, Infallible>;

/// A service whose handler never ends, or ends when `finish` is sent to.
fn waiting(layer: RedlockLayer, nodes: &Nodes, seen: &Seen) -> (Waiting, oneshot::Sender<()>) {
    let (finish, finished) = oneshot::channel();
    let finished = std::sync::Arc::new(std::sync::Mutex::new(Some(finished)));
    let (nodes, seen) = (nodes.clone(), seen.clone());
    let inner = service_fn(move |request: Request<Empty<Bytes>>| {
        seen.watch(request.extensions());
        let spy = seen.spy(&nodes);
        let finished = finished.lock().unwrap().take();
        async move {
            let _spy = spy;
            if let Some(finished) = finished {
                let _ = finished.await;
            }
            Ok::<_, Infallible>(ok("paid"))
        }
    });
    let service = ServiceBuilder::new().layer(layer).service(inner);
    (BoxCloneService::new(service), finish)
}

#[tokio::test(start_paused = true)]
async fn a_response_comes_after_the_release() {
    let (nodes, seen) = (Nodes::five(), Seen::default());
    let (service, finish) = waiting(layer(&nodes.manager()), &nodes, &seen);
    finish.send(()).unwrap();
    let response = service.oneshot(post()).await.unwrap();
    nodes.assert_free();
    seen.assert_dropped_under_the_lock();
    assert_eq!(super::text(response).await, "paid");
}

#[tokio::test(start_paused = true)]
async fn an_awaited_release_waits_for_the_node_time_out_at_most() {
    let (nodes, seen) = (Nodes::five(), Seen::default());
    let (service, finish) = waiting(layer(&nodes.manager()), &nodes, &seen);
    let mut future = Box::pin(service.oneshot(post()));
    drive(&mut future, || nodes.holding(KEY) == 5).await;
    nodes.each(|n| n.freeze());
    finish.send(()).unwrap();
    let before = Instant::now();
    assert_eq!(
        future.await.unwrap().status(),
        200,
        "the work is done and its answer stands"
    );
    assert_eq!(before.elapsed(), 100 * MS);
    nodes.each(|n| n.thaw());
    nodes.settle_free().await;
}

/// Keeps what it owns until it is dropped itself, as hand-written futures do and async blocks do not.
struct Lingers(#[expect(dead_code, reason = "it is there to be dropped")] Spy);

impl Future for Lingers {
    type Output = Result<Response<Full<Bytes>>, Infallible>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(Ok(ok("paid")))
    }
}

#[tokio::test(start_paused = true)]
async fn a_future_that_is_done_is_dropped_before_the_release() {
    let (nodes, seen) = (Nodes::five(), Seen::default());
    let inner = service_fn(|request: Request<Empty<Bytes>>| {
        seen.watch(request.extensions());
        Lingers(seen.spy(&nodes))
    });
    let layer = layer(&nodes.manager());
    let service = ServiceBuilder::new().layer(layer).service(inner);
    assert_eq!(service.oneshot(post()).await.unwrap().status(), 200);
    seen.assert_dropped_under_the_lock();
    nodes.settle_free().await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_releases() {
    let (nodes, seen) = (Nodes::five(), Seen::default());
    let spy = seen.spy(&nodes);
    let spy = std::sync::Arc::new(std::sync::Mutex::new(Some(spy)));
    let watcher = seen.clone();
    let inner = service_fn(move |request: Request<Empty<Bytes>>| {
        watcher.watch(request.extensions());
        let spy = spy.lock().unwrap().take();
        async move {
            let _spy = spy;
            tokio::task::yield_now().await;
            if true {
                panic!("a bug in the handler");
            }
            Ok::<_, Infallible>(ok("never"))
        }
    });
    let service = ServiceBuilder::new()
        .layer(layer(&nodes.manager()))
        .service(inner);
    let error = tokio::spawn(service.oneshot(post())).await.unwrap_err();
    assert!(error.is_panic());
    seen.assert_dropped_under_the_lock();
    nodes.settle_free().await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_the_call_itself_releases() {
    let nodes = Nodes::five();
    let inner = service_fn(|_: Request<Empty<Bytes>>| -> std::future::Ready<Result<Response<Full<Bytes>>, Infallible>> {
        panic!("a bug in the service")
    });
    let service = ServiceBuilder::new()
        .layer(layer(&nodes.manager()))
        .service(inner);
    assert!(
        tokio::spawn(service.oneshot(post()))
            .await
            .unwrap_err()
            .is_panic()
    );
    assert!(nodes.commands() > 0);
    nodes.settle_free().await;
}

#[tokio::test(start_paused = true)]
async fn a_future_dropped_before_it_is_polled_asks_no_node() {
    let (nodes, seen) = (Nodes::five(), Seen::default());
    let (mut service, _finish) = waiting(layer(&nodes.manager()), &nodes, &seen);
    drop(service.ready().await.unwrap().call(post()));
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    assert_eq!((nodes.commands(), seen.get()), (0, None));
}

#[tokio::test(start_paused = true)]
async fn a_future_dropped_while_it_acquires_leaves_nothing() {
    let (nodes, seen) = (Nodes::five(), Seen::default());
    let locks = nodes.manager();
    drop(locks.try_acquire("before").await.unwrap());
    // Two nodes grant, the rest is frozen and grants later: neither may stay.
    nodes.0[..3].iter().for_each(|n| n.freeze());
    let (service, _finish) = waiting(layer(&locks), &nodes, &seen);
    let mut future = Box::pin(service.oneshot(post()));
    drive(&mut future, || nodes.holding(KEY) == 2).await;
    drop(future);
    assert_eq!(seen.get(), None, "the handler never ran");
    nodes.each(|n| n.thaw());
    nodes.settle_free().await;
}

#[tokio::test(start_paused = true)]
async fn a_future_dropped_while_it_waits_leaves_nothing() {
    let (nodes, seen) = (Nodes::five(), Seen::default());
    let locks = nodes.manager();
    let held = locks.try_acquire(KEY).await.unwrap();
    let layer = layer(&locks).max_wait(Duration::from_secs(5));
    let (service, _finish) = waiting(layer, &nodes, &seen);
    let mut future = Box::pin(service.oneshot(post()));
    drive(&mut future, || locks.snapshot().waiting == 1).await;
    drop(future);
    assert_eq!(locks.snapshot().waiting, 0);
    held.release().await.unwrap();
    nodes.settle_free().await;
    assert_eq!(seen.get(), None, "the handler never ran");
}

#[tokio::test(start_paused = true)]
async fn a_future_dropped_while_the_handler_runs_drops_the_handler_then_the_lock() {
    let (nodes, seen) = (Nodes::five(), Seen::default());
    let (service, _finish) = waiting(layer(&nodes.manager()), &nodes, &seen);
    let mut future = Box::pin(service.oneshot(post()));
    drive(&mut future, || nodes.holding(KEY) == 5).await;
    assert_eq!(seen.get(), None);
    drop(future);
    seen.assert_dropped_under_the_lock();
    nodes.settle_free().await;
}

#[tokio::test(start_paused = true)]
async fn a_future_dropped_while_it_releases_goes_on_releasing() {
    let (nodes, seen) = (Nodes::five(), Seen::default());
    let (service, finish) = waiting(layer(&nodes.manager()), &nodes, &seen);
    let mut future = Box::pin(service.oneshot(post()));
    drive(&mut future, || nodes.holding(KEY) == 5).await;
    nodes.each(|n| n.freeze());
    finish.send(()).unwrap();
    drive(&mut future, || seen.get().is_some()).await;
    drop(future);
    nodes.each(|n| n.thaw());
    nodes.settle_free().await;
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_lets_running_requests_end_and_refuses_new_ones() {
    let (nodes, seen) = (Nodes::five(), Seen::default());
    let locks = nodes.manager();
    let (service, finish) = waiting(layer(&locks), &nodes, &seen);
    let mut running = Box::pin(service.clone().oneshot(post()));
    drive(&mut running, || nodes.holding(KEY) == 5).await;

    let shutdown = tokio::spawn({
        let locks = locks.clone();
        async move { locks.shutdown(Duration::from_secs(5)).await }
    });
    tokio::task::yield_now().await;
    let refused: Answer = service.oneshot(post()).await;
    assert_eq!(refused.unwrap().status(), 503);
    finish.send(()).unwrap();
    assert_eq!(super::text(running.await.unwrap()).await, "paid");
    shutdown.await.unwrap();
    nodes.assert_free();
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_what_does_not_end_in_time() {
    let (nodes, seen) = (Nodes::five(), Seen::default());
    let locks = nodes.manager();
    let (service, _finish) = waiting(layer(&locks), &nodes, &seen);
    let running = tokio::spawn(service.oneshot(post()));
    while nodes.holding(KEY) < 5 {
        tokio::task::yield_now().await;
    }
    locks.shutdown(Duration::from_secs(1)).await;
    let response = running.await.unwrap().unwrap();
    assert_eq!(response.status(), 503);
    assert!(super::text(response).await.contains("lock-lost"));
    assert!(seen.get().is_some(), "the handler is gone");
    nodes.assert_free();
}
