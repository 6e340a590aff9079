//! Locks that are lost while the handler runs: all nodes stop to answer, or the process has stood still.

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
use tower::{Layer as _, ServiceExt as _, service_fn};
use tower_redlock::clock::{Clock, Moment};
use tower_redlock::error::RunError;
use tower_redlock::{Held, LockManager};

use super::answers::assert_problem;
use super::{Answer, KEY, Scene, TTL, drive, layer, ok, post, send};

#[tokio::test(start_paused = true)]
async fn the_handler_is_dropped_before_validity_ends_and_the_answer_is_lock_lost() {
    let scene = Scene::new();
    let inner = service_fn(|request: Request<Empty<Bytes>>| {
        let stuck = scene.clone().stuck(request.into_parts().0.extensions);
        async { Ok::<_, Infallible>(stuck.await) }
    });
    let mut future = Box::pin(scene.layer().layer(inner).oneshot(post()));
    drive(&mut future, || scene.nodes.holding(KEY) == 5).await;
    scene.nodes.each(|n| n.freeze());
    let before = Instant::now();
    let answer = Answer::of(future.await.unwrap()).await;
    let took = before.elapsed();
    let in_time = took < TTL && took > TTL / 2;
    assert!(in_time, "within validity, and not before it must: {took:?}");
    // The handler went while the nodes still had the key, so before anyone else could have had it.
    scene.assert_dropped_under_the_lock();
    let texts = [
        "Lock lost",
        "The lock was lost while this request was processed. Whether it took effect is unknown, so look before \
         you send it again, because it may be processed again.",
    ];
    assert_problem(&answer, 503, "lock-lost", None, texts);
    scene.nodes.each(|n| n.thaw());
    scene.nodes.settle_free().await;
}

/// The handler is woken by the very loss that would end it, and has its answer ready.
#[tokio::test(start_paused = true)]
async fn an_answer_that_exists_wins_over_the_loss() {
    let scene = Scene::new();
    let inner = service_fn(async |request: Request<Empty<Bytes>>| {
        let lock = Held::of(request.extensions()).unwrap();
        scene.nodes.each(|n| n.freeze());
        lock.lost().await;
        Ok::<_, Infallible>(ok("just in time"))
    });
    let answer = send(scene.layer().layer(inner), post()).await;
    assert_eq!(answer.text, "just in time");
}

#[derive(Clone, Debug, Default)]
struct HandClock(Arc<AtomicU64>);

impl HandClock {
    /// The process stands still for a minute.
    fn stand_still(&self) {
        self.0.fetch_add(60_000_000_000, Ordering::SeqCst);
    }

    fn manager(&self) -> LockManager {
        let builder = LockManager::builder().memory(5).clock(self.clone());
        builder.connect_lazy().unwrap()
    }
}

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
    let (begun, woken) = (Notify::new(), Notify::new());
    let inner = service_fn(async |_: Request<Empty<Bytes>>| {
        begun.notify_one();
        woken.notified().await;
        Ok::<_, Infallible>(ok("went on"))
    });
    let stand_still = async {
        begun.notified().await;
        clock.stand_still();
        woken.notify_one();
    };
    let service = layer(&clock.manager()).layer(inner);
    let (answer, ()) = tokio::join!(send(service, post()), stand_still);
    assert_eq!(answer.told(), (503, "lock-lost"));
}

/// As above, once the response's head is out: of the frames that its body has ready, none is asked for.
#[tokio::test(start_paused = true)]
async fn the_body_does_not_go_on_once_its_lock_has_ended_unseen() {
    let clock = HandClock::default();
    let made = AtomicU64::new(0);
    let inner = service_fn(async |_: Request<Empty<Bytes>>| {
        let frames = stream::repeat_with(|| {
            made.fetch_add(1, Ordering::SeqCst);
            Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"a")))
        });
        Ok::<_, Infallible>(Response::new(StreamBody::new(frames)))
    });
    let service = layer(&clock.manager()).hold_until_body().layer(inner);
    let mut body = service.oneshot(post()).await.unwrap().into_body();
    body.frame().await.unwrap().unwrap();
    clock.stand_still();
    let error = body.frame().await.unwrap().unwrap_err();
    assert!(error.is::<RunError>(), "{error}");
    assert!(body.frame().await.is_none());
    assert_eq!(made.load(Ordering::SeqCst), 1);
}
