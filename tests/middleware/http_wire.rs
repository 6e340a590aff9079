//! Real HTTP over real sockets, HTTP/1.1 and HTTP/2, and the time-outs people put around and inside the layer.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::error_handling::HandleErrorLayer;
use axum::routing::post;
use bytes::Bytes;
use http::{Extensions, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tokio::sync::{Notify, Semaphore};
use tower::{ServiceBuilder, ServiceExt as _, service_fn};
use tower_http::timeout::TimeoutLayer;
use tower_redlock::{Held, key};

use super::{KEY, Nodes, Seen, keyed, layer, ok};

pub(super) type Http = Client<HttpConnector, Empty<Bytes>>;

/// A client for HTTP/1.1, and one for HTTP/2 with prior knowledge.
pub(super) fn clients() -> [Http; 2] {
    let client = |http2| {
        Client::builder(TokioExecutor::new())
            .http2_only(http2)
            .build_http()
    };
    [client(false), client(true)]
}

pub(super) async fn serve(app: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    format!("http://{address}")
}

pub(super) fn to(method: Method, uri: &str) -> Request<Empty<Bytes>> {
    let request = Request::builder().method(method).uri(uri);
    request.body(Empty::new()).unwrap()
}

#[tokio::test]
async fn one_at_a_time_over_both_versions() {
    let nodes = Nodes::five();
    let (entered, leave) = (Arc::new(Semaphore::new(0)), Arc::new(Notify::new()));
    let handler = {
        let (entered, leave) = (Arc::clone(&entered), Arc::clone(&leave));
        async move |lock: Held| {
            entered.add_permits(1);
            leave.notified().await;
            lock.key().to_string()
        }
    };
    let layer = keyed(&nodes.manager(), key::path("id").prefix("order"));
    let app = Router::new().route("/orders/{id}", post(handler).route_layer(layer));
    let url = serve(app).await;

    for client in clients() {
        let uri = format!("{url}/orders/1");
        let first = tokio::spawn(client.request(to(Method::POST, &uri)));
        entered.acquire().await.unwrap().forget();
        let second = client.request(to(Method::POST, &uri)).await.unwrap();
        assert_eq!(second.status(), StatusCode::CONFLICT);
        assert_eq!(second.headers()["retry-after"], "1");
        assert_eq!(second.headers()["content-type"], "application/problem+json");
        let body = second.into_body().collect().await.unwrap().to_bytes();
        assert!(body.starts_with(br#"{"type":"urn:tower-redlock:problem:contended""#));
        leave.notify_one();
        let first = first.await.unwrap().unwrap();
        assert_eq!(
            first.into_body().collect().await.unwrap().to_bytes(),
            "order:1"
        );
        nodes.assert_free();

        let before = nodes.commands();
        for (method, path, status) in [
            (Method::POST, "/nowhere", 404),
            (Method::DELETE, "/orders/1", 405),
            (Method::OPTIONS, "/orders/1", 405),
            (Method::HEAD, "/orders/1", 405),
            (Method::GET, "/orders/1", 405),
        ] {
            let response = client
                .request(to(method, &format!("{url}{path}")))
                .await
                .unwrap();
            assert_eq!(response.status().as_u16(), status);
        }
        assert_eq!(nodes.commands(), before, "no node was asked");
    }
}

#[tokio::test]
async fn a_client_that_hangs_up_gives_the_lock_back() {
    for client in clients() {
        let (nodes, seen) = (Nodes::five(), Seen::default());
        let entered = Arc::new(Notify::new());
        let handler = {
            let (nodes, seen, entered) = (nodes.clone(), seen.clone(), Arc::clone(&entered));
            async move |extensions: Extensions| {
                seen.watch(&extensions);
                let _spy = seen.spy(&nodes);
                entered.notify_one();
                std::future::pending::<()>().await;
            }
        };
        let app = Router::new().route("/", post(handler).route_layer(layer(&nodes.manager())));
        let url = serve(app).await;
        let request = tokio::spawn({
            let client = client.clone();
            async move { client.request(to(Method::POST, &url)).await }
        });
        entered.notified().await;
        assert_eq!(nodes.holding(KEY), 5);
        request.abort();
        drop(client);
        let released = async {
            while !nodes.keys().is_empty() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        // Not one ttl, which is ten seconds.
        tokio::time::timeout(Duration::from_secs(5), released)
            .await
            .unwrap();
        seen.assert_dropped_under_the_lock();
    }
}

#[tokio::test]
async fn the_length_of_a_response_stays_known_on_the_wire() {
    for until_body in [false, true] {
        let nodes = Nodes::five();
        let layer = layer(&nodes.manager());
        let layer = match until_body {
            true => layer.hold_until_body(),
            false => layer,
        };
        let app = Router::new().route("/", post(async || "hello").route_layer(layer));
        let url = serve(app).await;
        let [http1, _] = clients();
        let response = http1.request(to(Method::POST, &url)).await.unwrap();
        assert_eq!(response.version(), http::Version::HTTP_11);
        assert_eq!(response.headers()["content-length"], "5");
        assert!(!response.headers().contains_key("transfer-encoding"));
        assert_eq!(
            response.into_body().collect().await.unwrap().to_bytes(),
            "hello"
        );
        nodes.settle_free().await;
    }
}

/// A handler that never ends, which notes when it is dropped.
async fn stuck(extensions: Extensions, seen: Seen, nodes: Nodes) -> &'static str {
    seen.watch(&extensions);
    let _spy = seen.spy(&nodes);
    std::future::pending::<()>().await;
    "never"
}

#[tokio::test(start_paused = true)]
async fn towers_timeout_inside_and_outside() {
    let (nodes, seen) = (Nodes::five(), Seen::default());
    let locks = nodes.manager();
    let inner = service_fn(|request: Request<Empty<Bytes>>| {
        let (seen, nodes) = (seen.clone(), nodes.clone());
        async move {
            let extensions = request.into_parts().0.extensions;
            Ok::<_, Infallible>(ok(stuck(extensions, seen, nodes).await))
        }
    });
    let second = Duration::from_secs(1);
    let inside = ServiceBuilder::new()
        .layer(layer(&locks))
        .timeout(second)
        .service(inner);
    let error = inside.oneshot(super::post()).await.unwrap_err();
    assert!(error.is::<tower::timeout::error::Elapsed>(), "{error}");
    seen.assert_dropped_under_the_lock();
    nodes.assert_free();

    seen.0.lock().unwrap().dropped = None;
    let outside = ServiceBuilder::new()
        .timeout(second)
        .layer(layer(&locks))
        .service(inner);
    let error = outside.oneshot(super::post()).await.unwrap_err();
    assert!(error.is::<tower::timeout::error::Elapsed>(), "{error}");
    seen.assert_dropped_under_the_lock();
    nodes.settle_free().await;
}

#[tokio::test(start_paused = true)]
async fn tower_https_timeout_inside_and_outside() {
    let timeout =
        TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, Duration::from_secs(1));
    for inside in [true, false] {
        let (nodes, seen) = (Nodes::five(), Seen::default());
        let layer = layer(&nodes.manager());
        let handler = {
            let (seen, nodes) = (seen.clone(), nodes.clone());
            async move |extensions: Extensions| stuck(extensions, seen, nodes).await
        };
        let route = if inside {
            post(handler).route_layer(timeout).route_layer(layer)
        } else {
            post(handler).route_layer(layer).route_layer(timeout)
        };
        let app = Router::new().route("/", route);
        let response = app
            .oneshot(to(Method::POST, "/").map(axum::body::Body::new))
            .await
            .unwrap();
        assert_eq!(response.status(), StatusCode::REQUEST_TIMEOUT);
        seen.assert_dropped_under_the_lock();
        nodes.settle_free().await;
    }
}

/// In one builder there is no axum between the two to box the body: the time-out makes the layer's own.
#[tokio::test(start_paused = true)]
async fn tower_https_timeout_right_around_the_layer() {
    let (nodes, seen) = (Nodes::five(), Seen::default());
    let timeout =
        TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, Duration::from_secs(1));
    let handler = {
        let (seen, nodes) = (seen.clone(), nodes.clone());
        async move |extensions: Extensions| stuck(extensions, seen, nodes).await
    };
    let around = ServiceBuilder::new()
        .layer(timeout)
        .layer(layer(&nodes.manager()));
    let app = Router::new().route("/", post(handler).route_layer(around));
    let response = app
        .oneshot(to(Method::POST, "/").map(axum::body::Body::new))
        .await
        .unwrap();
    assert_eq!(response.status(), StatusCode::REQUEST_TIMEOUT);
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "");
    seen.assert_dropped_under_the_lock();
    nodes.settle_free().await;
}

/// `tower::timeout` makes errors, and axum wants them handled: both around the layer.
#[tokio::test(start_paused = true)]
async fn a_handled_error_layer_around_the_layer() {
    let (nodes, seen) = (Nodes::five(), Seen::default());
    let handler = {
        let (seen, nodes) = (seen.clone(), nodes.clone());
        async move |extensions: Extensions| stuck(extensions, seen, nodes).await
    };
    let around = ServiceBuilder::new()
        .layer(HandleErrorLayer::new(async |_: tower::BoxError| {
            StatusCode::GATEWAY_TIMEOUT
        }))
        .timeout(Duration::from_secs(1))
        .layer(layer(&nodes.manager()));
    let app = Router::new().route("/", post(handler).layer(around));
    let response = app
        .oneshot(to(Method::POST, "/").map(axum::body::Body::new))
        .await
        .unwrap();
    assert_eq!(response.status(), StatusCode::GATEWAY_TIMEOUT);
    seen.assert_dropped_under_the_lock();
    nodes.settle_free().await;
}
