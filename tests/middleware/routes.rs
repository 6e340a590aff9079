//! The layer in axum's routers: what each placement locks, and that requests which no handler answers never touch
//! a node.

use std::convert::Infallible;

use axum::body::Body;
use axum::extract::Path;
use axum::routing::{MethodRouter, any, get, post};
use axum::{Extension, Router};
use http::{Method, Request, Response, StatusCode};
use tower::{Layer as _, Service, service_fn};
use tower_redlock::{Held, RedlockLayer, key};

use super::{Nodes, keyed, send, to};

/// Answers with the key that the request holds.
async fn pay(lock: Held) -> String {
    lock.key().to_string()
}

async fn perhaps(lock: Option<Held>) -> String {
    lock.map_or("free".to_owned(), |lock| lock.key().to_string())
}

/// The same as a service.
async fn serve(request: Request<Body>) -> Result<Response<String>, Infallible> {
    Ok(Response::new(
        perhaps(Held::of(request.extensions()).ok()).await,
    ))
}

fn by_id(nodes: &Nodes) -> RedlockLayer {
    keyed(&nodes.manager(), key::path("id").prefix("order"))
}

fn by_route(nodes: &Nodes) -> RedlockLayer {
    keyed(&nodes.manager(), key::matched_path())
}

const POST: Method = Method::POST;

/// A request, the status of its answer, and its text, or a part of that where it is refused.
type Case<'a> = (Method, &'a str, u16, &'a str);

/// These requests are locked, whoever answers them.
const LOCKED: bool = true;
/// What no handler answers, what is safe, and what is refused costs no node anything.
const UNTOUCHED: bool = false;

