//! Requests and answers of every size: what is read, kept, and passed on.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::routing::post;
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body::{Body as HttpBody, Frame};
use http_body_util::{BodyExt as _, Full};
use tower::ServiceExt as _;

use super::{layer, nodes, request, send};

fn upload(len: usize) -> Request<Body> {
    let request = Request::post("/orders/1").header("idempotency-key", "a");
    request.body(Body::from(vec![b'x'; len])).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_request_body_is_read_up_to_a_limit_and_handed_on_unchanged() {
    let nodes = nodes();
    let size = post(|body: Bytes| async move { body.len().to_string() });
    let app = Router::new()
        .route("/orders/{shop}", size)
        .layer(layer(&nodes).max_request_body(1_000));
    assert_eq!(
        send(&app, upload(1_001)).await.problem(),
        (413, "body-too-large".into())
    );
    assert_eq!(send(&app, upload(1_000)).await.body, "1000");
    assert!(send(&app, upload(1_000)).await.is_replayed());
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_too_large_reaches_its_client_and_is_never_made_again() {
    let nodes = nodes();
    let runs = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    let large = {
        let runs = runs.clone();
        post(move || async move {
            runs.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            "y".repeat(5_000)
        })
    };
    let app = Router::new()
        .route("/orders/{shop}", large)
        .layer(layer(&nodes).max_response_body(4_999));
    let first = send(&app, request("a", "")).await;
    assert_eq!((first.status.as_u16(), first.body.len()), (200, 5_000));
    let again = send(&app, request("a", "")).await;
    assert_eq!(again.problem(), (409, "not-replayable".into()));
    assert_eq!(again.header("retry-after"), None);
    assert_eq!(runs.load(std::sync::atomic::Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn events_reach_their_client_as_they_come() {
    let nodes = nodes();
    let events = post(|| async {
        http::Response::builder()
            .header("content-type", "text/event-stream; charset=utf-8")
            .body(Body::new(Ticks))
            .unwrap()
    });
    let app = Router::new()
        .route("/orders/{shop}", events)
        .layer(layer(&nodes));
    let response = tower::ServiceExt::oneshot(app.clone(), request("a", ""))
        .await
        .unwrap();
    assert_eq!(response.status().as_u16(), 200);
    let mut body = response.into_body();
    let frame = http_body_util::BodyExt::frame(&mut body)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(frame.into_data().unwrap(), "data: tick\n\n");
    assert_eq!(
        send(&app, request("a", "")).await.problem(),
        (409, "not-replayable".into())
    );
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_breaks_off_is_not_made_again() {
    let nodes = nodes();
    let broken = post(|| async { Body::new(Broken(0)) });
    let app = Router::new()
        .route("/orders/{shop}", broken)
        .layer(layer(&nodes));
    let response = tower::ServiceExt::oneshot(app.clone(), request("a", ""))
        .await
        .unwrap();
    let error = http_body_util::BodyExt::collect(response.into_body())
        .await
        .unwrap_err();
    assert!(error.to_string().contains("cut"), "{error}");
    assert_eq!(
        send(&app, request("a", "")).await.problem(),
        (409, "not-replayable".into())
    );
}

/// A repeat has a connection of its own, with which nothing was agreed.
#[tokio::test(start_paused = true)]
async fn an_answer_that_hands_the_connection_over_is_given_once() {
    let nodes = nodes();
    let switch = post(|| async { (StatusCode::SWITCHING_PROTOCOLS, [("upgrade", "chat")]) });
    let open = axum::routing::connect(|| async { StatusCode::OK });
    let app = Router::new()
        .route("/orders/{shop}", switch)
        .route("/tunnels/{host}", open)
        .layer(layer(&nodes));
    let connect = || {
        let request = Request::connect("/tunnels/here").header("idempotency-key", "a");
        request.body(Body::empty()).unwrap()
    };
    assert_eq!(send(&app, request("a", "")).await.status.as_u16(), 101);
    assert_eq!(send(&app, connect()).await.status.as_u16(), 200);
    let again = [
        send(&app, request("a", "")).await,
        send(&app, connect()).await,
    ];
    for again in again {
        assert_eq!(again.problem(), (409, "not-replayable".into()));
    }
}

#[tokio::test(start_paused = true)]
async fn of_trailers_is_kept_what_is_kept_of_headers() {
    let nodes = nodes();
    let summed = post(|| async {
        let trailers = [("x-sum", "7"), ("set-cookie", "session=1")];
        let trailers =
            trailers.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        let trailers = std::future::ready(Some(Ok(HeaderMap::from_iter(trailers))));
        Body::new(Full::new(Bytes::from("42")).with_trailers(trailers))
    });
    let app = Router::new()
        .route("/orders/{shop}", summed)
        .layer(layer(&nodes));
    for (run, cookie) in [("first", true), ("repeat", false)] {
        let response = app.clone().oneshot(request("a", "")).await.unwrap();
        let announced = response.headers().get("trailer").cloned();
        assert_eq!(announced.is_some_and(|names| names == "x-sum"), !cookie);
        let body = response.into_body();
        assert_eq!(
            body.size_hint().exact(),
            None,
            "{run}: HTTP/1.1 leaves trailers off behind a length"
        );
        let whole = body.collect().await.unwrap();
        let trailers = whole.trailers().unwrap();
        assert_eq!(trailers["x-sum"], "7", "{run}");
        assert_eq!(trailers.contains_key("set-cookie"), cookie, "{run}");
        assert_eq!(whole.to_bytes(), "42", "{run}");
    }
}

/// A chunk, and then an error.
struct Broken(u8);

impl HttpBody for Broken {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        self.0 += 1;
        Poll::Ready(match self.0 {
            1 => Some(Ok(Frame::data(Bytes::from("some")))),
            2 => Some(Err(std::io::Error::other("cut"))),
            _ => None,
        })
    }
}

/// A body without an end.
struct Ticks;

impl HttpBody for Ticks {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(Some(Ok(Frame::data(Bytes::from("data: tick\n\n")))))
    }
}
