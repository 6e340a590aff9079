//! What is read out of requests and out of the manager: keys, callers, extractors, and the page for operators. Those
//! that find a lock release it; the others own nothing.

use std::rc::Rc;

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Path};
use axum::routing::post;
use bytes::Bytes;
use http::Request;
use http::request::Parts;
use http_body_util::{BodyExt as _, Empty};
use tokio::time::sleep;
use tower::ServiceExt as _;
use tower_redlock::InspectService;
use tower_redlock::error::KeyError;
use tower_redlock::extract::AsLockKeys;
use tower_redlock::idempotency::{Idempotent, caller};
use tower_redlock::key::{self, LockKeys};
use tower_redlock::layer::KeyExtractor as _;
use tower_redlock::{Held, IdempotencyLayer, LockKey, LockScope, Locked, RedlockLayer};

use super::requests::fixed;
use super::scene::{ALL, MS, Scene};
use super::sweep::{Leaves, Operation, Work, by, covering, end, work};

/// An extractor that takes its time.
struct Late;

impl<S: Send + Sync> FromRequestParts<S> for Late {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(_: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        sleep(2 * MS).await;
        Ok(Self)
    }
}

/// An order, as the path names it. Its key sorts after that of the layer.
#[derive(serde::Deserialize)]
struct Order(u64);

impl AsLockKeys for Order {
    fn to_lock_keys(&self) -> Result<LockKeys, KeyError> {
        Ok(LockKey::join(["payment", &self.0.to_string()])?.into())
    }
}

/// A report, as the body names it, which comes slowly.
struct Report(String);

impl<S: Send + Sync> FromRequest<S> for Report {
    type Rejection = axum::extract::rejection::StringRejection;

    async fn from_request(request: Request<Body>, state: &S) -> Result<Self, Self::Rejection> {
        sleep(2 * MS).await;
        Ok(Self(String::from_request(request, state).await?))
    }
}

impl AsLockKeys for Report {
    fn to_lock_keys(&self) -> Result<LockKeys, KeyError> {
        Ok(LockKey::join(["report", &self.0])?.into())
    }
}

fn order() -> Request<Body> {
    let request = Request::post("/orders/5?part=3").header("x-part", "left");
    let request = request.header("idempotency-key", "a");
    request.body(Body::empty()).unwrap()
}

pub(crate) fn operations() -> Vec<Operation> {
    let readers = [
        by!(a_handler_that_extracts_locks),
        by!(a_handler_that_extracts_a_lock_from_the_body),
        by!(a_handler_that_extracts_its_idempotency_key),
        by!(the_page_for_operators),
        by!(a_key_of_everything),
    ];
    let covers = &[
        "extract FromRequestParts for Held",
        "extract OptionalFromRequestParts for Held",
        "extract FromRequestParts for LockScope",
        "extract FromRequestParts for Locked",
        "extract FromRequest for Locked",
        "extract FromRequestParts for Idempotent",
        "extract OptionalFromRequestParts for Idempotent",
        "inspect Service for InspectService",
        "layer KeyExtractor for Also",
        "layer KeyExtractor for F",
        "layer KeyExtractor for Key",
    ];
    covering(covers, Leaves::Nothing, readers)
}

async fn a_handler_that_extracts_locks(scene: Rc<Scene>) -> Work {
    let locks = scene.met().await;
    let key = key::from_extractor::<Late>(|_| "shop".to_owned())
        .and(key::matched_path())
        .and(key::path("id").parse::<u64>())
        .prefix("order");
    let layer = RedlockLayer::new(locks.clone(), key);
    let handler = |_: Held, _: Option<Held>, _: LockScope, order: Locked<Path<Order>>| async move {
        sleep(2 * MS).await;
        drop(order);
    };
    let app = Router::new().route("/orders/{id}", post(handler).route_layer(layer));
    let app: Router = app.with_state(locks);
    work(async move { end(app.oneshot(order()).await) })
}

async fn a_handler_that_extracts_a_lock_from_the_body(scene: Rc<Scene>) -> Work {
    let locks = scene.met().await;
    let handler = |report: Locked<Report>| async move {
        sleep(2 * MS).await;
        drop(report);
    };
    let app: Router = Router::new().route("/", post(handler)).with_state(locks);
    let request = Request::post("/").body(Body::from("7")).unwrap();
    work(async move { end(app.oneshot(request).await) })
}

async fn a_handler_that_extracts_its_idempotency_key(scene: Rc<Scene>) -> Work {
    let layer = IdempotencyLayer::new(scene.met().await, caller::nobody());
    let handler = |_: Idempotent, _: Option<Idempotent>| sleep(2 * MS);
    let app = Router::new().route("/orders/{id}", post(handler));
    let app: Router = app.layer(layer);
    work(async move { end(app.oneshot(order()).await) })
}

async fn the_page_for_operators(scene: Rc<Scene>) -> Work {
    let locks = scene.met().await;
    scene.keep(locks.try_acquire(ALL[0]).await.unwrap());
    let page = InspectService::new(locks);
    // Of all its pages the one that asks the nodes.
    let request = Request::get("/?fleet").body(Empty::<Bytes>::new()).unwrap();
    work(async move {
        let response = page.oneshot(request).await.unwrap();
        end(response.into_body().collect().await);
    })
}

async fn a_key_of_everything(_: Rc<Scene>) -> Work {
    let mut parts = order().into_parts().0;
    let key = key::from_extractor::<Late>(|_| "shop".to_owned())
        .and(key::header("x-part"))
        .and(key::query("part"))
        .and(key::query("part").parse::<u64>())
        .and(key::method())
        .and(key::from_fn(|_: &Parts| "fixed"))
        .when(|_: &Parts| true)
        .optional()
        .prefix("order")
        .also(fixed as fn(&Parts) -> LockKey);
    work(async move {
        let keys = key.extract(&mut parts).await.unwrap().unwrap();
        assert_eq!(keys.as_slice().len(), 2);
    })
}
