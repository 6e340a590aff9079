//! All that can become of locks, requests and nodes, to be counted.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use http_body_util::Full;
use tokio::time::sleep;
use tower::{Layer as _, Service, ServiceExt as _, service_fn};
use tower_redlock::error::LossReason;
use tower_redlock::idempotency::IdempotentRun;
use tower_redlock::idempotency::{OnUnrecorded, caller};
use tower_redlock::layer::OnNoQuorum;
use tower_redlock::node::MemoryNode;
use tower_redlock::{AcquireError, IdempotencyLayer, LockKey, LockScope, RedlockLayer};

use super::{MS, builder, five, run};

/// What becomes of calls that do not wait.
pub(super) async fn acquiring() {
    let nodes = five();
    let locks = builder(&nodes).connect_lazy().unwrap();
    let others = builder(&nodes).connect_lazy().unwrap();
    let guard = locks.try_acquire("order:1").await.unwrap();
    others.try_acquire("order:1").await.unwrap_err();
    guard.release().await.unwrap();
    locks.try_acquire("").await.unwrap_err();
    nodes.iter().for_each(MemoryNode::go_down);
    locks.try_acquire("order:1").await.unwrap_err();
    nodes.iter().for_each(MemoryNode::come_up);
    let guard = locks.try_acquire("order:1").await.unwrap();
    nodes.iter().for_each(MemoryNode::freeze);
    guard.release().await.unwrap_err();
    nodes.iter().for_each(MemoryNode::thaw);
    run(&locks, "order:2").await.complete("done").await.unwrap();
    let keep = Duration::from_secs(60);
    let begun = locks.begin_idempotent("order:2", keep, Duration::ZERO);
    let begun = begun.await.unwrap();
    assert!(matches!(begun, IdempotentRun::Replay(_)));
}

/// A grant of which nothing is left when it arrives. Half of the ttl is drift here, and nodes may take most of it.
pub(super) async fn too_late() {
    let nodes = five();
    let slow = builder(&nodes).drift_factor(0.5);
    let slow = slow.max_ttl(Duration::from_secs(3_600));
    let slow = slow.node_timeout(Duration::from_secs(9)).connect();
    let slow = slow.await.unwrap();
    let late = tokio::spawn(async move { slow.try_acquire("order:1").await });
    nodes.iter().for_each(MemoryNode::freeze);
    sleep(Duration::from_secs(6)).await;
    nodes.iter().for_each(MemoryNode::thaw);
    let late = late.await.unwrap();
    assert!(
        matches!(late, Err(AcquireError::TooSlow { .. })),
        "{late:?}"
    );
}

/// What becomes of calls that wait.
pub(super) async fn waiting() {
    let nodes = five();
    let locks = builder(&nodes)
        .max_waiters_per_key(1)
        .connect_lazy()
        .unwrap();
    let guard = locks.acquire("order:1").await.unwrap();
    let timed_out = locks.with_max_wait(10 * MS).acquire("order:1").await;
    assert!(matches!(timed_out, Err(AcquireError::WaitTimeout { .. })));
    let next = tokio::spawn({
        let locks = locks.clone();
        async move { locks.acquire("order:1").await }
    });
    tokio::task::yield_now().await;
    locks.acquire("order:1").await.unwrap_err();
    guard.release().await.unwrap();
    let guard = next.await.unwrap().unwrap();
    let mut gone = Box::pin(locks.acquire("order:1"));
    assert!(tokio::time::timeout(MS, &mut gone).await.is_err());
    drop(gone);
    drop(guard);
    // A wait that ends while the nodes are asked: the nodes may take longer than it lasts.
    let patient = builder(&nodes).node_timeout(Duration::from_secs(2));
    let patient = patient.connect_lazy().unwrap();
    let guard = locks.acquire("order:2").await.unwrap();
    let late =
        tokio::spawn(async move { patient.with_max_wait(500 * MS).acquire("order:2").await });
    sleep(MS).await;
    nodes.iter().for_each(MemoryNode::freeze);
    let timed_out = late.await.unwrap();
    assert!(matches!(timed_out, Err(AcquireError::WaitTimeout { .. })));
    nodes.iter().for_each(MemoryNode::thaw);
    drop(guard);
}

