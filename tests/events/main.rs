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
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tower_redlock::clock::TokioClock;
use tower_redlock::node::MemoryNode;
use tower_redlock::{LockKey, LockManager, Settings};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Instrument as _, Metadata, Subscriber};

/// Writes every event down, a line each: `LEVEL message field=value ..`.
#[derive(Clone, Default)]
struct Book(
    Arc<Mutex<Vec<String>>>,
    Arc<AtomicUsize>,
    Arc<OnceLock<&'static Metadata<'static>>>,
);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {}={value:?}", field.name()).unwrap();
    }
}

impl Subscriber for Book {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() || metadata.target().starts_with("tower_redlock")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        // A test has one span at most.
        let _ = self.2.set(span.metadata());
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        if self.1.load(Ordering::Relaxed) > 0 {
            line.0.push_str(" in the span");
        }
        self.0.lock().unwrap().push(line.0);
    }

    fn current_span(&self) -> tracing_core::span::Current {
        match self.2.get() {
            Some(span) if self.1.load(Ordering::Relaxed) > 0 => {
                tracing_core::span::Current::new(Id::from_u64(1), span)
            }
            _ => tracing_core::span::Current::none(),
        }
    }

    fn enter(&self, _span: &Id) {
        self.1.fetch_add(1, Ordering::Relaxed);
    }

    fn exit(&self, _span: &Id) {
        self.1.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Book {
    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    /// The one line that holds `words`.
    fn line(&self, words: &str) -> String {
        let lines = self.lines();
        let mut found = lines.iter().filter(|line| line.contains(words));
        let line = found
            .next()
            .unwrap_or_else(|| panic!("no {words:?} in {lines:#?}"));
        assert!(
            found.next().is_none(),
            "{words:?} more than once in {lines:#?}"
        );
        line.clone()
    }
}

/// Writes down what this thread says from now on.
fn listen() -> (Book, DefaultGuard) {
    let book = Book::default();
    let listening = tracing::subscriber::set_default(book.clone());
    (book, listening)
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

#[tokio::test(start_paused = true)]
async fn a_node_that_is_missing_at_connect_is_named() {
    let (book, _listening) = listen();
    let (nodes, builder) = five();
    drop(builder.connect().await.unwrap());
    nodes.first().unwrap().go_down();
    let builder = here().nodes(nodes.iter().cloned());
    builder.connect().await.unwrap();
    let line = book.line("does not answer");
    assert!(line.starts_with("WARN") && line.contains("n0"), "{line}");
    assert!(line.contains("the node is down"), "{line}");
}

#[tokio::test(start_paused = true)]
async fn a_lost_lock_is_told_once_and_no_event_holds_its_token() {
    let (book, _listening) = listen();
    let (nodes, builder) = five();
    let locks = builder.connect().await.unwrap();
    let guard = locks.try_acquire("order:1").await.unwrap();
    let token = nodes.first().unwrap().holder("lk:order:1").unwrap();
    let token = String::from_utf8(token).unwrap();
    nodes.iter().for_each(MemoryNode::freeze);
    guard.lost().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(guard.is_lost());
    drop(guard);
    // No node answers until the ttl is over, so the release is given up. Of what had ended before that is no news.
    tokio::time::sleep(Duration::from_secs(60)).await;

    let line = book.line("lock lost");
    assert!(
        line.starts_with("ERROR") && line.contains("order:1"),
        "{line}"
    );
    assert!(line.contains("without a successful extension"), "{line}");
    let all = book.lines().concat();
    assert!(!all.contains("could not be released"), "{all}");
    assert!(!all.contains(&token));
}

/// Lets a manager notice what became of its nodes.
async fn looked_at() {
    tokio::time::sleep(Duration::from_millis(1_001)).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_forgot_is_told_when_it_is_noticed_and_when_it_votes_again() {
    let (book, _listening) = listen();
    let (nodes, builder) = five();
    let locks = builder.connect().await.unwrap();
    assert_eq!(book.lines(), [""; 0], "nothing to tell of a start");
    nodes[2].forget();
    looked_at().await;
    looked_at().await;
    let line = book.line("restarted, lost its data or was adopted");
    assert!(line.starts_with("WARN") && line.contains("n2"), "{line}");
    assert!(
        line.contains("wait=10.102s") && line.contains("remembered=true"),
        "{line}"
    );
    assert_eq!(book.lines().len(), 1);
    tokio::time::sleep(Duration::from_secs(12)).await;
    let line = book.line("votes again");
    assert!(line.starts_with("INFO") && line.contains("n2"), "{line}");
    assert_eq!(book.lines().len(), 2);
    // Said anew of the next time.
    nodes[2].forget();
    looked_at().await;
    let lines = book.lines();
    assert!(
        lines.len() == 3 && lines[2].contains("restarted, lost its data or was adopted"),
        "{lines:#?}"
    );
    drop(locks);
}

#[tokio::test(start_paused = true)]
async fn fencing_tokens_that_nobody_remembers_are_told_as_a_warning() {
    let (book, _listening) = listen();
    let (nodes, builder) = five();
    let builder = builder.max_ttl(Duration::from_secs(10));
    let locks = builder.connect().await.unwrap();
    nodes[..3].iter().for_each(MemoryNode::forget);
    looked_at().await;
    let lines = book.lines();
    let told = |line: &String| line.starts_with("WARN") && line.contains("remembered=false");
    assert!(lines.len() == 3 && lines.iter().all(told), "{lines:#?}");
    assert!(
        lines.iter().all(|line| line.contains("wait=10.102s")),
        "{lines:#?}"
    );
    tokio::time::sleep(Duration::from_secs(13)).await;
    // The first that votes makes a quorum with the two that remember, so it alone is at risk.
    let line = book.line("tokens may repeat");
    assert!(line.starts_with("WARN") && line.contains("n0"), "{line}");
    // Where somebody says that no lock is held there is no risk, and no error.
    nodes[..3].iter().for_each(MemoryNode::forget);
    looked_at().await;
    locks.bootstrap().await.unwrap();
    book.line("tokens may repeat");
    let again = |line: &&String| line.contains("votes again") && line.starts_with("INFO");
    assert_eq!(book.lines().iter().filter(again).count(), 6);
}

#[tokio::test(start_paused = true)]
async fn a_node_of_other_processes_is_told_once_with_both_lists() {
    let book = Book::default();
    let (nodes, builder) = five();
    let _locks = builder.connect().await.unwrap();
    let _listening = tracing::subscriber::set_default(book.clone());
    let few = here().nodes(nodes[..2].iter().cloned());
    let few = few.clock(TokioClock::new()).connect_lazy().unwrap();
    for _ in 0..3 {
        looked_at().await;
        few.try_acquire("order:1").await.unwrap_err();
    }
    for name in ["n0", "n1"] {
        let line = book.line(&format!("cannot serve this process node=\"{name}\""));
        assert!(line.starts_with("ERROR"), "{line}");
        assert!(
            line.contains("; nodes n0, n1, n2, n3, n4; quorum 3"),
            "{line}"
        );
        assert!(line.contains("; nodes n0, n1; quorum 2"), "{line}");
    }
    let lines = book.lines();
    let others = lines.iter().filter(|line| !line.contains("acquire key"));
    assert_eq!(others.count(), 2, "{lines:#?}");
}

#[tokio::test(start_paused = true)]
async fn what_becomes_of_a_call_is_told_in_the_callers_span_and_so_is_the_rest_of_the_lock() {
    let (book, _listening) = listen();
    let (nodes, builder) = five();
    let locks = builder.connect().await.unwrap();
    let work = async {
        let guard = locks.acquire("order:1").await.unwrap();
        locks.try_acquire("order:1").await.unwrap_err();
        guard
    };
    let guard = work.instrument(tracing::info_span!("request")).await;
    let line = book.line("outcome=\"acquired\"");
    assert!(
        line.starts_with("DEBUG") && line.ends_with("in the span"),
        "{line}"
    );
    assert!(
        line.contains("key=\"order:1\"") && line.contains("wait=0ns"),
        "{line}"
    );
    assert!(line.contains("nodes=\"n0, n1, n2"), "{line}");
    let line = book.line("outcome=\"contended\"");
    assert!(line.contains("held by another"), "{line}");
    // From here on nothing runs in the span.
    nodes.iter().for_each(MemoryNode::freeze);
    guard.lost().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    for words in [
        "lock lost",
        "did not extend a lock key=\"order:1\" node=\"n2\"",
    ] {
        let lines = book.lines();
        let line = lines.iter().find(|line| line.contains(words));
        let line = line.unwrap_or_else(|| panic!("no {words} in {lines:#?}"));
        assert!(line.ends_with("in the span"), "{line}");
    }
    locks.try_acquire("order:2").await.unwrap_err();
    let line = book.line("key=\"order:2\"");
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
    tokio::time::sleep(Duration::from_secs(1)).await;
    drop(guard);
    tokio::time::sleep(Duration::from_secs(60)).await;
    for (words, key) in [
        ("acquire", "order:1"),
        ("lock lost", "order:1"),
        ("could not be released", "order:2"),
        ("did not extend", "order:1"),
    ] {
        let hidden = LockKey::new(key).unwrap().redacted();
        let lines = book.lines();
        let told = lines.iter().find(|line| line.contains(words));
        let told = told.unwrap_or_else(|| panic!("no {words} in {lines:#?}"));
        assert!(told.contains(&hidden), "{told}");
    }
    assert!(!book.lines().concat().contains("order:"));
}
