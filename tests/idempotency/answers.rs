//! What the first request, its repeats and its look-alikes are answered.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::{get, post};
use http::{Request, StatusCode};
use tower_redlock::IdempotencyLayer;
use tower_redlock::idempotency::{Idempotent, OnUnrecorded, caller};
use tower_redlock::layer::OnNoQuorum;
use tower_redlock::node::MemoryNode;

use super::{Shop, layer, manager, nodes, request, send};

#[tokio::test(start_paused = true)]
async fn a_repeat_gets_the_first_answer_and_does_not_run() {
    let (shop, nodes) = (Shop::new(), nodes());
    let app = shop.open(layer(&nodes));
    let first = send(&app, request("\"a\"", "tea")).await;
    assert_eq!(
        (first.status, &*first.body),
        (StatusCode::CREATED, "order 1: tea")
    );
    assert!(!first.is_replayed());
    // On another replica, and with the key in the other spelling.
    let app = shop.open(layer(&nodes));
    let mut again = send(&app, request("a", "tea")).await;
    assert!(again.is_replayed());
    again
        .headers
        .retain(|(name, _)| name != "idempotent-replayed");
    let mut first = first;
    first.headers.retain(|(name, _)| name != "content-length");
    again.headers.retain(|(name, _)| name != "content-length");
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
    for other in [
        request("a", "coffee"),
        Request::post("/orders/1?express")
            .header("idempotency-key", "a")
            .body(Body::from("tea"))
            .unwrap(),
        Request::post("/orders/2")
            .header("idempotency-key", "a")
            .body(Body::from("tea"))
            .unwrap(),
    ] {
        let reply = send(&app, other).await;
        assert_eq!(reply.problem(), (422, "idempotency-key-reused".into()));
        assert_eq!(reply.header("retry-after"), None);
    }
    assert_eq!(shop.orders(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_key_is_needed_and_must_be_one() {
    let (shop, nodes) = (Shop::new(), nodes());
    let app = shop.open(layer(&nodes));
    let bare = || Request::post("/orders/1").body(Body::from("tea")).unwrap();
    assert_eq!(
        send(&app, bare()).await.problem(),
        (400, "missing-idempotency-key".into())
    );
    for wrong in ["", "\"open", "a b"] {
        let reply = send(&app, request(wrong, "tea")).await;
        assert_eq!(
            reply.problem(),
            (400, "invalid-idempotency-key".into()),
            "{wrong:?}"
        );
    }
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
    let first = tokio::spawn({
        let app = app.clone();
        async move { send(&app, request("a", "tea")).await }
    });
    tokio::time::sleep(Duration::from_millis(1)).await;
    for app in [&app, &shop.open(layer(&nodes))] {
        let busy = send(app, request("a", "tea")).await;
        assert_eq!(busy.problem(), (409, "request-in-progress".into()));
        assert_eq!(busy.header("retry-after"), Some("1"));
    }
    let patient = shop.open(layer(&nodes).max_wait(Duration::from_secs(5)));
    let late = send(&patient, request("a", "tea")).await;
    assert_eq!(late.problem(), (409, "wait-timeout".into()));
    let waiter = tokio::spawn(async move { send(&patient, request("a", "tea")).await });
    tokio::time::sleep(Duration::from_secs(2)).await;
    shop.let_go();
    assert_eq!(waiter.await.unwrap().body, "order 1: tea");
    assert_eq!(first.await.unwrap().body, "order 1: tea");
    assert_eq!(shop.orders(), 1);
}

/// They are not in one another's way: none of them runs.
#[tokio::test(start_paused = true)]
async fn repeats_that_come_at_once_all_get_the_answer() {
    let (shop, nodes) = (Shop::new(), nodes());
    let app = shop.open(layer(&nodes));
    let first = send(&app, request("a", "tea")).await;
    // The answers of the nodes take their time.
    nodes[..3].iter().for_each(MemoryNode::freeze);
    let repeats = [(); 20].map(|()| {
        let app = app.clone();
        tokio::spawn(async move { send(&app, request("a", "tea")).await })
    });
    tokio::time::sleep(Duration::from_millis(1)).await;
    nodes[..3].iter().for_each(MemoryNode::thaw);
    for repeat in repeats {
        let repeat = repeat.await.unwrap();
        assert!(
            repeat.is_replayed() && repeat.body == first.body,
            "{repeat:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn answers_that_ask_for_a_retry_are_not_kept() {
    let nodes = nodes();
    let tries = Arc::new(std::sync::atomic::AtomicU16::new(0));
    let statuses = [500_u16, 503, 408, 425, 429, 404, 200];
    let app = {
        let tries = tries.clone();
        let handler = post(move || async move {
            let n = tries.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            StatusCode::from_u16(statuses[usize::from(n)]).unwrap()
        });
        Router::new()
            .route("/orders/{shop}", handler)
            .layer(layer(&nodes))
    };
    for status in &statuses[..6] {
        let reply = send(&app, request("a", "")).await;
        assert_eq!(reply.status.as_u16(), *status);
        assert!(!reply.is_replayed());
    }
    let reply = send(&app, request("a", "")).await;
    assert!(reply.status == StatusCode::NOT_FOUND && reply.is_replayed());
}

#[tokio::test(start_paused = true)]
async fn what_too_few_nodes_have_kept_is_not_passed_off_as_kept() {
    for (policy, status) in [(OnUnrecorded::Refuse, 503), (OnUnrecorded::Respond, 201)] {
        let (shop, nodes) = (Shop::slow(), nodes());
        let app = shop.open(layer(&nodes).on_unrecorded(policy));
        let first = tokio::spawn(async move { send(&app, request("a", "tea")).await });
        tokio::time::sleep(Duration::from_millis(1)).await;
        nodes[..3].iter().for_each(MemoryNode::go_down);
        shop.let_go();
        let reply = first.await.unwrap();
        assert_eq!(reply.status.as_u16(), status);
        if policy == OnUnrecorded::Refuse {
            assert_eq!(reply.problem(), (503, "outcome-unknown".into()));
            assert_eq!(reply.header("retry-after"), None);
        } else {
            assert_eq!(reply.header("idempotent-unrecorded"), Some("true"));
        }
        // Two have it, and so it is not lost.
        nodes[..3].iter().for_each(MemoryNode::come_up);
        let patient = shop.open(layer(&nodes).max_wait(Duration::from_secs(5)));
        let again = send(&patient, request("a", "tea")).await;
        assert!(
            again.is_replayed() && again.body == "order 1: tea",
            "{again:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_quorum_nothing_runs() {
    let (shop, nodes) = (Shop::new(), nodes());
    let app = shop.open(layer(&nodes));
    nodes[..3].iter().for_each(MemoryNode::go_down);
    let reply = send(&app, request("a", "tea")).await;
    assert_eq!(reply.problem(), (503, "no-quorum".into()));
    assert_eq!(shop.orders(), 0);
}

#[tokio::test(start_paused = true)]
async fn without_a_quorum_a_request_runs_without_a_record_if_the_layer_says_so() {
    let nodes = nodes();
    let locks = manager(&nodes);
    let layer = IdempotencyLayer::new(locks.clone(), caller::nobody());
    let layer = layer.on_no_quorum(OnNoQuorum::RunUnlocked);
    let ids = Arc::new(Mutex::new(Vec::new()));
    let handler = {
        let ids = Arc::clone(&ids);
        move |run: Idempotent, status: String| async move {
            ids.lock().unwrap().push(run.id().to_owned());
            let status = StatusCode::from_bytes(status.as_bytes()).unwrap();
            let is_recorded = run.handle().is_some();
            assert_eq!(run.fence().is_some(), is_recorded);
            (status, is_recorded.to_string())
        }
    };
    let app = Router::new()
        .route("/orders/{shop}", post(handler))
        .layer(layer);
    nodes[..3].iter().for_each(MemoryNode::go_down);
    for (status, marked) in [("201", true), ("404", true), ("500", false), ("429", false)] {
        let reply = send(&app, request("a", status)).await;
        assert_eq!((reply.status.as_str(), &*reply.body), (status, "false"));
        let mark = reply.header("idempotent-unrecorded");
        assert_eq!(mark, marked.then_some("true"), "{status}");
    }
    nodes[..3].iter().for_each(MemoryNode::come_up);
    while !locks.has_quorum() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let reply = send(&app, request("a", "201")).await;
    assert_eq!(
        (&*reply.body, reply.header("idempotent-unrecorded")),
        ("true", None)
    );
    assert!(send(&app, request("a", "201")).await.is_replayed());
    let ids = ids.lock().unwrap();
    assert_eq!(ids.len(), 5);
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
}

#[tokio::test(start_paused = true)]
async fn safe_methods_are_left_alone_and_handlers_are_told_of_their_key() {
    let nodes = nodes();
    let told = |idempotent: Option<Idempotent>| async move {
        idempotent.map_or("none".to_owned(), |i| {
            format!("{} {}", i.key(), i.fence().is_some())
        })
    };
    let app = Router::new()
        .route("/orders/{shop}", get(told).post(told).put(told))
        .layer(layer(&nodes).methods([http::Method::POST]));
    let with = |method| {
        let request = Request::builder().method(method).uri("/orders/1");
        request
            .header("idempotency-key", "a")
            .body(Body::empty())
            .unwrap()
    };
    for method in ["GET", "PUT"] {
        assert_eq!(send(&app, with(method)).await.body, "none");
    }
    assert_eq!(send(&app, with("POST")).await.body, "a true");
    assert!(send(&app, with("POST")).await.is_replayed());
}