/// A key that three contenders share.
pub(super) async fn splitting() {
    let nodes = five();
    let left = builder(&nodes[..2]).connect_lazy().unwrap();
    let right = builder(&nodes[2..4]).connect_lazy().unwrap();
    let _left = left.try_acquire("order:1").await.unwrap();
    let _right = right.try_acquire("order:1").await.unwrap();
    let locks = builder(&nodes).connect_lazy().unwrap();
    locks.try_acquire("order:1").await.unwrap_err();
}

/// Every reason for which a lock can be lost.
pub(super) async fn losing() {
    let nodes = five();
    let short = builder(&nodes)
        .max_hold(Duration::from_secs(10))
        .connect_lazy()
        .unwrap();
    let guard = short.try_acquire("order:1").await.unwrap();
    // It is told in time, and the lock given back in time: one that was lost for all that.
    assert_eq!(guard.lost().await, LossReason::MaxHold);
    guard.release().await.unwrap();
    let locks = builder(&nodes).connect_lazy().unwrap();
    let scope = LockScope::new();
    let key = LockKey::new("order:2").unwrap();
    let _guard = locks
        .acquire_in(&scope, key.clone().into(), Duration::ZERO)
        .await
        .unwrap();
    nodes.iter().for_each(MemoryNode::freeze);
    sleep(Duration::from_secs(11)).await;
    let lost = locks.acquire_in(&scope, key.into(), Duration::ZERO).await;
    assert_eq!(lost.unwrap_err(), AcquireError::Lost(LossReason::Expired));
    nodes.iter().for_each(MemoryNode::thaw);
    let nodes = five();
    let (locks, thief) = (
        builder(&nodes).connect_lazy().unwrap(),
        builder(&nodes).connect_lazy().unwrap(),
    );
    let guard = locks.try_acquire("order:1").await.unwrap();
    nodes.iter().for_each(MemoryNode::forget);
    let _thief = thief.try_acquire("order:1").await.unwrap();
    assert_eq!(guard.lost().await, LossReason::Taken);
}

/// The status of the answer to a request with this idempotency key.
async fn send<S, B>(service: S, key: &str) -> u16
where
    S: Service<Request<Full<Bytes>>, Response = Response<B>, Error = Infallible>,
{
    let request = Request::post("/").header("idempotency-key", key);
    let request = request.body(Full::default()).unwrap();
    service.oneshot(request).await.unwrap().status().as_u16()
}

async fn done<B>(_: Request<B>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::default()))
}

pub(super) async fn requests() {
    let nodes = five();
    let locks = builder(&nodes).connect_lazy().unwrap();
    let _guard = locks.try_acquire("order:1").await.unwrap();
    let layer = RedlockLayer::new(locks.clone(), |_: &Parts| LockKey::new("order:1").unwrap());
    assert_eq!(send(layer.layer(service_fn(done)), "a").await, 409);
    let layer = IdempotencyLayer::new(locks, caller::nobody());
    for _ in 0..2 {
        assert_eq!(send(layer.layer(service_fn(done)), "a").await, 200);
    }
    let layer = layer
        .on_unrecorded(OnUnrecorded::Respond)
        .on_no_quorum(OnNoQuorum::RunUnlocked);
    let freezing = service_fn(move |request| {
        nodes.iter().for_each(MemoryNode::freeze);
        done(request)
    });
    // Its response is not stored; the next request finds no node that answers.
    for key in ["b", "c"] {
        assert_eq!(send(layer.layer(freezing.clone()), key).await, 200);
    }
}

pub(super) async fn ending() {
    let locks = builder(&five()).connect_lazy().unwrap();
    let guard = locks.try_acquire("order:1").await.unwrap();
    locks.shutdown(Duration::ZERO).await;
    assert_eq!(guard.lost().await, LossReason::Shutdown);
    locks.try_acquire("order:1").await.unwrap_err();
}
