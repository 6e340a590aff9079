//! Whose keys are whose.

use std::convert::Infallible;

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use http::Request;
use http::request::Parts;
use http_body_util::BodyExt as _;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tower::{Layer as _, service_fn};
use tower_redlock::IdempotencyLayer;
use tower_redlock::idempotency::caller;
use tower_redlock::layer::LayerBody;

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
    for source in [None, Some("")] {
        let source = move |_: &Parts| source.map(str::to_owned);
        let app = shop.open(IdempotencyLayer::new(manager(&nodes), source));
        let reply = send(&app, from("acme")).await;
        assert_eq!(reply.problem(), (403, "caller-unknown".into()));
        assert_eq!(shop.orders(), 0);
    }
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
        move |request: Request<LayerBody<Body>>| {
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

fn sent_to(uri: &str, hosts: &[&str]) -> Request<Body> {
    let mut request = Request::post(uri).header("idempotency-key", "a");
    for host in hosts {
        request = request.header("host", *host);
    }
    request.body(Body::from("tea")).unwrap()
}

/// Callers may have the same id with two tenants, and the tenant may be in the host alone.
#[tokio::test(start_paused = true)]
async fn every_host_has_keys_of_its_own() {
    let (shop, nodes) = (Shop::new(), nodes());
    let seven = |_: &Parts| Some("7".to_owned());
    let everybody = IdempotencyLayer::new(manager(&nodes), seven);
    let app = shop.open(everybody);
    let at_acme = "http://acme.example/orders/1";
    for (number, (uri, hosts)) in [
        ("/orders/1", &["acme.example"] as &[_]),
        ("/orders/1", &["umbrella.example"]),
        ("/orders/1", &["acme.example:8443"]),
        ("/orders/1", &[]),
        // Whoever goes by the one or by the other is told nothing of either.
        (at_acme, &["umbrella.example"]),
        ("/orders/1", &["acme.example", "umbrella.example"]),
    ]
    .into_iter()
    .enumerate()
    {
        let reply = send(&app, sent_to(uri, hosts)).await;
        assert_eq!(
            reply.body,
            format!("order {}: tea", number + 1),
            "{hosts:?}"
        );
        assert!(!reply.is_replayed(), "{uri} {hosts:?}");
        assert!(send(&app, sent_to(uri, hosts)).await.is_replayed());
    }
    for (uri, hosts) in [
        // HTTP/2 has no `Host`, and HTTP/1 no authority; what stands between may make one of the other, and keep both.
        (at_acme, &[] as &[_]),
        ("https://ACME.example:443/orders/1", &[]),
        (at_acme, &["acme.example"]),
        ("/orders/1", &["Acme.Example"]),
        ("/orders/1", &["acme.example:443"]),
        ("/orders/1", &["acme.example:80"]),
    ] {
        let reply = send(&app, sent_to(uri, hosts)).await;
        assert!(reply.is_replayed(), "{uri} {hosts:?}");
        assert_eq!(reply.body, "order 1: tea", "{uri} {hosts:?}");
    }
}

/// `localhost` and its address are two names of one server, which HTTP/1 and HTTP/2 tell by different means.
#[tokio::test]
async fn a_host_is_the_same_over_both_versions_of_http() {
    let (shop, nodes) = (Shop::new(), nodes());
    let app = shop.open(layer(&nodes));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move { axum::serve(listener, app).await });
    let clients = [false, true].map(|http2| {
        let mut builder = Client::builder(TokioExecutor::new());
        builder.http2_only(http2).build_http::<Body>()
    });
    for (number, host) in ["127.0.0.1", "localhost"].into_iter().enumerate() {
        for client in &clients {
            let request = sent_to(&format!("http://{host}:{port}/orders/1"), &[]);
            let answer = client.request(request).await.unwrap();
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(body, format!("order {}: tea", number + 1), "{host}");
        }
    }
    assert_eq!(shop.orders(), 2);
}
