//! What the crate counts: the table in the docs of `tower_redlock::metrics` against what a recorder sees while locks,
//! requests and nodes go through all that can become of them.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use http_body_util::Full;
use metrics_util::MetricKind;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use tokio::time::sleep;
use tower::{Layer as _, ServiceExt as _, service_fn};
use tower_redlock::clock::TokioClock;
use tower_redlock::idempotency::{OnUnrecorded, caller};
use tower_redlock::node::memory::MemoryNode;
use tower_redlock::{
    AcquireError, IdempotencyLayer, LockKey, LockManager, LockManagerBuilder, LockScope,
    LossReason, Recall, RedlockLayer, RestartGuard,
};

const MS: Duration = Duration::from_millis(1);
/// What is documented and takes an operating system without random bytes, or nodes slower than their time-out.
const UNSEEN: [&str; 2] = ["no_entropy", "too_slow"];

/// Name to kind, label, and the words that the label may have; none where they are those of a type or of the nodes.
type Table = BTreeMap<String, (String, String, BTreeSet<String>)>;

/// The table of the docs.
fn documented() -> Table {
    let rows = include_str!("../src/metrics.rs")
        .lines()
        .filter_map(|line| line.strip_prefix("//! | `redlock_"));
    let rows = rows.map(|row| {
        let mut cells = row.split(" | ");
        let name = format!("redlock_{}", cells.next().unwrap().trim_end_matches('`'));
        let kind = cells.next().unwrap().to_owned();
        // The odd pieces are those in back-quotes.
        let label = cells.next().unwrap_or_default();
        let mut quoted = label.split('`').skip(1).step_by(2).map(str::to_owned);
        let label = if label.starts_with('`') {
            quoted.next().unwrap()
        } else {
            String::new()
        };
        // A type stands for its words.
        let words = quoted.filter(|word| !word.starts_with(char::is_uppercase));
        (name, (kind, label, words.collect()))
    });
    rows.collect()
}

/// What was seen since the last look, by name and the one label's value.
struct Seen(BTreeMap<(String, String), (MetricKind, String, DebugValue)>);

impl Seen {
    fn of(snapshotter: &Snapshotter) -> Self {
        let seen = snapshotter.snapshot().into_vec().into_iter();
        let seen = seen.map(|(key, _, _, value)| {
            let (kind, key) = key.into_parts();
            let mut labels = key.labels();
            let label = labels.next().map(|label| label.clone().into_parts());
            assert!(labels.next().is_none(), "{key} has several labels");
            let (label, word) = label.unwrap_or_default();
            let name = (key.name().to_owned(), word.to_string());
            (name, (kind, label.to_string(), value))
        });
        Self(seen.collect())
    }

    #[track_caller]
    fn number(&self, name: &str, word: &str) -> f64 {
        match &self.0[&(name.to_owned(), word.to_owned())].2 {
            DebugValue::Counter(count) => f64::from(u32::try_from(*count).unwrap()),
            DebugValue::Gauge(number) => number.0,
            DebugValue::Histogram(values) => values.iter().map(|value| value.0).sum(),
        }
    }
}

fn builder(nodes: &[MemoryNode]) -> LockManagerBuilder {
    LockManager::builder()
        .nodes(nodes.iter().cloned())
        .clock(TokioClock::new())
        .ttl(Duration::from_secs(10))
        .restart_guard(RestartGuard::OFF)
}

fn five() -> Vec<MemoryNode> {
    (0..5).map(|n| MemoryNode::new(format!("n{n}"))).collect()
}

/// A recorder for this test alone, and what it has seen.
macro_rules! recorder {
    ($seen:ident) => {
        let recorder = DebuggingRecorder::new();
        let snapshotter = recorder.snapshotter();
        let _recording = metrics::set_default_local_recorder(&recorder);
        let $seen = || Seen::of(&snapshotter);
    };
}

