//! Requests and answers of every size: what is read, kept, and passed on.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::routing::{connect, post};
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, Request, StatusCode};
use http_body::Body as _;
use http_body_util::{BodyExt as _, Full};
use tower::ServiceExt as _;

use super::{at, layer, nodes, request, send};

/// The first response, and then a repeat is told that it cannot have one.
async fn once(app: &Router, request: impl Fn() -> Request<Body>) -> Response {
    let first = app.clone().oneshot(request()).await.unwrap();
    let again = send(app, request()).await;
    again.assert_problem(409, "not-replayable");
    assert_eq!(again.header("retry-after"), None);
    first
}

fn plain() -> Request<Body> {
    request("a", "")
}

#[tokio::test(start_paused = true)]
async fn a_request_body_is_read_up_to_a_limit_and_handed_on_unchanged() {
    let size = post(async |body: Bytes| body.len().to_string());
    let app = at(size, layer(&nodes()).max_request_body(1_000));
    let upload = |len| plain().map(|_| Body::from("x".repeat(len)));
    let large = send(&app, upload(1_001)).await;
    large.assert_problem(413, "body-too-large");
    assert_eq!(send(&app, upload(1_000)).await.body, "1000");
    assert!(send(&app, upload(1_000)).await.is_replayed());
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_too_large_reaches_its_client_and_is_never_made_again() {
    let runs = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&runs);
    let large = post(async move || {
        count.fetch_add(1, Ordering::SeqCst);
        "y".repeat(5_000)
    });
    let app = at(large, layer(&nodes()).max_response_body(4_999));
    let first = once(&app, plain).await;
    assert_eq!(first.status(), 200);
    let whole = first.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(whole.len(), 5_000);
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

/// A body without an end.
#[tokio::test(start_paused = true)]
async fn events_reach_their_client_as_they_come() {
    let ticks = post(async || {
        let ticks = stream::repeat_with(|| Ok::<_, Infallible>("data: tick\n\n"));
        let kind = [("content-type", "text/event-stream; charset=utf-8")];
        (kind, Body::from_stream(ticks))
    });
    let first = once(&at(ticks, layer(&nodes())), plain).await;
    assert_eq!(first.status(), 200);
    let frame = first.into_body().frame().await.unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap(), "data: tick\n\n");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_breaks_off_is_not_made_again() {
    let broken = post(async || {
        let broken = [Ok("some"), Err(io::Error::other("cut"))];
        Body::from_stream(stream::iter(broken))
    });
    let first = once(&at(broken, layer(&nodes())), plain).await;
    let error = first.into_body().collect().await.unwrap_err();
    assert!(error.to_string().contains("cut"), "{error}");
}

/// A repeat has a connection of its own, with which nothing was agreed.
#[tokio::test(start_paused = true)]
async fn an_answer_that_hands_the_connection_over_is_given_once() {
    let switch = post(async || (StatusCode::SWITCHING_PROTOCOLS, [("upgrade", "chat")]));
    let app = at(switch, layer(&nodes()));
    assert_eq!(once(&app, plain).await.status(), 101);
    let app = at(connect(async || StatusCode::OK), layer(&nodes()));
    let connect = || {
        let request = Request::connect("/orders/here").header("idempotency-key", "a");
        request.body(Body::empty()).unwrap()
    };
    assert_eq!(once(&app, connect).await.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn of_trailers_is_kept_what_is_kept_of_headers() {
    let summed = post(async || {
        let trailers = [("x-sum", "7"), ("set-cookie", "session=1")];
        let trailers =
            trailers.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        let trailers = std::future::ready(Some(Ok(HeaderMap::from_iter(trailers))));
        Body::new(Full::new(Bytes::from("42")).with_trailers(trailers))
    });
    let app = at(summed, layer(&nodes()));
    for (run, cookie) in [("first", true), ("repeat", false)] {
        let response = app.clone().oneshot(plain()).await.unwrap();
        let announced = response.headers().get("trailer").cloned();
        assert_eq!(announced.is_some_and(|names| names == "x-sum"), !cookie);
        let body = response.into_body();
        let why = "HTTP/1.1 leaves trailers off behind a length";
        assert_eq!(body.size_hint().exact(), None, "{run}: {why}");
        let whole = body.collect().await.unwrap();
        let trailers = whole.trailers().unwrap();
        assert_eq!(trailers["x-sum"], "7", "{run}");
        assert_eq!(trailers.contains_key("set-cookie"), cookie, "{run}");
        assert_eq!(whole.to_bytes(), "42", "{run}");
    }
}
