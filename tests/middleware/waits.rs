//! How long a request waits: what the layer says, what the client asks for, and what the manager allows.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request};
use http_body_util::Empty;
use tokio::time::Instant;
use tower::{Layer as _, service_fn};
use tower_redlock::{RedlockLayer, key};

use super::{KEY, Nodes, SECOND, keyed, layer, ok, post, send, to, with};

/// What becomes of `request`, and after how long.
async fn sent(layer: RedlockLayer, request: Request<Empty<Bytes>>) -> (String, Duration) {
    let inner = service_fn(async |_: Request<Empty<Bytes>>| Ok::<_, Infallible>(ok("ran")));
    let began = Instant::now();
    let answer = send(layer.layer(inner), request).await;
    (answer.said().to_owned(), began.elapsed())
}

fn asking(seconds: &str) -> Request<Empty<Bytes>> {
    with(post(), "x-wait", seconds)
}

fn asked(parts: &Parts) -> Option<Duration> {
    let seconds = parts.headers.get("x-wait")?.to_str().ok()?;
    seconds.parse().ok().map(Duration::from_secs)
}

fn outcome(kind: &str, waited: Duration) -> (String, Duration) {
    (kind.to_owned(), waited)
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_as_long_as_its_client_asks_and_the_manager_allows() {
    let nodes = Nodes::five();
    let locks = nodes.builder().max_wait(5 * SECOND).connect_lazy().unwrap();
    let _held = locks.try_acquire(KEY).await.unwrap();
    let layer = || layer(&locks).max_wait(SECOND).max_wait_with(asked);
    for (request, kind, waited) in [
        (asking("2"), "wait-timeout", 2),
        (asking("0"), "contended", 0),
        // As the layer says.
        (asking("soon"), "wait-timeout", 1),
        (post(), "wait-timeout", 1),
        // As the manager allows.
        (asking("6"), "wait-timeout", 5),
        (asking("18446744073709551615"), "wait-timeout", 5),
    ] {
        let asked = request.headers().get("x-wait").cloned();
        let got = sent(layer(), request).await;
        assert_eq!(got, outcome(kind, waited * SECOND), "{asked:?}");
    }
}

/// A bound that is applied in silence would be overlooked. What clients may ask for is bounded all the same.
#[tokio::test(start_paused = true)]
async fn a_layer_waits_as_long_as_it_was_told_and_what_clients_ask_for_is_bounded() {
    let nodes = Nodes::five();
    let by_default = nodes.manager();
    assert_eq!(by_default.max_wait(), 5 * SECOND);
    let holder = by_default.with_max_hold(3_600 * SECOND).unwrap();
    let _held = holder.try_acquire(KEY).await.unwrap();
    let waits = |most| nodes.builder().max_wait(most).connect_lazy().unwrap();
    for (locks, kind, bound) in [
        (by_default, "wait-timeout", 5),
        (waits(20 * SECOND), "wait-timeout", 20),
        (waits(Duration::ZERO), "contended", 0),
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
            let got = sent(layer, post()).await;
            assert_eq!(got, outcome(kind, waited * SECOND));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn it_is_asked_once_for_each_request_that_needs_a_lock() {
    let nodes = Nodes::five();
    let asked = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&asked);
    let by_id = keyed(&nodes.manager(), key::header("x-id").optional());
    let layer = by_id.max_wait_with(move |parts| {
        assert_eq!(parts.headers["x-id"], "7");
        count.fetch_add(1, Ordering::SeqCst);
        None
    });
    for (request, times) in [
        (to(Method::GET, "/"), 0),
        (post(), 0),
        (with(post(), "x-id", "7"), 1),
    ] {
        assert_eq!(sent(layer.clone(), request).await.0, "ran");
        assert_eq!(asked.load(Ordering::SeqCst), times);
    }
}
