//! Requests that show a loan: who is let in, what the handler sees, and that the header goes no further.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use http_body_util::{Empty, Full};
use tower::{Layer as _, ServiceExt as _, service_fn};
use tower_redlock::config::RestartGuard;
use tower_redlock::lock::OwnerHash;
use tower_redlock::middleware::{
    HeldRejection, LOAN_HEADER, OnNoQuorum, ResponseBody, UnlockedReason, loan_header,
};
use tower_redlock::node::memory::MemoryNode;
use tower_redlock::{FencingToken, Held, LockManager, RedlockLayer};

use super::{FixedKey, KEY, Nodes, TTL, layer, ok, post, text};

type Answer = Response<ResponseBody<Full<Bytes>>>;

/// What the inner service saw of its request.
#[derive(Clone, Debug, Default)]
struct Seen {
    headers: HeaderMap,
    lock: Option<(bool, OwnerHash, Option<FencingToken>)>,
    unlocked: Option<UnlockedReason>,
}

/// Sends `request` through `layer`; the answer, and what the inner service saw if it ran.
async fn send(
    layer: &RedlockLayer<FixedKey>,
    request: Request<Empty<Bytes>>,
) -> (Answer, Option<Seen>) {
    let seen: Arc<Mutex<Option<Seen>>> = Arc::default();
    let note = Arc::clone(&seen);
    let inner = service_fn(move |request: Request<Empty<Bytes>>| {
        let lock = Held::of(request.extensions());
        *note.lock().unwrap() = Some(Seen {
            headers: request.headers().clone(),
            unlocked: lock.as_ref().err().and_then(HeldRejection::unlocked_reason),
            lock: lock
                .ok()
                .map(|lock| (lock.is_borrowed(), lock.owner_hash(), lock.fence())),
        });
        async { Ok::<_, std::convert::Infallible>(ok("done")) }
    });
    let answer = layer.layer(inner).oneshot(request).await.unwrap();
    let seen = seen.lock().unwrap().take();
    (answer, seen)
}

fn showing<const N: usize>(values: [&HeaderValue; N]) -> Request<Empty<Bytes>> {
    let mut request = post();
    for value in values {
        request.headers_mut().append(LOAN_HEADER, value.clone());
    }
    request
}

fn trusting(locks: &LockManager) -> RedlockLayer<FixedKey> {
    layer(locks).borrow_from(|_| true)
}

