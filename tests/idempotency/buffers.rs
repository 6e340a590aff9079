//! How many bytes of request bodies a layer holds at once, and how many of responses go to the nodes.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use http::Request;
use tokio::time::timeout;
use tower_redlock::IdempotencyLayer;
use tower_redlock::node::MemoryNode;

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

/// A response of a megabyte, on its way to five nodes, leaves no room for another. The time-out of a node is 100 ms, so a
/// turn takes 200 ms where all are frozen, and a response waits a second for its own.
#[tokio::test(start_paused = true)]
async fn long_responses_go_to_the_nodes_in_turn_and_one_that_gets_no_turn_is_a_note() {
    let nodes = nodes();
    let shop = Shop::slow();
    let app = shop.open(layer(&nodes));
    let sent = |key: String| {
        let request = Request::post("/orders/1").header("idempotency-key", key);
        let request = request.body(Body::from("x".repeat(1_000_000))).unwrap();
        let app = app.clone();
        tokio::spawn(async move { send(&app, request).await })
    };
    // What is told at once, and what to a repeat.
    let (stored, note, unknown) = ((201, 201), (201, 409), (503, 201));
    let mut orders = 0;
    for (round, frozen, told) in [
        (0, 60, [stored; 8]),
        (
            1,
            1_120,
            [
                unknown, unknown, unknown, unknown, unknown, unknown, note, note,
            ],
        ),
        // All room was given back.
        (2, 60, [stored; 8]),
    ] {
        let requests: Vec<_> = (0..told.len())
            .map(|n| sent(format!("{round}-{n}")))
            .collect();
        tokio::time::sleep(WAIT / 1000).await;
        orders += 8;
        assert_eq!(shop.orders(), orders);
        nodes.iter().for_each(MemoryNode::freeze);
        shop.let_go();
        // The others wait from here on, so that no turn begins just when their time is over.
        tokio::time::sleep(Duration::from_millis(50)).await;
        (1..told.len()).for_each(|_| shop.let_go());
        tokio::time::sleep(Duration::from_millis(frozen - 50)).await;
        nodes.iter().for_each(MemoryNode::thaw);
        for (n, (request, (first, repeat))) in requests.into_iter().zip(told).enumerate() {
            assert_eq!(request.await.unwrap().status, first, "{round}: {n}");
            let reply = sent(format!("{round}-{n}")).await.unwrap();
            assert_eq!(reply.status, repeat, "{round}: {n}");
            match repeat {
                201 => assert!(reply.is_replayed()),
                _ => assert_eq!(reply.problem(), (409, "not-replayable".into())),
            }
        }
    }
    assert_eq!(shop.orders(), orders);
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
