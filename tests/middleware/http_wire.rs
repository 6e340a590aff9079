//! Real HTTP over real sockets, HTTP/1.1 and HTTP/2, and the time-outs people put around and inside the layer.

use std::sync::Arc;

use axum::Router;
use axum::error_handling::HandleErrorLayer;
use axum::routing::post;
use bytes::Bytes;
use http::{Extensions, Method, StatusCode};
use http_body_util::Empty;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tokio::sync::{Notify, Semaphore};
use tower::{BoxError, ServiceBuilder};
use tower_http::timeout::TimeoutLayer;
use tower_redlock::{Held, key};

use super::{KEY, MS, Nodes, SECOND, Scene, TTL, keyed, send, to};

pub(super) type Http = Client<HttpConnector, Empty<Bytes>>;

/// A client for HTTP/1.1, and one for HTTP/2 with prior knowledge.
pub(super) fn clients() -> [Http; 2] {
    [false, true].map(|http2| {
        let mut client = Client::builder(TokioExecutor::new());
        client.http2_only(http2).build_http()
    })
}

pub(super) async fn serve(app: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    format!("http://{address}")
}

/// Waits until no node holds a key, long before a ttl would see to that.
pub(super) async fn freed(nodes: &Nodes) {
    let free = async {
        while !nodes.keys().is_empty() {
            tokio::time::sleep(MS).await;
        }
    };
    let freed = tokio::time::timeout(TTL / 2, free).await;
    assert!(freed.is_ok(), "still held: {:?}", nodes.keys());
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
        let ask = async || send(&client, to(Method::POST, &format!("{url}/orders/1"))).await;
        let refused = async {
            entered.acquire().await.unwrap().forget();
            let second = ask().await;
            assert_eq!(second.told(), (409, "contended"));
            assert_eq!(second.header("retry-after"), Some("1"));
            assert!(second.is_problem());
            leave.notify_one();
        };
        let (first, ()) = tokio::join!(ask(), refused);
        assert_eq!(first.text, "order:1");
        // Its length stays known.
        assert!(!first.headers.contains_key("transfer-encoding"));
        assert_eq!(first.header("content-length"), Some("7"));
        nodes.assert_free();
    }
}

#[tokio::test]
async fn a_client_that_hangs_up_gives_the_lock_back() {
    for client in clients() {
        let scene = Scene::new();
        let entered = Arc::new(Notify::new());
        let handler = {
            let (scene, entered) = (scene.clone(), Arc::clone(&entered));
            async move |extensions: Extensions| {
                entered.notify_one();
                scene.clone().stuck(extensions).await
            }
        };
        let route = post(handler).route_layer(scene.layer());
        let url = serve(Router::new().route("/", route)).await;
        let request = tokio::spawn(client.request(to(Method::POST, &url)));
        entered.notified().await;
        assert_eq!(scene.nodes.holding(KEY), 5);
        request.abort();
        drop(client);
        freed(&scene.nodes).await;
        scene.assert_dropped_under_the_lock();
    }
}

#[tokio::test(start_paused = true)]
async fn time_outs_with_a_response_inside_around_and_right_around_the_layer() {
    let timeout = TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, SECOND);
    // `tower::timeout` makes errors, and axum wants them handled.
    let handled = ServiceBuilder::new()
        .layer(HandleErrorLayer::new(async |_: BoxError| {
            StatusCode::GATEWAY_TIMEOUT
        }))
        .timeout(SECOND);
    for (place, status) in [
        ("inside", 408),
        ("around", 408),
        ("right around", 408),
        ("handled", 504),
    ] {
        let scene = Scene::new();
        let route = post({
            let scene = scene.clone();
            async move |extensions: Extensions| scene.clone().stuck(extensions).await
        });
        let layer = scene.layer();
        let route = match place {
            "inside" => route.route_layer(timeout).route_layer(layer),
            "around" => route.route_layer(layer).route_layer(timeout),
            // In one builder there is no axum between the two to box the body: the time-out makes the layer's own.
            "right around" => route.route_layer((timeout, layer)),
            _ => route.layer(handled.clone().layer(layer)),
        };
        let answer = send(Router::new().route("/", route), super::post()).await;
        assert_eq!((answer.status, &*answer.text), (status, ""), "{place}");
        scene.assert_dropped_under_the_lock();
        scene.nodes.settle_free().await;
    }
}
