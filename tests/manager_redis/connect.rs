//! What `connect` takes, and how it names what it does not take.

use std::time::Duration;

use tower_redlock::LockManager;
use tower_redlock::error::{ConnectError, NoQuorum};

use crate::support::server::{Kind, Server, free_port};
use crate::support::stalls::{Stopwatch, undisturbed};
use crate::{Cluster, MS};

async fn misconfigured(urls: Vec<String>) -> ConnectError {
    let began = Stopwatch::start();
    match LockManager::builder()
        .bootstrap(true)
        .redis(urls)
        .connect()
        .await
    {
        Err(error @ ConnectError::Misconfigured(_)) => {
            assert!(began.elapsed() < Duration::from_secs(4), "not a time-out");
            error
        }
        other => panic!("{other:?}"),
    }
}

/// The name of the node at `url`.
fn name(url: &str) -> &str {
    let (_, address) = url.rsplit_once(['/', '@']).unwrap();
    address
}

#[tokio::test]
async fn a_replica_among_five_is_named() {
    let mut cluster = Cluster::start();
    cluster.servers[3] = Server::start(Kind::Redis, &["--replicaof", "127.0.0.1", "1"]);
    let urls = cluster.urls();
    let expected = format!(
        "these nodes cannot serve: {} (its role is `slave`, and only a master can hold locks; use the master's URL)",
        name(&urls[3])
    );
    assert_eq!(misconfigured(urls).await.to_string(), expected);
}

#[tokio::test]
async fn one_server_under_two_addresses_is_named() {
    let cluster = Cluster::start();
    let mut urls = cluster.urls();
    urls[4] = urls[0].replace("127.0.0.1", "localhost");
    let error = misconfigured(urls.clone()).await;
    let (a, b) = (name(&urls[0]), name(&urls[4]));
    // Whichever connected first has the place; the text names both.
    let either = [(a, b), (b, a)].map(|(second, first)| {
        format!(
            "these nodes cannot serve: {second} (it is the same server as node `{first}`; every node must be a server of its own, remove one of the two)"
        )
    });
    assert!(either.contains(&error.to_string()), "{error}");
}

#[tokio::test]
async fn a_wrong_password_is_named_and_not_shown() {
    let mut cluster = Cluster::start();
    cluster.servers[2] = Server::start(Kind::Redis, &["--requirepass", "right"]);
    let mut urls = cluster.urls();
    urls[2] = cluster.servers[2].url_as("default", "s3cret-wrong");
    let error = misconfigured(urls.clone()).await;
    let ConnectError::Misconfigured(failures) = &error else {
        panic!("{error}");
    };
    assert_eq!(failures.len(), 1);
    assert_eq!(failures[0].node, name(&urls[2]));
    let text = format!("{error} {error:?}");
    assert!(text.contains("check the user and password"), "{text}");
    assert!(!text.contains("s3cret"), "{text}");
}

async fn no_quorum(urls: &[String]) -> NoQuorum {
    let builder = LockManager::builder().bootstrap(true).redis(urls);
    match builder.connect_timeout(300 * MS).connect().await {
        Err(ConnectError::NoQuorum(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn frozen_servers_are_no_quorum_after_the_connect_time_out() {
    undisturbed(async || {
        let cluster = Cluster::start();
        cluster.each(0..3, |server| server.freeze());
        let error = no_quorum(&cluster.urls()).await.to_string();
        assert_eq!(
            error.matches("no answer within 300ms").count(),
            3,
            "{error}"
        );
    })
    .await;
}

#[tokio::test]
async fn a_server_listed_twice_is_a_mistake_before_anything_is_connected() {
    let port = free_port();
    for (first, second, address) in [
        (
            "redis://127.0.0.1",
            "redis://127.0.0.1:6379",
            "127.0.0.1:6379",
        ),
        ("redis://Host:1", "redis://u:s3cret@host:1/3", "host:1"),
    ] {
        let urls = [
            first.to_owned(),
            second.to_owned(),
            format!("redis://h:{port}"),
        ];
        let error = LockManager::builder()
            .bootstrap(true)
            .redis(urls)
            .connect()
            .await
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "nodes[1]: the server {address} is listed twice; every node must be a server of its own"
            )
        );
        assert!(matches!(error, ConnectError::Config(_)));
    }
}

#[tokio::test]
async fn a_bad_url_is_named_by_its_place_and_not_shown() {
    let builder = LockManager::builder();
    let builder = builder.redis(["redis://10.0.0.1", "http://:s3cret@10.0.0.2"]);
    let error = builder.connect().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "nodes[1].url: a node URL starts with `redis://`, `rediss://` (TLS), `valkey://`, `valkeys://` (TLS) or `unix://`, as in `redis://10.0.0.1:6379`"
    );
    let builder = LockManager::builder();
    let error = builder
        .redis(["redis://:s3/cret@h"])
        .connect_lazy()
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "nodes[0].url: the node URL is malformed; it must read `redis://[[user]:password@]host[:port][/database]` or `unix:///path[?user=..&pass=..&db=..]`, with special characters in user and password percent-encoded (`@` is `%40`, `/` is `%2F`)"
    );
}

#[tokio::test]
async fn what_keeps_a_node_from_voting_is_told() {
    let cluster = Cluster::start();
    for server in &cluster.servers {
        // The nodes serve, but whether they vote cannot be asked: the marker is beyond the rule.
        server.run("ACL SETUSER u on >p ~lk:* ~lk!rights +@all");
    }
    let urls = cluster.urls();
    let urls = urls.iter().map(|url| url.replace("//", "//u:p@"));
    let urls: Vec<String> = urls.collect();
    let locks = LockManager::builder().redis(&urls);
    match locks.connect_timeout(700 * MS).connect().await {
        Err(ConnectError::NoQuorum(error)) => {
            let error = error.to_string();
            assert!(error.contains("ACL"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    for server in &cluster.servers {
        server.run("ACL SETUSER u ~*");
    }
    let locks = LockManager::builder().redis(&urls).bootstrap(true);
    locks.connect().await.unwrap();
}
