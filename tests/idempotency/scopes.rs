//! Whose keys are whose.

use std::convert::Infallible;

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use http::Request;
use http::request::Parts;
use http_body_util::BodyExt as _;
use tower::{Layer as _, service_fn};
use tower_redlock::IdempotencyLayer;
use tower_redlock::idempotency::{RequestBody, caller};

use super::{Shop, layer, manager, nodes, send};

fn from(tenant: &str) -> Request<Body> {
    let request = Request::post("/orders/1").header("idempotency-key", "a");
    request
        .header("x-tenant", tenant)
        .body(Body::from("tea"))
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_tenant_never_sees_the_answer_of_another() {
    let (shop, nodes) = (Shop::new(), nodes());
    let app = shop.open(IdempotencyLayer::new(
        manager(&nodes),
        caller::header("x-tenant"),
    ));
    for (number, tenant) in ["acme", "umbrella", "acme:umbrella"]
        .into_iter()
        .enumerate()
    {
        let reply = send(&app, from(tenant)).await;
        assert_eq!(reply.body, format!("order {}: tea", number + 1));
        assert!(!reply.is_replayed(), "{tenant:?}");
        assert!(send(&app, from(tenant)).await.is_replayed());
    }
    assert_eq!(
        send(&app, from("")).await.problem(),
        (403, "caller-unknown".into())
    );
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_cannot_be_told_is_refused_before_anything_runs() {
    let (shop, nodes) = (Shop::new(), nodes());
    let source = caller::from_fn(|_: &Parts| None::<String>);
    let app = shop.open(IdempotencyLayer::new(manager(&nodes), source));
    let reply = send(&app, from("acme")).await;
    assert_eq!(reply.problem(), (403, "caller-unknown".into()));
    assert_eq!(shop.orders(), 0);
}

fn order_at(path: &str) -> Request<Body> {
    let request = Request::post(path).header("idempotency-key", "a");
    request.body(Body::from("tea")).unwrap()
}

/// The prefix that a router takes off may say whose order it is.
#[tokio::test(start_paused = true)]
async fn what_a_nesting_router_takes_off_makes_another_request() {
    let (shop, nodes) = (Shop::new(), nodes());
    let nested = shop.open(layer(&nodes));
    let app = Router::new().nest("/tenants/{tenant}", nested);
    let acme = || order_at("/tenants/acme/orders/1");
    assert_eq!(send(&app, acme()).await.body, "order 1: tea");
    let umbrella = send(&app, order_at("/tenants/umbrella/orders/1")).await;
    assert_eq!(umbrella.problem(), (422, "idempotency-key-reused".into()));
    assert!(send(&app, acme()).await.is_replayed());
}

/// There the layer finds no route, and the paths that it sees are alike.
#[tokio::test(start_paused = true)]
async fn nested_services_have_keys_of_their_own() {
    let (shop, nodes) = (Shop::new(), nodes());
    let order = service_fn({
        let shop = shop.clone();
        move |request: Request<RequestBody<Body>>| {
            let shop = shop.clone();
            async move {
                let body: Bytes = request.into_body().collect().await.unwrap().to_bytes();
                Ok::<_, Infallible>(shop.order(body).await)
            }
        }
    });
    let service = layer(&nodes).layer(order);
    let app = Router::new()
        .nest_service("/v1", service.clone())
        .nest_service("/tenants/{tenant}", service);
    for (number, prefix) in ["/v1", "/tenants/acme", "/tenants/umbrella"]
        .into_iter()
        .enumerate()
    {
        let path = format!("{prefix}/orders");
        let first = send(&app, order_at(&path)).await;
        assert_eq!(first.body, format!("order {}: tea", number + 1), "{path}");
        assert!(!first.is_replayed());
        assert!(send(&app, order_at(&path)).await.is_replayed(), "{path}");
    }
}
