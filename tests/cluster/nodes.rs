//! What a node in a cluster is.

use tower_redlock::node::{Credentials, MemoryNode};

use crate::support::server::Server;
use crate::*;

#[tokio::test]
async fn three_slots_on_three_masters_hold_each_lock() {
    for kind in Kind::ALL {
        let cluster = RedisCluster::start(kind, 3, 0);
        // One server is enough to find the others.
        let nodes = RedisNode::cluster([cluster.servers[1].url()]);
        let locks = connected(settings(nodes, 5_000 * MS)).await;
        let nodes = locks.snapshot().nodes;
        assert_eq!(nodes.len(), 3);
        for ((node, server), slot) in nodes.iter().zip(&cluster.servers).zip(SLOTS) {
            assert_eq!(node.name, format!("cluster/slot-{slot}"));
            let address = format!("127.0.0.1:{}", server.port());
            assert_eq!(node.server.as_ref().unwrap().address, address);
        }
        let guard = locks.acquire("order:42").await.unwrap();
        for (server, slot) in cluster.servers.iter().zip(SLOTS) {
            let keys = server.run("KEYS *");
            let mut locks = keys.lines().filter(|key| key.ends_with("}lk:order:42"));
            let lock = locks.next().unwrap();
            let in_slot = server.run(&format!("CLUSTER KEYSLOT {lock}"));
            assert_eq!(in_slot, slot.to_string());
            let tag = lock.strip_suffix("lk:order:42").unwrap();
            let is_ours = |key: &str| key.starts_with(tag) && !key.starts_with("lk");
            assert!(keys.lines().all(is_ours), "{keys}");
        }
        let error = locks.try_acquire("order:42").await.unwrap_err();
        assert!(is_contended(&error), "{error}");
        let fence = guard.fence().unwrap();
        guard.release().await.unwrap();
        let again = locks.try_acquire(["order:42", "order:7"]).await.unwrap();
        assert!(again.fence().unwrap() > fence);
        drop(again);
        locks.shutdown(1_000 * MS).await;
        let left = |server: &Server| server.run("KEYS *").contains("}lk:order:42");
        assert!(!cluster.servers.iter().any(left));
    }
}

#[tokio::test]
async fn groups_have_slots_on_all_masters_and_each_key_is_in_one() {
    let cluster = RedisCluster::start(Kind::Redis, 6, 0);
    let settings = settings(node(&cluster), 5_000 * MS).groups(2);
    let locks = connected(settings).await;
    assert_eq!(locks.snapshot().nodes.len(), 6);
    let names = (0..12).map(|number| format!("order:{number}"));
    let mut used = [0; 6];
    let mut guards = Vec::new();
    for name in names {
        let guard = locks.acquire(name.as_str()).await.unwrap();
        let end = format!("}}lk:{name}");
        let on = |server: &Server| server.run("KEYS *").lines().any(|key| key.ends_with(&end));
        let servers = || -> Vec<usize> { (0..6).filter(|it| on(&cluster.servers[*it])).collect() };
        let state = || format!("{:?}", servers());
        eventually_or_tell("on three", || servers().len() == 3, state).await;
        // One of each third.
        let thirds: Vec<usize> = servers().iter().map(|server| server / 2).collect();
        assert_eq!(thirds, [0, 1, 2]);
        servers().iter().for_each(|server| used[*server] += 1);
        guards.push(guard);
    }
    assert!(used.iter().all(|keys| *keys > 0), "{used:?}");
    assert_eq!(locks.list("order:", 100).await.locks.len(), 12);
    drop(guards);
    // Of a cluster alone, the groups are told.
    let plain = RedisNode::new(&cluster.servers[0].url());
    let grouped = LockManager::builder().redis_nodes([node(&cluster)]);
    let grouped = || grouped.clone().groups(2);
    let in_memory = ["a", "b"].map(MemoryNode::new);
    for mixed in [grouped().redis_nodes([plain]), grouped().nodes(in_memory)] {
        let error = mixed.check().unwrap_err().to_string();
        assert!(error.starts_with("groups: a cluster in groups"), "{error}");
    }
}

