//! The layer in axum's routers: what each placement locks, and that requests which no handler answers never touch
//! a node.

use std::convert::Infallible;

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::routing::{MethodRouter, any, get, post};
use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use tower::{Layer as _, Service, ServiceExt as _, service_fn};
use tower_redlock::{Held, RedlockLayer, key};

use super::{Nodes, keyed};

/// Answers with the key that the request holds.
async fn pay(lock: Held) -> String {
    lock.key().to_string()
}

fn by_id(nodes: &Nodes) -> RedlockLayer {
    keyed(&nodes.manager(), key::path("id").prefix("order"))
}

async fn send<S, B>(app: &S, method: Method, uri: &str) -> (u16, String)
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible> + Clone,
    B: http_body::Body<Error: std::fmt::Debug>,
{
    let request = Request::builder().method(method).uri(uri);
    let response = app
        .clone()
        .oneshot(request.body(Body::empty()).unwrap())
        .await
        .unwrap();
    let status = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(bytes.to_vec()).unwrap())
}

fn locked(key: &str) -> (u16, String) {
    (200, key.to_owned())
}

/// What no handler answers, and what is safe, costs no node anything.
async fn assert_untouched(app: &Router, nodes: &Nodes, expected: &[(Method, &str, u16)]) {
    for (method, uri, status) in expected {
        let before = nodes.commands();
        let got = send(app, method.clone(), uri).await.0;
        assert_eq!(got, *status, "{method} {uri}");
        assert_eq!(nodes.commands(), before, "{method} {uri} touched a node");
    }
}

#[tokio::test(start_paused = true)]
async fn around_a_method_even_wrong_methods_touch_no_node() {
    let nodes = Nodes::five();
    let route = post(pay).route_layer(by_id(&nodes)).get(async || "seen");
    let app = Router::new().route("/orders/{id}/pay", route);
    assert_untouched(
        &app,
        &nodes,
        &[
            (Method::POST, "/nowhere", 404),
            (Method::DELETE, "/orders/1/pay", 405),
            (Method::PATCH, "/orders/1/pay", 405),
            (Method::OPTIONS, "/orders/1/pay", 405),
            (Method::HEAD, "/orders/1/pay", 200),
            (Method::GET, "/orders/1/pay", 200),
        ],
    )
    .await;
    assert_eq!(nodes.commands(), 0);
    assert_eq!(
        send(&app, Method::POST, "/orders/1/pay").await,
        locked("order:1")
    );
    assert_eq!(
        send(&app, Method::POST, "/orders/a%3Ab/pay").await,
        locked("order:a%3Ab")
    );
    nodes.assert_free();
}

#[tokio::test(start_paused = true)]
async fn around_matched_routes_the_methods_must_be_named() {
    let nodes = Nodes::five();
    let routes = || Router::new().route("/orders/{id}/pay", post(pay).get(async || "seen"));
    let app = routes().route_layer(by_id(&nodes).methods([Method::POST]));
    let untouched = [
        (Method::POST, "/nowhere", 404),
        (Method::DELETE, "/orders/1/pay", 405),
        (Method::OPTIONS, "/orders/1/pay", 405),
        (Method::HEAD, "/orders/1/pay", 200),
        (Method::GET, "/orders/1/pay", 200),
    ];
    assert_untouched(&app, &nodes, &untouched).await;
    assert_eq!(
        send(&app, Method::POST, "/orders/1/pay").await,
        locked("order:1")
    );

    // Without that axum's own 405 is locked like any answer: this is the documented price.
    let app = routes().route_layer(by_id(&nodes));
    let before = nodes.commands();
    assert_eq!(send(&app, Method::DELETE, "/orders/1/pay").await.0, 405);
    assert!(nodes.commands() > before);
    nodes.assert_free();
}

