//! What is told of servers that do not let us hear of releases.

use tower_redlock::node::Node as _;
use tower_redlock::node::NoticeReceiver;

use super::listen;
use super::support::eventually;
use super::support::nodes::{self, subscribe};
use super::support::server::{Kind, Server};

#[tokio::test]
async fn a_server_that_does_not_let_us_listen_is_named_once() {
    let (book, _listening) = listen();
    let server = Server::start(Kind::Redis, &[]);
    server.run("ACL SETUSER locks on >secret ~* +@all resetchannels");
    let node = nodes::ready(&server.url_as("locks", "secret")).await;
    for name in ["a", "b"] {
        let _subscription = subscribe(&node, name, &NoticeReceiver::new(1));
        let told = || book.lines().concat().contains("does not let us listen");
        eventually("told", told).await;
    }
    let line = book.line("does not let us listen");
    assert!(
        line.starts_with("WARN") && line.contains(node.name()),
        "{line}"
    );
    assert!(line.contains("NOPERM"), "{line}");
    assert!(!book.lines().concat().contains("secret"));
}
