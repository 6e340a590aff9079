//! What is told of locks that end early, where those who hold them are told in time and give up.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tower::{Layer as _, ServiceExt as _, service_fn};
use tower_redlock::error::{LossReason, RunError};
use tower_redlock::node::MemoryNode;

use super::{connected, layer};

/// Has nobody hear of releases any more, and never ends.
async fn hang(nodes: Vec<MemoryNode>) -> Response<Full<Bytes>> {
    nodes.iter().for_each(MemoryNode::freeze);
    pending().await
}

#[tokio::test(start_paused = true)]
async fn work_or_a_request_that_is_cut_off_leaves_the_loss_in_the_log() {
    for is_request in [true, false] {
        let (book, _listening, nodes, locks) = connected().await;
        if is_request {
            let service = layer(locks).layer(service_fn(move |_| {
                let hanging = hang(nodes.clone());
                async { Ok::<_, Infallible>(hanging.await) }
            }));
            let request = Request::post("/").body(Full::<Bytes>::default()).unwrap();
            assert_eq!(service.oneshot(request).await.unwrap().status(), 503);
        } else {
            let run = locks.run("order:1", |_| hang(nodes)).await;
            assert!(matches!(run, Err(RunError::Lost(_))), "{run:?}");
        }
        let parts = ["order:1", "without a successful extension"];
        book.assert_line("lock lost", "ERROR", &parts);
        // It was released in time, in vain: what was told is that its ttl had ended it.
        tokio::time::sleep(Duration::from_secs(60)).await;
        book.assert_without("could not be released");
    }
}

#[tokio::test(start_paused = true)]
async fn what_one_holder_was_told_is_not_put_down_to_the_next() {
    let (book, _listening, nodes, locks) = connected().await;
    let first = locks.acquire("order:1").await.unwrap();
    let released = tokio::spawn(first.lost());
    let next = tokio::spawn({
        let locks = locks.clone();
        async move { locks.acquire("order:1").await.unwrap() }
    });
    // Until it stands in line.
    while locks.snapshot().waiting == 0 {
        tokio::task::yield_now().await;
    }
    first.release().await.unwrap();
    let next = next.await.unwrap();
    assert_eq!(released.await.unwrap(), LossReason::Released);
    nodes.iter().for_each(MemoryNode::freeze);
    tokio::time::sleep(next.remaining() - Duration::from_millis(1)).await;
    assert!(!next.is_lost());
    drop(next);
    book.assert_without("lock lost");
}
