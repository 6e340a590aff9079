//! `status`, `wait`, `bootstrap` and `nodes adopt`.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::eventually;
use crate::{Fleet, PASSWORD, ended, redlock, words};

/// Settings that the processes do not have, in the place of theirs, which it returns.
fn change_settings(fleet: &Fleet) -> String {
    let text = fs::read_to_string(fleet.file()).unwrap();
    let other = text.replace("\"3s\"", "\"1s\"") + "connect_timeout = \"1s\"\n";
    fs::write(fleet.file(), other).unwrap();
    text
}

#[tokio::test]
async fn status_shows_the_nodes_and_ends_well_with_a_quorum_only() {
    let (mut fleet, _locks) = Fleet::started().await;
    let status = fleet.run("status").await.with(0);
    status.begins("quorum: 3 of 3 vote, 2 needed\n");
    assert_eq!(status.out.matches("votes").count(), 3, "{}", status.out);
    let info = fleet.ask(0, "INFO server");
    let (_, version) = info.split_once("redis_version:").unwrap();
    let version = version.lines().next().unwrap().trim();
    for server in &fleet.servers {
        status.shows(&format!("master {version} at 127.0.0.1:{}", server.port()));
    }
    status.shows("MiB").shows("ms").hides("too full");
    status.hides("the same master");
    let json = fleet.run("status --json").await.with(0).json();
    let used = json["nodes"][0]["server"]["used_memory"].as_u64().unwrap();
    for (most, reason) in [
        (used + used / 8, "too full for more stored responses"),
        (used / 2, "out of memory, so all new locks are refused"),
    ] {
        fleet.ask(0, &format!("CONFIG SET maxmemory {most}"));
        let status = fleet.run("status").await.with(0);
        let is_full = status.out.contains("\nn0    full ");
        assert_eq!(is_full, reason.starts_with("out"), "{}", status.out);
        status.shows(reason);
    }

    fleet.servers[0].kill();
    fleet.run("status").await.with(0).shows("n0: ");
    let json = fleet.run("status --json").await.with(0).json();
    assert_eq!(json["verdict"], "quorum: 2 of 3 vote, 2 needed");
    assert_eq!(json["nodes"][0]["state"]["is"], "down");
    let node = &json["nodes"][1];
    assert_eq!(node["voting"], json!({"is": "voting"}));
    assert_eq!(node["server"]["role"], "master");
    assert!(node["server"]["used_memory"].as_u64().unwrap() > 0);
    let ahead = node["server"]["clock_ahead"].as_i64();
    assert!(
        ahead.is_none_or(|micros| micros.abs() < 1_000_000),
        "{ahead:?}"
    );

    fleet.servers[1].kill();
    let status = fleet.run("status").await.with(69);
    status
        .shows("1 of 3 vote, 2 needed; no lock is granted")
        .shows("down");
}

/// A look at servers that were never used, or have forgotten, is no part of their service.
#[tokio::test]
async fn status_changes_nothing_on_servers() {
    let fleet = Fleet::start();
    fleet.run("status").await.with(69);
    // Another list of nodes: the first of them alone.
    let alone = async || {
        let mut command = redlock(&["status", "--redis", &fleet.servers[0].url()]);
        command.env("REDLOCK_PASSWORD", PASSWORD);
        ended(command).await
    };
    alone().await.with(69);
    assert!(
        fleet.content().iter().all(BTreeMap::is_empty),
        "{:?}",
        fleet.content()
    );

    let locks = fleet.settings().bootstrap(true).connect().await.unwrap();
    fleet.run("wait").await.with(0);
    locks.shutdown(Duration::ZERO).await;
    let before = fleet.content();
    fleet.run("status").await.with(0);
    alone().await.with(78).shows("foreign");
    assert_eq!(fleet.content(), before);
    fleet.ask(0, "FLUSHALL");
    let status = fleet.run("status").await.with(0);
    status.shows("quarantine, ").hides("once every node");
    assert!(fleet.content()[0].is_empty(), "{:?}", fleet.content());
}

#[tokio::test]
async fn status_watches_until_it_is_ended() {
    let (mut fleet, _locks) = Fleet::started().await;
    let mut watching = fleet.redlock(&["status", "--watch", "--json"]);
    let mut watching = watching.spawn().unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    let mut votes = move || {
        let line = lines.next().unwrap().unwrap();
        let json: serde_json::Value = serde_json::from_str(&line).unwrap();
        json["verdict"].as_str().unwrap().to_owned()
    };
    assert_eq!(votes(), "quorum: 3 of 3 vote, 2 needed");
    fleet.servers[2].kill();
    while votes() != "quorum: 2 of 3 vote, 2 needed" {}
    // It ends with its reader.
    drop(votes);
    eventually("it ends", || watching.try_wait().unwrap().is_some()).await;
}

