//! What the crate tells `tracing`: every event that an operator needs, and no secret in any of them.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking, in its helpers too"
)]

mod clocks;
mod credentials;
mod floods;
#[cfg(feature = "idempotency")]
mod kept;
mod losses;
#[cfg(feature = "axum")]
mod mistakes;
mod notices;
mod repairs;
mod replicas;
mod requests;
mod spans;
mod starts;
#[path = "../support/mod.rs"]
mod support;

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::request::Parts;
use tower_redlock::clock::TokioClock;
use tower_redlock::node::MemoryNode;
use tower_redlock::{LockKey, LockManager, RedlockLayer, Settings};
use tracing::field::{Field, Visit};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Instrument as _, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// Writes every event down, a line each: `LEVEL message field=value ..`, and whether it is one of a request.
#[derive(Clone, Default)]
struct Book(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {}={value:?}", field.name()).unwrap();
    }
}

impl<S> Layer<S> for Book
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        if !event.metadata().target().starts_with("tower_redlock") {
            return;
        }
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        let mut spans = context.event_scope(event).into_iter().flatten();
        if spans.any(|span| span.name() == "request") {
            line.0.push_str(" in the span");
        }
        self.0.lock().unwrap().push(line.0);
    }
}

impl Book {
    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    /// The lines that hold `words`.
    fn with(&self, words: &str) -> Vec<String> {
        let mut lines = self.lines();
        lines.retain(|line| line.contains(words));
        lines
    }

    fn count(&self, words: &str) -> usize {
        self.with(words).len()
    }

    #[track_caller]
    fn assert_count(&self, words: &str, count: usize) {
        let found = self.count(words);
        assert_eq!(found, count, "{words:?} in {:#?}", self.lines());
    }

    /// Of the lines with `words` there is one, of this level and with all of these parts.
    #[track_caller]
    fn assert_line(&self, words: &str, level: &str, parts: &[&str]) -> String {
        self.assert_count(words, 1);
        let line = self.with(words).remove(0);
        assert!(line.starts_with(level), "{line}");
        for part in parts {
            assert!(line.contains(part), "{part:?} in {line}");
        }
        line
    }

    /// No line holds `text`.
    #[track_caller]
    fn assert_without(&self, text: &str) {
        self.assert_count(text, 0);
    }
}

/// Writes down what this thread says from now on.
fn listen() -> (Book, DefaultGuard) {
    let book = Book::default();
    let listening = tracing_subscriber::registry().with(book.clone());
    (book, listening.set_default())
}

/// For managers without a thread of their own, as a book is about one thread.
fn here() -> Settings {
    LockManager::builder().clock(TokioClock::new())
}

fn five() -> (Vec<MemoryNode>, Settings) {
    let nodes: Vec<_> = (0..5).map(|n| MemoryNode::new(format!("n{n}"))).collect();
    let builder = here().nodes(nodes.iter().cloned());
    (nodes, builder)
}

/// A manager over five nodes, from whose beginning on a book is kept.
async fn connected() -> (Book, DefaultGuard, Vec<MemoryNode>, LockManager) {
    let (book, listening) = listen();
    let (nodes, builder) = five();
    let locks = builder.connect().await.unwrap();
    (book, listening, nodes, locks)
}

