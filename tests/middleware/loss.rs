//! Locks that are lost while the handler runs: all nodes stop to answer.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures_util::stream;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, Empty, StreamBody};
use tokio::sync::Notify;
use tokio::time::Instant;
use tower::{ServiceBuilder, ServiceExt as _, service_fn};
use tower_redlock::Held;
use tower_redlock::LockManager;
use tower_redlock::clock::{Clock, Moment};
use tower_redlock::error::RunError;

use super::{KEY, Nodes, Seen, TTL, drive, layer, ok, post};

#[tokio::test(start_paused = true)]
async fn the_handler_is_dropped_before_validity_ends_and_the_answer_is_lock_lost() {
    let (nodes, seen) = (Nodes::five(), Seen::default());
    let inner = service_fn(|request: Request<Empty<Bytes>>| {
        seen.watch(request.extensions());
        let spy = seen.spy(&nodes);
        async move {
            let _spy = spy;
            std::future::pending::<()>().await;
            Ok::<_, Infallible>(ok("never"))
        }
    });
    let service = ServiceBuilder::new()
        .layer(layer(&nodes.manager()))
        .service(inner);
    let mut future = Box::pin(service.oneshot(post()));
    drive(&mut future, || nodes.holding(KEY) == 5).await;
    nodes.each(|n| n.freeze());
    let before = Instant::now();
    let response = future.await.unwrap();
    let took = before.elapsed();
    assert!(
        took < TTL && took > TTL / 2,
        "within validity, and not before it must: {took:?}"
    );
    // The handler went while the nodes still had the key, so before anyone else could have had it.
    seen.assert_dropped_under_the_lock();
    assert_eq!(response.status(), 503);
    assert!(
        !response.headers().contains_key("retry-after"),
        "its outcome is unknown"
    );
    nodes.each(|n| n.thaw());
    nodes.settle_free().await;
}

/// The handler is woken by the very loss that would end it, and has its answer ready.
#[tokio::test(start_paused = true)]
async fn an_answer_that_exists_wins_over_the_loss() {
    let nodes = Nodes::five();
    let inner = service_fn(async |request: Request<Empty<Bytes>>| {
        let lock = Held::of(request.extensions()).unwrap();
        lock.lost().await;
        Ok::<_, Infallible>(ok("just in time"))
    });
    let service = ServiceBuilder::new()
        .layer(layer(&nodes.manager()))
        .service(inner);
    let mut future = Box::pin(service.oneshot(post()));
    drive(&mut future, || nodes.holding(KEY) == 5).await;
    nodes.each(|n| n.freeze());
    assert_eq!(super::text(future.await.unwrap()).await, "just in time");
}

#[derive(Clone, Debug, Default)]
struct HandClock(Arc<AtomicU64>);

impl Clock for HandClock {
    fn follows_runtime(&self) -> bool {
        true
    }

    fn now(&self) -> Moment {
        Moment::from_nanos(1_000_000_000 + self.0.load(Ordering::SeqCst))
    }
}

/// The process stood still, and the handler is woken before any timer.
#[tokio::test(start_paused = true)]
async fn the_handler_does_not_go_on_once_its_lock_has_ended_unseen() {
    let clock = HandClock::default();
    let builder = LockManager::builder().memory(5).clock(clock.clone());
    let (begun, woken) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (began, waken) = (Arc::clone(&begun), Arc::clone(&woken));
    let inner = service_fn(move |_: Request<Empty<Bytes>>| {
        let (began, waken) = (Arc::clone(&began), Arc::clone(&waken));
        async move {
            began.notify_one();
            waken.notified().await;
            Ok::<_, Infallible>(ok("went on"))
        }
    });
    let layer = layer(&builder.connect_lazy().unwrap());
    let service = ServiceBuilder::new().layer(layer).service(inner);
    let stand_still = async {
        begun.notified().await;
        clock.0.fetch_add(60_000_000_000, Ordering::SeqCst);
        woken.notify_one();
    };
    let (response, ()) = tokio::join!(service.oneshot(post()), stand_still);
    assert_eq!(response.unwrap().status(), 503);
}

/// As above, once the response's head is out: of the frames that its body has ready, none is asked for.
#[tokio::test(start_paused = true)]
async fn the_body_does_not_go_on_once_its_lock_has_ended_unseen() {
    let clock = HandClock::default();
    let builder = LockManager::builder().memory(5).clock(clock.clone());
    let made = Arc::new(AtomicU64::new(0));
    let making = Arc::clone(&made);
    let inner = service_fn(move |_: Request<Empty<Bytes>>| {
        let making = Arc::clone(&making);
        let frames = stream::repeat_with(move || {
            making.fetch_add(1, Ordering::SeqCst);
            Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"a")))
        });
        async move { Ok::<_, Infallible>(Response::new(StreamBody::new(frames))) }
    });
    let layer = layer(&builder.connect_lazy().unwrap()).hold_until_body();
    let service = ServiceBuilder::new().layer(layer).service(inner);
    let mut body = service.oneshot(post()).await.unwrap().into_body();
    body.frame().await.unwrap().unwrap();
    clock.0.fetch_add(60_000_000_000, Ordering::SeqCst);
    let error = body.frame().await.unwrap().unwrap_err();
    assert!(error.is::<RunError>(), "{error}");
    assert!(body.frame().await.is_none());
    assert_eq!(made.load(Ordering::SeqCst), 1);
}
