//! How many bytes of request bodies a layer holds at once.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use http::Request;
use tokio::time::timeout;
use tower_redlock::IdempotencyLayer;

use super::{Reply, Shop, layer, nodes, request, send};

const WAIT: Duration = Duration::from_secs(5);

/// Waits for each request, and holds ten bytes.
fn ten() -> IdempotencyLayer {
    layer(&nodes()).max_wait(WAIT).max_buffered(10)
}

/// In chunks, so that nobody announces its length.
fn chunked(key: &str, chunks: &[&'static str]) -> Request<Body> {
    let chunks: Vec<_> = chunks.iter().map(|chunk| Ok::<_, String>(*chunk)).collect();
    let body = Body::from_stream(stream::iter(chunks));
    let request = Request::post("/orders/1").header("idempotency-key", key);
    request.body(body).unwrap()
}

fn is_refused(reply: &Reply) -> bool {
    let full = (503, "buffers-full".to_owned());
    reply.status == 503 && reply.problem() == full && reply.header("retry-after") == Some("1")
}

#[tokio::test(start_paused = true)]
async fn requests_that_wait_hold_so_many_bytes_and_others_are_refused_at_once() {
    let shop = Shop::slow();
    let app = shop.open(ten());
    let sent = |request| {
        let app = app.clone();
        tokio::spawn(async move { send(&app, request).await })
    };
    // The handler has read it.
    let first = sent(request("a", "four"));
    tokio::time::sleep(WAIT / 100).await;
    assert_eq!(shop.orders(), 1);
    let mut waiting = vec![
        sent(request("a", "four")),
        sent(chunked("a", &["fo", "ur"])),
    ];
    tokio::time::sleep(WAIT / 100).await;
    for request in [
        request("b", "three"),
        chunked("b", &["t", "h", "r", "e", "e"]),
        request("a", "four"),
    ] {
        let begun = tokio::time::Instant::now();
        let reply = timeout(WAIT / 2, send(&app, request)).await.unwrap();
        assert!(is_refused(&reply), "{reply:?}");
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }
    // Two bytes are left, and the others did not keep any.
    waiting.push(sent(request("b", "to")));
    shop.let_go();
    shop.let_go();
    assert_eq!(first.await.unwrap().body, "order 1: four");
    for waiting in waiting {
        let reply = waiting.await.unwrap();
        assert_eq!(reply.status, 201, "{reply:?}");
    }
    // Whatever became of them, all of it is free again.
    shop.let_go();
    let whole = send(&app, request("c", "ten bytes.")).await;
    assert_eq!(whole.body, "order 3: ten bytes.");
}

#[tokio::test(start_paused = true)]
async fn what_never_fits_is_too_large_and_what_is_only_announced_takes_no_room() {
    let shop = Shop::new();
    let app = shop.open(ten());
    let eleven = send(&app, request("a", "eleven byte")).await;
    assert_eq!(eleven.problem(), (413, "body-too-large".into()));
    let eleven = send(&app, chunked("a", &["eleven", " byte"])).await;
    assert_eq!(eleven.problem(), (413, "body-too-large".into()));
    let slow = {
        let mut request = request("b", "");
        *request.body_mut() = Body::new(Announced);
        let app = app.clone();
        tokio::spawn(async move { send(&app, request).await })
    };
    tokio::time::sleep(WAIT).await;
    assert!(!slow.is_finished());
    let whole = send(&app, request("c", "ten bytes.")).await;
    assert_eq!(whole.body, "order 1: ten bytes.");
}

/// Ten bytes that never come.
struct Announced;

impl http_body::Body for Announced {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        std::task::Poll::Pending
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::with_exact(10)
    }
}