#[tokio::test]
async fn wait_waits_for_every_node() {
    let (mut fleet, _locks) = Fleet::started().await;
    let wait = fleet.run("wait").await.with(0);
    assert_eq!(wait.out, "all 3 nodes vote\n");
    fleet.servers[0].kill();
    let wait = fleet.run("wait --timeout 500ms").await.with(69);
    wait.complains("not all nodes vote after 500ms")
        .complains("down");
    // It sees the node through its quarantine.
    fleet.servers[0].restart();
    let begin = Instant::now();
    fleet.run("wait").await.with(0);
    let took = begin.elapsed();
    assert!(took > Duration::from_secs(1), "{took:?}");
    fleet.run("status").await.with(0);
}

#[tokio::test]
async fn bootstrap_spares_the_first_start_its_quarantine() {
    let fleet = Fleet::start();
    let refused = fleet.run("bootstrap").await.with(64);
    refused
        .complains("--yes")
        .complains("no lock is held on any node");
    let begin = Instant::now();
    let voting = fleet.run("bootstrap --yes").await.with(0);
    let took = begin.elapsed();
    assert_eq!(voting.out, "quorum: 3 of 3 vote, 2 needed\n");
    assert!(took < Duration::from_secs(3), "{took:?}");
    fleet.run("status").await.with(0);
    let none = redlock(&["bootstrap", "--yes", "--redis", "redis://127.0.0.1:1"]);
    ended(none).await.with(69);
}

#[tokio::test]
async fn adopt_says_its_downtime_and_takes_the_nodes_over() {
    let (fleet, locks) = Fleet::started().await;
    locks.shutdown(Duration::ZERO).await;
    change_settings(&fleet);
    for command in [
        "status --json",
        "wait --timeout 500ms",
        "bootstrap --yes",
        "who k",
        "list",
        "release k --force --yes",
        "run k -- true",
    ] {
        let foreign = fleet.run(command).await.with(78);
        let text = foreign.out + &foreign.err;
        assert!(text.contains("it serves processes"), "{command}: {text}");
    }
    let refused = fleet.run("nodes adopt").await.with(64);
    refused.complains("No lock is granted for about 3.0s");
    let refused = fleet.run("nodes adopt --former 200s").await.with(64);
    refused.complains("No lock is granted for about 3m 24s");
    let status = fleet.run("status").await.with(78).out;
    assert_eq!(
        status.matches(": it serves processes").count(),
        3,
        "{status}"
    );
    let begin = Instant::now();
    fleet
        .run("nodes adopt --yes")
        .await
        .with(0)
        .shows("vote, 2 needed");
    // The nodes tell the quarantine of the old list.
    let took = begin.elapsed();
    assert!(took > Duration::from_secs(3), "{took:?}");
    fleet.run("wait").await.with(0);
}

/// Processes of other nodes cannot be seen from here.
#[tokio::test]
async fn adopt_asks_for_the_old_max_ttl_where_no_node_knows_another_list() {
    let fleet = Fleet::start();
    let refused = fleet.run("nodes adopt --yes").await.with(78);
    refused.complains("--former").complains("redlock bootstrap");
    let adopted = fleet.run("nodes adopt --former 1s --yes").await.with(0);
    adopted.complains("the nodes (n0, n1, n2)");
    let again = fleet.run("nodes adopt").await.with(0);
    again.shows("3 of 3 vote, 2 needed; they have accepted this list already");
}

#[tokio::test]
async fn adopt_takes_no_node_over_while_one_is_away() {
    let (mut fleet, _locks) = Fleet::started().await;
    let text = change_settings(&fleet);
    fleet.servers[2].kill();
    let adopt = fleet.run("nodes adopt --yes").await.with(69);
    adopt.complains("do not: n2 (");
    fs::write(fleet.file(), text).unwrap();
    fleet.run("status").await.with(0).shows("2 of 3 vote");
}

/// When it comes back, it would block the service that has started since.
#[tokio::test]
async fn adopt_says_that_a_node_went_away_before_it_voted() {
    let (mut fleet, locks) = Fleet::started().await;
    locks.shutdown(Duration::ZERO).await;
    change_settings(&fleet);
    let digest = || fleet.ask(2, "HGET lk!node digest");
    let before = digest();
    let adopting = tokio::spawn(ended(fleet.redlock(&words("nodes adopt --yes"))));
    let has_all = || digest() != before;
    eventually("the last node is taken over", has_all).await;
    fleet.servers[2].kill();
    let adopted = adopting.await.unwrap().with(69);
    adopted.complains("n2").complains("run this again");
}

#[tokio::test]
async fn a_server_that_cannot_be_a_node_is_shown_with_the_reason() {
    let (fleet, _locks) = Fleet::started().await;
    let port = fleet.servers[0].port();
    fleet.ask(1, &format!("CONFIG SET masterauth {PASSWORD}"));
    fleet.ask(1, &format!("REPLICAOF 127.0.0.1 {port}"));
    eventually("a replica", || fleet.ask(1, "ROLE").contains("slave")).await;
    let status = fleet.run("status").await.with(0);
    status.shows("refused").shows("its role is `slave`");
}