#[tokio::test(start_paused = true)]
async fn what_a_recorder_sees_is_what_the_table_says() {
    recorder!(seen);
    acquiring().await;
    waiting().await;
    splitting().await;
    losing().await;
    lending().await;
    requests().await;
    ending().await;
    let (table, seen) = (documented(), seen());
    assert!(table.len() > 10, "the table was not read: {table:?}");
    let mut missing: Vec<_> = table.keys().cloned().collect();
    let mut unsaid = table.clone();
    for ((name, word), (kind, label, _)) in &seen.0 {
        let (told, told_label, words) = table.get(name).unwrap_or_else(|| panic!("{name}"));
        assert_eq!(told, &format!("{kind:?}").to_lowercase(), "{name}");
        assert_eq!(told_label, label, "{name}");
        let kinds = ["node", "kind"].contains(&label.as_str()) || name.contains("idempotency");
        // The histogram has the words of the counter in the row above it.
        let inherits = name == "redlock_acquire_wait_seconds";
        let known = words.contains(word) || label.is_empty() || kinds || inherits;
        assert!(
            known,
            "{name} has the word {word:?}, of which nothing is said"
        );
        missing.retain(|told| told != name);
        unsaid.get_mut(name).unwrap().2.remove(word);
    }
    assert_eq!(missing, [""; 0], "documented and never seen");
    for (name, (_, _, words)) in unsaid {
        let words: Vec<_> = words
            .into_iter()
            .filter(|word| !UNSEEN.contains(&&**word))
            .collect();
        let inherits = name == "redlock_acquire_wait_seconds";
        assert!(words.is_empty() || inherits, "{name} never had {words:?}");
    }
}

/// What becomes of calls that do not wait.
async fn acquiring() {
    let nodes = five();
    let locks = builder(&nodes).lazy().unwrap();
    let others = builder(&nodes).lazy().unwrap();
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
    let keep = Duration::from_secs(60);
    let recalled = locks.recall("order:2", keep, Duration::ZERO).await;
    let Ok(Recall::Run(run)) = recalled else {
        panic!("{recalled:?}")
    };
    run.complete("done").await.unwrap();
    let recalled = locks.recall("order:2", keep, Duration::ZERO).await.unwrap();
    assert!(matches!(recalled, Recall::Replay(_)));
}

/// What becomes of calls that wait.
async fn waiting() {
    let nodes = five();
    let locks = builder(&nodes).max_waiters_per_key(1).lazy().unwrap();
    let guard = locks.acquire("order:1").await.unwrap();
    let timed_out = locks.acquire_within("order:1", 10 * MS).await;
    assert!(matches!(timed_out, Err(AcquireError::WaitTimeout(_))));
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
    let patient = patient.lazy().unwrap();
    let guard = locks.acquire("order:2").await.unwrap();
    let late = tokio::spawn(async move { patient.acquire_within("order:2", 500 * MS).await });
    sleep(MS).await;
    nodes.iter().for_each(MemoryNode::freeze);
    let timed_out = late.await.unwrap();
    assert!(matches!(timed_out, Err(AcquireError::WaitTimeout(_))));
    nodes.iter().for_each(MemoryNode::thaw);
    drop(guard);
}

/// A key that three contenders share.
async fn splitting() {
    let nodes = five();
    let left = builder(&nodes[..2]).lazy().unwrap();
    let right = builder(&nodes[2..4]).lazy().unwrap();
    let _left = left.try_acquire("order:1").await.unwrap();
    let _right = right.try_acquire("order:1").await.unwrap();
    let locks = builder(&nodes).lazy().unwrap();
    locks.try_acquire("order:1").await.unwrap_err();
}

/// Every reason for which a lock can be lost, but the lender's.
async fn losing() {
    let nodes = five();
    let short = builder(&nodes)
        .max_hold(Duration::from_secs(10))
        .lazy()
        .unwrap();
    let guard = short.try_acquire("order:1").await.unwrap();
    assert_eq!(guard.lost().await, LossReason::MaxHold);
    sleep(Duration::from_secs(1)).await;
    guard.release().await.unwrap_err();
    let locks = builder(&nodes).lazy().unwrap();
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
}

/// A loan that comes back, and one whose lender loses the lock.
async fn lending() {
    let nodes = five();
    let (locks, peer) = (
        builder(&nodes).lazy().unwrap(),
        builder(&nodes).lazy().unwrap(),
    );
    let key = || LockKey::new("order:1").unwrap().into();
    let guard = locks.try_acquire("order:1").await.unwrap();
    let loan = guard.lend().unwrap();
    drop(peer.borrow_keys(key(), &loan.proof()).await.unwrap());
    let borrowed = peer.borrow_keys(key(), &loan.proof()).await.unwrap();
    nodes.iter().for_each(MemoryNode::forget);
    let _thief = builder(&nodes)
        .lazy()
        .unwrap()
        .try_acquire("order:1")
        .await
        .unwrap();
    assert_eq!(guard.lost().await, LossReason::Taken);
    assert_eq!(borrowed.lost().await, LossReason::Lender);
    loan.returned();
}