async fn assert_refused(answer: Answer, status: u16, kind: &str, secret: &HeaderValue) {
    assert_eq!(answer.status(), status);
    assert!(answer.headers().get("retry-after").is_none());
    let text = text(answer).await;
    assert!(
        text.contains(&format!("urn:tower-redlock:problem:{kind}")),
        "{text}"
    );
    let secret = secret.to_str().unwrap();
    let hash = secret.split(';').nth(1).unwrap_or(secret);
    assert!(hash.is_empty() || !text.contains(hash), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_request_runs_under_the_lock_that_was_lent_to_it() {
    let nodes = Nodes::five();
    let (a, b) = (nodes.manager(), nodes.manager());
    let guard = a.try_acquire(KEY).await.unwrap();
    let (answer, seen) = send(&trusting(&b), post()).await;
    assert_eq!((answer.status().as_u16(), seen.is_none()), (409, true));
    for _ in 0..3 {
        let loan = guard.lend().unwrap();
        let (name, value) = loan_header(&loan);
        assert_eq!(
            (name.as_str(), value.is_sensitive()),
            ("redlock-loan", true)
        );
        let (answer, seen) = send(&trusting(&b), showing([&value])).await;
        assert_eq!(answer.status(), 200);
        let seen = seen.unwrap();
        assert_eq!(seen.lock, Some((true, guard.owner_hash(), guard.fence())));
        assert!(seen.headers.is_empty(), "{:?}", seen.headers);
        // A proxy that tries again, though it was answered.
        let (answer, seen) = send(&trusting(&b), showing([&value])).await;
        assert!(seen.is_none(), "the second copy runs");
        assert_refused(answer, 409, "loan-taken", &value).await;
        loan.returned();
    }
    assert_eq!(
        nodes.holding(KEY),
        5,
        "the end of a request releases nothing"
    );
    guard.release().await.unwrap();
    nodes.settle_free().await;
}

#[tokio::test(start_paused = true)]
async fn only_those_are_let_in_whom_the_layer_trusts() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    let guard = locks.try_acquire(KEY).await.unwrap();
    let loan = guard.lend().unwrap();
    let (_, value) = loan_header(&loan);
    let asked = Arc::new(AtomicUsize::new(0));
    let layer = {
        let asked = Arc::clone(&asked);
        layer(&locks).borrow_from(move |parts: &Parts| {
            asked.fetch_add(1, Ordering::SeqCst);
            assert!(parts.headers.get(LOAN_HEADER).is_none());
            parts.headers.contains_key("x-friend")
        })
    };
    let before = nodes.commands();
    // Strangers learn nothing about the header, whatever is in it.
    for shown in [&value, &HeaderValue::from_static("?")] {
        let (answer, seen) = send(&layer, showing([shown])).await;
        assert!(seen.is_none());
        assert_refused(answer, 403, "loan-refused", &value).await;
    }
    assert_eq!(
        (nodes.commands(), asked.load(Ordering::SeqCst)),
        (before, 2)
    );
    let mut request = showing([&value]);
    request
        .headers_mut()
        .insert("x-friend", HeaderValue::from_static("1"));
    assert_eq!(send(&layer, request).await.0.status(), 200);
    send(&layer, post()).await;
    assert_eq!(asked.load(Ordering::SeqCst), 3, "not without the header");
    loan.returned();
}

#[tokio::test(start_paused = true)]
async fn what_does_not_hold_is_refused() {
    let nodes = Nodes::five();
    let (a, b) = (nodes.manager(), nodes.manager());
    let layer = trusting(&b);
    let forged = HeaderValue::from_static("v2;0123456789012345678901234567890123456789;1;70000;5");
    // Of a free key, then of a held one.
    let (answer, seen) = send(&layer, showing([&forged])).await;
    assert!(seen.is_none());
    assert_refused(answer, 412, "loan-ended", &forged).await;
    nodes.assert_free();
    let guard = a.try_acquire(KEY).await.unwrap();
    let (answer, _) = send(&layer, showing([&forged])).await;
    assert_refused(answer, 412, "loan-ended", &forged).await;

    let loan = guard.lend().unwrap();
    let (_, value) = loan_header(&loan);
    let (answer, seen) = send(&layer, showing([&value, &value])).await;
    assert!(seen.is_none());
    assert_refused(answer, 400, "invalid-loan", &value).await;
    for bad in [
        "",
        "v2",
        "v1;0123456789012345678901234567890123456789;1;70000;5",
        "\u{e9}",
    ] {
        let bad = HeaderValue::from_bytes(bad.as_bytes()).unwrap();
        let before = nodes.commands();
        let (answer, seen) = send(&layer, showing([&bad])).await;
        assert!(seen.is_none());
        assert_refused(answer, 400, "invalid-loan", &HeaderValue::from_static("")).await;
        assert_eq!(nodes.commands(), before);
    }
    loan.returned();
    guard.release().await.unwrap();
    let (answer, seen) = send(&layer, showing([&value])).await;
    assert!(seen.is_none(), "it takes no lock of its own instead");
    assert_refused(answer, 412, "loan-ended", &value).await;
    nodes.settle_free().await;
}

#[tokio::test(start_paused = true)]
async fn a_layer_that_borrows_from_nobody_takes_the_header_off_all_the_same() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    let value = HeaderValue::from_static("v2;0123456789012345678901234567890123456789;1;70000;5");
    let (answer, seen) = send(&layer(&locks), showing([&value, &value])).await;
    assert_eq!(answer.status(), 200);
    let seen = seen.unwrap();
    assert!(seen.headers.is_empty());
    assert!(matches!(seen.lock, Some((false, ..))), "a lock of its own");
    // Methods without a lock pass without it too.
    for layer in [layer(&locks), trusting(&locks)] {
        let mut request = showing([&value]);
        *request.method_mut() = Method::GET;
        let (answer, seen) = send(&layer, request).await;
        assert_eq!(answer.status(), 200);
        let seen = seen.unwrap();
        assert!(seen.headers.is_empty());
        assert_eq!(seen.unlocked, Some(UnlockedReason::Method));
    }
}

