//! What is told of answers to idempotency keys that will be repeated for long.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tower::{Layer as _, ServiceExt as _, service_fn};
use tower_redlock::idempotency::caller;
use tower_redlock::layer::{LayerBody, OnNoQuorum};
use tower_redlock::node::MemoryNode;
use tower_redlock::{IdempotencyLayer, LockManager};

use super::support::server::{Kind, Server};
use super::{connected, layer, listen};

/// Else nobody would know why a client is told for a day that a lock is busy.
#[tokio::test(start_paused = true)]
async fn a_refusal_that_is_kept_is_told() {
    let (book, _listening, _nodes, locks) = connected().await;
    let _held = locks.try_acquire("order:1").await.unwrap();
    let lock = layer(locks.clone());
    let once = IdempotencyLayer::new(locks, caller::nobody());
    let inner = service_fn(async |_: Request<LayerBody<Full<Bytes>>>| {
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
    });
    let request = || {
        let request = Request::post("/").header("idempotency-key", "a");
        request.body(Full::<Bytes>::default()).unwrap()
    };
    let directly = once.clone().with_lock(lock.clone()).layer(inner);
    assert_eq!(directly.oneshot(request()).await.unwrap().status(), 409);
    let kept = "a refusal is kept";
    book.assert_without(kept);
    let apart = once.layer(lock.layer(inner));
    for _ in 0..2 {
        let answer = apart.clone().oneshot(request()).await.unwrap();
        assert_eq!(answer.status(), 409);
    }
    book.assert_line(kept, "WARN", &["kind=\"contended\""]);
}

#[tokio::test(start_paused = true)]
async fn requests_that_run_without_a_record_are_told_with_the_reason() {
    let (book, _listening, nodes, locks) = connected().await;
    let layer = IdempotencyLayer::new(locks, caller::nobody());
    let service = layer
        .on_no_quorum(OnNoQuorum::RunUnlocked)
        .layer(service_fn(async |_: Request<LayerBody<Full<Bytes>>>| {
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
        }));
    nodes[..3].iter().for_each(MemoryNode::go_down);
    for key in ["a", "b"] {
        let request = Request::post("/").header("idempotency-key", key);
        let request = request.body(Full::<Bytes>::default()).unwrap();
        assert_eq!(
            service.clone().oneshot(request).await.unwrap().status(),
            200
        );
    }
    book.assert_line("requests run without a record", "WARN", &["n0", "times=1"]);
}

/// Its restart forgets the answers, and repeats run again.
#[tokio::test]
async fn a_server_without_an_append_only_file_is_told_once_when_an_answer_is_to_be_kept_there() {
    let long = Duration::from_secs(10);
    for kind in Kind::ALL {
        let (book, _listening) = listen();
        let servers = [&["--appendonly", "yes"][..], &[]].map(|args| Server::start(kind, args));
        let builder = LockManager::builder().redis(servers.each_ref().map(Server::url));
        // A busy machine does not reach the time-out.
        let builder = builder.node_timeout(Duration::from_secs(2));
        let locks = builder.bootstrap(true).connect().await.unwrap();
        drop(locks.try_acquire("order:1").await.unwrap());
        let told = "keeps no append-only file";
        // Locks need none.
        book.assert_without(told);
        for key in ["a", "b"] {
            let begun = locks.begin_idempotent(key, long, Duration::ZERO);
            drop(begun.await.unwrap());
        }
        let nodes = locks.snapshot().nodes;
        book.assert_line(told, "WARN", &[&nodes[1].name]);
    }
}
