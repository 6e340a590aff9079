//! Requests: the lock layer, the idempotency layer, and their bodies.

use std::convert::Infallible;
use std::pin::Pin;
use std::rc::Rc;

use bytes::Bytes;
use futures_util::stream::{Stream, unfold};
use http::request::Parts;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt as _, Empty, Full, StreamBody};
use tokio::time::sleep;
use tower::{Layer as _, Service, ServiceExt as _, service_fn};
use tower_redlock::idempotency::caller;
use tower_redlock::layer::OnDisconnect;
use tower_redlock::{IdempotencyLayer, LockKey, LockManager, RedlockLayer};

use super::scene::{KEY, MS, SECOND, Scene, key};
use super::sweep::{Leaves, Operation, Work, by, covering, end, work};

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

/// Requests under a lock.
pub(crate) fn operations() -> Vec<Operation> {
    let requests = [
        by!(a_request),
        by!(a_request_that_waits_for_another_process),
        by!(a_response_whose_body_has_the_lock),
        by!(a_request_that_runs_to_its_end),
    ];
    let covers = &[
        "layer Service for RedlockService",
        "layer Future for ResponseFuture",
        "http Body for LayerBody",
        "http Service for RunToEndService",
        "http Future for Detached",
    ];
    covering(covers, Leaves::Nothing, requests)
}

/// The first request with an idempotency key.
fn first() -> Request<Drip> {
    let request = Request::post("/pay").header("idempotency-key", "a");
    request.header("x-shop", "7").body(drip()).unwrap()
}

/// Requests with an idempotency key.
pub(crate) fn once() -> Vec<Operation> {
    let requests = [
        by!(a_request_with_an_idempotency_key),
        by!(a_request_with_an_idempotency_key_that_is_cut),
        by!(a_request_that_is_sent_again),
        by!(a_request_with_a_key_and_a_lock),
    ];
    let covers = &["idempotency Service for IdempotencyService"];
    covering(covers, Leaves::Nothing, requests)
}

/// Sends `request` and reads the response.
async fn exchange<S, A, B>(service: S, request: Request<A>)
where
    S: Service<Request<A>, Response = Response<B>, Error = Infallible>,
    B: Body,
{
    let response = service.oneshot(request).await.unwrap();
    end(response.into_body().collect().await);
}

async fn a_request(scene: Rc<Scene>) -> Work {
    let layer = layer(&scene.met().await);
    let service = layer.layer(service_fn(handle::<Empty<Bytes>>));
    work(exchange(service, post()))
}

async fn a_request_that_waits_for_another_process(scene: Rc<Scene>) -> Work {
    let (locks, other) = (scene.met().await, scene.other().await);
    let guard = other.try_acquire(KEY).await.unwrap();
    scene.beside(async move {
        sleep(20 * MS).await;
        drop(guard);
    });
    let layer = layer(&locks).max_wait(SECOND);
    let service = layer.layer(service_fn(handle::<Empty<Bytes>>));
    work(exchange(service, post()))
}

async fn a_response_whose_body_has_the_lock(scene: Rc<Scene>) -> Work {
    let layer = layer(&scene.met().await).hold_until_body();
    let service = layer.layer(service_fn(stream::<Empty<Bytes>>));
    work(exchange(service, post()))
}

async fn a_request_that_runs_to_its_end(scene: Rc<Scene>) -> Work {
    let layer = layer(&scene.met().await);
    let layer = layer.on_disconnect(OnDisconnect::RunToEnd);
    let service = layer.layer(service_fn(handle::<Empty<Bytes>>));
    work(exchange(service, post()))
}

async fn a_request_with_an_idempotency_key(scene: Rc<Scene>) -> Work {
    let layer = IdempotencyLayer::new(scene.met().await, caller::header("x-shop"));
    let service = layer.layer(service_fn(handle));
    work(exchange(service, first()))
}

async fn a_request_with_an_idempotency_key_that_is_cut(scene: Rc<Scene>) -> Work {
    let layer = IdempotencyLayer::new(scene.met().await, caller::nobody());
    let layer = layer.on_disconnect(OnDisconnect::Cancel);
    let service = layer.layer(service_fn(stream));
    work(exchange(service, first()))
}

async fn a_request_that_is_sent_again(scene: Rc<Scene>) -> Work {
    let layer = IdempotencyLayer::new(scene.met().await, caller::header("x-shop"));
    let service = layer.layer(service_fn(handle));
    end(service.clone().oneshot(first()).await);
    work(exchange(service, first()))
}

async fn a_request_with_a_key_and_a_lock(scene: Rc<Scene>) -> Work {
    let locks = scene.met().await;
    let lock = layer(&locks).max_wait(SECOND);
    let layer = IdempotencyLayer::new(locks, caller::nobody()).with_lock(lock);
    let service = layer.layer(service_fn(handle));
    work(exchange(service, first()))
}
