//! What is told of layers and handlers that do not fit together: a mistake of the program, with its route, once.

use std::convert::Infallible;

use axum::Router;
use axum::body::Body;
use axum::routing::post;
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use tower::{Layer as _, Service, ServiceExt as _, service_fn};
use tower_redlock::error::KeyError;
use tower_redlock::key::LockKeys;
use tower_redlock::layer::{KeyExtractor, OnNoQuorum};
use tower_redlock::{Held, RedlockLayer, key};

use super::{connected, five, listen};

const TOLD: &str = "requests are answered 500 because of a mistake in the program";

async fn send<S, B>(app: &S, path: &str) -> StatusCode
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible> + Clone,
{
    let request = Request::post(path).body(Body::empty()).unwrap();
    app.clone().oneshot(request).await.unwrap().status()
}

struct Both;

impl KeyExtractor for Both {
    async fn extract(&self, _: &mut Parts) -> Result<Option<LockKeys>, KeyError> {
        LockKeys::new(["a", "b"]).map(Some)
    }
}

// The routes are those of one test each: a mistake is told once in a process.

#[tokio::test(start_paused = true)]
async fn each_mistake_is_told_once_for_its_route_and_without_the_clients_path() {
    let (_nodes, builder) = five();
    let locks = builder.connect().await.unwrap();
    let misspelt = RedlockLayer::new(locks.clone(), key::path("ordre_id").parse::<u64>());
    let pay = || post(async || "paid").route_layer(misspelt.clone());
    let nested = RedlockLayer::new(locks.clone(), key::path("tenat"));
    let nested = nested.layer(service_fn(async |_: Request<Body>| {
        Ok::<_, Infallible>(Response::new("ran".to_owned()))
    }));
    let strict = || post(async |_: Held| "paid");
    let optional = RedlockLayer::new(locks.clone(), key::header("x-id").optional());
    let several = RedlockLayer::new(locks, Both).shared_for([Method::POST]);
    let app: Router = Router::new()
        .route("/misspelt/{order_id}/pay", pay())
        .route("/misspelt/{order_id}/refund", pay())
        .nest_service("/nested/{tenant}", nested)
        .route("/unlocked/{id}", strict())
        .route("/perhaps/{id}", post(async |_: Option<Held>| "paid"))
        .route(
            "/other/method",
            strict().layer(optional.clone().methods([Method::PUT])),
        )
        .route("/other/key", strict().layer(optional))
        .route("/several", strict().layer(several));
    for (route, why) in [
        (
            "/misspelt/{order_id}/pay",
            "does not have the path parameter `ordre_id`",
        ),
        ("/misspelt/{order_id}/refund", "`ordre_id`"),
        ("/nested/{tenant}", "path parameter `tenat`"),
        ("/unlocked/{id}", "there is no `RedlockLayer` around it"),
        ("/perhaps/{id}", "there is no `RedlockLayer` around it"),
        (
            "/other/method",
            "the handler needs a lock and its request runs without one: the layer does not lock requests of this \
             method; name it in `methods` or `shared_for`, or take `Option<Held>`",
        ),
        (
            "/other/key",
            "the handler needs a lock and its request runs without one: the layer found no lock key in the request; \
             take `Option<Held>` where a key may be missing",
        ),
        ("/several", "shared locks have only one key"),
    ] {
        let (book, _listening) = listen();
        let is_name = |segment: &&str| !segment.starts_with('{');
        for value in ["secret", "7"] {
            let segments = route.split('/').map(|it| Some(it).filter(is_name));
            let path: Vec<_> = segments.map(|it| it.unwrap_or(value)).collect();
            assert_eq!(send(&app, &path.join("/")).await, 500, "{route}");
        }
        let route = format!("route=\"{route}\"");
        book.assert_line(TOLD, "ERROR", &[&route, why]);
        book.assert_without("secret");
    }
}

#[tokio::test(start_paused = true)]
async fn a_layer_outside_of_the_router_is_told_without_the_clients_path() {
    let (book, _listening, _nodes, locks) = connected().await;
    let layer = RedlockLayer::new(locks, key::path("outside_id"));
    let routes: Router = Router::new().route("/outside/{outside_id}", post(async || "paid"));
    let app = layer.layer(routes);
    for path in ["/outside/secret", "/outside/other"] {
        assert_eq!(send(&app, path).await, 500);
    }
    let parts = ["`outside_id`", "route=\"none: no router has matched one\""];
    book.assert_line(TOLD, "ERROR", &parts);
    book.assert_without("secret");
}

/// That the nodes fail is nobody's mistake, and neither is a handler that is prepared.
#[tokio::test(start_paused = true)]
async fn what_is_no_mistake_is_not_told_as_one() {
    let (book, _listening, nodes, locks) = connected().await;
    let layer = RedlockLayer::new(locks, key::header("x-id").optional());
    let app: Router = Router::new()
        .route("/prepared", post(async |_: Option<Held>| "paid"))
        .route("/strict", post(async |_: Held| "paid"))
        .layer(layer.on_no_quorum(OnNoQuorum::RunUnlocked));
    assert_eq!(send(&app, "/prepared").await, 200);
    for node in &nodes {
        node.go_down();
    }
    let request = Request::post("/strict").header("x-id", "7");
    let request = request.body(Body::empty()).unwrap();
    assert_eq!(app.oneshot(request).await.unwrap().status(), 503);
    book.assert_without(TOLD);
}

#[cfg(feature = "idempotency")]
#[tokio::test(start_paused = true)]
async fn a_handler_that_needs_an_idempotency_key_and_has_no_layer_is_told_once() {
    use tower_redlock::idempotency::Idempotent;
    let (book, _listening) = listen();
    let app: Router = Router::new().route("/once/{id}", post(async |_: Idempotent| "paid"));
    for _ in 0..2 {
        let request = Request::post("/once/7").body(Body::empty()).unwrap();
        let response = app.clone().oneshot(request).await.unwrap();
        let kind = &response.headers()[http::header::CONTENT_TYPE];
        assert_eq!(
            (response.status().as_u16(), kind.as_bytes()),
            (500, &b"application/problem+json"[..])
        );
    }
    let parts = [
        "route=\"/once/{id}\"",
        "put an `IdempotencyLayer` around its route",
    ];
    book.assert_line(TOLD, "ERROR", &parts);
}
