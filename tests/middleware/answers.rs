//! What refused requests are answered, to the byte.

use std::convert::Infallible;
use std::error::Error as _;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::Empty;
use tower::{ServiceBuilder, ServiceExt as _, service_fn};
use tower_redlock::layer::{OnNoQuorum, Rejection, RejectionKind, UnlockedReason};
use tower_redlock::node::MemoryNode;
use tower_redlock::{Held, RedlockLayer, key};

use super::{KEY, MS, Nodes, layer, ok, post, request};

/// What the layer makes of `request`; the handler says how it ran.
async fn answer(
    layer: RedlockLayer,
    request: Request<Empty<Bytes>>,
) -> (StatusCode, HeaderMap, String) {
    let inner = service_fn(async |request: Request<Empty<Bytes>>| {
        let held = Held::of(request.extensions());
        Ok::<_, Infallible>(ok(match held {
            Ok(_) => "locked",
            Err(UnlockedReason::Method) => "unlocked: method",
            Err(UnlockedReason::NoKey) => "unlocked: no key",
            Err(UnlockedReason::NoQuorum) => "unlocked: no quorum",
            Err(_) => "confused",
        }))
    });
    let service = ServiceBuilder::new().layer(layer).service(inner);
    let response = service.oneshot(request).await.unwrap();
    let (status, headers) = (response.status(), response.headers().clone());
    (status, headers, super::text(response).await)
}

/// The whole body, members in this order.
fn problem(kind: &str, title: &str, status: u16, detail: &str, remaining: Option<u64>) -> String {
    let remaining = remaining.map_or(String::new(), |ms| format!(",\"remaining_ms\":{ms}"));
    let executed = if kind == "lock-lost" { "unknown" } else { "no" };
    format!(
        "{{\"type\":\"urn:tower-redlock:problem:{kind}\",\"title\":\"{title}\",\"status\":{status},\
         \"detail\":\"{detail}\",\"executed\":\"{executed}\"{remaining}}}"
    )
}

#[track_caller]
fn assert_problem(
    answer: &(StatusCode, HeaderMap, String),
    status: u16,
    retry_after: Option<&str>,
    body: &str,
) {
    let (got, headers, text) = answer;
    assert_eq!((got.as_u16(), text.as_str()), (status, body));
    assert_eq!(headers["content-type"], "application/problem+json");
    assert_eq!(headers["cache-control"], "no-store");
    let got = headers
        .get("retry-after")
        .map(|value| value.to_str().unwrap());
    assert_eq!(got, retry_after);
}

fn contended_body() -> String {
    problem(
        "contended",
        "In use by other requests",
        409,
        "Another request is using this resource. \
 This request was not processed.",
        Some(10_000),
    )
}