#[tokio::test(start_paused = true)]
async fn around_a_whole_router_unmatched_paths_run_unlocked() {
    let nodes = Nodes::five();
    let app =
        Router::new()
            .route("/orders/{id}/pay", post(pay))
            .fallback(async |held: Option<Held>| {
                assert!(held.is_none());
                (http::StatusCode::NOT_FOUND, "mine")
            });
    let layered = app.clone().layer(by_id(&nodes).methods([Method::POST]));
    let untouched = [
        (Method::POST, "/nowhere", 404),
        (Method::POST, "/", 404),
        (Method::DELETE, "/orders/1/pay", 405),
    ];
    assert_untouched(&layered, &nodes, &untouched).await;
    assert_eq!(
        send(&layered, Method::POST, "/orders/1/pay").await,
        locked("order:1")
    );

    let by_header = keyed(&nodes.manager(), key::header("x-id").when(key::routed));
    let layered = app.clone().layer(by_header);
    assert_untouched(&layered, &nodes, &[(Method::POST, "/nowhere", 404)]).await;
    assert_eq!(send(&layered, Method::POST, "/orders/1/pay").await.0, 400);

    let by_route = keyed(&nodes.manager(), key::matched_path());
    let layered = app.layer(by_route);
    assert_untouched(&layered, &nodes, &[(Method::POST, "/nowhere", 404)]).await;
    let route = "/orders/%7Bid%7D/pay";
    assert_eq!(
        send(&layered, Method::POST, "/orders/1/pay").await,
        locked(route)
    );
}

#[tokio::test(start_paused = true)]
async fn a_route_without_the_parameter_is_a_mistake_of_the_program_unless_optional() {
    let nodes = Nodes::five();
    let routes = Router::new().route("/health", post(async || "well"));
    let app = routes.clone().layer(by_id(&nodes));
    let (status, text) = send(&app, Method::POST, "/health").await;
    assert_eq!(status, 500);
    assert!(
        text.contains("urn:tower-redlock:problem:misconfigured")
            && text.contains("the route that matched does not have the path parameter `id`"),
        "{text}"
    );
    let optional = keyed(&nodes.manager(), key::path("id").optional());
    let app = routes.layer(optional);
    assert_eq!(
        send(&app, Method::POST, "/health").await,
        (200, "well".to_owned())
    );
    assert_eq!(nodes.commands(), 0);
}

#[tokio::test(start_paused = true)]
async fn bad_path_parameters() {
    let nodes = Nodes::five();
    let app = Router::new().route("/orders/{id}", post(pay).route_layer(by_id(&nodes)));
    let (status, text) = send(&app, Method::POST, "/orders/%FF").await;
    assert_eq!(status, 400);
    assert!(
        text.contains("the lock key is malformed: a path parameter is not UTF-8"),
        "{text}"
    );
    let (status, text) = send(&app, Method::POST, &format!("/orders/{}", "x".repeat(513))).await;
    assert_eq!(status, 400);
    assert!(
        text.contains("bytes or more; at most 512 are allowed"),
        "{text}"
    );
    assert_eq!(nodes.commands(), 0);
}

/// Through would look as if all was well.
#[tokio::test(start_paused = true)]
async fn around_the_router_as_a_service_is_refused() {
    let nodes = Nodes::five();
    let routes = Router::new().route("/orders/{id}/pay", post(async || "ran"));
    let app = by_id(&nodes).layer(routes.clone());
    let (status, text) = send(&app, Method::POST, "/orders/1/pay").await;
    assert_eq!(status, 500);
    assert_eq!(
        text,
        concat!(
            "{\"type\":\"urn:tower-redlock:problem:misconfigured\",\"title\":\"Layer misconfigured\",",
            "\"status\":500,\"detail\":\"the lock key cannot be made: the path parameter `id` is not known here, ",
            "because no router ran before the lock layer; put the layer inside the router. This request was not processed.\",\"executed\":\"no\"}",
        )
    );
    let by_route = keyed(&nodes.manager(), key::matched_path().optional());
    let app = by_route.layer(routes);
    assert_eq!(
        send(&app, Method::POST, "/orders/1/pay").await.0,
        500,
        "nor is it optional"
    );
    assert_eq!(nodes.commands(), 0);
}

#[tokio::test(start_paused = true)]
async fn nested_routers() {
    let nodes = Nodes::five();
    let whole = key::path("tenant")
        .and(key::path("id"))
        .and(key::matched_path());
    let layer = keyed(&nodes.manager(), whole);
    let orders = |route: MethodRouter| Router::new().route("/orders/{id}", route);
    let expected = locked("acme:7:/t/%7Btenant%7D/orders/%7Bid%7D");

    let inside = orders(post(pay).route_layer(layer.clone()));
    let around = orders(post(pay)).layer(layer.clone());
    let outer = orders(post(pay));
    for app in [
        Router::new().nest("/t/{tenant}", inside),
        Router::new().nest("/t/{tenant}", around),
        Router::new()
            .nest("/t/{tenant}", outer)
            .route_layer(layer.clone()),
    ] {
        assert_eq!(send(&app, Method::POST, "/t/acme/orders/7").await, expected);
        let untouched = [
            (Method::POST, "/t/acme/nowhere", 404),
            (Method::GET, "/t/acme/orders/7", 405),
        ];
        assert_untouched(&app, &nodes, &untouched).await;
    }

    // A service that is nested has no matched path of its own, and the parameters are there all the same.
    let service = keyed(&nodes.manager(), key::path("tenant")).layer(service_fn(
        async |request: Request<Body>| {
            let lock = Held::of(request.extensions()).unwrap();
            Ok::<_, Infallible>(Response::new(lock.key().to_string()))
        },
    ));
    let app = Router::new().nest_service("/t/{tenant}", service);
    assert_eq!(send(&app, Method::POST, "/t/acme/x").await, locked("acme"));
}

