//! `who`, `list` and `release`.

use std::convert::Infallible;
use std::fs;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{Empty, Full};
use tokio::sync::mpsc;
use tower::{Layer as _, ServiceExt as _, service_fn};
use tower_redlock::error::LossReason;
use tower_redlock::idempotency::{Idempotent, caller};
use tower_redlock::{FencingToken, IdempotencyLayer, LockManager};

use crate::support::eventually;
use crate::{Ended, Fleet, PASSWORD, ended, held};

/// Nothing that the program prints authorises a command on the servers.
#[track_caller]
fn assert_kept(ended: &Ended, tokens: &[String]) {
    assert!(!tokens.is_empty());
    for token in tokens {
        assert!(!ended.out.contains(token.as_str()), "{}", ended.out);
        assert!(!ended.err.contains(token.as_str()), "{}", ended.err);
    }
}

#[tokio::test]
async fn who_shows_the_holder_on_each_node() {
    let (mut fleet, locks) = Fleet::started().await;
    let free = fleet.run(&["who", "order:42"]).await.with(0);
    assert!(free.out.starts_with("order:42: free\n"), "{}", free.out);
    let guard = held(&fleet, &locks, "order:42").await;
    let who = fleet.run(&["who", "order:42"]).await.with(0);
    let tokens = fleet.tokens("order:42");
    assert_kept(&who, &tokens);
    let owner = guard.owner_hash();
    let owner = &owner.to_string()[..8];
    let verdict = format!("order:42: held by service@1 (owner {owner}), on 3 of 3 nodes\n");
    assert!(who.out.starts_with(&verdict), "{}", who.out);
    let rows: Vec<&str> = who.out.lines().skip(2).collect();
    assert_eq!(rows.len(), 3);
    for row in rows {
        assert!(row.contains(owner) && row.contains("service@1"), "{row}");
        // The year of the fencing token.
        assert!(row.contains(" 20") && row.contains("Z "), "{row}");
    }
    let json = fleet.run(&["who", "order:42", "--json"]).await.with(0);
    assert_kept(&json, &tokens);
    let json = json.json();
    assert_eq!(json["verdict"], "held");
    assert_eq!(
        json["nodes"][2]["holder"]["owner"],
        guard.owner_hash().to_string()
    );
    // A single node may have counted further, or not as far.
    let fence = |node: usize| -> FencingToken {
        let text = json["nodes"][node]["holder"]["fence"].as_str();
        text.unwrap().parse().unwrap()
    };
    let token = guard.fence().unwrap();
    assert!(
        (0..3).filter(|node| fence(*node) >= token).count() >= 2,
        "{json}"
    );
    let held_for = json["nodes"][2]["holder"]["held_for"].as_f64().unwrap();
    assert!((0.0..60.0).contains(&held_for), "{held_for}");

    fleet.servers[0].kill();
    let who = fleet.run(&["who", "order:42"]).await.with(0);
    assert!(
        who.out.contains("on 2 of 3 nodes") && who.out.contains("is down"),
        "{}",
        who.out
    );
    fleet.servers[1].kill();
    let who = fleet.run(&["who", "order:42"]).await.with(69);
    assert!(
        who.out
            .contains("unknown: too few nodes that vote have answered"),
        "{}",
        who.out
    );
}

/// A value that is none of ours may be a secret of another program.
#[tokio::test]
async fn of_another_program_s_value_only_its_hash_is_shown() {
    let (fleet, _locks) = Fleet::started().await;
    for server in 0..3 {
        fleet.ask(server, &["SET", "lk:k", "abc:geheim"]);
    }
    let who = fleet.run(&["who", "k", "--json"]).await.with(0);
    assert!(!who.out.contains("geheim"), "{}", who.out);
    let json = who.json();
    assert_eq!(json["verdict"], "held");
    assert_eq!(json["nodes"][0]["holder"]["instance"], "");
    assert_eq!(
        json["nodes"][0]["holder"]["remaining"],
        serde_json::Value::Null
    );
}

#[tokio::test]
async fn list_has_the_locks_of_the_fleet_and_is_bounded() {
    let (fleet, locks) = Fleet::started().await;
    let mut guards = Vec::new();
    for number in 0..5 {
        guards.push(held(&fleet, &locks, &format!("order:{number}")).await);
    }
    guards.push(held(&fleet, &locks, "other").await);
    let list = fleet.run(&["list", "order:"]).await.with(0);
    assert_kept(&list, &fleet.tokens("order:1"));
    let rows: Vec<&str> = list.out.lines().skip(1).collect();
    assert_eq!(rows.len(), 5, "{}", list.out);
    assert!(
        rows.iter()
            .all(|row| row.contains("service@1") && row.ends_with("3 of 3")),
        "{}",
        list.out
    );
    assert_eq!(list.err, "");
    let list = fleet.run(&["list", "--limit", "2"]).await.with(0);
    assert_eq!(list.out.lines().count(), 3, "{}", list.out);
    assert!(list.err.contains("there may be more"), "{}", list.err);
    let json = fleet.run(&["list", "--json"]).await.with(0).json();
    assert_eq!(json["locks"].as_array().unwrap().len(), 6);
    assert_eq!(json["more"], false);
    // Never by a command that stops the server.
    let commands = fleet.ask(0, &["INFO", "commandstats"]);
    assert!(commands.contains("cmdstat_scan:") && !commands.contains("cmdstat_keys:calls=0"));
}

