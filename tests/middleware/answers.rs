//! What refused requests are answered, to the byte.

use std::convert::Infallible;
use std::error::Error as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Empty;
use tower::{Layer as _, service_fn};
use tower_redlock::layer::{OnNoQuorum, Rejection, RejectionKind, UnlockedReason};
use tower_redlock::node::MemoryNode;
use tower_redlock::{Held, RedlockLayer, key};

use super::{Answer, KEY, MS, Nodes, SECOND, keyed, layer, ok, post, send, to};

/// What the layer makes of `request`; the handler says how it ran.
async fn answer(layer: RedlockLayer, request: Request<Empty<Bytes>>) -> Answer {
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
    send(layer.layer(inner), request).await
}

/// The whole body, members in this order.
#[track_caller]
pub(super) fn assert_problem(
    answer: &Answer,
    status: u16,
    kind: &str,
    retry_after: Option<&str>,
    texts: [&str; 2],
) {
    let [title, detail] = texts;
    let problem: serde_json::Value = serde_json::from_str(&answer.text).unwrap();
    let remaining = match kind {
        "contended" => ",\"remaining_ms\":10000".to_owned(),
        "wait-timeout" => {
            let ms = problem["remaining_ms"].as_u64().unwrap();
            assert!((8_900..=10_000).contains(&ms), "{ms}");
            format!(",\"remaining_ms\":{ms}")
        }
        _ => String::new(),
    };
    let executed = if kind == "lock-lost" { "unknown" } else { "no" };
    let body = format!(
        "{{\"type\":\"urn:tower-redlock:problem:{kind}\",\"title\":\"{title}\",\"status\":{status},\
         \"detail\":\"{detail}\",\"executed\":\"{executed}\"{remaining}}}"
    );
    assert_eq!((answer.status, &answer.text), (status, &body));
    assert!(answer.is_problem());
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert_eq!(answer.header("retry-after"), retry_after, "{kind}");
}

const CONTENDED: [&str; 2] = [
    "In use by other requests",
    "Another request is using this resource. This request was not processed.",
];
const NO_QUORUM: [&str; 2] = [
    "Locks unavailable",
    "Too few lock nodes voted in time. This request was not processed.",
];

#[tokio::test(start_paused = true)]
async fn refusals_are_written_to_the_byte() {
    let (nodes, locks) = Nodes::with_manager();

    let held = locks.try_acquire(KEY).await.unwrap();
    let refused = answer(layer(&locks), post()).await;
    assert_problem(&refused, 409, "contended", Some("1"), CONTENDED);
    let began = tokio::time::Instant::now();
    let refused = answer(layer(&locks).max_wait(SECOND), post()).await;
    assert_eq!(began.elapsed(), SECOND);
    let texts = [
        "Timed out waiting for the lock",
        "Other requests held the lock for as long as this request may wait. This request was not processed.",
    ];
    assert_problem(&refused, 409, "wait-timeout", Some("1"), texts);
    held.release().await.unwrap();

    let commands = nodes.commands();
    let refused = answer(keyed(&locks, key::header("x-order-id")), post()).await;
    let texts = [
        "Invalid lock key",
        "the lock key cannot be made: the header `x-order-id` is missing. This request was not processed.",
    ];
    assert_problem(&refused, 400, "invalid-key", None, texts);
    assert_eq!(nodes.commands(), commands);

    locks.shutdown(SECOND).await;
    // Not even where a missing quorum would do.
    let anyway = layer(&locks).on_no_quorum(OnNoQuorum::RunUnlocked);
    let refused = answer(anyway, post()).await;
    let texts = [
        "Shutting down",
        "This server is shutting down and takes no new locks. This request was not processed.",
    ];
    assert_problem(&refused, 503, "shutting-down", Some("1"), texts);
}

