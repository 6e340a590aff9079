//! What the crate counts: the table in the docs of `tower_redlock::metrics` against what a recorder sees while locks,
//! requests and nodes go through all that can become of them.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking, in its helpers too"
)]

mod entropy;
#[path = "../support/preload.rs"]
#[allow(
    unreachable_pub,
    reason = "most of those who use it are in another module"
)]
mod preload;
mod scenes;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use metrics_util::MetricKind;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use tokio::time::sleep;
use tower_redlock::clock::TokioClock;
use tower_redlock::idempotency::{IdempotentRun, RunGuard};
use tower_redlock::node::MemoryNode;
use tower_redlock::{LockManager, Settings};

const MS: Duration = Duration::from_millis(1);
/// What takes an operating system without random bytes, and therefore a process and a test of its own.
const UNSEEN: [&str; 2] = ["no-entropy", "nodes-full"];
/// What only servers have, which `tests/ops` looks at.
const OF_SERVERS: [&str; 4] = [
    "redlock_node_clock_skew_seconds",
    "redlock_node_credentials_stale",
    "redlock_node_memory_limit_bytes",
    "redlock_node_memory_used_bytes",
];

/// Name to kind, label, and the words that the label may have; none where they are those of a type or of the nodes.
type Table = BTreeMap<String, (String, String, BTreeSet<String>)>;

