//! Servers that answer but must not serve as a node.

use tower_redlock::node::RedisNode;
use tower_redlock::node::{
    AcquireReply, Node, NodeError, NodeErrorKind, NodeState, ServerRegistry,
};

use crate::kind_of;
use crate::support::eventually;
use crate::support::nodes::{acquire, context_with, is_down, ready, refusal, settled, started};
use crate::support::server::{Kind, Server, cannot};

/// Why a node on a server with these arguments is refused.
async fn refused_with(kind: Kind, args: &[&str]) -> NodeError {
    let server = Server::start(kind, args);
    let node = started(&server.url());
    let error = refusal(&node).await;
    assert_eq!(error.kind(), NodeErrorKind::Misconfigured);
    let answer = node.acquire(acquire("k", 1)).await;
    assert_eq!(answer, Err(error.clone()), "no command is sent");
    assert_eq!(server.run("DBSIZE"), "0");
    error
}

#[tokio::test]
async fn a_replica_is_refused() {
    for kind in Kind::ALL {
        let error = refused_with(kind, &["--replicaof", "127.0.0.1", "1"]).await;
        assert!(error.to_string().contains("only a master"), "{error}");
    }
}

#[tokio::test]
async fn a_server_that_evicts_is_refused() {
    for kind in Kind::ALL {
        let error = refused_with(kind, &["--maxmemory-policy", "volatile-lru"]).await;
        assert!(error.to_string().contains("noeviction"), "{error}");
    }
}

#[tokio::test]
async fn a_cluster_is_refused() {
    for kind in Kind::ALL {
        let error = refused_with(kind, &["--cluster-enabled", "yes"]).await;
        assert!(error.to_string().contains("cluster"), "{error}");
    }
}

#[tokio::test]
async fn a_refused_server_is_taken_once_it_is_mended() {
    let server = Server::start(Kind::Redis, &["--maxmemory-policy", "allkeys-lru"]);
    let node = started(&server.url());
    refusal(&node).await;
    server.run("CONFIG SET maxmemory-policy noeviction");
    eventually("up", || node.state() == NodeState::Up).await;
    node.acquire(acquire("k", 1)).await.unwrap();
}

#[tokio::test]
async fn one_server_is_not_two_nodes() {
    let server = Server::start(Kind::Redis, &[]);
    let registry = ServerRegistry::new();
    let first = RedisNode::new(&server.url()).build().unwrap();
    first.start(context_with(registry.clone()));
    settled(&first).await.unwrap();
    let second = RedisNode::new(&format!(
        "{}/1",
        server.url().replace("127.0.0.1", "localhost")
    ))
    .name("second")
    .build()
    .unwrap();
    second.start(context_with(registry));
    let error = refusal(&second).await;
    assert!(error.to_string().contains(first.name()), "{error}");
}

#[tokio::test]
async fn a_restarted_server_keeps_its_place() {
    let mut server = Server::start(Kind::Redis, &[]);
    let node = ready(&server.url()).await;
    server.restart();
    eventually("noticed", || node.state() != NodeState::Up).await;
    settled(&node).await.unwrap();
}

#[tokio::test]
async fn wrong_credentials_are_refused_and_not_repeated() {
    for kind in Kind::ALL {
        let server = Server::start(kind, &[]);
        server.run("ACL SETUSER user on >right ~* &* +@all");
        let node = started(&server.url_as("user", "s3cret-wrong"));
        let error = refusal(&node).await;
        assert!(error.to_string().contains("password"), "{error}");
        let text = format!("{node:?} {error} {error:?} {:?}", node.state());
        assert!(!text.contains("s3cret"), "{text}");
        assert!(ready(&server.url_as("user", "right")).await.state() == NodeState::Up);
    }
    let error = refused_with_password().await;
    assert!(error.to_string().contains("password"), "{error}");
}

/// A server that wants a password, and a URL without one.
async fn refused_with_password() -> NodeError {
    let server = Server::start(Kind::Redis, &["--requirepass", "right"]);
    refusal(&started(&server.url())).await
}

#[tokio::test]
async fn a_server_without_resp3_is_refused_and_the_password_kept() {
    let args = ["--requirepass", "s3cret", "--rename-command", "HELLO", ""];
    let server = Server::start(Kind::Redis, &args);
    let node = started(&server.url_as("default", "s3cret"));
    let error = refusal(&node).await;
    let text = format!("{node:?} {error} {error:?}");
    assert!(!text.contains("s3cret"), "{text}");
    // Some check the password before they look which command it is.
    if server.run("HELLO 3").starts_with("-NOAUTH") {
        cannot("tell who has not authenticated that HELLO is missing");
        assert!(text.contains("NOAUTH"), "{text}");
    } else {
        assert!(text.contains("RESP3"), "{text}");
    }
}

#[tokio::test]
async fn a_demoted_master_is_noticed_by_the_first_command() {
    for kind in Kind::ALL {
        let server = Server::start(kind, &[]);
        let node = ready(&server.url()).await;
        server.run("REPLICAOF 127.0.0.1 1");
        let error = node.acquire(acquire("k", 1)).await.unwrap_err();
        assert_eq!(error.kind(), NodeErrorKind::Rejected);
        assert!(error.to_string().contains("no longer a master"), "{error}");
        eventually("refused", || matches!(node.state(), NodeState::Refused(_))).await;
        server.run("REPLICAOF NO ONE");
        eventually("up", || node.state() == NodeState::Up).await;
        let granted = node.acquire(acquire("k", 1)).await;
        assert_eq!(granted, Ok(AcquireReply::Granted { fence: None }));
    }
}

#[tokio::test]
async fn a_demoted_master_is_noticed_by_an_extend() {
    let server = Server::start(Kind::Redis, &[]);
    let node = ready(&server.url()).await;
    node.acquire(acquire("k", 1)).await.unwrap();
    server.run("REPLICAOF 127.0.0.1 1");
    let batch = [crate::support::nodes::extend("k", 1)];
    let replies = node.extend(batch.into()).await.unwrap();
    assert_eq!(kind_of(replies[0].clone()), NodeErrorKind::Rejected);
    eventually("refused", || matches!(node.state(), NodeState::Refused(_))).await;
}

#[tokio::test]
async fn a_name_that_cannot_be_resolved_is_down() {
    let node = started("redis://no-such-host.invalid");
    eventually("down", || is_down(&node)).await;
}
