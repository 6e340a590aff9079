//! Whose keys are whose.

use axum::body::Body;
use http::Request;
use http::request::Parts;
use tower_redlock::IdempotencyLayer;
use tower_redlock::idempotency::caller;

use super::{Shop, manager, nodes, send};

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