#[tokio::test(start_paused = true)]
async fn contended() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    let _held = locks.try_acquire(KEY).await.unwrap();
    assert_problem(
        &answer(layer(&locks), post()).await,
        409,
        Some("1"),
        &contended_body(),
    );
    for (status, code) in [
        (StatusCode::LOCKED, "423"),
        (StatusCode::TOO_MANY_REQUESTS, "429"),
        (StatusCode::SERVICE_UNAVAILABLE, "503"),
    ] {
        let layer = layer(&locks).busy_status(status);
        let body = contended_body().replace("409", code);
        assert_problem(
            &answer(layer, post()).await,
            code.parse().unwrap(),
            Some("1"),
            &body,
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_has_the_status_of_an_error() {
    let locks = Nodes::five().manager();
    let set = |code| layer(&locks).busy_status(StatusCode::from_u16(code).unwrap());
    for code in [400, 599] {
        let _ = set(code);
    }
    for code in [100, 200, 302, 399, 600] {
        let set = std::panic::AssertUnwindSafe(|| drop(set(code)));
        let panic = std::panic::catch_unwind(set).unwrap_err();
        let text = panic.downcast_ref::<String>().unwrap();
        assert!(text.contains(&code.to_string()), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn wait_timeout() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    let _held = locks.try_acquire(KEY).await.unwrap();
    let before = tokio::time::Instant::now();
    let waiting = layer(&locks).max_wait(Duration::from_secs(1));
    let answer = answer(waiting, post()).await;
    assert_eq!(before.elapsed().as_secs(), 1);
    let remaining = serde_json::from_str::<serde_json::Value>(&answer.2).unwrap()["remaining_ms"]
        .as_u64()
        .unwrap();
    assert!((8_900..=10_000).contains(&remaining), "{remaining}");
    assert_problem(
        &answer,
        409,
        Some("1"),
        &problem(
            "wait-timeout",
            "Timed out waiting for the lock",
            409,
            "Other requests held the lock for as long as this request may wait. This request was not processed.",
            Some(remaining),
        ),
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_runs_when_the_lock_is_free() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    let held = locks.try_acquire(KEY).await.unwrap();
    let waiting = tokio::spawn(answer(
        layer(&locks).max_wait(Duration::from_secs(5)),
        post(),
    ));
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(!waiting.is_finished());
    held.release().await.unwrap();
    assert_eq!(waiting.await.unwrap().2, "locked");
    nodes.assert_free();
}

fn no_quorum_body() -> String {
    problem(
        "no-quorum",
        "Locks unavailable",
        503,
        "Too few lock nodes voted in time. This request was not processed.",
        None,
    )
}

#[tokio::test(start_paused = true)]
async fn no_quorum() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    assert_eq!(answer(layer(&locks), post()).await.2, "locked");
    nodes.0[..3].iter().for_each(|n| n.go_down());
    assert_problem(
        &answer(layer(&locks), post()).await,
        503,
        Some("1"),
        &no_quorum_body(),
    );
    nodes.settle_free().await;

    let anyway = layer(&locks).on_no_quorum(OnNoQuorum::RunUnlocked);
    assert_eq!(answer(anyway, post()).await.2, "unlocked: no quorum");
    nodes.each(|n| n.come_up());
    assert_eq!(
        answer(layer(&locks), post()).await.2,
        "locked",
        "no restart is needed"
    );
}

#[tokio::test(start_paused = true)]
async fn where_lists_disagree_nothing_runs_unlocked() {
    let nodes: Vec<MemoryNode> = (0..5).map(|n| MemoryNode::new(format!("n{n}"))).collect();
    let builder = |nodes: &[MemoryNode]| {
        let builder = tower_redlock::LockManager::builder().nodes(nodes.iter().cloned());
        builder.clock(tower_redlock::clock::TokioClock::new())
    };
    let others = builder(&nodes[..3]).connect().await.unwrap();
    let _held = others.try_acquire("order:1").await.unwrap();
    let locks = builder(&nodes[2..]).connect_lazy().unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let anyway = layer(&locks).on_no_quorum(OnNoQuorum::RunUnlocked);
    assert_eq!(answer(anyway, post()).await.0, 503);
}

#[tokio::test(start_paused = true)]
async fn no_quorum_while_nodes_sit_out_what_they_forgot() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    assert_eq!(answer(layer(&locks), post()).await.2, "locked");
    nodes.0[..3].iter().for_each(MemoryNode::forget);
    // The first to come finds it out; the wardens look at once.
    answer(layer(&locks), post()).await;
    tokio::time::sleep(MS).await;
    // The longest ttl that is agreed on, 10 s, and its drift of 102 ms.
    let told = answer(layer(&locks), post()).await;
    assert_problem(&told, 503, Some("11"), &no_quorum_body());
    tokio::time::sleep(Duration::from_millis(10_150)).await;
    assert_eq!(answer(layer(&locks), post()).await.2, "locked");
}

#[tokio::test(start_paused = true)]
async fn shutting_down() {
    let locks = Nodes::five().manager();
    locks.shutdown(Duration::ZERO).await;
    assert_problem(
        &answer(layer(&locks), post()).await,
        503,
        Some("1"),
        &problem(
            "shutting-down",
            "Shutting down",
            503,
            "This server is shutting down and takes no new locks. \
 This request was not processed.",
            None,
        ),
    );
    // Not even where a missing quorum would do.
    let anyway = layer(&locks).on_no_quorum(OnNoQuorum::RunUnlocked);
    assert_eq!(answer(anyway, post()).await.0, 503);
}

#[tokio::test(start_paused = true)]
async fn lock_lost() {
    let nodes = Nodes::five();
    let inner = service_fn({
        let nodes = nodes.clone();
        move |_: Request<Empty<Bytes>>| {
            nodes.each(|n| n.freeze());
            std::future::pending::<Result<Response<Empty<Bytes>>, Infallible>>()
        }
    });
    let service = ServiceBuilder::new()
        .layer(layer(&nodes.manager()))
        .service(inner);
    let response = service.oneshot(post()).await.unwrap();
    let answer = (
        response.status(),
        response.headers().clone(),
        super::text(response).await,
    );
    assert_problem(
        &answer,
        503,
        None,
        &problem(
            "lock-lost",
            "Lock lost",
            503,
            "The lock was lost while this request was processed. Whether it took effect is unknown, so look before \
 you send it again, because it may be processed again.",
            None,
        ),
    );
}

#[tokio::test(start_paused = true)]
async fn invalid_key() {
    let nodes = Nodes::five();
    let layer = super::keyed(&nodes.manager(), key::header("x-order-id"));
    assert_problem(
        &answer(layer, post()).await,
        400,
        None,
        &problem(
            "invalid-key",
            "Invalid lock key",
            400,
            "the lock key cannot be made: the header `x-order-id` is missing. \
 This request was not processed.",
            None,
        ),
    );
    assert_eq!(nodes.commands(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_answer_can_be_replaced_and_logs_can_name_the_cause() {
    fn mine(rejection: &Rejection) -> Response<Bytes> {
        assert_eq!(rejection.kind(), RejectionKind::NoQuorum);
        assert_eq!(
            rejection.to_string(),
            "the lock layer rejected the request: no-quorum"
        );
        let source = rejection.source().unwrap().to_string();
        assert!(source.contains("n0 (the node is down)"), "{source}");
        let mut response = rejection.to_response();
        *response.status_mut() = StatusCode::BAD_GATEWAY;
        *response.body_mut() = Bytes::from("mine");
        response
    }

    let nodes = Nodes::five();
    nodes.each(|n| n.go_down());
    let layer = layer(&nodes.manager()).rejection_response(mine);
    let (status, headers, text) = answer(layer, post()).await;
    assert_eq!((status.as_u16(), text.as_str()), (502, "mine"));
    assert_eq!(headers["retry-after"], "1");
}

#[tokio::test(start_paused = true)]
async fn methods_decide_who_is_locked() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    for method in [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE] {
        assert_eq!(
            answer(layer(&locks), request(method)).await.2,
            "unlocked: method"
        );
    }
    let only_put = || layer(&locks).methods([Method::PUT]);
    assert_eq!(answer(only_put(), post()).await.2, "unlocked: method");
    assert_eq!(nodes.commands(), 0, "no node was asked");
    assert_eq!(answer(only_put(), request(Method::PUT)).await.2, "locked");
    let purge = Method::from_bytes(b"PURGE").unwrap();
    for method in [
        Method::POST,
        Method::PUT,
        Method::PATCH,
        Method::DELETE,
        Method::CONNECT,
        purge,
    ] {
        assert_eq!(answer(layer(&locks), request(method)).await.2, "locked");
    }
    assert_eq!(
        answer(layer(&locks).all_methods(), request(Method::GET))
            .await
            .2,
        "locked"
    );
}

/// The handler must not take the outer lock for the one that the inner layer did not give it.
#[tokio::test(start_paused = true)]
async fn of_two_layers_the_inner_one_decides() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    let inner = service_fn(async |request: Request<Empty<Bytes>>| {
        let unlocked = Held::of(request.extensions()).unwrap_err();
        assert_eq!(unlocked, UnlockedReason::NoKey);
        Ok::<_, Infallible>(ok("ran"))
    });
    let service = ServiceBuilder::new()
        .layer(layer(&locks))
        .layer(super::keyed(&locks, key::header("x-order-id").optional()))
        .service(inner);
    assert_eq!(
        super::text(service.oneshot(post()).await.unwrap()).await,
        "ran"
    );
}
