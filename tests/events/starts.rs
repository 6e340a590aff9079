//! What is told while a manager starts.

use std::time::Duration;

use tower_redlock::Settings;
use tower_redlock::node::MemoryNode;
use tower_redlock::node::RedisNode;

use super::support::fake::Proxy;
use super::support::server::{Kind, Server};
use super::{Book, FORGOT, MS, connected, five, here, listen};

const INCOMPLETE: &str =
    "WARN message=a node does not vote before every node has accepted this list once";

/// New servers wait for about half a second.
fn brisk(servers: &[Server]) -> Settings {
    let builder = here().redis(servers.iter().map(Server::url));
    let builder = builder
        .ttl(400 * MS)
        .max_ttl(4_000 * MS)
        .node_timeout(200 * MS);
    builder.max_clock_skew(10 * MS)
}

/// Nothing that was told is a warning or an error.
#[track_caller]
fn assert_quiet(book: &Book) {
    book.assert_without("WARN message");
    book.assert_without("ERROR message");
}

#[tokio::test]
async fn a_server_that_does_not_say_which_one_it_is_is_named_once_with_what_that_gives_up() {
    let (book, _listening) = listen();
    let server = Server::start(Kind::Redis, &[]);
    let proxy = Proxy::hiding("run_id", server.port()).await;
    let builder = here().redis([("main", proxy.url())]);
    let builder = builder.without_restart_guard();
    let locks = builder.node_timeout(2_000 * MS).connect().await;
    // Both of its connections have seen it.
    locks.unwrap().all_voting().await.unwrap();
    let words = "a node does not tell which server it is; after a restart or a failover it may grant a lock that is still held";
    book.assert_line(words, "WARN", &["main"]);
}

#[tokio::test]
async fn the_first_start_on_new_servers_is_no_fault() {
    let (book, _listening) = listen();
    let servers = Server::start_many(Kind::Redis, 5);
    // On a busy machine the first reply of a server may take longer than that of one that serves; that would be told.
    let builder = brisk(&servers)
        .ttl(1_200 * MS)
        .max_ttl(1_200 * MS)
        .node_timeout(900 * MS);
    let locks = builder.connect().await.unwrap();
    locks.all_voting().await.unwrap();
    assert_quiet(&book);
    book.assert_count("a node is new or emptied; it votes once", 5);
    book.assert_count("a new or emptied node votes", 5);
    let parts = ["ready_in=", "verdict=\"quorum: 0 of 5 vote"];
    book.assert_line("waiting until a quorum votes", "INFO", &parts);
    book.assert_count("node is up", 5);
}

#[tokio::test(start_paused = true)]
async fn nodes_that_lose_their_data_while_a_process_runs_are_a_fault() {
    let (book, _listening, nodes, locks) = connected().await;
    assert_quiet(&book);
    nodes.iter().for_each(MemoryNode::forget);
    locks.all_voting().await.unwrap();
    book.assert_count(FORGOT, 5);
    // Those that are let in once a quorum of others votes have somebody to ask.
    let lost = "WARN message=a node votes again with the clock in place of its lost fencing tokens";
    let lost = book.count(lost);
    assert!((3..=5).contains(&lost), "{lost}");
    book.assert_count("new or emptied", 0);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_emptied_beside_others_that_vote_is_a_fault() {
    let (nodes, builder) = five();
    drop(builder.connect().await.unwrap());
    nodes[0].forget();
    let (book, _listening) = listen();
    let builder = here().nodes(nodes.iter().cloned());
    let locks = builder.connect().await.unwrap();
    locks.all_voting().await.unwrap();
    book.assert_count(FORGOT, 1);
    book.assert_count("waiting until a quorum votes", 0);
}

/// Lets a manager notice twice what became of its nodes: of one first, and then of the others beside it.
async fn looked_at() {
    tokio::time::sleep(2_002 * MS).await;
}

#[tokio::test(start_paused = true)]
async fn a_quarantine_is_told_once_whoever_comes_and_goes() {
    let (book, _listening, nodes, locks) = connected().await;
    let others = &nodes[1..4];
    others.iter().for_each(MemoryNode::go_down);
    nodes[0].forget();
    looked_at().await;
    book.assert_line(FORGOT, "WARN", &["n0", "wait=10.1"]);
    for _ in 0..2 {
        others.iter().for_each(MemoryNode::come_up);
        looked_at().await;
        others.iter().for_each(MemoryNode::go_down);
        looked_at().await;
    }
    others.iter().for_each(MemoryNode::come_up);
    locks.all_voting().await.unwrap();
    book.assert_count(FORGOT, 1);
    book.assert_count("INFO message=a node votes again", 1);
}

#[tokio::test(start_paused = true)]
async fn a_wait_of_which_no_end_was_known_is_told_once_it_has_one() {
    let (book, _listening) = listen();
    let (nodes, builder) = five();
    nodes.iter().for_each(MemoryNode::forget);
    nodes[4].go_down();
    let locks = builder.connect_lazy().unwrap();
    looked_at().await;
    book.assert_count(INCOMPLETE, 4);
    nodes[4].come_up();
    looked_at().await;
    let known = "INFO message=a node is new or emptied";
    book.assert_count(known, 5);
    locks.all_voting().await.unwrap();
    book.assert_count(known, 5);
    book.assert_count("INFO message=a new or emptied node votes", 5);
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_was_told_and_need_not_be_is_told_to_be_over() {
    let (book, _listening) = listen();
    let (nodes, builder) = five();
    nodes[4].go_down();
    let locks = builder.connect_lazy().unwrap();
    looked_at().await;
    book.assert_count(INCOMPLETE, 4);
    // None of them was ever used.
    nodes[4].come_up();
    locks.all_voting().await.unwrap();
    book.assert_count("INFO message=a new or emptied node votes", 4);
}

#[tokio::test(start_paused = true)]
async fn a_start_that_has_failed_says_no_more_of_its_nodes() {
    let (book, _listening) = listen();
    // The kernel takes the connection, and nobody answers. That ends when the start does, at 5 s.
    let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", mute.local_addr().unwrap());
    let node = RedisNode::new(&url).connect_timeout(5_000 * MS);
    let start = here().nodes([node.build().unwrap()]);
    start.connect().await.unwrap_err();
    let before = book.lines();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(book.lines(), before);
}

#[tokio::test(start_paused = true)]
async fn a_new_list_does_not_go_on_without_a_node() {
    let (book, _listening) = listen();
    let (nodes, builder) = five();
    nodes[4].go_down();
    let error = builder.connect().await.unwrap_err().to_string();
    let reason = "n0 (it does not vote before every node has accepted";
    assert!(
        error.contains(reason) && error.contains("n4 (the node is down)"),
        "{error}"
    );
    book.assert_count("going on with the quorum", 0);
    book.assert_count(INCOMPLETE, 4);
    nodes[4].come_up();
    let builder = || here().nodes(nodes.iter().cloned());
    drop(builder().connect().await.unwrap());
    nodes[4].go_down();
    builder().connect().await.unwrap();
    let words = "does not answer; going on with the quorum";
    book.assert_line(words, "WARN", &["n4", "the node is down"]);
}
