//! What is told of servers whose clocks are set.

use std::cell::Cell;
use std::time::Duration;

use super::support::eventually;
use super::support::server::{Kind, Server};
use super::{here, listen};

#[tokio::test]
async fn a_server_whose_clock_is_set_is_told_of_once_for_each_step() {
    let (book, _listening) = listen();
    let server = Server::start_clocked(Kind::Redis);
    let builder = here().redis([server.url()]);
    let locks = builder.bootstrap(true).connect().await.unwrap();
    let name = &locks.snapshot().nodes[0].name;
    // Before it was looked at, no time is known that it could have been set from.
    let asked = Cell::new(0);
    let looks = || {
        let calls = server.calls().get("info").copied().unwrap_or(0);
        // The server counts a call when it has answered it.
        calls - asked.replace(asked.get() + 1)
    };
    let at_first = looks();
    eventually("looked at", || looks() > at_first).await;
    let words = "clock of a node was set";
    let told = |by: &str| book.with(words).iter().any(|line| line.contains(by));
    server.step_clock(30);
    eventually("told of a step ahead", || {
        told(" by=30.0") || told(" by=29.9")
    })
    .await;
    let line = book.assert_line(words, "WARN", &[name]);
    let is_told = line.contains(" ahead=30.") || line.contains(" ahead=29.9");
    assert!(is_told, "{line}");
    server.step_clock(0);
    eventually("told of a step back", || {
        told(" by=-30.0") || told(" by=-29.9")
    })
    .await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    book.assert_count(words, 2);
}
