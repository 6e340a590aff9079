//! Servers that go away and come back.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use futures_util::FutureExt as _;
use tower_redlock::node::ExtendReply;

use crate::support::PATIENCE;
use crate::support::fake::{Fake, Proxy, sound};
use crate::support::nodes::{self, is_down, ready};
use crate::*;

#[tokio::test]
async fn a_node_that_is_down_fails_at_the_first_poll() {
    let mut server = Server::start(Kind::Redis, &[]);
    server.kill();
    let node = started(&server.url());
    let early = node.acquire(acquire("k", 1)).await;
    assert_eq!(kind_of(early), NodeErrorKind::Unavailable);
    eventually("down", || is_down(&node)).await;

    let answer = node.acquire(acquire("k", 1)).now_or_never();
    let error = answer.expect("it waits for a server that is down");
    let error = error.unwrap_err();
    assert_eq!(error.kind(), NodeErrorKind::Unavailable);
    assert!(error.to_string().contains("refused"), "{error}");
    let extended = node.extend(Arc::from([extend("k", 1)])).now_or_never();
    let released = node.release(release("k", 1)).now_or_never();
    assert!(extended.is_some() && released.is_some());

    server.restart();
    settled(&node).await.unwrap();
    assert_eq!(node.acquire(acquire("k", 1)).await, GRANTED);
}

#[tokio::test]
async fn a_killed_server_interrupts_and_a_new_one_serves() {
    for kind in Kind::ALL {
        let (mut server, node) = served(kind).await;
        server.freeze();
        let mut attempt = node.acquire(acquire("k", 1));
        assert!((&mut attempt).now_or_never().is_none());
        server.kill();
        let error = attempt.await.unwrap_err();
        assert_eq!(error.kind(), NodeErrorKind::Interrupted);
        assert!(error.outcome_unknown());
        // Nobody has to send anything for it to be noticed.
        eventually("down", || is_down(&node)).await;

        server.restart();
        settled(&node).await.unwrap();
        let granted = node.acquire(acquire("k", 1)).await;
        assert_eq!(granted, GRANTED, "the scripts are back");
    }
}

#[tokio::test]
async fn a_frozen_server_is_down_until_it_thaws() {
    let (server, node) = served(Kind::Redis).await;
    server.freeze();
    let mut patient = node.acquire(acquire("patient", 1));
    assert!((&mut patient).now_or_never().is_none());
    // The caller's deadline passes.
    let hasty = node.acquire(acquire("hasty", 1));
    tokio::time::timeout(Duration::from_millis(20), hasty)
        .await
        .unwrap_err();
    eventually("down", || is_down(&node)).await;
    let patient = tokio::time::timeout(PATIENCE, patient).await.unwrap();
    assert_eq!(kind_of(patient), NodeErrorKind::Interrupted);
    let refused = node.acquire(acquire("k", 1)).await;
    assert_eq!(kind_of(refused), NodeErrorKind::Unavailable);

    server.thaw();
    settled(&node).await.unwrap();
    assert_eq!(node.acquire(acquire("k", 1)).await, GRANTED);
}

#[tokio::test]
async fn an_idle_node_notices_a_frozen_server() {
    let (server, node) = served(Kind::Valkey).await;
    server.freeze();
    eventually("down", || is_down(&node)).await;
}

#[tokio::test]
async fn a_command_that_is_given_up_leads_to_a_ping() {
    let pings = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&pings);
    let fake = Fake::start(move |words| match words[0].as_str() {
        "EVALSHA" => String::new(),
        "PING" => {
            seen.fetch_add(1, Ordering::Relaxed);
            sound(words)
        }
        _ => sound(words),
    })
    .await;
    let node = ready(&fake.url()).await;
    let begin = Instant::now();
    let mut attempt = node.acquire(acquire("k", 1));
    assert!((&mut attempt).now_or_never().is_none());
    drop(attempt);
    eventually("a PING", || pings.load(Ordering::Relaxed) > 0).await;
    let in_time = begin.elapsed() < Duration::from_millis(900);
    assert!(in_time, "that was the routine one");
}

#[tokio::test]
async fn a_dropped_command_does_not_condemn_a_healthy_server() {
    let (server, node) = served(Kind::Redis).await;
    for round in 0..50 {
        let mut attempt = node.acquire(acquire("k", round));
        assert!((&mut attempt).now_or_never().is_none());
        drop(attempt);
        node.release(release("k", round)).await.unwrap();
        assert_eq!(node.state(), NodeState::Up);
    }
    assert_eq!(connections(&server).len(), 2);
}

