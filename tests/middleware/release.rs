//! Every way in which a request can end gives its lock back on every node, after the inner work is gone, and
//! without any time passing. `tests/cancellation` drops requests at each of their awaits.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{Empty, Full};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tower::util::BoxCloneService;
use tower::{Layer as _, Service as _, ServiceExt as _, service_fn};
use tower_redlock::LockManager;
use tower_redlock::layer::LayerBody;

use super::{KEY, MS, SECOND, Scene, Spy, drive, layer, ok, post, send};

type Waiting = BoxCloneService<Request<Empty<Bytes>>, Response<LayerBody<Full<Bytes>>>, Infallible>;

/// A service whose handler never ends, or ends when `finish` is sent to.
fn waiting(scene: &Scene, locks: &LockManager) -> (Waiting, oneshot::Sender<()>) {
    let (finish, finished) = oneshot::channel();
    let finished = Arc::new(Mutex::new(Some(finished)));
    let scene = scene.clone();
    let inner = service_fn(move |request: Request<Empty<Bytes>>| {
        let spy = scene.spy(request.extensions());
        let finished = finished.lock().unwrap().take();
        async move {
            let _spy = spy;
            if let Some(finished) = finished {
                let _ = finished.await;
            }
            Ok::<_, Infallible>(ok("paid"))
        }
    });
    (BoxCloneService::new(layer(locks).layer(inner)), finish)
}

#[tokio::test(start_paused = true)]
async fn an_awaited_release_waits_for_the_node_time_out_at_most() {
    let scene = Scene::new();
    let (service, finish) = waiting(&scene, &scene.nodes.manager());
    let mut future = Box::pin(send(service, post()));
    drive(&mut future, || scene.nodes.holding(KEY) == 5).await;
    scene.nodes.each(|n| n.freeze());
    finish.send(()).unwrap();
    let before = Instant::now();
    assert_eq!(
        future.await.text,
        "paid",
        "it is done and its answer stands"
    );
    assert_eq!(before.elapsed(), 100 * MS);
    scene.nodes.each(|n| n.thaw());
    scene.nodes.settle_free().await;
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
    let scene = Scene::new();
    let inner =
        service_fn(|request: Request<Empty<Bytes>>| Lingers(scene.spy(request.extensions())));
    assert_eq!(send(scene.layer().layer(inner), post()).await.status, 200);
    scene.assert_dropped_under_the_lock();
    scene.nodes.settle_free().await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_releases() {
    let scene = Scene::new();
    let watched = scene.clone();
    let inner = service_fn(move |request: Request<Empty<Bytes>>| {
        let spy = watched.spy(request.extensions());
        async move {
            let _spy = spy;
            tokio::task::yield_now().await;
            if true {
                panic!("a bug in the handler");
            }
            Ok::<_, Infallible>(ok("never"))
        }
    });
    let sent = tokio::spawn(scene.layer().layer(inner).oneshot(post()));
    assert!(sent.await.unwrap_err().is_panic());
    scene.assert_dropped_under_the_lock();
    scene.nodes.settle_free().await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_the_call_itself_releases() {
    type Never = std::future::Ready<Result<Response<Full<Bytes>>, Infallible>>;

    let scene = Scene::new();
    let inner = service_fn(|_: Request<Empty<Bytes>>| -> Never { panic!("a bug in the service") });
    let sent = tokio::spawn(scene.layer().layer(inner).oneshot(post()));
    assert!(sent.await.unwrap_err().is_panic());
    assert!(scene.nodes.commands() > 0);
    scene.nodes.settle_free().await;
}

#[tokio::test(start_paused = true)]
async fn a_future_dropped_before_it_is_polled_asks_no_node() {
    let scene = Scene::new();
    let (mut service, _finish) = waiting(&scene, &scene.nodes.manager());
    drop(service.ready().await.unwrap().call(post()));
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    assert_eq!((scene.nodes.commands(), scene.dropped()), (0, None));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_lets_running_requests_end_in_time_and_refuses_new_ones() {
    for ends_in_time in [true, false] {
        let scene = Scene::new();
        let locks = scene.nodes.manager();
        let (service, finish) = waiting(&scene, &locks);
        let mut running = Box::pin(send(service.clone(), post()));
        drive(&mut running, || scene.nodes.holding(KEY) == 5).await;
        let (running, shutdown) = (tokio::spawn(running), locks.clone());
        let shutdown = tokio::spawn(async move { shutdown.shutdown(SECOND).await });
        tokio::task::yield_now().await;
        assert_eq!(send(service, post()).await.told(), (503, "shutting-down"));
        let told = if ends_in_time {
            finish.send(()).unwrap();
            (200, "paid")
        } else {
            (503, "lock-lost")
        };
        assert_eq!(running.await.unwrap().told(), told);
        assert!(scene.dropped().is_some(), "the handler is gone");
        shutdown.await.unwrap();
        scene.nodes.assert_free();
    }
}
