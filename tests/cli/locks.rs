//! `who`, `list` and `release`.

use std::convert::Infallible;
use std::fs;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{Empty, Full};
use tokio::sync::{mpsc, watch};
use tower::{Layer as _, ServiceExt as _, service_fn};
use tower_redlock::error::LossReason;
use tower_redlock::idempotency::{Idempotent, caller};
use tower_redlock::{FencingToken, IdempotencyLayer, LockManager};

use crate::support::eventually;
use crate::{Ended, Fleet, PASSWORD, ended, held, words};

/// Nothing that the program prints authorises a command on the servers.
#[track_caller]
fn assert_kept(ended: &Ended, tokens: &[String]) {
    assert!(!tokens.is_empty());
    for token in tokens {
        ended.hides(token);
    }
}

#[tokio::test]
async fn who_shows_the_holder_on_each_node() {
    let (mut fleet, locks) = Fleet::started().await;
    fleet
        .run("who order:42")
        .await
        .with(0)
        .begins("order:42: free\n");
    let guard = held(&fleet, &locks, "order:42").await;
    let who = fleet.run("who order:42").await.with(0);
    let tokens = fleet.tokens("order:42");
    assert_kept(&who, &tokens);
    let owner = guard.owner_hash();
    let owner = &owner.to_string()[..8];
    who.begins(&format!(
        "order:42: held by service@1 (owner {owner}), on 3 of 3 nodes\n"
    ));
    let rows: Vec<&str> = who.out.lines().skip(2).collect();
    assert_eq!(rows.len(), 3);
    for row in rows {
        assert!(row.contains(owner) && row.contains("service@1"), "{row}");
        // The year of the fencing token.
        assert!(row.contains(" 20") && row.contains("Z "), "{row}");
    }
    let json = fleet.run("who order:42 --json").await.with(0);
    assert_kept(&json, &tokens);
    let json = json.json();
    assert_eq!(json["verdict"], "held");
    let holder = &json["nodes"][2]["holder"];
    assert_eq!(holder["owner"], guard.owner_hash().to_string());
    // A single node may have counted further, or not as far.
    let fence = |node: usize| -> FencingToken {
        let text = json["nodes"][node]["holder"]["fence"].as_str();
        text.unwrap().parse().unwrap()
    };
    let token = guard.fence().unwrap();
    let counted = (0..3).filter(|node| fence(*node) >= token).count();
    assert!(counted >= 2, "{json}");
    let held_for = holder["held_for"].as_f64().unwrap();
    assert!((0.0..60.0).contains(&held_for), "{held_for}");

    fleet.servers[0].kill();
    let who = fleet.run("who order:42").await.with(0);
    who.shows("on 2 of 3 nodes").shows("is down");
    fleet.servers[1].kill();
    let who = fleet.run("who order:42").await.with(69);
    who.shows("unknown: too few nodes that vote have answered");
}

/// A value that is none of ours may be a secret of another program.
#[tokio::test]
async fn of_another_program_s_value_only_its_hash_is_shown() {
    let (fleet, _locks) = Fleet::started().await;
    for server in 0..3 {
        fleet.ask(server, "SET lk:k abc:geheim");
    }
    let who = fleet.run("who k --json").await.with(0);
    let json = who.hides("geheim").json();
    assert_eq!(json["verdict"], "held");
    let holder = &json["nodes"][0]["holder"];
    assert_eq!(holder["instance"], "");
    assert!(holder["remaining"].is_null(), "{json}");
}

#[tokio::test]
async fn list_has_the_locks_of_the_fleet_and_is_bounded() {
    let (fleet, locks) = Fleet::started().await;
    let mut guards = Vec::new();
    for number in 0..5 {
        guards.push(held(&fleet, &locks, &format!("order:{number}")).await);
    }
    guards.push(held(&fleet, &locks, "other").await);
    let list = fleet.run("list order:").await.with(0);
    assert_kept(&list, &fleet.tokens("order:1"));
    let rows: Vec<&str> = list.out.lines().skip(1).collect();
    assert_eq!(rows.len(), 5, "{}", list.out);
    let is_ours = |row: &&str| row.contains("service@1") && row.ends_with("3 of 3");
    assert!(rows.iter().all(is_ours), "{}", list.out);
    assert_eq!(list.err, "");
    let list = fleet.run("list --limit 2").await.with(0);
    assert_eq!(list.out.lines().count(), 3, "{}", list.out);
    list.complains("there may be more");
    let json = fleet.run("list --json").await.with(0).json();
    assert_eq!(json["locks"].as_array().unwrap().len(), 6);
    assert_eq!(json["more"], false);
    // Never by a command that stops the server.
    let commands = fleet.ask(0, "INFO commandstats");
    assert!(commands.contains("cmdstat_scan:") && !commands.contains("cmdstat_keys:calls=0"));
}

