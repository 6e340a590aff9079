//! Requests: the lock layer, the idempotency layer, and their bodies.

use std::convert::Infallible;
use std::pin::Pin;
use std::rc::Rc;

use bytes::Bytes;
use futures_util::stream::{Stream, unfold};
use http::request::Parts;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, Empty, Full, StreamBody};
use tokio::time::sleep;
use tower::{ServiceBuilder, ServiceExt as _, service_fn};
use tower_redlock::idempotency::caller;
use tower_redlock::layer::OnDisconnect;
use tower_redlock::{IdempotencyLayer, LockKey, LockManager, RedlockLayer};

use super::scene::{KEY, MS, SECOND, Scene, key};
use super::sweep::{Operation, Work, by, end, work};

/// A body that comes little by little.
type Drip = StreamBody<Pin<Box<dyn Stream<Item = Result<Frame<Bytes>, Infallible>> + Send>>>;

fn drip() -> Drip {
    let frames = unfold(0, |sent| async move {
        sleep(3 * MS).await;
        let frame = Frame::data(Bytes::from_static(b"drop"));
        (sent < 2).then_some((Ok(frame), sent + 1))
    });
    StreamBody::new(Box::pin(frames))
}

/// A handler that takes its time.
async fn handle<B>(_: Request<B>) -> Result<Response<Full<Bytes>>, Infallible> {
    sleep(5 * MS).await;
    Ok(Response::new(Full::from("paid")))
}

/// The same, with a body that takes its time, too.
async fn stream<B>(_: Request<B>) -> Result<Response<Drip>, Infallible> {
    sleep(5 * MS).await;
    Ok(Response::new(drip()))
}

/// A layer that locks [`KEY`].
fn layer(locks: &LockManager) -> RedlockLayer {
    RedlockLayer::new(locks.clone(), fixed)
}

pub(crate) fn fixed(_: &Parts) -> LockKey {
    key(KEY)
}

fn post() -> Request<Empty<Bytes>> {
    Request::post("/").body(Empty::new()).unwrap()
}

const CALL: &[&str] = &[
    "layer Service for RedlockService",
    "layer Future for ResponseFuture",
];

/// Requests under a lock.
pub(crate) fn operations() -> Vec<Operation> {
    let mut operations = calls();
    operations.extend(outliving());
    operations
}

fn calls() -> Vec<Operation> {
    vec![
        Operation::new("a request", CALL, by!(a_request)),
        Operation::new(
            "a request that waits for another process",
            CALL,
            by!(a_request_that_waits_for_another_process),
        ),
    ]
}

fn outliving() -> Vec<Operation> {
    vec![
        Operation::new(
            "a response whose body has the lock",
            &["http Body for LayerBody"],
            by!(a_response_whose_body_has_the_lock),
        ),
        Operation::new(
            "a request that runs to its end",
            &[
                "http Service for RunToEndService",
                "http Future for Detached",
            ],
            by!(a_request_that_runs_to_its_end),
        ),
    ]
}

/// The first request with an idempotency key.
fn first() -> Request<Drip> {
    let request = Request::post("/pay").header("idempotency-key", "a");
    request.header("x-shop", "7").body(drip()).unwrap()
}

const ONCE: &[&str] = &[
    "idempotency Service for IdempotencyService",
    "http Future for Detached",
];

/// Requests with an idempotency key.
pub(crate) fn once() -> Vec<Operation> {
    vec![
        Operation::new(
            "a request with an idempotency key",
            ONCE,
            by!(a_request_with_an_idempotency_key),
        ),
        Operation::new(
            "a request with an idempotency key that is cut",
            &["idempotency Service for IdempotencyService"],
            by!(a_request_with_an_idempotency_key_that_is_cut),
        ),
        Operation::new(
            "a request that is sent again",
            ONCE,
            by!(a_request_that_is_sent_again),
        ),
        Operation::new(
            "a request with a key and a lock",
            ONCE,
            by!(a_request_with_a_key_and_a_lock),
        ),
    ]
}

async fn a_request(scene: Rc<Scene>) -> Work {
    let layer = layer(&scene.met().await);
    let service = ServiceBuilder::new().layer(layer);
    let service = service.service(service_fn(handle::<Empty<Bytes>>));
    work(async move { end(service.oneshot(post()).await) })
}

async fn a_request_that_waits_for_another_process(scene: Rc<Scene>) -> Work {
    let (locks, other) = (scene.met().await, scene.other().await);
    let guard = other.try_acquire(KEY).await.unwrap();
    scene.beside(async move {
        sleep(20 * MS).await;
        drop(guard);
    });
    let service = ServiceBuilder::new().layer(layer(&locks).max_wait(SECOND));
    let service = service.service(service_fn(handle::<Empty<Bytes>>));
    work(async move { end(service.oneshot(post()).await) })
}

async fn a_response_whose_body_has_the_lock(scene: Rc<Scene>) -> Work {
    let layer = layer(&scene.met().await).hold_until_body();
    let service = ServiceBuilder::new().layer(layer);
    let service = service.service(service_fn(stream::<Empty<Bytes>>));
    work(async move {
        let response = service.oneshot(post()).await.unwrap();
        end(response.into_body().collect().await);
    })
}

async fn a_request_that_runs_to_its_end(scene: Rc<Scene>) -> Work {
    let layer = layer(&scene.met().await);
    let layer = layer.on_disconnect(OnDisconnect::RunToEnd);
    let service = ServiceBuilder::new().layer(layer);
    let service = service.service(service_fn(handle::<Empty<Bytes>>));
    work(async move { end(service.oneshot(post()).await) })
}

async fn a_request_with_an_idempotency_key(scene: Rc<Scene>) -> Work {
    let layer = IdempotencyLayer::new(scene.met().await, caller::header("x-shop"));
    let service = ServiceBuilder::new().layer(layer).service_fn(handle);
    work(async move {
        let response = service.oneshot(first()).await.unwrap();
        end(response.into_body().collect().await);
    })
}

async fn a_request_with_an_idempotency_key_that_is_cut(scene: Rc<Scene>) -> Work {
    let layer = IdempotencyLayer::new(scene.met().await, caller::nobody());
    let layer = layer.on_disconnect(OnDisconnect::Cancel);
    let service = ServiceBuilder::new().layer(layer).service_fn(stream);
    work(async move {
        let response = service.oneshot(first()).await.unwrap();
        end(response.into_body().collect().await);
    })
}

async fn a_request_that_is_sent_again(scene: Rc<Scene>) -> Work {
    let layer = IdempotencyLayer::new(scene.met().await, caller::header("x-shop"));
    let service = ServiceBuilder::new().layer(layer).service_fn(handle);
    end(service.clone().oneshot(first()).await);
    work(async move {
        let response = service.oneshot(first()).await.unwrap();
        end(response.into_body().collect().await);
    })
}

async fn a_request_with_a_key_and_a_lock(scene: Rc<Scene>) -> Work {
    let locks = scene.met().await;
    let lock = layer(&locks).max_wait(SECOND);
    let layer = IdempotencyLayer::new(locks, caller::nobody()).with_lock(lock);
    let service = ServiceBuilder::new().layer(layer).service_fn(handle);
    work(async move {
        let response = service.oneshot(first()).await.unwrap();
        end(response.into_body().collect().await);
    })
}