/// Each node's keys have its own tag: votes are for the same slot of a permit all the same.
#[tokio::test]
async fn permits_are_granted_extended_passed_to_others_and_released_on_slots() {
    let cluster = RedisCluster::start(Kind::Redis, 3, 0);
    for (slots, namespace) in [(3_u16, "three"), (1, "one")] {
        let process = async |guarded: bool| {
            let nodes = node(&cluster).slots(slots);
            let settings = settings(nodes, 2_000 * MS).namespace(namespace);
            let settings = match guarded {
                true => settings,
                false => settings.without_restart_guard(),
            };
            connected(settings.max_wait(LONG)).await.permits(2).unwrap()
        };
        for guarded in [true, false] {
            let kind = format!("{namespace}, guarded: {guarded}");
            let (here, there) = (process(guarded).await, process(guarded).await);
            let one = here.acquire("order:42").await.unwrap();
            let other = there.acquire("order:42").await.unwrap();
            assert_ne!(one.slot(), other.slot());
            let permits = || -> usize {
                let keys = cluster.servers.iter().map(|server| server.run("KEYS *"));
                keys.map(|keys| keys.matches("!permit:order:42:").count())
                    .sum()
            };
            let on_all = || permits() == 2 * usize::from(slots);
            eventually_or_tell("on all nodes", on_all, String::new).await;
            // An extension that set other keys would be no vote; or, without the guard, one too many.
            for _ in 0..3 {
                let mut before = one.remaining();
                let extended = || {
                    let now = one.remaining();
                    now > std::mem::replace(&mut before, now)
                };
                eventually_or_tell(&kind, extended, || format!("{one:?}")).await;
            }
            assert!(on_all(), "{kind}: {}", permits());
            let error = there.try_acquire("order:42").await.unwrap_err();
            assert!(is_contended(&error), "{kind}: {error}");
            let waiting = tokio::spawn(async move { there.acquire("order:42").await });
            one.release().await.unwrap();
            let third = waiting.await.unwrap().unwrap();
            drop((third, other));
            eventually_or_tell("released", || permits() == 0, || kind.clone()).await;
            for server in &cluster.servers {
                server.run("FLUSHALL");
            }
        }
    }
}

#[tokio::test]
async fn two_nodes_on_one_master_work() {
    let cluster = RedisCluster::start(Kind::Redis, 1, 0);
    let locks = connected(settings(node(&cluster), 5_000 * MS)).await;
    let guard = locks.acquire("k").await.unwrap();
    let held = cluster.servers[0].run("KEYS *");
    assert_eq!(held.lines().filter(|key| key.ends_with("}lk:k")).count(), 3);
    guard.release().await.unwrap();
    // By variables, as in a container.
    let Some(program) = option_env!("CARGO_BIN_EXE_redlock") else {
        panic!("the program needs the feature `cli`");
    };
    let mut status = tokio::process::Command::new(program);
    status.arg("status").env_clear();
    for (name, value) in [
        ("CLUSTER", cluster.urls().join(",")),
        ("SLOTS", "3".to_owned()),
        ("CONFIRM_WITHIN", "1s".to_owned()),
    ] {
        status.env(format!("REDLOCK_NODES_0_{name}"), value);
    }
    for name in ["REDLOCK_TTL", "REDLOCK_MAX_TTL"] {
        status.env(name, "5s");
    }
    let status = status.output().await.unwrap();
    let text = String::from_utf8_lossy(&status.stdout);
    assert!(status.status.success(), "{text} {status:?}");
    assert_eq!(text.matches("has the same master as").count(), 2, "{text}");
}

pub(crate) fn published(server: &Server) -> u32 {
    server.calls().get("spublish").copied().unwrap_or_default()
}

/// With the rights of the guide, and by a file.
#[tokio::test]
async fn the_rights_of_the_guide_are_enough() {
    let guide = include_str!("../../src/docs/several_servers.md");
    let rule = guide.lines().find(|line| line.starts_with("ACL SETUSER"));
    let rule = rule.unwrap().replace("PASSWORD", "s3cret");
    let further = "+cluster|nodes +spublish +ssubscribe +sunsubscribe";
    assert!(guide.contains(further) && guide.contains("`~{*}lk:*`"));
    let rule = rule.replace("~lk", "~{*}lk").replace("&lk", "&{*}lk");
    let rule = format!("{rule} {further}");
    for kind in Kind::ALL {
        let cluster = RedisCluster::start(kind, 3, 0);
        let url = cluster.servers[2].url_as("locks", "s3cret");
        let file = format!("[[nodes]]\ncluster = ['{url}']\nname = 'shop'");
        let file: Settings = toml::from_str(&file).unwrap();
        let file = file.bootstrap(true).node_timeout(400 * MS);
        let printed = file.acl(false).unwrap().remove(0).1;
        assert_eq!(printed.replace("PASSWORD", "s3cret"), rule);
        for server in &cluster.servers {
            assert_eq!(server.run(&format!("{rule} -del")), "OK");
        }
        let error = file.clone().connect().await.unwrap_err().to_string();
        assert!(error.contains("may not run `DEL`; add `+del`"), "{error}");
        for server in &cluster.servers {
            assert_eq!(server.run(&rule), "OK");
            server.run("ACL SETUSER default -@all +ping +replconf +psync");
        }
        let [holder, waiter] = [connected(file.clone()).await, connected(file).await];
        let guard = holder.acquire("k").await.unwrap();
        let waiting = tokio::spawn(async move { waiter.acquire("k").await.map(drop) });
        tokio::task::yield_now().await;
        guard.release().await.unwrap();
        waiting.await.unwrap().unwrap();
        let node = holder.snapshot().nodes.remove(0);
        assert_eq!(node.name, "shop/slot-2731");
        assert!(!format!("{holder:?}").contains("s3cret"));
    }
}