/// A request that runs until it is told to go on, and the key under which its handler knows it.
async fn running(locks: &LockManager) -> (String, watch::Sender<()>) {
    let (begun, mut keys) = mpsc::channel(1);
    let (go_on, told) = watch::channel(());
    let handler = service_fn(move |request: Request<_>| {
        let (begun, mut told) = (begun.clone(), told.clone());
        async move {
            let run = Idempotent::of(request.extensions()).unwrap();
            begun.send(run.id().to_owned()).await.unwrap();
            let _ = told.changed().await;
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("geheim"))))
        }
    });
    let once = IdempotencyLayer::new(locks.clone(), caller::nobody()).layer(handler);
    let request = Request::post("/pay").header("idempotency-key", "1");
    let request = request.body(Empty::<Bytes>::new()).unwrap();
    tokio::spawn(once.oneshot(request));
    (keys.recv().await.unwrap(), go_on)
}

#[tokio::test]
async fn a_request_is_found_by_the_key_that_its_handler_knows_and_then_its_stored_response() {
    let (fleet, locks) = Fleet::started().await;
    let _lock = held(&fleet, &locks, "order:42").await;
    let (key, go_on) = running(&locks).await;
    let shown = locks.snapshot().locks;
    assert!(
        shown.iter().any(|lock| lock.keys[0] == key),
        "the page shows it, too"
    );
    let who_of_request = format!("who {key} --idempotency");
    let who = fleet.run(&who_of_request).await.with(0);
    who.begins(&format!("{key}: held by service@1 (owner "))
        .hides("a response is stored");
    let list = async |line| {
        let list = fleet.run(line).await.with(0);
        let rows = list
            .out
            .lines()
            .skip(1)
            .filter_map(|row| row.split(' ').next());
        rows.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(list("list --idempotency").await, [key.as_str()]);
    assert_eq!(list("list").await, ["order:42"]);

    drop(go_on);
    let stored = || {
        let get = format!("GET lk!idem!record:{key}");
        (0..3).all(|server| fleet.ask(server, &get).contains("geheim"))
    };
    eventually("the response is stored", stored).await;
    let who = fleet.run(&who_of_request).await.with(0);
    who.begins(&format!("{key}: free\n")).hides("geheim");
    let told = who.out.matches(": a response is stored for 23h 59m ");
    assert_eq!(told.count(), 3, "{}", who.out);
    let json = fleet.run(&format!("{who_of_request} --json")).await.with(0);
    let rest = json.hides("geheim").json()["nodes"][1]["stored_for"]
        .as_f64()
        .unwrap();
    assert!((86_000.0..=86_400.0).contains(&rest), "{rest}");
    assert_eq!(list("list --idempotency").await, [""; 0]);
    // The lock of that name is another one.
    fleet
        .run(&format!("who {key}"))
        .await
        .with(0)
        .hides("a response");
}

#[tokio::test]
async fn release_asks_and_tells_the_holder_before_the_key_is_free() {
    let (fleet, locks) = Fleet::started().await;
    let guard = held(&fleet, &locks, "order:42").await;
    let refused = fleet.run("release order:42 --force").await.with(64);
    refused
        .complains("takes order:42 from service@1")
        .complains("--yes");
    assert_eq!(fleet.holding("order:42"), 3);
    let lost = tokio::spawn({
        let lost = guard.lost();
        async move { (lost.await, Instant::now()) }
    });
    let tokens = fleet.tokens("order:42");
    let listening = fleet.redlock(&["run", "order:42", "--wait", "20s", "--", "true"]);
    let other = tokio::spawn(async move { (ended(listening).await, Instant::now()) });
    let released = fleet.run("release order:42 --force --yes").await.with(0);
    assert_kept(&released, &tokens);
    released.shows("freed on 3 of 3 nodes");
    let (reason, lost) = lost.await.unwrap();
    assert_eq!(reason, LossReason::Taken);
    let (other, got) = other.await.unwrap();
    other.with(0);
    assert!(got > lost);
}

#[tokio::test]
async fn a_dead_holder_s_key_is_free_at_once() {
    let (fleet, locks) = Fleet::started().await;
    let guard = held(&fleet, &locks, "k").await;
    let begin = Instant::now();
    let released = fleet.run("release k --force --now --yes").await.with(0);
    let took = begin.elapsed();
    released.complains("two may work at the same time");
    assert!(took < Duration::from_secs(3), "{took:?}");
    assert_eq!(fleet.holding("k"), 0);
    guard.lost().await;
    fleet
        .run("release k --force --yes")
        .await
        .with(0)
        .begins("k: free");
}

/// Without its tombstone, a living holder would set the key again when it is free.
#[tokio::test]
async fn no_node_is_taken_from_a_holder_that_it_cannot_bury() {
    let (fleet, locks) = Fleet::started().await;
    let _guard = held(&fleet, &locks, "k").await;
    let rights = "ACL SETUSER default resetkeys ~lk:* ~lk!node ~lk!rights ~lk!fence:* ~lk!record:*";
    fleet.ask(0, rights);
    let released = fleet.run("release k --force --now --yes").await.with(0);
    released.shows("freed on 2 of 3");
    let owner = fleet.ask(0, "GET lk:k");
    assert!(!owner.contains("operator@2"), "{owner}");
}

#[tokio::test]
async fn a_list_is_incomplete_where_too_few_nodes_of_one_group_list_their_keys() {
    let mut fleet = Fleet::of(6);
    fleet.write("3s", "3s");
    let text = fs::read_to_string(fleet.file()).unwrap();
    fs::write(fleet.file(), text + "groups = 2\n").unwrap();
    fleet.run("bootstrap --yes").await.with(0);
    fleet.servers[5].kill();
    let json = fleet.run("list --json").await.with(0).json();
    assert_eq!(json["more"], false, "a quorum of each group has listed");
    fleet.servers[4].kill();
    let list = fleet.run("list --json").await.with(69);
    assert_eq!(
        list.complains("the list is incomplete").json()["more"],
        true
    );
}

#[tokio::test]
async fn no_key_is_called_free_while_a_quorum_may_have_forgotten_its_holder() {
    let (fleet, locks) = Fleet::started().await;
    locks.shutdown(Duration::ZERO).await;
    fleet.ask(0, "FLUSHALL");
    let who = fleet.run("who k").await.with(0);
    who.begins("k: free\n").shows("does not vote");
    fleet.ask(1, "FLUSHALL");
    fleet.run("who k").await.with(69).begins("k: unknown: ");
    fleet.run("release k --force --yes").await.with(69);
    fleet
        .run("list")
        .await
        .with(69)
        .complains("the list is incomplete");
}

#[tokio::test]
async fn a_key_that_holds_no_lock_is_not_called_free() {
    let (fleet, _locks) = Fleet::started().await;
    for (server, code, verdict) in [
        (0, 0, "k: free\n"),
        (1, 69, "k: no lock: 2 of 3 nodes have something else there"),
    ] {
        fleet.ask(server, "HSET lk:k field 1");
        let who = fleet.run("who k").await.with(code);
        who.begins(verdict).shows("something that is not a lock");
        let json = fleet.run("who k --json").await.with(code).json();
        let error = json["nodes"][server]["error"].as_str().unwrap();
        assert!(error.contains("not a lock"), "{json}");
    }
    assert_eq!(fleet.ask(0, "HGET lk:k field"), "1");
}

#[tokio::test]
async fn readers_are_shown_by_their_instances() {
    let (fleet, first) = Fleet::started().await;
    let second = fleet
        .settings()
        .instance("report@7")
        .connect()
        .await
        .unwrap();
    let _one = first.shared().try_acquire("k").await.unwrap();
    let _other = second.shared().try_acquire("k").await.unwrap();
    eventually("on all", || fleet.holding("k") == 3).await;
    let who = fleet.run("who k").await.with(0);
    who.begins("k: held by shared: service@1, report@7 (owner ");
    let tokens = fleet.tokens("k");
    assert_kept(&who, &tokens);
    assert_kept(&fleet.run("who k --json").await.with(0), &tokens);
}

#[tokio::test]
async fn a_user_without_the_right_to_scan_is_told_so() {
    let (fleet, locks) = Fleet::started().await;
    let _guard = held(&fleet, &locks, "k").await;
    for server in 0..3 {
        fleet.ask(server, "ACL SETUSER default -scan");
    }
    let list = fleet.run("list").await.with(69);
    list.complains("may not run `SCAN`, which only lists need; add `+scan`");
    list.complains("`redlock acl --read-only`");
    fleet.run("who k").await.with(0);
    assert_eq!(fleet.holding("k"), 3);
}

#[tokio::test]
async fn a_user_who_may_only_read_looks_and_changes_nothing() {
    let (fleet, locks) = Fleet::started().await;
    let guard = held(&fleet, &locks, "k").await;
    let rule = fleet.run("acl --read-only").await.with(0).out;
    for write in ["+set", "+del", "+pexpire", "+hset", "+hdel", "+publish"] {
        assert!(!rule.contains(write), "{rule}");
    }
    let rule = rule.trim_end().replace("PASSWORD", PASSWORD);
    (0..3).for_each(|server| drop(fleet.ask(server, &rule)));
    let reader = async |line| {
        let mut command = fleet.redlock(&words(line));
        command.env("REDLOCK_USER", "locks");
        ended(command).await
    };
    for (look, text) in [
        ("status", "votes"),
        ("who k", "service@1"),
        ("list", "service@1"),
    ] {
        reader(look).await.with(0).shows(text);
    }
    let refused = reader("release k --force --now --yes").await;
    assert!(refused.code != 0 && !guard.is_lost(), "{refused:?}");
    assert_eq!(fleet.holding("k"), 3);
    // A service would write down that keys were evicted.
    locks.shutdown(Duration::ZERO).await;
    for line in [
        "CONFIG SET maxmemory-policy volatile-ttl",
        "CONFIG SET maxmemory 1",
        "SET room room",
        "CONFIG SET maxmemory 0",
        "CONFIG SET maxmemory-policy noeviction",
    ] {
        fleet.ask(2, line);
    }
    assert!(!fleet.ask(2, "INFO stats").contains("evicted_keys:0"));
    let status = reader("status").await.with(0);
    assert_eq!(status.out.matches("votes").count(), 3, "{}", status.out);
    // The same user is no user for a service.
    reader("run j -- true")
        .await
        .with(78)
        .complains("may not run `SET`");
}
