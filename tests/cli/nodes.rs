//! `status`, `wait`, `bootstrap` and `nodes adopt`.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::eventually;
use crate::{Fleet, ended, redlock};

async fn json_of(fleet: &Fleet) -> serde_json::Value {
    fleet.run(&["status", "--json"]).await.with(0).json()
}

#[tokio::test]
async fn status_shows_the_nodes_and_ends_well_with_a_quorum_only() {
    let (mut fleet, _locks) = Fleet::started().await;
    let status = fleet.run(&["status"]).await.with(0);
    assert!(
        status.out.starts_with("quorum: 3 of 3 vote, 2 needed\n"),
        "{}",
        status.out
    );
    assert_eq!(status.out.matches("votes").count(), 3, "{}", status.out);
    let version = fleet.ask(0, &["INFO", "server"]);
    let version = version
        .lines()
        .find_map(|line| line.strip_prefix("redis_version:"));
    let version = version.unwrap().trim();
    for server in &fleet.servers {
        let server = format!("master {version} at 127.0.0.1:{}", server.port());
        assert!(status.out.contains(&server), "{}", status.out);
    }
    assert!(
        status.out.contains("MiB") && status.out.contains("ms"),
        "{}",
        status.out
    );
    assert!(!status.out.contains("too full"), "{}", status.out);
    let used = json_of(&fleet).await["nodes"][0]["server"]["used_memory"].clone();
    let used = used.as_u64().unwrap();
    for (most, reason) in [
        (used + used / 8, "too full for more stored responses"),
        (used / 2, "out of memory, so all new locks are refused"),
    ] {
        fleet.ask(0, &["CONFIG", "SET", "maxmemory", &most.to_string()]);
        let status = fleet.run(&["status"]).await.with(0);
        assert!(status.out.contains(reason), "{}", status.out);
    }

    fleet.servers[0].kill();
    let status = fleet.run(&["status", "--json"]).await.with(0);
    let json = status.json();
    assert_eq!(json["verdict"], "quorum: 2 of 3 vote, 2 needed");
    assert_eq!(json["nodes"][0]["state"]["is"], "down");
    assert_eq!(json["nodes"][1]["voting"], json!({"is": "voting"}));
    assert_eq!(json["nodes"][1]["server"]["role"], "master");
    assert!(json["nodes"][1]["server"]["used_memory"].as_u64().unwrap() > 0);
    let ahead = json["nodes"][1]["server"]["clock_ahead"].as_i64();
    assert!(
        ahead.is_none_or(|micros| micros.abs() < 1_000_000),
        "{ahead:?}"
    );

    fleet.servers[1].kill();
    let status = fleet.run(&["status"]).await.with(69);
    assert!(
        status
            .out
            .contains("1 of 3 vote, 2 needed; no lock is granted"),
        "{}",
        status.out
    );
    assert!(status.out.contains("down"), "{}", status.out);
}

/// A look at servers that were never used, or have forgotten, is no part of their service.
#[tokio::test]
async fn status_changes_nothing_on_servers() {
    let fleet = Fleet::start();
    fleet.run(&["status"]).await.with(69);
    let first = fleet.servers[0].url();
    let mut alone = redlock(&["status", "--redis", &first]);
    alone.env("REDLOCK_PASSWORD", crate::PASSWORD);
    ended(alone).await.with(69);
    assert!(
        fleet.content().iter().all(|server| server.is_empty()),
        "{:?}",
        fleet.content()
    );

    let locks = fleet.settings().bootstrap(true).connect().await.unwrap();
    fleet.run(&["wait"]).await.with(0);
    locks.shutdown(Duration::ZERO).await;
    let before = fleet.content();
    fleet.run(&["status"]).await.with(0);
    let mut alone = redlock(&["status", "--redis", &first]);
    alone.env("REDLOCK_PASSWORD", crate::PASSWORD);
    let foreign = ended(alone).await.with(78);
    assert!(foreign.out.contains("foreign"), "{}", foreign.out);
    assert_eq!(fleet.content(), before);
    fleet.ask(0, &["FLUSHALL"]);
    let status = fleet.run(&["status"]).await.with(0);
    assert!(status.out.contains("quarantine, "), "{}", status.out);
    assert!(fleet.content()[0].is_empty(), "{:?}", fleet.content());
}