/// Gives up an acquire whose bytes are held back, releases it on the next connection, and lets the bytes go.
async fn late_acquire(server: &Server, proxy: &Proxy, node: &LiveNode) {
    settled(node).await.unwrap();
    proxy.hold();
    let attempt = node.acquire(acquire("k", 1));
    tokio::time::timeout(Duration::from_millis(20), attempt)
        .await
        .unwrap_err();
    eventually("down", || is_down(node)).await;
    settled(node).await.unwrap();
    let reply = node.release(release("k", 1)).await;
    assert_eq!(reply, Ok(ReleaseReply::NotOwner));
    proxy.let_go();
    // The late bytes travel, if anybody still reads them.
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(2)).await;
        if exists(server, "k") {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_of_a_lost_connection_does_not_run_after_its_release() {
    for kind in Kind::ALL {
        let server = Server::start(kind, &[]);
        let proxy = Proxy::start(server.port()).await;
        late_acquire(&server, &proxy, &started(&proxy.url())).await;
        assert!(!exists(&server, "k"), "{kind:?}");
    }

    // The same without the right to end the old connection: so it is this that prevents it.
    let server = Server::start(Kind::Redis, &[]);
    server.run("ACL SETUSER u on >p ~* &* +@all -client");
    let proxy = Proxy::start(server.port()).await;
    late_acquire(&server, &proxy, &started(&proxy.url_as("u", "p"))).await;
    assert!(exists(&server, "k"), "the test no longer shows anything");
}

#[tokio::test]
async fn lost_scripts_are_loaded_again() {
    for kind in Kind::ALL {
        let (server, node) = served(kind).await;
        server.run("SCRIPT FLUSH");
        assert_eq!(node.acquire(acquire("k", 1)).await, GRANTED);
        server.run("SCRIPT FLUSH");
        let batch: Vec<_> = (0..250).map(|_| extend("k", 1)).collect();
        let replies = node.extend(batch.into()).await.unwrap();
        assert_eq!(replies, vec![Ok(ExtendReply::Extended); 250]);
        server.run("SCRIPT FLUSH");
        let reply = node.release(release("k", 1)).await;
        assert_eq!(reply, Ok(ReleaseReply::Released { listeners: 0 }));
    }
}

#[tokio::test]
async fn closing_lets_queued_commands_out() {
    let (server, node) = served(Kind::Redis).await;
    let attempts = (0..100).map(|number| node.acquire(acquire(&format!("k{number}"), 1)));
    let mut attempts: Vec<_> = attempts.collect();
    for attempt in &mut attempts {
        assert!(attempt.now_or_never().is_none());
    }
    node.close().await;
    for attempt in attempts {
        assert_eq!(attempt.await, GRANTED);
    }
    assert_eq!(server.run("DBSIZE"), "100");
    drop(node);
    eventually("disconnected", || connections(&server).is_empty()).await;
}

#[tokio::test]
async fn closing_does_not_wait_forever_for_a_frozen_server() {
    let (server, node) = served(Kind::Redis).await;
    server.freeze();
    let mut attempt = node.acquire(acquire("k", 1));
    assert!((&mut attempt).now_or_never().is_none());
    node.close().await;
    assert_eq!(kind_of(attempt.await), NodeErrorKind::Interrupted);
    assert_eq!(node.state(), NodeState::Closed);
}

#[tokio::test]
async fn a_node_that_never_started_can_be_closed() {
    let node = RedisNode::new("redis://127.0.0.1:1").build().unwrap();
    assert_eq!(node.state(), NodeState::Connecting);
    let refused = node.acquire(acquire("k", 1)).await;
    assert_eq!(kind_of(refused), NodeErrorKind::Unavailable);
    node.close().await;
    node.start(context());
    assert_eq!(node.state(), NodeState::Closed);
    assert_eq!(kind_of(node.ready().await), NodeErrorKind::Closed);
}

#[tokio::test]
async fn the_connection_ends_with_the_last_clone_and_command() {
    let (server, node) = served(Kind::Redis).await;
    node.start(context());
    assert_eq!(connections(&server).len(), 2, "a second start does nothing");
    let clone = node.clone();
    drop(node);
    let attempt = clone.acquire(acquire("k", 1));
    drop(clone);
    assert_eq!(attempt.await, GRANTED);
    eventually("disconnected", || connections(&server).is_empty()).await;
}

#[tokio::test]
async fn a_node_is_reached_through_a_socket() {
    for kind in Kind::ALL {
        let server = Server::start(kind, &[]);
        let socket = server.socket().to_str().unwrap().to_owned();
        let node = ready(&format!("unix://{socket}")).await;
        assert_eq!(node.name(), socket);
        node.acquire(acquire("k", 1)).await.unwrap();
        let lock = server.command(&["GET", key("k").as_str()]);
        assert_eq!(lock.as_bytes(), nodes::token(1).expose());
    }
}

#[tokio::test]
async fn a_database_is_selected() {
    let server = Server::start(Kind::Redis, &[]);
    let node = ready(&format!("{}/3", server.url())).await;
    node.acquire(acquire("k", 1)).await.unwrap();
    assert_eq!(server.run("DBSIZE"), "0");
}
