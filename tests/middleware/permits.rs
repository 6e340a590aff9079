//! A layer that lets a few requests to one resource run at once.

use bytes::Bytes;
use http::{Method, Response, StatusCode};
use tower_redlock::{LockManager, RedlockLayer, key};

use super::{Answer, MS, Nodes, SECOND, Staying, sent};

/// Requests that tell the slot that they have.
fn staying(layer: RedlockLayer) -> Staying<Option<u32>> {
    Staying::new(layer, |held| held.unwrap().slot())
}

fn layer(locks: &LockManager) -> RedlockLayer {
    let report = key::path("name").prefix("report");
    RedlockLayer::new(locks.permits(2).unwrap(), report)
}

fn told(answer: &Answer) -> [Option<&str>; 3] {
    ["ratelimit-policy", "ratelimit", "retry-after"].map(|name| answer.header(name))
}

#[tokio::test(start_paused = true)]
async fn as_many_requests_run_as_there_are_permits_and_the_next_is_told() {
    let nodes = Nodes::five();
    let mut staying = staying(layer(&nodes.manager()).rate_limit("re\"ports\n"));
    let send = |path| sent(&staying.app, Method::POST, path);
    let running = [send("/7"), send("/7")];
    let mut slots = [staying.arrived.recv().await, staying.arrived.recv().await];
    slots.sort_unstable();
    assert_eq!(slots, [0, 1].map(|slot| Some(Some(slot))));
    let refused = send("/7").await.unwrap();
    assert_eq!(refused.status, 429);
    let policy = r#""reports";q=2;qu="concurrent-requests""#;
    let limit = r#""reports";r=0"#;
    assert_eq!(told(&refused), [Some(policy), Some(limit), Some("1")]);
    // Another tenant has permits of its own.
    staying.go.add_permits(4);
    assert_eq!(send("/8").await.unwrap().status, 200);
    for running in running {
        let answer = running.await.unwrap();
        assert_eq!((answer.status, told(&answer)), (200, [None; 3]));
    }
    assert_eq!(send("/7").await.unwrap().status, 200);
    nodes.settle_free().await;
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_a_permit_and_a_route_chooses_its_response() {
    let locks = Nodes::five().manager();
    let waits = layer(&locks)
        .max_wait(SECOND)
        .busy_status(StatusCode::LOCKED);
    let response = |_: &_| Response::new(Bytes::from_static(b"busy"));
    let mut staying = staying(waits.rejection_response(response).rate_limit("reports"));
    let permits = locks.permits(2).unwrap();
    let first = permits.try_acquire("report:7").await.unwrap();
    let _second = permits.try_acquire("report:7").await.unwrap();
    let late = sent(&staying.app, Method::POST, "/7").await.unwrap();
    assert_eq!(
        (late.status, &*late.text),
        (200, "busy"),
        "as the route has it"
    );
    assert!(late.headers.contains_key("ratelimit"));
    let waiting = sent(&staying.app, Method::POST, "/7");
    tokio::time::sleep(MS * 100).await;
    assert!(staying.arrived.try_recv().is_err());
    first.release().await.unwrap();
    assert!(staying.arrived.recv().await.unwrap().is_some());
    staying.go.add_permits(1);
    assert!(!waiting.await.unwrap().headers.contains_key("ratelimit"));
}

/// A request that has the one lock has a permit beside it.
#[tokio::test(start_paused = true)]
async fn a_permit_and_a_lock_on_one_key_are_two_things() {
    let (nodes, locks) = Nodes::with_manager();
    let lock = RedlockLayer::new(locks.clone(), key::path("name").prefix("report"));
    let mut staying = staying(layer(&locks));
    let app = staying.app.route_layer(lock);
    staying.go.add_permits(1);
    assert_eq!(sent(&app, Method::POST, "/7").await.unwrap().status, 200);
    assert!(staying.arrived.recv().await.unwrap().is_some());
    nodes.settle_free().await;
}