#[tokio::test]
async fn status_watches_until_it_is_ended() {
    let (mut fleet, _locks) = Fleet::started().await;
    let mut watching = fleet
        .redlock(&["status", "--watch", "--json"])
        .spawn()
        .unwrap();
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
    let wait = fleet.run(&["wait"]).await.with(0);
    assert_eq!(wait.out, "all 3 nodes vote\n");
    fleet.servers[0].kill();
    let wait = fleet.run(&["wait", "--timeout", "500ms"]).await.with(69);
    assert!(
        wait.err.contains("not all nodes vote after 500ms"),
        "{}",
        wait.err
    );
    assert!(wait.err.contains("down"), "{}", wait.err);
    // It sees the node through its quarantine.
    fleet.servers[0].restart();
    let begin = Instant::now();
    fleet.run(&["wait"]).await.with(0);
    assert!(
        begin.elapsed() > Duration::from_secs(1),
        "{:?}",
        begin.elapsed()
    );
    fleet.run(&["status"]).await.with(0);
}

#[tokio::test]
async fn bootstrap_spares_the_first_start_its_quarantine() {
    let fleet = Fleet::start();
    let refused = fleet.run(&["bootstrap"]).await.with(64);
    assert!(refused.err.contains("--yes"), "{}", refused.err);
    assert!(
        refused.err.contains("no lock is held on any node"),
        "{}",
        refused.err
    );
    let begin = Instant::now();
    let voting = fleet.run(&["bootstrap", "--yes"]).await.with(0);
    assert_eq!(voting.out, "quorum: 3 of 3 vote, 2 needed\n");
    assert!(
        begin.elapsed() < Duration::from_secs(3),
        "{:?}",
        begin.elapsed()
    );
    fleet.run(&["status"]).await.with(0);
    let none = redlock(&["bootstrap", "--yes", "--redis", "redis://127.0.0.1:1"]);
    ended(none).await.with(69);
}

#[tokio::test]
async fn adopt_says_its_downtime_and_takes_the_nodes_over() {
    let (fleet, locks) = Fleet::started().await;
    locks.shutdown(Duration::ZERO).await;
    let text = fs::read_to_string(fleet.file()).unwrap();
    let other = text.replace("\"3s\"", "\"1s\"") + "connect_timeout = \"1s\"\n";
    fs::write(fleet.file(), other).unwrap();
    for command in [
        &["status", "--json"][..],
        &["wait", "--timeout", "500ms"],
        &["bootstrap", "--yes"],
        &["who", "k"],
        &["list"],
        &["release", "k", "--force", "--yes"],
        &["run", "k", "--", "true"],
    ] {
        let foreign = fleet.run(command).await.with(78);
        let text = foreign.out + &foreign.err;
        assert!(text.contains("it serves processes"), "{command:?}: {text}");
    }
    let refused = fleet.run(&["nodes", "adopt"]).await.with(64);
    assert!(
        refused.err.contains("No lock is granted for about 3.0s"),
        "{}",
        refused.err
    );
    let status = fleet.run(&["status"]).await.with(78);
    assert_eq!(
        status.out.matches(": it serves processes").count(),
        3,
        "{}",
        status.out
    );
    let begin = Instant::now();
    let adopted = fleet.run(&["nodes", "adopt", "--yes"]).await.with(0);
    assert!(adopted.out.contains("vote, 2 needed"), "{}", adopted.out);
    // The nodes tell the quarantine of the old list.
    assert!(
        begin.elapsed() > Duration::from_secs(3),
        "{:?}",
        begin.elapsed()
    );
    fleet.run(&["wait"]).await.with(0);
}

#[tokio::test]
async fn adopt_takes_no_node_over_while_one_is_away() {
    let (mut fleet, _locks) = Fleet::started().await;
    let text = fs::read_to_string(fleet.file()).unwrap();
    let other = text.replace("\"3s\"", "\"1s\"") + "connect_timeout = \"1s\"\n";
    fs::write(fleet.file(), other).unwrap();
    fleet.servers[2].kill();
    let adopt = fleet.run(&["nodes", "adopt", "--yes"]).await.with(69);
    assert!(adopt.err.contains("do not: n2 ("), "{}", adopt.err);
    fs::write(fleet.file(), text).unwrap();
    let status = fleet.run(&["status"]).await.with(0);
    assert!(status.out.contains("2 of 3 vote"), "{}", status.out);
}

#[tokio::test]
async fn a_server_that_cannot_be_a_node_is_shown_with_the_reason() {
    let (fleet, _locks) = Fleet::started().await;
    let port = fleet.servers[0].port().to_string();
    fleet.ask(1, &["CONFIG", "SET", "masterauth", crate::PASSWORD]);
    fleet.ask(1, &["REPLICAOF", "127.0.0.1", &port]);
    let role = || fleet.ask(1, &["ROLE"]).contains("slave");
    eventually("a replica", role).await;
    let status = fleet.run(&["status"]).await.with(0);
    assert!(status.out.contains("refused"), "{}", status.out);
    assert!(status.out.contains("its role is `slave`"), "{}", status.out);
}