#[tokio::test(start_paused = true)]
async fn no_response_carries_the_header() {
    let nodes = Nodes::five();
    let layer = layer(&nodes.manager());
    let inner = service_fn(|_: Request<Empty<Bytes>>| async {
        let mut response = ok("echo");
        let headers = response.headers_mut();
        headers.append(LOAN_HEADER, HeaderValue::from_static("a"));
        headers.append(LOAN_HEADER, HeaderValue::from_static("b"));
        headers.append("x-other", HeaderValue::from_static("c"));
        Ok::<_, std::convert::Infallible>(response)
    });
    for method in [Method::POST, Method::GET] {
        let answer = layer
            .layer(inner)
            .oneshot(super::request(method))
            .await
            .unwrap();
        assert_eq!(answer.headers().len(), 1);
        assert!(answer.headers().contains_key("x-other"));
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_quorum_it_is_as_without_a_loan() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    let guard = locks.try_acquire(KEY).await.unwrap();
    let loan = guard.lend().unwrap();
    let (_, value) = loan_header(&loan);
    for n in 0..3 {
        nodes.0[n].go_down();
    }
    let (answer, _) = send(&trusting(&locks), showing([&value])).await;
    assert_eq!(answer.status(), 503);
    assert!(answer.headers().contains_key("retry-after"));
    assert!(text(answer).await.contains("no-quorum"));
    let open = trusting(&locks).on_no_quorum(OnNoQuorum::RunUnlocked);
    let (answer, seen) = send(&open, showing([&value])).await;
    assert_eq!(answer.status(), 200);
    assert_eq!(seen.unwrap().unlocked, Some(UnlockedReason::NoQuorum));
    loan.returned();
}

#[tokio::test(start_paused = true)]
async fn the_work_is_dropped_when_the_lender_loses_the_lock() {
    let nodes = Nodes::five();
    let manager = || {
        nodes
            .builder()
            .restart_guard(RestartGuard::OFF)
            .lazy()
            .unwrap()
    };
    let (a, b) = (manager(), manager());
    let guard = a.try_acquire(KEY).await.unwrap();
    let loan = guard.lend().unwrap();
    let (_, value) = loan_header(&loan);
    let running = Arc::new(());
    let visit = Arc::clone(&running);
    let inner = service_fn(move |_: Request<Empty<Bytes>>| {
        let visit = Arc::clone(&visit);
        async move {
            std::future::pending::<()>().await;
            drop(visit);
            Ok::<_, std::convert::Infallible>(ok("never"))
        }
    });
    let request = trusting(&b).layer(inner).oneshot(showing([&value]));
    let request = tokio::spawn(request);
    tokio::time::sleep(3 * TTL).await;
    assert!(!request.is_finished(), "it follows the lender's extensions");
    // As many nodes as that are nobody's any more, and are not filled again.
    a.shutdown(Duration::ZERO).await;
    nodes.each(MemoryNode::forget);
    let answer = tokio::time::timeout(TTL, request).await.unwrap();
    let answer = answer.unwrap().unwrap();
    assert_eq!(answer.status(), 503);
    let text = text(answer).await;
    assert!(text.contains("lock-lost"), "{text}");
    assert_eq!(Arc::strong_count(&running), 1, "the work is gone");
    loan.returned();
}

#[tokio::test(start_paused = true)]
async fn layers_further_in_share_what_is_borrowed() {
    let nodes = Nodes::five();
    let (a, b) = (nodes.manager(), nodes.manager());
    let guard = a.try_acquire(KEY).await.unwrap();
    let loan = guard.lend().unwrap();
    let (_, value) = loan_header(&loan);
    let inner = service_fn(|request: Request<Empty<Bytes>>| async move {
        let lock = Held::of(request.extensions()).unwrap();
        assert!(lock.is_borrowed() && !lock.is_lost());
        Ok::<_, std::convert::Infallible>(ok("done"))
    });
    let inner = layer(&b).layer(inner);
    let answer = trusting(&b).layer(inner).oneshot(showing([&value]));
    assert_eq!(answer.await.unwrap().status(), 200);
    assert_eq!(nodes.holding(KEY), 5);
    loan.returned();
}
