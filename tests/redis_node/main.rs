//! `RedisNode` against real servers that are killed, frozen, restarted and misconfigured, and against fakes that
//! answer nonsense. What all nodes have in common is in the suite `conformance`.
#![cfg(feature = "redis")]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a panic is how a test fails, in its helpers too"
)]

#[path = "../support/mod.rs"]
mod support;

mod confirmation;
mod credentials;
mod failure;
mod looks;
mod nonsense;
mod notices;
mod optional;
mod refused;
mod replicas;
mod rights;
mod room;
mod sentinel;
#[cfg(feature = "tls")]
mod tls;

use std::sync::Arc;
use std::time::Duration;

use support::eventually;
use support::nodes::{LONG, acquire, context, extend, key, refusal, release, settled, started};
use support::server::{Kind, Server};
use tower_redlock::node::{
    AcquireReply, LiveNode, Node, NodeError, NodeErrorKind, NodeState, RedisNode, ReleaseReply,
};

const GRANTED: Result<AcquireReply, NodeError> = Ok(AcquireReply::Granted { fence: None });

/// The kind of the error in `result`.
fn kind_of<T: std::fmt::Debug>(result: Result<T, NodeError>) -> NodeErrorKind {
    result.unwrap_err().kind()
}

fn start(builder: RedisNode) -> LiveNode {
    let node = builder.build().unwrap();
    node.start(context());
    node
}

/// A started node that takes commands.
async fn ready(builder: RedisNode) -> LiveNode {
    let node = start(builder);
    settled(&node).await.unwrap();
    node
}

/// A server, and a node there that takes commands.
async fn served(kind: Kind) -> (Server, LiveNode) {
    let server = Server::start(kind, &[]);
    let node = ready(RedisNode::new(&server.url())).await;
    (server, node)
}

/// Waits until the node is up, and takes a lock there.
async fn up_again(node: &dyn Node) {
    eventually("up again", || node.state() == NodeState::Up).await;
    assert_eq!(node.acquire(acquire("k", 1)).await, GRANTED);
}

async fn is_refused(node: &dyn Node) {
    eventually("refused", || matches!(node.state(), NodeState::Refused(_))).await;
}

/// Why the node is down, once it is for a reason with these words.
async fn down(node: &dyn Node, words: &str) -> String {
    let mut text = String::new();
    eventually(words, || {
        if let NodeState::Down(reason) = node.state() {
            text = reason.to_string();
        }
        text.contains(words)
    })
    .await;
    text
}

/// Whether the server has the lock `name`.
fn exists(server: &Server, name: &str) -> bool {
    server.command(&["EXISTS", key(name).as_str()]) == "1"
}

/// The connections of ours that carry commands: the number and the user of each.
fn connections(server: &Server) -> Vec<(String, String)> {
    connections_named(server, "tower-redlock")
}

fn connections_named(server: &Server, name: &str) -> Vec<(String, String)> {
    let list = server.run("CLIENT LIST");
    let field = |line: &str, name: &str| {
        let mut fields = line.split(' ').filter_map(|field| field.split_once('='));
        let found = fields.find(|(field, _)| *field == name);
        found.unwrap().1.to_owned()
    };
    let ours = list.lines().filter(|line| field(line, "name") == name);
    ours.map(|line| (field(line, "id"), field(line, "user")))
        .collect()
}