/// A callback that takes its time is waited for before anybody is asked.
#[tokio::test]
async fn credentials_that_change_are_asked_for_first() {
    let cluster = RedisCluster::start(Kind::Redis, 3, 0);
    for server in &cluster.servers {
        server.run("ACL SETUSER locks on >s3cret ~* &* +@all");
        server.run("ACL SETUSER default -@all +ping");
    }
    let nodes = node(&cluster).credentials(|| async {
        tokio::time::sleep(300 * MS).await;
        let credentials = Credentials::password("s3cret").user("locks");
        Ok::<_, std::io::Error>(credentials)
    });
    let locks = connected(settings(nodes, 5_000 * MS)).await;
    locks.acquire("k").await.unwrap().release().await.unwrap();
}

/// The slot has another server, and those who wait listen there soon.
#[tokio::test]
async fn whoever_waits_listens_where_a_slot_has_moved() {
    let cluster = RedisCluster::start(Kind::Valkey, 3, 0);
    let three = || settings(node(&cluster), 5_000 * MS);
    let (locks, other) = (connected(three()).await, connected(three()).await);
    let guard = locks.acquire("k").await.unwrap();
    let waiting = tokio::spawn(async move {
        let other = other.with_max_wait(20_000 * MS);
        other.acquire("k").await.map(drop)
    });
    let channels = |server: &Server| {
        let all = server.run("PUBSUB SHARDCHANNELS");
        let ours = all.lines().filter(|name| name.ends_with("}lk!free:k"));
        ours.count()
    };
    let everywhere = || cluster.servers.iter().all(|server| channels(server) == 1);
    eventually_or_tell("subscribed", everywhere, String::new).await;
    cluster.begin_migration(SLOTS[1], 1, 2);
    cluster.end_migration(SLOTS[1], 1, 2);
    let there = || channels(&cluster.servers[2]) == 2;
    eventually_or_tell("subscribed again", there, String::new).await;
    drop(guard);
    waiting.await.unwrap().unwrap();
}

#[tokio::test]
async fn what_does_not_fit_says_what_to_set() {
    let cluster = RedisCluster::start(Kind::Redis, 1, 0);
    let plain = Server::start(Kind::Redis, &[]);
    let member = RedisNode::new(&cluster.servers[0].url());
    for (nodes, word) in [
        (member, "name it with `cluster`"),
        (RedisNode::cluster([plain.url()]), "servers in cluster mode"),
    ] {
        let error = settings(nodes, 1_000 * MS).connect().await.unwrap_err();
        assert!(error.to_string().contains(word), "{error}");
    }
    let one = || RedisNode::cluster(["redis://h"]);
    for (nodes, word) in [
        (RedisNode::cluster(["redis://h/2"]), "has no databases"),
        (RedisNode::cluster(["unix:///s"]), "over TCP"),
        (one().database(2), "no databases but 0"),
        (one().slots(4), "must be odd"),
        (one().slots(17), "must be odd"),
        (RedisNode::cluster(["redis://h"; 2]), "listed twice"),
        (RedisNode::new("redis://h").slots(3), "is for clusters"),
    ] {
        let error = settings(nodes, 1_000 * MS).check().unwrap_err();
        assert!(error.to_string().contains(word), "{error}");
    }
    settings(one().slots(15), 1_000 * MS).check().unwrap();
    let several = one().build().unwrap_err();
    assert!(several.to_string().contains("several nodes"), "{several}");
}
