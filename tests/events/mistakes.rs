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
use tower_redlock::layer::KeyExtractor;
use tower_redlock::{Held, RedlockLayer, key};

use super::{five, listen};

const TOLD: &str = "requests are answered 500 because of a mistake in the program";

async fn send<S, B>(app: &S, path: &str) -> StatusCode
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible> + Clone,
{
    let request = Request::post(path).body(Body::empty()).unwrap();
    app.clone().oneshot(request).await.unwrap().status()
}

// The routes are those of one test each: a mistake is told once in a process.

#[tokio::test(start_paused = true)]
async fn a_misspelt_path_parameter_is_told_once_for_each_route() {
    let (book, _listening) = listen();
    let (_nodes, builder) = five();
    let locks = builder.connect().await.unwrap();
    let layer = RedlockLayer::new(locks, key::path("ordre_id").parse::<u64>());
    let pay = || post(async || "paid").route_layer(layer.clone());
    let app = Router::new()
        .route("/misspelt/{order_id}/pay", pay())
        .route("/misspelt/{order_id}/refund", pay());
    for order in 0..3 {
        let path = format!("/misspelt/{order}/pay");
        assert_eq!(send(&app, &path).await, 500);
    }
    let line = book.line(TOLD);
    assert!(line.starts_with("ERROR"), "{line}");
    assert!(
        line.contains("route=\"/misspelt/{order_id}/pay\""),
        "{line}"
    );
    assert!(
        line.contains("does not have the path parameter `ordre_id`"),
        "{line}"
    );

    assert_eq!(send(&app, "/misspelt/1/refund").await, 500);
    let lines = book.lines();
    let told = lines.iter().filter(|line| line.contains(TOLD));
    assert_eq!(told.count(), 2, "each route has its own: {lines:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_misspelt_path_parameter_of_a_nested_service_is_told_once() {
    let (book, _listening) = listen();
    let (_nodes, builder) = five();
    let locks = builder.connect().await.unwrap();
    let service =
        RedlockLayer::new(locks, key::path("tenat")).layer(service_fn(async |_: Request<Body>| {
            Ok::<_, Infallible>(Response::new("ran".to_owned()))
        }));
    let app = Router::new().nest_service("/nested/{tenant}", service);
    for path in ["/nested/1/secret", "/nested/2/other"] {
        assert_eq!(send(&app, path).await, 500);
    }
    let line = book.line(TOLD);
    assert!(
        line.starts_with("ERROR") && line.contains("path parameter `tenat`"),
        "{line}"
    );
    assert!(line.contains("route=\"/nested/{tenant}\""), "{line}");
    assert!(!book.lines().concat().contains("secret"));
}

#[tokio::test(start_paused = true)]
async fn a_layer_outside_of_the_router_is_told_without_the_clients_path() {
    let (book, _listening) = listen();
    let (_nodes, builder) = five();
    let locks = builder.connect().await.unwrap();
    let layer = RedlockLayer::new(locks, key::path("outside_id"));
    let routes: Router = Router::new().route("/outside/{outside_id}", post(async || "paid"));
    let app = layer.layer(routes);
    for path in ["/outside/secret", "/outside/other"] {
        assert_eq!(send(&app, path).await, 500);
    }
    let line = book.line(TOLD);
    assert!(
        line.starts_with("ERROR") && line.contains("`outside_id`"),
        "{line}"
    );
    assert!(
        line.contains("route=\"none: no router has matched one\""),
        "{line}"
    );
    assert!(!book.lines().concat().contains("secret"));
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_needs_a_lock_and_has_no_layer_is_told_once() {
    let (book, _listening) = listen();
    let app: Router = Router::new()
        .route("/unlocked/{id}", post(async |_: Held| "paid"))
        .route("/perhaps/{id}", post(async |_: Option<Held>| "paid"));
    for _ in 0..3 {
        assert_eq!(send(&app, "/unlocked/7").await, 500);
    }
    let line = book.line(TOLD);
    assert!(line.starts_with("ERROR"), "{line}");
    assert!(line.contains("route=\"/unlocked/{id}\""), "{line}");
    assert!(
        line.contains("there is no `RedlockLayer` around it"),
        "{line}"
    );
    assert_eq!(send(&app, "/perhaps/7").await, 500);
    assert!(book.lines().concat().contains("route=\"/perhaps/{id}\""));
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_needs_a_lock_is_told_why_its_request_has_none() {
    let (book, _listening) = listen();
    let (_nodes, builder) = five();
    let locks = builder.connect().await.unwrap();
    let layer = |locks| RedlockLayer::new(locks, key::header("x-id").optional());
    let strict = || post(async |_: Held| "paid");
    let app: Router = Router::new()
        .route(
            "/other/method",
            strict().layer(layer(locks.clone()).methods([Method::PUT])),
        )
        .route("/other/key", strict().layer(layer(locks)));
    for (path, why) in [
        (
            "/other/method",
            "the layer does not lock requests of this method; name it in `methods` or `shared_for`, or take `Option<Held>`",
        ),
        (
            "/other/key",
            "the layer found no lock key in the request; take `Option<Held>` where a key may be missing",
        ),
    ] {
        assert_eq!(send(&app, path).await, 500);
        let line = book.line(&format!("route=\"{path}\""));
        assert!(
            line.contains("the handler needs a lock and its request runs without one: "),
            "{line}"
        );
        assert!(line.contains(why), "{line}");
    }
}

/// That the nodes fail is nobody's mistake, and neither is a handler that is prepared.
#[tokio::test(start_paused = true)]
async fn what_is_no_mistake_is_not_told_as_one() {
    let (book, _listening) = listen();
    let (nodes, builder) = five();
    let locks = builder.connect().await.unwrap();
    let anyway = tower_redlock::layer::OnNoQuorum::RunUnlocked;
    let layer = RedlockLayer::new(locks, key::header("x-id").optional()).on_no_quorum(anyway);
    let app: Router = Router::new()
        .route("/prepared", post(async |_: Option<Held>| "paid"))
        .route("/strict", post(async |_: Held| "paid"))
        .layer(layer);
    assert_eq!(send(&app, "/prepared").await, 200);
    for node in &nodes {
        node.go_down();
    }
    let mut request = Request::post("/strict").body(Body::empty()).unwrap();
    request.headers_mut().insert("x-id", "7".parse().unwrap());
    assert_eq!(app.oneshot(request).await.unwrap().status(), 503);
    assert!(!book.lines().concat().contains(TOLD));
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
        let kind = response.headers().get(http::header::CONTENT_TYPE).unwrap();
        assert_eq!(
            (response.status().as_u16(), kind.as_bytes()),
            (500, &b"application/problem+json"[..])
        );
    }
    let line = book.line(TOLD);
    assert!(line.contains("route=\"/once/{id}\""), "{line}");
    assert!(
        line.contains("put an `IdempotencyLayer` around its route"),
        "{line}"
    );
}

struct Both;

impl KeyExtractor for Both {
    async fn extract(&self, _: &mut Parts) -> Result<Option<LockKeys>, KeyError> {
        LockKeys::new(["a", "b"]).map(Some)
    }
}

#[tokio::test(start_paused = true)]
async fn several_keys_for_readers_are_told() {
    let (book, _listening) = listen();
    let (_nodes, builder) = five();
    let locks = builder.connect().await.unwrap();
    let layer = RedlockLayer::new(locks, Both).shared_for([Method::POST]);
    let app = Router::new().route("/several", post(async || "read").route_layer(layer));
    assert_eq!(send(&app, "/several").await, 500);
    let line = book.line(TOLD);
    assert!(line.contains("shared locks have only one key"), "{line}");
}