/// The table of the docs.
fn documented() -> Table {
    let rows = include_str!("../../src/metrics.rs")
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
    fn numbers<const N: usize>(&self, name: &str, words: [&str; N]) -> [f64; N] {
        words.map(|word| self.number(name, word))
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

fn builder(nodes: &[MemoryNode]) -> Settings {
    LockManager::builder()
        .nodes(nodes.iter().cloned())
        .clock(TokioClock::new())
        .ttl(Duration::from_secs(10))
        .without_restart_guard()
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
use recorder;

#[tokio::test(start_paused = true)]
async fn what_a_recorder_sees_is_what_the_table_says() {
    recorder!(seen);
    scenes::acquiring().await;
    scenes::too_late().await;
    scenes::waiting().await;
    scenes::splitting().await;
    scenes::losing().await;
    scenes::requests().await;
    scenes::ending().await;
    let (table, seen) = (documented(), seen());
    assert!(table.len() > 10, "the table was not read: {table:?}");
    let mut missing: Vec<_> = table.keys().cloned().collect();
    let mut unsaid = table.clone();
    for ((name, word), (kind, label, value)) in &seen.0 {
        let (told, told_label, words) = table.get(name).unwrap_or_else(|| panic!("{name}"));
        assert_eq!(told, &format!("{kind:?}").to_lowercase(), "{name}");
        assert_eq!(told_label, label, "{name}");
        if let DebugValue::Counter(0) = value {
            continue;
        }
        // The histogram has the words of the counter in the row above it.
        let inherits = name == "redlock_acquire_wait_seconds";
        let known = words.contains(word) || ["", "node"].contains(&label.as_str()) || inherits;
        assert!(
            known,
            "{name} has the word {word:?}, of which nothing is said"
        );
        missing.retain(|told| told != name);
        unsaid.get_mut(name).unwrap().2.remove(word);
    }
    missing.retain(|name| !OF_SERVERS.contains(&&**name));
    assert_eq!(missing, [""; 0], "documented and never seen");
    for (name, (_, _, words)) in unsaid {
        let words: Vec<_> = words
            .into_iter()
            .filter(|word| !UNSEEN.contains(&&**word) && !is_of_a_rejection(&name, word))
            .collect();
        let inherits = name == "redlock_acquire_wait_seconds";
        assert!(words.is_empty() || inherits, "{name} never had {words:?}");
    }
}

/// Whether a word is the kind of a rejection. Other suites show each of these.
fn is_of_a_rejection(name: &str, word: &str) -> bool {
    let other = ["run", "replayed", "unrecorded", "without-record"].contains(&word);
    ["redlock_rejected_total", "redlock_idempotency_total"].contains(&name) && !other
}

#[tokio::test(start_paused = true)]
async fn every_counter_is_there_at_zero_before_anything_has_happened() {
    recorder!(seen);
    let _locks = builder(&five()).connect_lazy().unwrap();
    let seen = seen();
    let mut expected = BTreeSet::new();
    for (name, (kind, _, words)) in documented() {
        if kind == "counter" {
            expected.extend(words.into_iter().map(|word| (name.clone(), word)));
        }
    }
    assert!(expected.len() > 50, "{expected:?}");
    let is_zero = |value: &DebugValue| matches!(value, DebugValue::Counter(0));
    let counters = seen.0.iter().filter(|(_, (_, _, value))| is_zero(value));
    let counters = counters.map(|(name, _)| name.clone());
    assert_eq!(counters.collect::<BTreeSet<_>>(), expected);
}

#[tokio::test(start_paused = true)]
async fn gauges_return_to_where_they_were() {
    recorder!(seen);
    let nodes = five();
    let locks = builder(&nodes).connect_lazy().unwrap();
    let guard = locks.acquire("order:1").await.unwrap();
    let next = tokio::spawn({
        let locks = locks.clone();
        async move { locks.acquire("order:1").await }
    });
    sleep(50 * MS).await;
    let now = seen();
    // Up by one, and then down by one.
    assert_eq!(now.number("redlock_held", ""), 1.0);
    assert_eq!(now.number("redlock_waiting", ""), 1.0);
    guard.release().await.unwrap();
    let guard = next.await.unwrap().unwrap();
    sleep(70 * MS).await;
    let now = seen();
    assert_eq!(now.number("redlock_waiting", ""), -1.0);
    assert_eq!(now.number("redlock_acquire_total", "acquired"), 1.0);
    assert_eq!(now.number("redlock_release_total", "handed-on"), 1.0);
    guard.release().await.unwrap();
    let now = seen();
    assert_eq!(now.number("redlock_held", ""), -1.0);
    assert_eq!(now.number("redlock_rounds_total", "granted"), 0.0);
    assert_eq!(now.number("redlock_release_total", "released"), 1.0);
}

#[tokio::test(start_paused = true)]
async fn times_are_measured_from_grant_to_end() {
    recorder!(seen);
    let locks = builder(&five()).connect_lazy().unwrap();
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
async fn an_end_is_counted_once_also_one_with_a_result_that_is_dropped() {
    recorder!(seen);
    let nodes = five();
    let locks = builder(&nodes).connect_lazy().unwrap();
    for (key, result) in [("order:1", Some("sent")), ("order:2", None)] {
        let run = run(&locks, key).await;
        match result {
            Some(result) => run.complete(result).await.unwrap(),
            None => run.abandon().await.unwrap(),
        }
    }
    let late = run(&locks, "order:3").await;
    nodes.iter().for_each(MemoryNode::freeze);
    sleep(Duration::from_secs(11)).await;
    assert!(late.handle().is_lost());
    let dropped = tokio::time::timeout(MS, late.complete("sent")).await;
    assert!(dropped.is_err(), "{dropped:?}");
    sleep(Duration::from_secs(11)).await;
    nodes.iter().for_each(MemoryNode::thaw);
    let unconfirmed = run(&locks, "order:4").await;
    nodes.iter().for_each(MemoryNode::freeze);
    unconfirmed.complete("sent").await.unwrap_err();
    let ends = ["released", "lost", "unconfirmed"];
    let ends = seen().numbers("redlock_release_total", ends);
    assert_eq!(ends, [2.0, 1.0, 1.0]);
}

#[tokio::test(start_paused = true)]
async fn every_guard_whose_lock_is_lost_is_counted_as_that_once() {
    recorder!(seen);
    let nodes = five();
    let short = builder(&nodes).max_hold(Duration::from_secs(10));
    let short = short.connect_lazy().unwrap();
    let hold = async |key: &str| short.try_acquire(key).await.unwrap();
    let (one, two) = (hold("order:1").await, hold("order:2").await);
    let (three, four) = (hold("order:3").await, hold("order:4").await);
    let also = one.reenter().unwrap();
    also.lost().await;
    drop(also);
    for told in [&one, &two] {
        told.lost().await;
        assert!(!told.is_lost(), "it is told in time");
    }
    drop(one);
    two.release().await.unwrap();
    sleep(Duration::from_secs(1)).await;
    assert!(three.is_lost());
    drop(three);
    four.release().await.unwrap_err();
    sleep(MS).await;
    let now = seen();
    let lost = now.numbers("redlock_lost_total", ["max-hold", "expired", "taken"]);
    assert_eq!(lost.iter().sum::<f64>(), 4.0, "{lost:?}");
    let ends = ["lost", "released", "unconfirmed"];
    let ends = now.numbers("redlock_release_total", ends);
    assert_eq!(ends, [4.0, 0.0, 0.0]);
}

/// The right to do the work called `key`.
async fn run(locks: &LockManager, key: &str) -> RunGuard {
    let keep = Duration::from_secs(60);
    match locks.begin_idempotent(key, keep, Duration::ZERO).await {
        Ok(IdempotentRun::Execute(run)) => run,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn nodes_are_shown_as_they_are() {
    recorder!(seen);
    let nodes = five();
    let guarded = LockManager::builder()
        .nodes(nodes.iter().cloned())
        .clock(TokioClock::new())
        .max_clock_skew(MS);
    let locks = guarded.connect().await.unwrap();
    sleep(Duration::from_millis(1_500)).await;
    let assert_shown = |up: [f64; 4], voting: [f64; 4], without_quorum: f64| {
        let (now, names) = (seen(), ["n0", "n1", "n2", "n3"]);
        assert_eq!(now.numbers("redlock_node_up", names), up);
        assert_eq!(now.numbers("redlock_node_voting", names), voting);
        assert_eq!(now.number("redlock_without_quorum", ""), without_quorum);
    };
    assert_shown([1.0; 4], [1.0; 4], 0.0);
    nodes[1].go_down();
    nodes[2].forget();
    nodes[3].freeze();
    sleep(Duration::from_millis(2_500)).await;
    // One that is frozen has said nothing to the contrary.
    assert_shown([1.0, 0.0, 1.0, 1.0], [1.0, 0.0, 0.0, 0.0], 1.0);
    drop(locks);
    sleep(Duration::from_millis(2_500)).await;
    // Nobody uses them, and of those without a quorum there is one less.
    assert_shown([0.0; 4], [0.0; 4], -1.0);
}