#[tokio::test(start_paused = true)]
async fn a_busy_lock_has_the_status_that_is_set_which_is_that_of_an_error() {
    let locks = Nodes::five().manager();
    let _held = locks.try_acquire(KEY).await.unwrap();
    let set = |code| layer(&locks).busy_status(StatusCode::from_u16(code).unwrap());
    for code in [400, 423, 429, 503, 599] {
        assert_problem(
            &answer(set(code), post()).await,
            code,
            "contended",
            Some("1"),
            CONTENDED,
        );
    }
    for code in [100, 200, 302, 399, 600] {
        let panic = catch_unwind(AssertUnwindSafe(|| drop(set(code)))).unwrap_err();
        let text = panic.downcast_ref::<String>().unwrap();
        assert!(text.contains(&code.to_string()), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_quorum_requests_are_refused_or_run_unlocked_until_there_is_one() {
    let (nodes, locks) = Nodes::with_manager();
    assert_eq!(answer(layer(&locks), post()).await.text, "locked");
    nodes.0[..3].iter().for_each(MemoryNode::go_down);
    let refused = answer(layer(&locks), post()).await;
    assert_problem(&refused, 503, "no-quorum", Some("1"), NO_QUORUM);
    nodes.settle_free().await;
    let anyway = layer(&locks).on_no_quorum(OnNoQuorum::RunUnlocked);
    assert_eq!(answer(anyway, post()).await.text, "unlocked: no quorum");
    nodes.each(MemoryNode::come_up);
    let again = answer(layer(&locks), post()).await;
    assert_eq!(again.text, "locked", "no restart is needed");

    nodes.0[..3].iter().for_each(MemoryNode::forget);
    // The first to come finds it out; the wardens look at once.
    answer(layer(&locks), post()).await;
    tokio::time::sleep(MS).await;
    // The longest ttl that is agreed on, 10 s, and its drift of 102 ms.
    let told = answer(layer(&locks), post()).await;
    assert_problem(&told, 503, "no-quorum", Some("11"), NO_QUORUM);
    tokio::time::sleep(10_150 * MS).await;
    assert_eq!(answer(layer(&locks), post()).await.text, "locked");
}

#[tokio::test(start_paused = true)]
async fn where_lists_disagree_nothing_runs_unlocked() {
    let Nodes(nodes) = Nodes::five();
    let [few, rest] = [&nodes[..3], &nodes[2..]].map(|nodes| Nodes(nodes.to_vec()).builder());
    let others = few.connect().await.unwrap();
    let _held = others.try_acquire(KEY).await.unwrap();
    let locks = rest.connect_lazy().unwrap();
    tokio::time::sleep(5 * SECOND).await;
    let anyway = layer(&locks).on_no_quorum(OnNoQuorum::RunUnlocked);
    assert_eq!(answer(anyway, post()).await.status, 503);
}

#[tokio::test(start_paused = true)]
async fn the_answer_can_be_replaced_and_logs_can_name_the_cause() {
    fn mine(rejection: &Rejection) -> Response<Bytes> {
        assert_eq!(rejection.kind(), RejectionKind::NoQuorum);
        let text = "the lock layer rejected the request: no-quorum";
        assert_eq!(rejection.to_string(), text);
        let source = rejection.source().unwrap().to_string();
        assert!(source.contains("n0 (the node is down)"), "{source}");
        let mut response = rejection.to_response();
        *response.status_mut() = StatusCode::BAD_GATEWAY;
        response.map(|_| Bytes::from("mine"))
    }

    let nodes = Nodes::five();
    nodes.each(MemoryNode::go_down);
    let layer = layer(&nodes.manager()).rejection_response(mine);
    let answer = answer(layer, post()).await;
    assert_eq!((answer.status, &*answer.text), (502, "mine"));
    assert_eq!(answer.header("retry-after"), Some("1"));
}

#[tokio::test(start_paused = true)]
async fn methods_decide_who_is_locked() {
    let (nodes, locks) = Nodes::with_manager();
    let purge = Method::from_bytes(b"PURGE").unwrap();
    let by_default = layer(&locks);
    let only_put = by_default.clone().methods([Method::PUT]);
    let all = by_default.clone().all_methods();
    for (layer, method, text) in [
        (&by_default, Method::GET, "unlocked: method"),
        (&by_default, Method::HEAD, "unlocked: method"),
        (&by_default, Method::OPTIONS, "unlocked: method"),
        (&by_default, Method::TRACE, "unlocked: method"),
        (&only_put, Method::POST, "unlocked: method"),
        (&only_put, Method::PUT, "locked"),
        (&by_default, Method::POST, "locked"),
        (&by_default, Method::PUT, "locked"),
        (&by_default, Method::PATCH, "locked"),
        (&by_default, Method::DELETE, "locked"),
        (&by_default, Method::CONNECT, "locked"),
        (&by_default, purge, "locked"),
        (&all, Method::GET, "locked"),
    ] {
        let commands = nodes.commands();
        let answer = answer(layer.clone(), to(method.clone(), "/")).await;
        assert_eq!(answer.text, text, "{method}");
        let asks = nodes.commands() > commands;
        assert_eq!(asks, text == "locked", "{method} asks nodes");
    }
}