async fn done<B>(_: Request<B>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::default()))
}

async fn requests() {
    let nodes = five();
    let locks = builder(&nodes).lazy().unwrap();
    let request = || {
        let request = Request::post("/").header("idempotency-key", "a");
        request.body(Full::<Bytes>::default()).unwrap()
    };
    let _guard = locks.try_acquire("order:1").await.unwrap();
    let layer = RedlockLayer::new(locks.clone(), |_: &Parts| LockKey::new("order:1").unwrap());
    assert_eq!(
        layer
            .layer(service_fn(done))
            .oneshot(request())
            .await
            .unwrap()
            .status(),
        409
    );
    let layer = IdempotencyLayer::new(locks, caller::nobody());
    for _ in 0..2 {
        let answer = layer
            .layer(service_fn(done))
            .oneshot(request())
            .await
            .unwrap();
        assert_eq!(answer.status(), 200);
    }
    let layer = layer.on_unrecorded(OnUnrecorded::Answer);
    let freezing = service_fn(move |request| {
        nodes.iter().for_each(MemoryNode::freeze);
        done(request)
    });
    let request = Request::post("/").header("idempotency-key", "b");
    let request = request.body(Full::<Bytes>::default()).unwrap();
    let answer = layer.layer(freezing).oneshot(request).await.unwrap();
    assert_eq!(answer.status(), 200);
}

async fn ending() {
    let locks = builder(&five()).lazy().unwrap();
    let guard = locks.try_acquire("order:1").await.unwrap();
    locks.shutdown(Duration::ZERO).await;
    assert_eq!(guard.lost().await, LossReason::Shutdown);
    locks.try_acquire("order:1").await.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn gauges_return_to_where_they_were() {
    recorder!(seen);
    let nodes = five();
    let locks = builder(&nodes).lazy().unwrap();
    let guard = locks.acquire("order:1").await.unwrap();
    let next = tokio::spawn({
        let locks = locks.clone();
        async move { locks.acquire("order:1").await }
    });
    sleep(50 * MS).await;
    let now = seen();
    // Up by one, and then down by one.
    assert_eq!(
        (
            now.number("redlock_held", ""),
            now.number("redlock_waiting", "")
        ),
        (1.0, 1.0)
    );
    guard.release().await.unwrap();
    let guard = next.await.unwrap().unwrap();
    sleep(70 * MS).await;
    let now = seen();
    assert_eq!(now.number("redlock_waiting", ""), -1.0);
    assert_eq!(now.number("redlock_acquire_total", "acquired"), 1.0);
    assert_eq!(now.number("redlock_release_total", "handed_on"), 1.0);
    guard.release().await.unwrap();
    let now = seen();
    assert_eq!(now.number("redlock_held", ""), -1.0);
    assert_eq!(now.number("redlock_rounds_total", "granted"), 0.0);
    assert_eq!(now.number("redlock_release_total", "released"), 1.0);
}

#[tokio::test(start_paused = true)]
async fn times_are_measured_from_grant_to_end() {
    recorder!(seen);
    let locks = builder(&five()).lazy().unwrap();
    let guard = locks.acquire("order:1").await.unwrap();
    sleep(250 * MS).await;
    drop(guard);
    sleep(MS).await;
    let now = seen();
    assert!((now.number("redlock_hold_seconds", "") - 0.25).abs() < 0.002);
    assert_eq!(now.number("redlock_acquire_wait_seconds", "acquired"), 0.0);
    assert_eq!(now.number("redlock_release_total", "released"), 1.0);
}

#[tokio::test(start_paused = true)]
async fn nodes_are_shown_as_they_are() {
    recorder!(seen);
    let nodes = five();
    let guarded = builder(&nodes).restart_guard(RestartGuard::max_clock_skew(MS));
    let _locks = guarded.connect().await.unwrap();
    sleep(Duration::from_millis(1_500)).await;
    let now = seen();
    assert_eq!(now.number("redlock_node_up", "n1"), 1.0);
    assert_eq!(now.number("redlock_node_voting", "n1"), 1.0);
    nodes[1].go_down();
    nodes[2].forget();
    sleep(Duration::from_millis(2_500)).await;
    let now = seen();
    assert_eq!(now.number("redlock_node_up", "n1"), 0.0);
    assert_eq!(now.number("redlock_node_voting", "n2"), 0.0);
    assert_eq!(now.number("redlock_node_up", "n2"), 1.0);
    assert_eq!(now.number("redlock_node_voting", "n0"), 1.0);
}