/// Nothing has matched below its path, and requests that run unlocked would hide that the name is misspelt.
#[tokio::test(start_paused = true)]
async fn a_nested_service_without_the_parameter_is_a_mistake_of_the_program_unless_optional() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    let service = || {
        service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new("ran".to_owned())))
    };
    let misspelt = || keyed(&locks, key::path("tenat"));
    let number = key::from_extractor::<Path<u64>>(|Path(id)| id.to_string());
    let inside = Router::new().nest_service("/t/{tenant}", misspelt().layer(service()));
    let deeper = Router::new().nest("/v/{version}", inside.clone());
    let around = Router::new()
        .nest_service("/t/{tenant}", service())
        .layer(misspelt());
    let of_two = Router::new().nest_service("/t/{a}/{b}", keyed(&locks, number).layer(service()));
    for (app, path) in [
        (inside, "/t/acme/x"),
        (deeper, "/v/1/t/acme/x"),
        (around, "/t/acme/x"),
        (of_two, "/t/acme/7/x"),
    ] {
        for path in [path, path.strip_suffix("/x").unwrap()] {
            let (status, text) = send(&app, Method::POST, path).await;
            assert_eq!(status, 500, "{path}: {text}");
            assert!(text.contains("problem:misconfigured"), "{path}: {text}");
        }
    }
    let optional = keyed(&locks, key::path("tenat").optional());
    let app = Router::new().nest_service("/t/{tenant}", optional.layer(service()));
    let ran = (200, "ran".to_owned());
    assert_eq!(send(&app, Method::POST, "/t/acme/x").await, ran);

    // A router's own 404 is told apart only by what has matched.
    let inner = || Router::new().route("/{id}", post(async || "ran"));
    let nested = |inner: Router| Router::new().nest_service("/t", inner);
    let routed = keyed(&locks, key::path("id").when(key::routed));
    let app = nested(inner().layer(routed));
    assert_untouched(&app, &nodes, &[(Method::POST, "/t/1/nowhere", 404)]).await;
    assert_eq!(send(&app, Method::POST, "/t/1").await, ran);
    let before = nodes.commands();
    let app = nested(inner().layer(keyed(&locks, key::path("id"))));
    assert_eq!(send(&app, Method::POST, "/t/1/nowhere").await.0, 500);
    assert_eq!(nodes.commands(), before);
    nodes.assert_free();
}

/// It has the parameters of the outer path, so that only what has matched tells it from a route.
#[tokio::test(start_paused = true)]
async fn the_fallback_of_a_nested_router() {
    let nodes = Nodes::five();
    let inner = Router::new()
        .route("/pay", post(pay))
        .fallback(async || http::StatusCode::NOT_FOUND);
    let nested = |inner: Router| Router::new().nest("/orders/{id}", inner);
    let layer = || keyed(&nodes.manager(), key::path("id").prefix("order"));
    let routed = || {
        keyed(
            &nodes.manager(),
            key::path("id").prefix("order").when(key::routed),
        )
    };
    for app in [
        nested(inner.clone().route_layer(layer())),
        nested(inner.clone()).route_layer(layer()),
        nested(inner.clone().layer(routed())),
        nested(inner.clone()).layer(routed()),
    ] {
        let expected = locked("order:1");
        assert_eq!(send(&app, Method::POST, "/orders/1/pay").await, expected);
        assert_untouched(&app, &nodes, &[(Method::POST, "/orders/1/nowhere", 404)]).await;
    }

    // Without the condition it is locked: this is the documented price.
    for app in [
        nested(inner.clone().layer(layer())),
        nested(inner).layer(layer()),
    ] {
        let before = nodes.commands();
        assert_eq!(send(&app, Method::POST, "/orders/1/nowhere").await.0, 404);
        assert!(nodes.commands() > before);
    }
    nodes.assert_free();
}

