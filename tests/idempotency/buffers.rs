//! How many bytes of request bodies a layer holds at once, and how many of responses go to the nodes.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use http::Request;
use tokio::time::{sleep, timeout};
use tower_redlock::IdempotencyLayer;
use tower_redlock::node::MemoryNode;

use super::{MS, PATIENCE, Shop, layer, nodes, request, send, sent};

/// Waits for each request, and holds ten bytes.
fn ten() -> IdempotencyLayer {
    layer(&nodes()).max_wait(PATIENCE).max_buffered(10)
}

fn with_body(key: &str, body: Body) -> Request<Body> {
    let mut request = request(key, "");
    *request.body_mut() = body;
    request
}

/// In chunks, so that nobody announces its length.
fn chunked(key: &str, chunks: &[&'static str]) -> Request<Body> {
    let chunks: Vec<_> = chunks.iter().map(|chunk| Ok::<_, String>(*chunk)).collect();
    with_body(key, Body::from_stream(stream::iter(chunks)))
}

#[tokio::test(start_paused = true)]
async fn requests_that_wait_hold_so_many_bytes_and_others_are_refused_at_once() {
    let shop = Shop::slow();
    let app = shop.open(ten());
    // The handler has read it.
    let first = sent(&app, request("a", "four"));
    sleep(50 * MS).await;
    assert_eq!(shop.orders(), 1);
    let mut waiting = vec![
        sent(&app, request("a", "four")),
        sent(&app, chunked("a", &["fo", "ur"])),
    ];
    sleep(50 * MS).await;
    for request in [
        request("b", "three"),
        chunked("b", &["t", "h", "r", "e", "e"]),
        request("a", "four"),
    ] {
        let begun = tokio::time::Instant::now();
        let reply = timeout(PATIENCE / 2, send(&app, request)).await.unwrap();
        reply.assert_problem(503, "buffers-full");
        assert_eq!(reply.header("retry-after"), Some("1"));
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }
    // Two bytes are left, and the others did not keep any.
    waiting.push(sent(&app, request("b", "to")));
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
    let app = Shop::new().open(ten());
    for eleven in [
        request("a", "eleven byte"),
        chunked("a", &["eleven", " byte"]),
    ] {
        send(&app, eleven)
            .await
            .assert_problem(413, "body-too-large");
    }
    let slow = sent(&app, with_body("b", Body::new(Announced)));
    sleep(PATIENCE).await;
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
    let send = |round, number| {
        let key = format!("{round}-{number}");
        sent(&app, with_body(&key, Body::from("x".repeat(1_000_000))))
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
        let requests = [0, 1, 2, 3, 4, 5, 6, 7].map(|number| send(round, number));
        sleep(5 * MS).await;
        orders += 8;
        assert_eq!(shop.orders(), orders);
        nodes.iter().for_each(MemoryNode::freeze);
        shop.let_go();
        // The others wait from here on, so that no turn begins just when their time is over.
        sleep(50 * MS).await;
        (1..told.len()).for_each(|_| shop.let_go());
        sleep((frozen - 50) * MS).await;
        nodes.iter().for_each(MemoryNode::thaw);
        for (number, (request, (first, repeat))) in requests.into_iter().zip(told).enumerate() {
            assert_eq!(request.await.unwrap().status, first, "{round}: {number}");
            let reply = send(round, number).await.unwrap();
            match repeat {
                201 => assert!(reply.is_replayed(), "{round}: {number}"),
                _ => reply.assert_problem(repeat, "not-replayable"),
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
