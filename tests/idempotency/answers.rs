//! What the first request, its repeats and its look-alikes are answered.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::{get, post};
use http::{Method, Request, StatusCode};
use tokio::time::sleep;
use tower_redlock::IdempotencyLayer;
use tower_redlock::idempotency::{Idempotent, OnUnrecorded, caller};
use tower_redlock::layer::OnNoQuorum;
use tower_redlock::node::MemoryNode;

use super::{MS, PATIENCE, Shop, at, layer, manager, nodes, request, send, sent};

#[tokio::test(start_paused = true)]
async fn a_repeat_gets_the_first_answer_and_does_not_run() {
    let (shop, nodes) = (Shop::new(), nodes());
    let app = shop.open(layer(&nodes));
    let mut first = send(&app, request("\"a\"", "tea")).await;
    assert_eq!((first.status.as_u16(), &*first.body), (201, "order 1: tea"));
    assert!(!first.is_replayed());
    // On another replica, and with the key in the other spelling.
    let app = shop.open(layer(&nodes));
    let mut again = send(&app, request("a", "tea")).await;
    assert!(again.is_replayed());
    for reply in [&mut first, &mut again] {
        let of_both = |name: &str| !["idempotent-replayed", "content-length"].contains(&name);
        reply.headers.retain(|(name, _)| of_both(name));
    }
    assert_eq!(first, again);
    assert_eq!(shop.orders(), 1);
    // Another key is another order.
    assert_eq!(send(&app, request("b", "tea")).await.body, "order 2: tea");
}