/// Documented: nothing has matched below its path.
#[tokio::test(start_paused = true)]
async fn a_nested_service_has_no_matched_path() {
    let nodes = Nodes::five();
    let service = keyed(&nodes.manager(), key::matched_path()).layer(service_fn(
        async |request: Request<Body>| {
            let locked = Held::of(request.extensions());
            let text = if locked.is_ok() { "locked" } else { "free" };
            Ok::<_, Infallible>(Response::new(text.to_owned()))
        },
    ));
    let app = Router::new().nest_service("/t", service);
    assert_eq!(send(&app, Method::POST, "/t/1").await, locked("free"));
    assert_eq!(nodes.commands(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_route_for_any_method() {
    let nodes = Nodes::five();
    let app = Router::new()
        .route(
            "/orders/{id}",
            any(async |held: Option<Held>| held.map_or("free", |_| "locked")).layer(by_id(&nodes)),
        )
        .route("/other", get(async || "other"));
    assert_eq!(
        send(&app, Method::DELETE, "/orders/1").await,
        locked("locked")
    );
    assert_eq!(send(&app, Method::GET, "/orders/1").await, locked("free"));
    assert_untouched(&app, &nodes, &[(Method::POST, "/other", 405)]).await;
}

/// Documented: axum itself refuses it.
#[tokio::test]
#[should_panic(expected = "Adding a route_layer before any routes is a no-op")]
async fn a_route_for_any_method_takes_no_route_layer() {
    let nodes = Nodes::five();
    let _ = any::<_, _, ()>(async || "any").route_layer(by_id(&nodes));
}

#[tokio::test(start_paused = true)]
async fn a_key_is_made_of_what_an_extractor_finds() {
    use axum::extract::Path;
    let nodes = Nodes::five();
    let order = || key::from_extractor::<Path<u64>>(|Path(id)| id.to_string()).prefix("order");
    let layer = keyed(
        &nodes.manager(),
        order().when(|parts| parts.method == Method::POST),
    );
    let route = post(pay).put(async |lock: Option<Held>| lock.is_some().to_string());
    let app = Router::new().route("/orders/{id}", route.route_layer(layer));
    for spelling in ["7", "007"] {
        let uri = format!("/orders/{spelling}");
        assert_eq!(send(&app, Method::POST, &uri).await, locked("order:7"));
    }
    let (status, body) = send(&app, Method::POST, "/orders/seven").await;
    assert!(
        status == 400 && body.contains("invalid-key"),
        "{status} {body}"
    );
    assert_eq!(send(&app, Method::PUT, "/orders/7").await, locked("false"));
    // Outside of any router there are no parameters: a mistake of the program.
    let service =
        service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Body::empty())));
    let around = keyed(&nodes.manager(), order()).layer(service);
    let (status, body) = send(&around, Method::POST, "/orders/7").await;
    assert!(
        status == 500 && body.contains("misconfigured"),
        "{status} {body}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_extractor_that_fails_says_what_is_wrong() {
    use axum::Extension;
    use axum::extract::Path;
    let nodes = Nodes::five();
    let locks = nodes.manager();
    // No route is there that could have the parameter, as with `key::path`.
    let order = key::from_extractor::<Path<u64>>(|Path(id)| id.to_string()).prefix("order");
    let app = Router::new()
        .route("/orders/{id}", post(pay))
        .route("/two/{a}/{b}", post(pay))
        .layer(keyed(&locks, order));
    assert_untouched(&app, &nodes, &[(Method::POST, "/nowhere", 404)]).await;
    // A route with others is a mistake of the program, and so is an extension that nobody added. A router ran.
    let wrong = "its extractor does not work at the place of the lock layer";
    let (status, body) = send(&app, Method::POST, "/two/1/2").await;
    assert!(status == 500 && body.contains(wrong), "{status} {body}");
    let tenant = key::from_extractor::<Extension<&'static str>>(|Extension(t)| t.to_owned());
    let app = Router::new()
        .route("/", post(pay))
        .layer(keyed(&locks, tenant));
    for uri in ["/", "/nowhere"] {
        let (status, body) = send(&app, Method::POST, uri).await;
        assert!(status == 500 && body.contains(wrong), "{status} {body}");
    }
    let app = app.layer(Extension("acme"));
    assert_eq!(send(&app, Method::POST, "/").await, locked("acme"));
}