/// A layer that locks `order:1` whatever the request.
fn layer(locks: LockManager) -> RedlockLayer {
    RedlockLayer::new(locks, |_: &Parts| LockKey::new("order:1").unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_lost_lock_is_told_once_and_no_event_holds_its_token() {
    let (book, _listening, nodes, locks) = connected().await;
    let guard = locks.try_acquire("order:1").await.unwrap();
    let token = nodes[0].holder("lk:order:1").unwrap();
    let token = String::from_utf8(token).unwrap();
    nodes.iter().for_each(MemoryNode::freeze);
    guard.lost().await;
    tokio::time::sleep(SECOND).await;
    assert!(guard.is_lost());
    drop(guard);
    // No node answers until the ttl is over, so the release is given up. Of what had ended before that is no news.
    tokio::time::sleep(60 * SECOND).await;
    let parts = ["order:1", "without a successful extension"];
    book.assert_line("lock lost", "ERROR", &parts);
    book.assert_without("could not be released");
    book.assert_without(&token);
}

/// Lets a manager notice what became of its nodes.
async fn looked_at() {
    tokio::time::sleep(1_001 * MS).await;
}

const FORGOT: &str = "WARN message=a node restarted, lost its data or was adopted";

#[tokio::test(start_paused = true)]
async fn a_node_that_forgot_is_told_when_it_is_noticed_and_when_it_votes_again() {
    let (book, _listening, nodes, _locks) = connected().await;
    assert_eq!(book.lines(), [""; 0], "nothing to tell of a start");
    nodes[2].forget();
    looked_at().await;
    looked_at().await;
    book.assert_line(FORGOT, "WARN", &["n2", "wait=10.102s", "remembered=true"]);
    assert_eq!(book.lines().len(), 1);
    tokio::time::sleep(12 * SECOND).await;
    book.assert_line("votes again", "INFO", &["n2"]);
    assert_eq!(book.lines().len(), 2);
    // Said anew of the next time.
    nodes[2].forget();
    looked_at().await;
    book.assert_count(FORGOT, 2);
    assert_eq!(book.lines().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn fencing_tokens_that_nobody_remembers_are_told_as_a_warning() {
    let (book, _listening) = listen();
    let (nodes, builder) = five();
    let builder = builder.max_ttl(10 * SECOND);
    let locks = builder.connect().await.unwrap();
    nodes[..3].iter().for_each(MemoryNode::forget);
    looked_at().await;
    assert_eq!(book.lines().len(), 3);
    book.assert_count(" wait=10.102s remembered=false", 3);
    book.assert_count(FORGOT, 3);
    tokio::time::sleep(13 * SECOND).await;
    // The first that votes makes a quorum with the two that remember, so it alone is at risk.
    book.assert_line("tokens may repeat", "WARN", &["n0"]);
    // Where somebody says that no lock is held there is no risk, and no error.
    nodes[..3].iter().for_each(MemoryNode::forget);
    looked_at().await;
    locks.bootstrap().await.unwrap();
    book.assert_count("tokens may repeat", 1);
    book.assert_count("INFO message=a node votes again", 6);
}

#[tokio::test(start_paused = true)]
async fn a_node_of_other_processes_is_told_once_with_both_lists() {
    let (nodes, builder) = five();
    let _locks = builder.connect().await.unwrap();
    let (book, _listening) = listen();
    let few = here().nodes(nodes[..2].iter().cloned());
    let few = few.connect_lazy().unwrap();
    for _ in 0..3 {
        looked_at().await;
        few.try_acquire("order:1").await.unwrap_err();
    }
    for name in ["n0", "n1"] {
        let words = format!("cannot serve this process node=\"{name}\"");
        let lists = [
            "; nodes n0, n1, n2, n3, n4; quorum 3",
            "; nodes n0, n1; quorum 2",
        ];
        book.assert_line(&words, "ERROR", &lists);
    }
    let of_calls = book.count("acquire key");
    assert_eq!(book.lines().len() - of_calls, 2, "{:#?}", book.lines());
}

#[tokio::test(start_paused = true)]
async fn what_becomes_of_a_call_is_told_in_the_callers_span_and_so_is_the_rest_of_the_lock() {
    let (book, _listening, nodes, locks) = connected().await;
    let work = async {
        let guard = locks.acquire("order:1").await.unwrap();
        locks.try_acquire("order:1").await.unwrap_err();
        guard
    };
    let guard = work.instrument(tracing::info_span!("request")).await;
    let parts = [
        "key=\"order:1\"",
        "wait=0ns",
        "nodes=\"n0, n1, n2",
        " in the span",
    ];
    book.assert_line("outcome=\"acquired\"", "DEBUG", &parts);
    book.assert_line("outcome=\"contended\"", "DEBUG", &["held by another"]);
    // From here on nothing runs in the span.
    nodes.iter().for_each(MemoryNode::freeze);
    guard.lost().await;
    tokio::time::sleep(SECOND).await;
    for words in [
        "lock lost",
        "did not extend a lock key=\"order:1\" node=\"n2\"",
    ] {
        let lines = book.with(words);
        let all = !lines.is_empty() && lines.iter().all(|line| line.ends_with("in the span"));
        assert!(all, "{words}: {lines:#?}");
    }
    locks.try_acquire("order:2").await.unwrap_err();
    let line = book.assert_line("key=\"order:2\"", "DEBUG", &[]);
    assert!(!line.ends_with("in the span"), "{line}");
}

#[tokio::test(start_paused = true)]
async fn redacted_keys_are_in_no_event() {
    let (book, _listening) = listen();
    let (nodes, builder) = five();
    let locks = builder.redact_keys(true).connect().await.unwrap();
    let guard = locks.try_acquire("order:1").await.unwrap();
    let left = locks.try_acquire("order:2").await.unwrap();
    nodes.iter().for_each(MemoryNode::freeze);
    drop(left);
    guard.lost().await;
    tokio::time::sleep(SECOND).await;
    drop(guard);
    tokio::time::sleep(60 * SECOND).await;
    for (words, key) in [
        ("acquire", "order:1"),
        ("lock lost", "order:1"),
        ("could not be released", "order:2"),
        ("did not extend", "order:1"),
    ] {
        let hidden = LockKey::new(key).unwrap().redacted();
        let told = book.with(words);
        assert!(
            told.first().is_some_and(|line| line.contains(&hidden)),
            "{words}: {told:?}"
        );
    }
    book.assert_without("order:");
}