/// A request that runs until it is told to go on, and the key under which its handler knows it.
async fn running(locks: &LockManager, number: u64) -> (String, mpsc::Sender<()>) {
    let (begun, mut keys) = mpsc::channel(1);
    let (go_on, told) = mpsc::channel(1);
    let told = std::sync::Arc::new(tokio::sync::Mutex::new(told));
    let handler = service_fn(move |request: Request<_>| {
        let (begun, told) = (begun.clone(), told.clone());
        async move {
            let run = Idempotent::of(request.extensions()).unwrap();
            begun.send(run.id().to_owned()).await.unwrap();
            told.lock().await.recv().await;
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("geheim"))))
        }
    });
    let once = IdempotencyLayer::new(locks.clone(), caller::nobody()).layer(handler);
    let request = Request::post("/pay").header("idempotency-key", number.to_string());
    let request = request.body(Empty::<Bytes>::new()).unwrap();
    tokio::spawn(once.oneshot(request));
    (keys.recv().await.unwrap(), go_on)
}

#[tokio::test]
async fn a_request_is_found_by_the_key_that_its_handler_knows_and_then_its_stored_response() {
    let (fleet, locks) = Fleet::started().await;
    let _lock = held(&fleet, &locks, "order:42").await;
    let (key, go_on) = running(&locks, 1).await;
    let held = locks
        .snapshot()
        .locks
        .into_iter()
        .map(|lock| lock.keys[0].clone());
    assert!(
        held.collect::<Vec<_>>().contains(&key),
        "the page shows it, too"
    );
    let who = fleet.run(&["who", &key, "--idempotency"]).await.with(0);
    assert!(
        who.out
            .starts_with(&format!("{key}: held by service@1 (owner ")),
        "{}",
        who.out
    );
    assert!(!who.out.contains("a response is stored"), "{}", who.out);
    let list = async |arguments: &[&str]| {
        let list = fleet.run(arguments).await.with(0);
        let rows = list
            .out
            .lines()
            .skip(1)
            .filter_map(|row| row.split(' ').next());
        rows.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(list(&["list", "--idempotency"]).await, [key.as_str()]);
    assert_eq!(list(&["list"]).await, ["order:42"]);

    drop(go_on);
    let stored = || {
        let record = format!("lk!idem!record:{key}");
        let has = |server| fleet.ask(server, &["GET", &record]).contains("geheim");
        (0..3).all(has)
    };
    eventually("the response is stored", stored).await;
    let who = fleet.run(&["who", &key, "--idempotency"]).await.with(0);
    assert!(
        who.out.starts_with(&format!("{key}: free\n")),
        "{}",
        who.out
    );
    assert_eq!(
        who.out
            .matches(": a response is stored for 23h 59m ")
            .count(),
        3,
        "{}",
        who.out
    );
    let json = fleet
        .run(&["who", &key, "--idempotency", "--json"])
        .await
        .with(0);
    assert!(
        !who.out.contains("geheim") && !json.out.contains("geheim"),
        "{}",
        json.out
    );
    let rest = json.json()["nodes"][1]["stored_for"].as_f64().unwrap();
    assert!((86_000.0..=86_400.0).contains(&rest), "{rest}");
    assert_eq!(list(&["list", "--idempotency"]).await, [""; 0]);
    let plain = fleet.run(&["who", &key]).await.with(0);
    assert!(
        !plain.out.contains("a response"),
        "its lock is another: {}",
        plain.out
    );
}

#[tokio::test]
async fn the_lock_of_an_idempotency_key_is_taken_like_any_other() {
    let (fleet, locks) = Fleet::started().await;
    let (key, go_on) = running(&locks, 1).await;
    let arguments = ["release", &key, "--idempotency", "--force", "--yes"];
    let released = fleet.run(&arguments).await.with(0);
    assert!(released.out.contains("freed on "), "{}", released.out);
    // Its handler was dropped.
    go_on.closed().await;
    // The repeat runs.
    let (again, _go_on) = running(&locks, 1).await;
    assert_eq!(again, key);
}

#[tokio::test]
async fn release_asks_and_tells_the_holder_before_the_key_is_free() {
    let (fleet, locks) = Fleet::started().await;
    let guard = held(&fleet, &locks, "order:42").await;
    let refused = fleet
        .run(&["release", "order:42", "--force"])
        .await
        .with(64);
    assert!(
        refused.err.contains("takes order:42 from service@1"),
        "{}",
        refused.err
    );
    assert!(refused.err.contains("--yes"), "{}", refused.err);
    assert_eq!(fleet.holding("order:42"), 3);
    assert_eq!(guard.owner_hash(), guard.owner_hash());
    let lost = tokio::spawn({
        let lost = guard.lost();
        async move { (lost.await, Instant::now()) }
    });
    let tokens = fleet.tokens("order:42");
    let listening = fleet.redlock(&["run", "order:42", "--wait", "20s", "--", "true"]);
    let other = tokio::spawn(async move { (ended(listening).await, Instant::now()) });
    let released = fleet
        .run(&["release", "order:42", "--force", "--yes"])
        .await
        .with(0);
    assert_kept(&released, &tokens);
    assert!(
        released.out.contains("freed on 3 of 3 nodes"),
        "{}",
        released.out
    );
    let (reason, lost) = lost.await.unwrap();
    assert_eq!(reason, LossReason::Taken);
    let (other, got) = other.await.unwrap();
    other.with(0);
    assert!(got > lost);
}

#[tokio::test]
async fn a_dead_holder_s_key_is_free_at_once() {
    let (fleet, locks) = Fleet::started().await;
    // It is never extended: the runtime that does so is gone.
    let guard = held(&fleet, &locks, "k").await;
    let begin = Instant::now();
    let released = fleet
        .run(&["release", "k", "--force", "--now", "--yes"])
        .await
        .with(0);
    assert!(
        released.err.contains("two may work at the same time"),
        "{}",
        released.err
    );
    assert!(
        begin.elapsed() < Duration::from_secs(3),
        "{:?}",
        begin.elapsed()
    );
    assert_eq!(fleet.holding("k"), 0);
    // It lived after all, and does not set the key again.
    guard.lost().await;
    let tombstones = fleet.ask(0, &["KEYS", "lk!dead:*"]);
    assert_eq!(tombstones.lines().count(), 1, "{tombstones}");
    assert_eq!(fleet.holding("k"), 0);
    let nothing = fleet
        .run(&["release", "k", "--force", "--yes"])
        .await
        .with(0);
    assert!(nothing.out.starts_with("k: free"), "{}", nothing.out);
}

/// Without its tombstone, a living holder would set the key again when it is free.
#[tokio::test]
async fn no_node_is_taken_from_a_holder_that_it_cannot_bury() {
    let (fleet, locks) = Fleet::started().await;
    let _guard = held(&fleet, &locks, "k").await;
    let rights = "ACL SETUSER default resetkeys ~lk:* ~lk!node ~lk!rights ~lk!fence:* ~lk!record:*";
    fleet.ask(0, &rights.split(' ').collect::<Vec<_>>());
    let release = ["release", "k", "--force", "--now", "--yes"];
    let released = fleet.run(&release).await.with(0);
    assert!(released.out.contains("freed on 2 of 3"), "{}", released.out);
    let owner = fleet.ask(0, &["GET", "lk:k"]);
    assert!(!owner.contains("operator@2"), "{owner}");
}

#[tokio::test]
async fn a_list_is_incomplete_where_too_few_nodes_of_one_group_list_their_keys() {
    let mut fleet = Fleet::of(6);
    fleet.write("3s", "3s");
    let text = fs::read_to_string(fleet.file()).unwrap();
    fs::write(fleet.file(), text + "groups = 2\n").unwrap();
    fleet.run(&["bootstrap", "--yes"]).await.with(0);
    fleet.servers[5].kill();
    let json = fleet.run(&["list", "--json"]).await.with(0).json();
    assert_eq!(
        json["more"], false,
        "a quorum of each group has listed its keys"
    );
    fleet.servers[4].kill();
    let list = fleet.run(&["list"]).await.with(69);
    assert!(list.err.contains("the list is incomplete"), "{}", list.err);
    let json = fleet.run(&["list", "--json"]).await.with(69).json();
    assert_eq!(json["more"], true);
}

#[tokio::test]
async fn no_key_is_called_free_while_a_quorum_may_have_forgotten_its_holder() {
    let (fleet, locks) = Fleet::started().await;
    locks.shutdown(Duration::ZERO).await;
    fleet.ask(0, &["FLUSHALL"]);
    let who = fleet.run(&["who", "k"]).await.with(0);
    assert!(who.out.starts_with("k: free\n"), "{}", who.out);
    assert!(who.out.contains("does not vote"), "{}", who.out);
    fleet.ask(1, &["FLUSHALL"]);
    let who = fleet.run(&["who", "k"]).await.with(69);
    assert!(who.out.starts_with("k: unknown: "), "{}", who.out);
    let release = ["release", "k", "--force", "--yes"];
    fleet.run(&release).await.with(69);
    let list = fleet.run(&["list"]).await.with(69);
    assert!(list.err.contains("the list is incomplete"), "{}", list.err);
}

#[tokio::test]
async fn a_key_that_holds_no_lock_is_not_called_free() {
    let (fleet, _locks) = Fleet::started().await;
    for (server, code, verdict) in [
        (0, 0, "k: free\n"),
        (1, 69, "k: no lock: 2 of 3 nodes have something else there"),
    ] {
        fleet.ask(server, &["HSET", "lk:k", "field", "1"]);
        let who = fleet.run(&["who", "k"]).await.with(code);
        assert!(who.out.starts_with(verdict), "{}", who.out);
        assert!(
            who.out.contains("something that is not a lock"),
            "{}",
            who.out
        );
        let json = fleet.run(&["who", "k", "--json"]).await.with(code).json();
        let error = json["nodes"][server]["error"].as_str().unwrap();
        assert!(error.contains("not a lock"), "{json}");
    }
    assert_eq!(fleet.ask(0, &["HGET", "lk:k", "field"]), "1");
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
    let who = fleet.run(&["who", "k"]).await.with(0);
    assert_kept(&who, &fleet.tokens("k"));
    let held = "k: held by shared: service@1, report@7 (owner ";
    assert!(who.out.starts_with(held), "{}", who.out);
    let json = fleet.run(&["who", "k", "--json"]).await.with(0);
    for server in 0..3 {
        let value = fleet.ask(server, &["GET", "lk:k"]);
        for token in value.split(' ').filter(|word| word.len() >= 40) {
            let secret = &token[..40];
            assert!(!who.out.contains(secret) && !json.out.contains(secret));
        }
    }
}

#[tokio::test]
async fn a_user_without_the_right_to_scan_is_told_so() {
    let (fleet, locks) = Fleet::started().await;
    let _guard = held(&fleet, &locks, "k").await;
    for server in 0..3 {
        fleet.ask(server, &["ACL", "SETUSER", "default", "-scan"]);
    }
    let list = fleet.run(&["list"]).await.with(69);
    let text = "may not run `SCAN`, which only lists need; add `+scan`";
    assert!(list.err.contains(text), "{}", list.err);
    assert!(list.err.contains("`redlock acl --read-only`"));
    fleet.run(&["who", "k"]).await.with(0);
    let denied = || fleet.holding("k") == 3;
    eventually("still held", denied).await;
}

#[tokio::test]
async fn a_user_who_may_only_read_looks_and_changes_nothing() {
    let (fleet, locks) = Fleet::started().await;
    let guard = held(&fleet, &locks, "k").await;
    let rule = fleet.run(&["acl", "--read-only"]).await.with(0).out;
    for write in ["+set", "+del", "+pexpire", "+hset", "+hdel", "+publish"] {
        assert!(!rule.contains(write), "{rule}");
    }
    for server in 0..3 {
        let rule = rule.trim_end().replace("PASSWORD", PASSWORD);
        fleet.ask(server, &rule.split(' ').collect::<Vec<_>>());
    }
    let reader = async |arguments: &[&str]| {
        let mut command = fleet.redlock(arguments);
        command.env("REDLOCK_USER", "locks");
        ended(command).await
    };
    assert!(reader(&["status"]).await.with(0).out.contains("votes"));
    assert!(
        reader(&["who", "k"])
            .await
            .with(0)
            .out
            .contains("service@1")
    );
    assert!(reader(&["list"]).await.with(0).out.contains("service@1"));
    let release = ["release", "k", "--force", "--now", "--yes"];
    let refused = reader(&release).await;
    assert!(refused.code != 0 && !guard.is_lost(), "{refused:?}");
    assert_eq!(fleet.holding("k"), 3);
    // A service would write down that keys were evicted.
    locks.shutdown(Duration::ZERO).await;
    let set = |setting, value| fleet.ask(2, &["CONFIG", "SET", setting, value]);
    set("maxmemory-policy", "volatile-ttl");
    set("maxmemory", "1");
    fleet.ask(2, &["SET", "room", "room"]);
    set("maxmemory", "0");
    set("maxmemory-policy", "noeviction");
    assert!(!fleet.ask(2, &["INFO", "stats"]).contains("evicted_keys:0"));
    let status = reader(&["status"]).await.with(0);
    assert_eq!(status.out.matches("votes").count(), 3, "{}", status.out);
    // The same user is no user for a service.
    let refused = reader(&["run", "j", "--", "true"]).await.with(78);
    assert!(refused.err.contains("may not run `SET`"), "{}", refused.err);
}