async fn check<S, B>(app: &S, nodes: &Nodes, is_locked: bool, cases: &[Case<'_>])
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible> + Clone,
    B: http_body::Body<Error: std::fmt::Debug>,
{
    for (method, uri, status, text) in cases {
        let before = nodes.commands();
        let answer = send(app.clone(), to(method.clone(), uri).map(Body::new)).await;
        assert_eq!(answer.status, *status, "{method} {uri}");
        let is_told = match *status {
            200 => answer.text == *text,
            _ => answer.text.contains(text),
        };
        assert!(is_told, "{method} {uri}: {}", answer.text);
        assert_eq!(nodes.commands() > before, is_locked, "{method} {uri}");
    }
    nodes.assert_free();
}

#[tokio::test(start_paused = true)]
async fn around_a_method_even_wrong_methods_touch_no_node() {
    let nodes = Nodes::five();
    let route = post(pay).route_layer(by_id(&nodes)).get(async || "seen");
    let app = Router::new().route("/orders/{id}/pay", route);
    let untouched = [
        (POST, "/nowhere", 404, ""),
        (Method::DELETE, "/orders/1/pay", 405, ""),
        (Method::PATCH, "/orders/1/pay", 405, ""),
        (Method::OPTIONS, "/orders/1/pay", 405, ""),
        (Method::HEAD, "/orders/1/pay", 200, ""),
        (Method::GET, "/orders/1/pay", 200, "seen"),
    ];
    check(&app, &nodes, UNTOUCHED, &untouched).await;
    assert_eq!(nodes.commands(), 0);
    let locked = [
        (POST, "/orders/1/pay", 200, "order:1"),
        (POST, "/orders/a%3Ab/pay", 200, "order:a%3Ab"),
    ];
    check(&app, &nodes, LOCKED, &locked).await;
}

#[tokio::test(start_paused = true)]
async fn around_matched_routes_the_methods_must_be_named() {
    let nodes = Nodes::five();
    let routes = || Router::new().route("/orders/{id}/pay", post(pay).get(async || "seen"));
    let app = routes().route_layer(by_id(&nodes).methods([POST]));
    let untouched = [
        (POST, "/nowhere", 404, ""),
        (Method::DELETE, "/orders/1/pay", 405, ""),
        (Method::OPTIONS, "/orders/1/pay", 405, ""),
        (Method::HEAD, "/orders/1/pay", 200, ""),
        (Method::GET, "/orders/1/pay", 200, "seen"),
    ];
    check(&app, &nodes, UNTOUCHED, &untouched).await;
    let locked = [(POST, "/orders/1/pay", 200, "order:1")];
    check(&app, &nodes, LOCKED, &locked).await;

    // Without that axum's own 405 is locked like any answer: this is the documented price.
    let app = routes().route_layer(by_id(&nodes));
    let locked = [(Method::DELETE, "/orders/1/pay", 405, "")];
    check(&app, &nodes, LOCKED, &locked).await;
}

#[tokio::test(start_paused = true)]
async fn around_a_whole_router_unmatched_paths_run_unlocked() {
    let nodes = Nodes::five();
    let fallback = async |held: Option<Held>| {
        assert!(held.is_none());
        (StatusCode::NOT_FOUND, "mine")
    };
    let app = Router::new()
        .route("/orders/{id}/pay", post(pay))
        .fallback(fallback);
    let layered = app.clone().layer(by_id(&nodes).methods([POST]));
    let untouched = [
        (POST, "/nowhere", 404, "mine"),
        (POST, "/", 404, "mine"),
        (Method::DELETE, "/orders/1/pay", 405, ""),
    ];
    check(&layered, &nodes, UNTOUCHED, &untouched).await;
    let locked = [(POST, "/orders/1/pay", 200, "order:1")];
    check(&layered, &nodes, LOCKED, &locked).await;

    let by_header = keyed(&nodes.manager(), key::header("x-id").when(key::routed));
    let refused = (POST, "/orders/1/pay", 400, "");
    let untouched = [(POST, "/nowhere", 404, "mine"), refused];
    check(&app.clone().layer(by_header), &nodes, UNTOUCHED, &untouched).await;

    let layered = app.layer(by_route(&nodes));
    check(
        &layered,
        &nodes,
        UNTOUCHED,
        &[(POST, "/nowhere", 404, "mine")],
    )
    .await;
    let locked = [(POST, "/orders/1/pay", 200, "/orders/%7Bid%7D/pay")];
    check(&layered, &nodes, LOCKED, &locked).await;
}

#[tokio::test(start_paused = true)]
async fn what_gives_no_key_is_refused_or_runs_unlocked_where_that_is_said() {
    let nodes = Nodes::five();
    let routes = Router::new().route("/health", post(async || "well"));
    let unknown = "the route that matched does not have the path parameter `id`";
    let app = routes.clone().layer(by_id(&nodes));
    let refused = ["problem:misconfigured", unknown].map(|text| (POST, "/health", 500, text));
    check(&app, &nodes, UNTOUCHED, &refused).await;
    let optional = keyed(&nodes.manager(), key::path("id").optional());
    let app = routes.layer(optional);
    check(&app, &nodes, UNTOUCHED, &[(POST, "/health", 200, "well")]).await;

    let app = Router::new().route("/orders/{id}", post(pay).route_layer(by_id(&nodes)));
    let long = format!("/orders/{}", "x".repeat(513));
    let no_text = "the lock key is malformed: a path parameter is not UTF-8";
    let refused = [
        (POST, "/orders/%FF", 400, no_text),
        (POST, &*long, 400, "bytes or more; at most 512 are allowed"),
    ];
    check(&app, &nodes, UNTOUCHED, &refused).await;
}

/// Through would look as if all was well.
#[tokio::test(start_paused = true)]
async fn around_the_router_as_a_service_is_refused() {
    let nodes = Nodes::five();
    let routes = Router::new().route("/orders/{id}/pay", post(async || "ran"));
    let text = concat!(
        "{\"type\":\"urn:tower-redlock:problem:misconfigured\",\"title\":\"Layer misconfigured\",",
        "\"status\":500,\"detail\":\"the lock key cannot be made: the path parameter `id` is not known here, ",
        "because no router ran before the lock layer; put the layer inside the router. This request was not processed.\",\"executed\":\"no\"}",
    );
    let app = by_id(&nodes).layer(routes.clone());
    check(
        &app,
        &nodes,
        UNTOUCHED,
        &[(POST, "/orders/1/pay", 500, text)],
    )
    .await;
    // Nor is it optional.
    let by_route = keyed(&nodes.manager(), key::matched_path().optional());
    let app = by_route.layer(routes);
    check(&app, &nodes, UNTOUCHED, &[(POST, "/orders/1/pay", 500, "")]).await;
}

#[tokio::test(start_paused = true)]
async fn nested_routers_and_services() {
    let nodes = Nodes::five();
    let whole = key::path("tenant").and(key::path("id"));
    let layer = keyed(&nodes.manager(), whole.and(key::matched_path()));
    let orders = |route: MethodRouter| Router::new().route("/orders/{id}", route);
    let nest = |orders| Router::new().nest("/t/{tenant}", orders);
    for app in [
        nest(orders(post(pay).route_layer(layer.clone()))),
        nest(orders(post(pay)).layer(layer.clone())),
        nest(orders(post(pay))).route_layer(layer.clone()),
    ] {
        let key = "acme:7:/t/%7Btenant%7D/orders/%7Bid%7D";
        let locked = [(POST, "/t/acme/orders/7", 200, key)];
        check(&app, &nodes, LOCKED, &locked).await;
        let untouched = [
            (POST, "/t/acme/nowhere", 404, ""),
            (Method::GET, "/t/acme/orders/7", 405, ""),
        ];
        check(&app, &nodes, UNTOUCHED, &untouched).await;
    }

    // A service that is nested has no matched path of its own, and the parameters are there all the same.
    let service = keyed(&nodes.manager(), key::path("tenant")).layer(service_fn(serve));
    let app = Router::new().nest_service("/t/{tenant}", service);
    check(&app, &nodes, LOCKED, &[(POST, "/t/acme/x", 200, "acme")]).await;
    let service = by_route(&nodes).layer(service_fn(serve));
    let app = Router::new().nest_service("/t", service);
    check(&app, &nodes, UNTOUCHED, &[(POST, "/t/1", 200, "free")]).await;
}

/// Nothing has matched below its path, and requests that run unlocked would hide that the name is misspelt.
#[tokio::test(start_paused = true)]
async fn a_nested_service_without_the_parameter_is_a_mistake_of_the_program_unless_optional() {
    let (nodes, locks) = Nodes::with_manager();
    let service = || service_fn(serve);
    let misspelt = || keyed(&locks, key::path("tenat"));
    let number = key::from_extractor::<Path<u64>>(|Path(id)| id.to_string());
    let inside = Router::new().nest_service("/t/{tenant}", misspelt().layer(service()));
    let deeper = Router::new().nest("/v/{version}", inside.clone());
    let around = Router::new()
        .nest_service("/t/{tenant}", service())
        .layer(misspelt());
    let of_two = Router::new().nest_service("/t/{a}/{b}", keyed(&locks, number).layer(service()));
    for (app, path) in [
        (inside, "/t/acme"),
        (deeper, "/v/1/t/acme"),
        (around, "/t/acme"),
        (of_two, "/t/acme/7"),
    ] {
        for path in [path, &format!("{path}/x")] {
            let refused = [(POST, path, 500, "problem:misconfigured")];
            check(&app, &nodes, UNTOUCHED, &refused).await;
        }
    }
    let optional = keyed(&locks, key::path("tenat").optional());
    let app = Router::new().nest_service("/t/{tenant}", optional.layer(service()));
    check(&app, &nodes, UNTOUCHED, &[(POST, "/t/acme/x", 200, "free")]).await;

    // A router's own 404 is told apart only by what has matched.
    let nested = |layer| {
        let inner = Router::new().route("/{id}", post(perhaps)).layer(layer);
        Router::new().nest_service("/t", inner)
    };
    let routed = nested(keyed(&locks, key::path("id").when(key::routed)));
    check(
        &routed,
        &nodes,
        UNTOUCHED,
        &[(POST, "/t/1/nowhere", 404, "")],
    )
    .await;
    check(&routed, &nodes, LOCKED, &[(POST, "/t/1", 200, "1")]).await;
    let app = nested(keyed(&locks, key::path("id")));
    check(&app, &nodes, UNTOUCHED, &[(POST, "/t/1/nowhere", 500, "")]).await;
}

/// It has the parameters of the outer path, so that only what has matched tells it from a route.
#[tokio::test(start_paused = true)]
async fn the_fallback_of_a_nested_router() {
    let nodes = Nodes::five();
    let inner = || {
        let fallback = async || StatusCode::NOT_FOUND;
        Router::new().route("/pay", post(pay)).fallback(fallback)
    };
    let nested = |inner: Router| Router::new().nest("/orders/{id}", inner);
    let layer = || by_id(&nodes);
    let routed = || {
        let order = key::path("id").prefix("order");
        keyed(&nodes.manager(), order.when(key::routed))
    };
    let nowhere = [(POST, "/orders/1/nowhere", 404, "")];
    for app in [
        nested(inner().route_layer(layer())),
        nested(inner()).route_layer(layer()),
        nested(inner().layer(routed())),
        nested(inner()).layer(routed()),
    ] {
        let locked = [(POST, "/orders/1/pay", 200, "order:1")];
        check(&app, &nodes, LOCKED, &locked).await;
        check(&app, &nodes, UNTOUCHED, &nowhere).await;
    }
    // Without the condition it is locked: this is the documented price.
    for app in [
        nested(inner().layer(layer())),
        nested(inner()).layer(layer()),
    ] {
        check(&app, &nodes, LOCKED, &nowhere).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_route_for_any_method() {
    let nodes = Nodes::five();
    let app = Router::new()
        .route("/orders/{id}", any(perhaps).layer(by_id(&nodes)))
        .route("/other", get(async || "other"));
    let locked = [(Method::DELETE, "/orders/1", 200, "order:1")];
    check(&app, &nodes, LOCKED, &locked).await;
    let untouched = [
        (Method::GET, "/orders/1", 200, "free"),
        (POST, "/other", 405, ""),
    ];
    check(&app, &nodes, UNTOUCHED, &untouched).await;
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
    let (nodes, locks) = Nodes::with_manager();
    let order = || key::from_extractor::<Path<u64>>(|Path(id)| id.to_string()).prefix("order");
    let posts = keyed(&locks, order().when(|parts| parts.method == POST));
    let route = post(pay).put(perhaps).route_layer(posts);
    let app = Router::new().route("/orders/{id}", route);
    let locked = [
        (POST, "/orders/7", 200, "order:7"),
        (POST, "/orders/007", 200, "order:7"),
    ];
    check(&app, &nodes, LOCKED, &locked).await;
    let untouched = [
        (POST, "/orders/seven", 400, "invalid-key"),
        (Method::PUT, "/orders/7", 200, "free"),
    ];
    check(&app, &nodes, UNTOUCHED, &untouched).await;
    // Outside of any router there are no parameters: a mistake of the program.
    let around = keyed(&locks, order()).layer(service_fn(serve));
    let refused = [(POST, "/orders/7", 500, "misconfigured")];
    check(&around, &nodes, UNTOUCHED, &refused).await;

    // No route is there that could have the parameter, as with `key::path`; a route with others is such a mistake, too.
    let app = Router::new()
        .route("/orders/{id}", post(pay))
        .route("/two/{a}/{b}", post(pay))
        .layer(keyed(&locks, order()));
    let wrong = "its extractor does not work at the place of the lock layer";
    let untouched = [(POST, "/nowhere", 404, ""), (POST, "/two/1/2", 500, wrong)];
    check(&app, &nodes, UNTOUCHED, &untouched).await;
    // And so is an extension that nobody added. A router ran.
    let tenant = key::from_extractor::<Extension<&'static str>>(|Extension(t)| t.to_owned());
    let app = Router::new()
        .route("/", post(pay))
        .layer(keyed(&locks, tenant));
    let refused = [(POST, "/", 500, wrong), (POST, "/nowhere", 500, wrong)];
    check(&app, &nodes, UNTOUCHED, &refused).await;
    let app = app.layer(Extension("acme"));
    check(&app, &nodes, LOCKED, &[(POST, "/", 200, "acme")]).await;
}