#[tokio::test(start_paused = true)]
async fn the_same_key_for_another_request_is_refused() {
    let (shop, nodes) = (Shop::new(), nodes());
    let app = shop.open(layer(&nodes));
    send(&app, request("a", "tea")).await;
    for (uri, body) in [
        ("/orders/1", "coffee"),
        ("/orders/1?express", "tea"),
        ("/orders/2", "tea"),
    ] {
        let mut other = request("a", body);
        *other.uri_mut() = uri.parse().unwrap();
        let reply = send(&app, other).await;
        reply.assert_problem(422, "idempotency-key-reused");
        assert_eq!(reply.header("retry-after"), None);
    }
    assert_eq!(shop.orders(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_key_is_needed_and_must_be_one() {
    let (shop, nodes) = (Shop::new(), nodes());
    let app = shop.open(layer(&nodes));
    let bare = || Request::post("/orders/1").body(Body::from("tea")).unwrap();
    let keyless = send(&app, bare()).await;
    keyless.assert_problem(400, "missing-idempotency-key");
    let wrong = send(&app, request("\"open", "tea")).await;
    wrong.assert_problem(400, "invalid-idempotency-key");
    assert_eq!(shop.orders(), 0);
    let lenient = shop.open(layer(&nodes).optional());
    for _ in 0..2 {
        assert_eq!(send(&lenient, bare()).await.status, StatusCode::CREATED);
    }
    assert_eq!(shop.orders(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_repeat_of_what_still_runs_is_told_so_or_waits() {
    let (shop, nodes) = (Shop::slow(), nodes());
    let app = shop.open(layer(&nodes));
    let first = sent(&app, request("a", "tea"));
    sleep(MS).await;
    for app in [&app, &shop.open(layer(&nodes))] {
        let busy = send(app, request("a", "tea")).await;
        busy.assert_problem(409, "request-in-progress");
        assert_eq!(busy.header("retry-after"), Some("1"));
    }
    let patient = shop.open(layer(&nodes).max_wait(PATIENCE));
    let late = send(&patient, request("a", "tea")).await;
    late.assert_problem(409, "wait-timeout");
    let waiter = sent(&patient, request("a", "tea"));
    sleep(Duration::from_secs(2)).await;
    shop.let_go();
    for reply in [waiter, first] {
        assert_eq!(reply.await.unwrap().body, "order 1: tea");
    }
    assert_eq!(shop.orders(), 1);
}

/// They are not in one another's way: none of them runs.
#[tokio::test(start_paused = true)]
async fn repeats_that_come_at_once_all_get_the_answer() {
    let (shop, nodes) = (Shop::new(), nodes());
    let app = shop.open(layer(&nodes));
    send(&app, request("a", "tea")).await;
    // The answers of the nodes take their time.
    nodes[..3].iter().for_each(MemoryNode::freeze);
    let repeats = [(); 20].map(|()| sent(&app, request("a", "tea")));
    sleep(MS).await;
    nodes[..3].iter().for_each(MemoryNode::thaw);
    for repeat in repeats {
        repeat.await.unwrap().assert_replays("order 1: tea");
    }
}

/// A unit test has all statuses.
#[tokio::test(start_paused = true)]
async fn answers_that_ask_for_a_retry_are_not_kept() {
    let nodes = nodes();
    let tries = Arc::new(AtomicUsize::new(0));
    let statuses = [500_u16, 503, 429, 404, 200];
    let handler = post(async move || {
        let number = tries.fetch_add(1, Ordering::SeqCst);
        StatusCode::from_u16(statuses[number]).unwrap()
    });
    let app = at(handler, layer(&nodes));
    for (status, replayed) in [
        (500, false),
        (503, false),
        (429, false),
        (404, false),
        (404, true),
    ] {
        let reply = send(&app, request("a", "")).await;
        assert_eq!(
            (reply.status.as_u16(), reply.is_replayed()),
            (status, replayed)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn what_too_few_nodes_have_kept_is_not_passed_off_as_kept() {
    for policy in [OnUnrecorded::Refuse, OnUnrecorded::Respond] {
        let (shop, nodes) = (Shop::slow(), nodes());
        let app = shop.open(layer(&nodes).on_unrecorded(policy));
        let first = sent(&app, request("a", "tea"));
        sleep(MS).await;
        nodes[..3].iter().for_each(MemoryNode::go_down);
        shop.let_go();
        let reply = first.await.unwrap();
        if policy == OnUnrecorded::Refuse {
            reply.assert_problem(503, "outcome-unknown");
            assert_eq!(reply.header("retry-after"), None);
        } else {
            assert_eq!(reply.status, StatusCode::CREATED);
            assert_eq!(reply.header("idempotent-unrecorded"), Some("true"));
        }
        // Two have it, and so it is not lost.
        nodes[..3].iter().for_each(MemoryNode::come_up);
        let patient = shop.open(layer(&nodes).max_wait(PATIENCE));
        let again = send(&patient, request("a", "tea")).await;
        again.assert_replays("order 1: tea");
    }
}

#[tokio::test(start_paused = true)]
async fn debug_says_what_a_thing_is_and_nothing_of_the_request_body() {
    let layer = layer(&nodes());
    let (shown, service) = (format!("{layer:?}"), tower::Layer::layer(&layer, "inner"));
    let options = shown.strip_prefix("IdempotencyLayer { ").unwrap();
    assert!(
        options.starts_with("options: ExchangeOptions { common: Common { "),
        "{shown}"
    );
    assert_eq!(
        format!("{service:?}"),
        format!("IdempotencyService {{ inner: \"inner\", {options}")
    );
    let app = at(post(async |run: Idempotent| format!("{run:?}")), layer);
    let shown = send(&app, request("a", "secret")).await.body;
    assert!(
        shown.starts_with("Idempotent { key: IdempotencyKey(\"a\"), fence: Some("),
        "{shown}"
    );
    assert!(!shown.contains("secret"));
}

#[tokio::test(start_paused = true)]
async fn without_a_quorum_nothing_runs_unless_the_layer_says_that_it_may_without_a_record() {
    let nodes = nodes();
    let locks = manager(&nodes);
    let strict = IdempotencyLayer::new(locks.clone(), caller::nobody());
    let anyway = strict.clone().on_no_quorum(OnNoQuorum::RunUnlocked);
    let ids = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&ids);
    let handler = post(async move |run: Idempotent, status: String| {
        noted.lock().unwrap().push(run.id().to_owned());
        let status = StatusCode::from_bytes(status.as_bytes()).unwrap();
        let is_recorded = run.handle().is_some();
        assert_eq!(run.fence().is_some(), is_recorded);
        (status, is_recorded.to_string())
    });
    let (strict, app) = (at(handler.clone(), strict), at(handler, anyway));
    nodes[..3].iter().for_each(MemoryNode::go_down);
    let refused = send(&strict, request("a", "201")).await;
    refused.assert_problem(503, "no-quorum");
    assert_eq!(ids.lock().unwrap().len(), 0);
    for (status, mark) in [
        ("201", Some("true")),
        ("404", Some("true")),
        ("500", None),
        ("429", None),
    ] {
        let reply = send(&app, request("a", status)).await;
        assert_eq!((reply.status.as_str(), &*reply.body), (status, "false"));
        assert_eq!(reply.header("idempotent-unrecorded"), mark, "{status}");
    }
    nodes[..3].iter().for_each(MemoryNode::come_up);
    while !locks.has_quorum() {
        sleep(MS).await;
    }
    let reply = send(&app, request("a", "201")).await;
    let mark = reply.header("idempotent-unrecorded");
    assert_eq!((&*reply.body, mark), ("true", None));
    assert!(send(&app, request("a", "201")).await.is_replayed());
    let ids = ids.lock().unwrap();
    assert_eq!(ids.len(), 5);
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
}

#[tokio::test(start_paused = true)]
async fn safe_methods_are_left_alone_and_handlers_are_told_of_their_key() {
    let told = async |run: Option<Idempotent>| {
        let told = run.map(|run| format!("{} {}", run.key(), run.fence().is_some()));
        told.unwrap_or("none".to_owned())
    };
    let route = get(told).post(told).put(told);
    let app: Router = at(route, layer(&nodes()).methods([Method::POST]));
    for (method, body, replayed) in [
        (Method::GET, "none", false),
        (Method::PUT, "none", false),
        (Method::POST, "a true", false),
        (Method::POST, "a true", true),
    ] {
        let mut request = request("a", "");
        *request.method_mut() = method;
        let reply = send(&app, request).await;
        assert_eq!((&*reply.body, reply.is_replayed()), (body, replayed));
    }
}
