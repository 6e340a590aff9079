//! Release notices: on a connection of their own, which comes back when it is lost.

use std::sync::atomic::{AtomicU32, Ordering};

use tower_redlock::node::NoticeReceiver;

use crate::support::fake::{Fake, Proxy, sound};
use crate::support::nodes::{self, listening, ready, subscribe};
use crate::*;

/// The connections for notices, each by its number.
fn ids(server: &Server) -> Vec<String> {
    let found = connections_named(server, "tower-redlock-notices");
    found.into_iter().map(|(id, _)| id).collect()
}

/// How many connections for notices the server has.
fn connections(server: &Server) -> usize {
    ids(server).len()
}

/// How many channels somebody listens to.
fn channels(server: &Server) -> usize {
    server.run("PUBSUB CHANNELS").lines().count()
}

async fn lock_and_release(node: &dyn Node, name: &str) {
    node.acquire(acquire(name, 1)).await.unwrap();
    node.release(release(name, 1)).await.unwrap();
}

#[tokio::test]
async fn there_is_no_second_connection_before_somebody_listens_and_none_after_the_end() {
    for kind in Kind::ALL {
        let (server, node) = served(kind).await;
        lock_and_release(&node, "k").await;
        assert_eq!(connections(&server), 0);
        let (receiver, subscription) = listening(&node, &key("k")).await;
        assert_eq!((connections(&server), channels(&server)), (1, 1));
        lock_and_release(&node, "k").await;
        eventually("told", || receiver.notices().released == 1).await;
        drop(subscription);
        eventually("unsubscribed", || channels(&server) == 0).await;
        node.close().await;
        eventually("closed", || connections(&server) == 0).await;
    }
}

#[tokio::test]
async fn it_ends_with_the_last_node_that_is_dropped() {
    let (server, node) = served(Kind::Redis).await;
    let (_ears, _subscription) = listening(&node, &key("k")).await;
    drop(node);
    eventually("closed", || connections(&server) == 0).await;
}

#[tokio::test]
async fn two_thousand_keys_are_subscribed_in_a_few_commands_and_each_is_heard() {
    let (server, node) = served(Kind::Redis).await;
    let receiver = NoticeReceiver::new(2_000);
    let notifier = node.notifier().unwrap();
    let all = (0..2_000).map(|n| notifier.subscribe(&key(&format!("k{n}")), receiver.sender(n)));
    let all: Vec<_> = all.collect();
    eventually("all open", || receiver.notices().open == 2_000).await;
    let calls = server.calls()["subscribe"];
    assert!((4..=8).contains(&calls), "{calls} commands");
    for n in [0, 777, 1_999] {
        receiver.forget();
        lock_and_release(&node, &format!("k{n}")).await;
        eventually("told", || receiver.notices().released == 1).await;
    }
    drop(all);
    eventually("unsubscribed", || channels(&server) == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_connection_comes_back_with_all_its_channels_and_touches_no_answer() {
    for kind in Kind::ALL {
        let (server, node) = served(kind).await;
        let receiver = NoticeReceiver::new(600);
        let notifier = node.notifier().unwrap();
        let all = (0..600).map(|n| notifier.subscribe(&key(&format!("k{n}")), receiver.sender(n)));
        let _all: Vec<_> = all.collect();
        eventually("all open", || receiver.notices().open == 600).await;
        node.acquire(acquire("held", 1)).await.unwrap();
        let hammer = {
            let node = node.clone();
            tokio::spawn(async move {
                loop {
                    let answer = node.acquire(acquire("held", 2)).await.unwrap();
                    assert!(matches!(answer, AcquireReply::Held(_)), "{answer:?}");
                }
            })
        };
        for _ in 0..5 {
            receiver.forget();
            assert_eq!(server.run("CLIENT KILL TYPE pubsub"), "1");
            eventually("closed and opened again", || {
                let notices = receiver.notices();
                notices.open == 600 && notices.least_open == 0
            })
            .await;
        }
        assert!(!hammer.is_finished(), "an answer was another's");
        hammer.abort();
        lock_and_release(&node, "k599").await;
        eventually("told", || receiver.notices().released == 1).await;
    }
}

#[tokio::test]
async fn a_lost_connection_that_nobody_needs_is_not_made_again() {
    let (server, node) = served(Kind::Redis).await;
    let (_, subscription) = listening(&node, &key("k")).await;
    drop(subscription);
    eventually("unsubscribed", || channels(&server) == 0).await;
    server.run(&format!("CLIENT KILL ID {}", ids(&server)[0]));
    // Long enough for several attempts.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(connections(&server), 0);
    let (receiver, _subscription) = listening(&node, &key("k")).await;
    lock_and_release(&node, "k").await;
    eventually("told", || receiver.notices().released == 1).await;
}

#[tokio::test]
async fn a_connection_that_is_silently_gone_is_noticed_and_replaced() {
    let server = Server::start(Kind::Redis, &[]);
    let proxy = Proxy::start(server.port()).await;
    let node = ready(&proxy.url()).await;
    let (receiver, _first) = listening(&node, &key("k")).await;
    // Nothing we send arrives any more on the connections of today, and none of them is closed.
    proxy.hold();
    let _second = subscribe(&node, "other", &receiver);
    eventually("closed", || receiver.notices().least_open == 0).await;
    eventually("open anew", || receiver.notices().open == 1).await;
    settled(&node).await.unwrap();
    eventually("both keys again", || channels(&server) == 2).await;
}

#[tokio::test]
async fn a_connection_that_nobody_waits_for_any_more_is_not_made_when_the_node_comes_up() {
    let (mut server, node) = served(Kind::Redis).await;
    server.kill();
    eventually("down", || nodes::is_down(&node)).await;
    let receiver = NoticeReceiver::new(1);
    let subscription = subscribe(&node, "k", &receiver);
    // So that its wish is noticed before it is gone.
    tokio::task::yield_now().await;
    drop(subscription);
    server.restart();
    settled(&node).await.unwrap();
    // Time enough to connect: all of this takes turns with the task that would.
    for _ in 0..20 {
        lock_and_release(&node, "k").await;
    }
    assert_eq!(connections(&server), 0);
}

#[tokio::test]
async fn a_server_that_is_busy_for_a_moment_is_asked_again_soon() {
    for refusal in ["-BUSY a script runs\r\n", "-LOADING not yet\r\n"] {
        let asked = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&asked);
        let server = Fake::start(move |words| match words[0].as_str() {
            "SUBSCRIBE" if count.fetch_add(1, Ordering::SeqCst) < 2 => refusal.to_owned(),
            "SUBSCRIBE" => format!(">3\r\n+subscribe\r\n+{}\r\n:1\r\n", words[1]),
            _ => sound(words),
        });
        let server = server.await;
        let node = ready(&server.url()).await;
        let (_ears, _subscription) = listening(&node, &key("k")).await;
        assert_eq!(asked.load(Ordering::SeqCst), 3);
    }
}
