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

/// The order of one key, with these headers beside it.
fn order(uri: &str, headers: &[(&str, &str)]) -> Request<Body> {
    let mut request = Request::post(uri).header("idempotency-key", "a");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Body::from("tea")).unwrap()
}

/// Each of these has a key of its own: it runs once, and is then repeated.
async fn assert_apart<'a>(
    app: &Router,
    requests: impl IntoIterator<Item = (&'a str, Vec<(&'a str, &'a str)>)>,
) {
    for (number, (uri, headers)) in requests.into_iter().enumerate() {
        let first = send(app, order(uri, &headers)).await;
        let text = format!("order {}: tea", number + 1);
        assert_eq!(first.body, text, "{uri} {headers:?}");
        assert!(!first.is_replayed(), "{uri} {headers:?}");
        send(app, order(uri, &headers)).await.assert_replays(&text);
    }
}

#[tokio::test(start_paused = true)]
async fn a_tenant_never_sees_the_answer_of_another() {
    let by_tenant = IdempotencyLayer::new(manager(&nodes()), caller::header("x-tenant"));
    let app = Shop::new().open(by_tenant);
    let tenants = ["acme", "umbrella", "acme:umbrella"];
    let of = |tenant| ("/orders/1", vec![("x-tenant", tenant)]);
    assert_apart(&app, tenants.map(of)).await;
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_cannot_be_told_is_refused_before_anything_runs() {
    let (shop, nodes) = (Shop::new(), nodes());
    for source in [None, Some("")] {
        let source = move |_: &Parts| source.map(str::to_owned);
        let app = shop.open(IdempotencyLayer::new(manager(&nodes), source));
        let reply = send(&app, order("/orders/1", &[])).await;
        reply.assert_problem(403, "caller-unknown");
        assert_eq!(shop.orders(), 0);
    }
}

/// The prefix that a router takes off may say whose order it is.
#[tokio::test(start_paused = true)]
async fn what_a_nesting_router_takes_off_makes_another_request() {
    let nested = Shop::new().open(layer(&nodes()));
    let app = Router::new().nest("/tenants/{tenant}", nested);
    let of = |tenant: &str| order(&format!("/tenants/{tenant}/orders/1"), &[]);
    assert_eq!(send(&app, of("acme")).await.body, "order 1: tea");
    let umbrella = send(&app, of("umbrella")).await;
    umbrella.assert_problem(422, "idempotency-key-reused");
    assert!(send(&app, of("acme")).await.is_replayed());
}

/// There the layer finds no route, and the paths that it sees are alike.
#[tokio::test(start_paused = true)]
async fn nested_services_have_keys_of_their_own() {
    let shop = Shop::new();
    let take = service_fn(move |request: Request<LayerBody<Body>>| {
        let shop = shop.clone();
        async move {
            let body: Bytes = request.into_body().collect().await.unwrap().to_bytes();
            Ok::<_, Infallible>(shop.order(body).await)
        }
    });
    let service = layer(&nodes()).layer(take);
    let app = Router::new()
        .nest_service("/v1", service.clone())
        .nest_service("/tenants/{tenant}", service);
    let places = [
        "/v1/orders",
        "/tenants/acme/orders",
        "/tenants/umbrella/orders",
    ];
    assert_apart(&app, places.map(|place| (place, Vec::new()))).await;
}

/// Callers may have the same id with two tenants, and the tenant may be in the host alone.
#[tokio::test(start_paused = true)]
async fn every_host_has_keys_of_its_own() {
    let seven = |_: &Parts| Some("7".to_owned());
    let app = Shop::new().open(IdempotencyLayer::new(manager(&nodes()), seven));
    let at_acme = "http://acme.example/orders/1";
    let hosts = |hosts: &[&'static str]| hosts.iter().map(|host| ("host", *host)).collect();
    let others = [
        ("/orders/1", hosts(&["acme.example"])),
        ("/orders/1", hosts(&["umbrella.example"])),
        ("/orders/1", hosts(&["acme.example:8443"])),
        ("/orders/1", hosts(&[])),
        // Whoever goes by the one or by the other is told nothing of either.
        (at_acme, hosts(&["umbrella.example"])),
        ("/orders/1", hosts(&["acme.example", "umbrella.example"])),
    ];
    assert_apart(&app, others).await;
    for (uri, host) in [
        // HTTP/2 has no `Host`, and HTTP/1 no authority; what stands between may make one of the other, and keep both.
        (at_acme, None),
        ("https://ACME.example:443/orders/1", None),
        (at_acme, Some("acme.example")),
        ("/orders/1", Some("Acme.Example")),
        ("/orders/1", Some("acme.example:443")),
        ("/orders/1", Some("acme.example:80")),
    ] {
        let host: Vec<_> = host.into_iter().map(|host| ("host", host)).collect();
        send(&app, order(uri, &host))
            .await
            .assert_replays("order 1: tea");
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
    for (host, text) in [("127.0.0.1", "order 1: tea"), ("localhost", "order 2: tea")] {
        for client in &clients {
            let request = order(&format!("http://{host}:{port}/orders/1"), &[]);
            let answer = client.request(request).await.unwrap();
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(body, text, "{host}");
        }
    }
    assert_eq!(shop.orders(), 2);
}
