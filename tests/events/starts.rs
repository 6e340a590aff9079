//! What is told while a manager starts.

use std::time::Duration;

use tower_redlock::config::RestartGuard;
use tower_redlock::node::memory::MemoryNode;
use tower_redlock::{LockManager, LockManagerBuilder};

use super::support::server::{Kind, Server};
use super::{Book, five, listen};

const MS: Duration = Duration::from_millis(1);

/// New servers wait for about half a second.
fn brisk(servers: &[Server]) -> LockManagerBuilder {
    let builder = LockManager::builder().redis(servers.iter().map(Server::url));
    let builder = builder
        .ttl(400 * MS)
        .max_ttl(4_000 * MS)
        .node_timeout(200 * MS);
    builder.restart_guard(RestartGuard::max_clock_skew(10 * MS))
}

/// Nothing that was told is a warning or an error.
#[track_caller]
fn assert_quiet(book: &Book) {
    let lines = book.lines();
    let is_loud = |line: &&String| line.starts_with("WARN") || line.starts_with("ERROR");
    let loud: Vec<_> = lines.iter().filter(is_loud).collect();
    assert!(loud.is_empty(), "{loud:#?}");
}

#[track_caller]
fn assert_count(book: &Book, words: &str, count: usize) {
    let lines = book.lines();
    let found = lines.iter().filter(|line| line.contains(words));
    assert_eq!(found.count(), count, "{words} in {lines:#?}");
}

#[tokio::test]
async fn the_first_start_on_new_servers_is_no_fault() {
    let (book, _listening) = listen();
    let servers = Server::start_many(Kind::Redis, 5);
    let locks = brisk(&servers).connect().await.unwrap();
    locks.all_voting().await.unwrap();
    assert_quiet(&book);
    assert_count(&book, "a node is new or emptied; it votes once", 5);
    assert_count(&book, "a new or emptied node votes", 5);
    let line = book.line("waiting until a quorum votes");
    assert!(
        line.contains("ready_in=") && line.contains("quorum: 0 of 5 vote"),
        "{line}"
    );
    assert_count(&book, "node is up", 5);
}

#[tokio::test(start_paused = true)]
async fn nodes_that_lose_their_data_while_a_process_runs_are_a_fault() {
    let (book, _listening) = listen();
    let (nodes, builder) = five();
    let locks = builder.connect().await.unwrap();
    assert_quiet(&book);
    nodes.iter().for_each(MemoryNode::forget);
    locks.all_voting().await.unwrap();
    assert_count(&book, "WARN message=a node restarted or lost its data", 5);
    // Those that are let in once a quorum of others votes have somebody to ask.
    let lines = book.lines();
    let lost =
        "ERROR message=a node votes again with the clock in place of its lost fencing tokens";
    let lost = lines.iter().filter(|line| line.starts_with(lost)).count();
    assert!((3..=5).contains(&lost), "{lines:#?}");
    assert_count(&book, "new or emptied", 0);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_emptied_beside_others_that_vote_is_a_fault() {
    let (nodes, builder) = five();
    drop(builder.connect().await.unwrap());
    nodes[0].forget();
    let (book, _listening) = listen();
    let builder = LockManager::builder().nodes(nodes.iter().cloned());
    let locks = builder.connect().await.unwrap();
    locks.all_voting().await.unwrap();
    assert_count(&book, "WARN message=a node restarted or lost its data", 1);
    assert_count(&book, "waiting until a quorum votes", 0);
}

#[tokio::test]
async fn a_start_without_a_node_that_cannot_serve_is_an_error_event() {
    let servers = Server::start_many(Kind::Redis, 3);
    drop(brisk(&servers).bootstrap(true).connect().await.unwrap());
    servers[1].run("CONFIG SET maxmemory-policy allkeys-lru");
    let (book, _listening) = listen();
    let locks = brisk(&servers)
        .start_on_quorum(true)
        .connect()
        .await
        .unwrap();
    let line = book.line("a node cannot serve; started on the quorum of the others");
    let name = &locks.nodes()[1].name;
    assert!(line.starts_with("ERROR") && line.contains(name), "{line}");
    assert!(line.contains("maxmemory-policy"), "{line}");
}
