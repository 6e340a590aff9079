//! How long a request waits: what the layer says, what the client asks for, and what the manager allows.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, Request};
use http_body_util::Empty;
use tokio::time::Instant;
use tower::{ServiceBuilder, ServiceExt as _, service_fn};
use tower_redlock::{RedlockLayer, key};

use super::{KEY, MS, Nodes, keyed, layer, ok, post, request};

const SECOND: Duration = Duration::from_secs(1);

/// What becomes of `request`, and after how long.
async fn sent(layer: RedlockLayer, request: Request<Empty<Bytes>>) -> (String, Duration) {
    let inner = service_fn(async |_: Request<Empty<Bytes>>| Ok::<_, Infallible>(ok("ran")));
    let service = ServiceBuilder::new().layer(layer).service(inner);
    let began = Instant::now();
    let response = service.oneshot(request).await.unwrap();
    let took = began.elapsed();
    let text = super::text(response).await;
    let kind = text
        .split_once("problem:")
        .and_then(|(_, rest)| rest.split_once('"'));
    (kind.map_or(text.clone(), |(kind, _)| kind.to_owned()), took)
}

fn asking(seconds: &'static str) -> Request<Empty<Bytes>> {
    let mut request = post();
    let seconds = HeaderValue::from_static(seconds);
    request.headers_mut().insert("x-wait", seconds);
    request
}

fn asked(parts: &Parts) -> Option<Duration> {
    let seconds = parts.headers.get("x-wait")?.to_str().ok()?;
    seconds.parse().ok().map(Duration::from_secs)
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_as_long_as_its_client_asks_and_the_manager_allows() {
    let nodes = Nodes::five();
    let locks = nodes.builder().max_wait(5 * SECOND).connect_lazy().unwrap();
    let _held = locks.try_acquire(KEY).await.unwrap();
    let layer = || layer(&locks).max_wait(SECOND).max_wait_with(asked);
    for (value, kind, waited) in [
        ("2", "wait-timeout", 2),
        ("0", "contended", 0),
        // As the layer says.
        ("soon", "wait-timeout", 1),
        // As the manager allows.
        ("6", "wait-timeout", 5),
        ("18446744073709551615", "wait-timeout", 5),
    ] {
        let (got, took) = sent(layer(), asking(value)).await;
        assert_eq!((got.as_str(), took), (kind, waited * SECOND), "{value}");
    }
    let (got, took) = sent(layer(), post()).await;
    assert_eq!((got.as_str(), took), ("wait-timeout", SECOND), "no header");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_asks_for_enough_gets_its_turn() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    let held = locks.try_acquire(KEY).await.unwrap();
    let layer = || layer(&locks).max_wait_with(asked);
    let patient = tokio::spawn(sent(layer(), asking("2")));
    let hasty = tokio::spawn(sent(layer(), asking("1")));
    tokio::time::sleep(1_500 * MS).await;
    held.release().await.unwrap();
    assert_eq!(patient.await.unwrap(), ("ran".to_owned(), 1_500 * MS));
    assert_eq!(hasty.await.unwrap(), ("wait-timeout".to_owned(), SECOND));
    nodes.assert_free();
}

/// A bound that is applied in silence would be overlooked. What clients may ask for is bounded all the same.
#[tokio::test(start_paused = true)]
async fn a_layer_waits_as_long_as_it_was_told_and_what_clients_ask_for_is_bounded() {
    let nodes = Nodes::five();
    let by_default = nodes.manager();
    assert_eq!(by_default.max_wait(), 5 * SECOND);
    let holder = by_default.with_max_hold(3_600 * SECOND).unwrap();
    let _held = holder.try_acquire(KEY).await.unwrap();
    let told = nodes
        .builder()
        .max_wait(20 * SECOND)
        .connect_lazy()
        .unwrap();
    let none = nodes
        .builder()
        .max_wait(Duration::ZERO)
        .connect_lazy()
        .unwrap();
    for (locks, kind, bound) in [
        (by_default, "wait-timeout", 5),
        (told, "wait-timeout", 20),
        (none, "contended", 0),
    ] {
        let fixed = || layer(&locks).max_wait(30 * SECOND);
        let by_request = |layer: RedlockLayer| layer.max_wait_with(|_| Some(Duration::MAX));
        let shorter = layer(&locks).max_wait(SECOND);
        for (layer, kind, waited) in [
            (fixed(), "wait-timeout", 30),
            (by_request(layer(&locks)), kind, bound),
            // What the service says of all requests, clients may ask for.
            (by_request(fixed()), "wait-timeout", 30),
            (by_request(shorter), "wait-timeout", bound.max(1)),
        ] {
            let (got, took) = sent(layer, post()).await;
            assert_eq!((got.as_str(), took), (kind, waited * SECOND));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn it_is_asked_once_for_each_request_that_needs_a_lock() {
    let nodes = Nodes::five();
    let asked = Arc::new(AtomicU32::new(0));
    let layer = keyed(&nodes.manager(), key::header("x-id").optional()).max_wait_with({
        let asked = Arc::clone(&asked);
        move |parts| {
            assert_eq!(parts.headers["x-id"], "7");
            asked.fetch_add(1, Ordering::SeqCst);
            None
        }
    });
    let mut with_id = post();
    with_id
        .headers_mut()
        .insert("x-id", HeaderValue::from_static("7"));
    for (request, times) in [(request(Method::GET), 0), (post(), 0), (with_id, 1)] {
        assert_eq!(sent(layer.clone(), request).await.0, "ran");
        assert_eq!(asked.load(Ordering::SeqCst), times);
    }
}
