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
    let words = "does not let us listen";
    for name in ["a", "b"] {
        let _subscription = subscribe(&node, name, &NoticeReceiver::new(1));
        eventually("told", || book.count(words) > 0).await;
    }
    book.assert_line(words, "WARN", &[node.name(), "NOPERM"]);
    book.assert_without("secret");
}
