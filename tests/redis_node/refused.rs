//! Servers that answer but must not serve as a node.

use tower_redlock::node::ServerRegistry;

use crate::support::nodes::{context_with, is_down, ready};
use crate::support::server::cannot;
use crate::*;

#[tokio::test]
async fn what_cannot_serve_as_a_node_is_refused_with_the_reason() {
    let cases: [(&[&str], &str); 4] = [
        (&["--replicaof", "127.0.0.1", "1"], "only a master"),
        (&["--maxmemory-policy", "volatile-lru"], "noeviction"),
        (&["--cluster-enabled", "yes"], "cluster"),
        (&["--requirepass", "right"], "password"),
    ];
    for kind in Kind::ALL {
        for (args, reason) in cases {
            let server = Server::start(kind, args);
            let node = started(&server.url());
            let error = refusal(&node).await;
            assert_eq!(error.kind(), NodeErrorKind::Misconfigured);
            assert!(error.to_string().contains(reason), "{error}");
            let answer = node.acquire(acquire("k", 1)).await;
            assert_eq!(answer, Err(error), "no command is sent");
            assert_ne!(server.run("DBSIZE"), "1");
        }
    }
}

#[tokio::test]
async fn one_server_is_not_two_nodes() {
    let server = Server::start(Kind::Redis, &[]);
    let registry = ServerRegistry::new();
    let first = RedisNode::new(&server.url()).build().unwrap();
    first.start(context_with(registry.clone()));
    settled(&first).await.unwrap();
    let url = server.url().replace("127.0.0.1", "localhost") + "/1";
    let second = RedisNode::new(&url).name("second").build().unwrap();
    second.start(context_with(registry));
    let error = refusal(&second).await;
    assert!(error.to_string().contains(first.name()), "{error}");
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
        let (server, node) = served(kind).await;
        server.run("REPLICAOF 127.0.0.1 1");
        let error = node.acquire(acquire("k", 1)).await.unwrap_err();
        assert_eq!(error.kind(), NodeErrorKind::Rejected);
        assert!(error.to_string().contains("no longer a master"), "{error}");
        is_refused(&node).await;
        server.run("REPLICAOF NO ONE");
        up_again(&node).await;
        server.run("REPLICAOF 127.0.0.1 1");
        let mut replies = node.extend(Arc::from([extend("k", 1)])).await.unwrap();
        assert_eq!(kind_of(replies.remove(0)), NodeErrorKind::Rejected);
        is_refused(&node).await;
    }
}

#[tokio::test]
async fn a_name_that_cannot_be_resolved_is_down() {
    let node = started("redis://no-such-host.invalid");
    eventually("down", || is_down(&node)).await;
}
