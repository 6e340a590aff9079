//! Servers whose data is replaced by another's while their processes and connections live on, and those that only look
//! as if it were.

use tower_redlock::error::LossReason;

use crate::support::server::free_port;
use crate::*;

/// Longer than a test takes to come to its point, and short enough to be renewed only after that.
const TTL: Duration = Duration::from_secs(30);

/// What the nodes of a process are like.
type Like = fn(RedisNode) -> RedisNode;

const PLAIN: Like = |node| node;
const EXPECTING: Like = |node| node.expect_replicas(true);
const REQUIRING: Like = |node| node.require(1).within(500 * MS);

/// A process on these servers, one of which it may be cut off from.
fn process(servers: &[Server], like: Like, cut_off: Option<usize>) -> Settings {
    let nodes = servers.iter().enumerate().map(|(index, server)| {
        let url = match cut_off {
            Some(cut) if cut == index => format!("redis://127.0.0.1:{}", free_port()),
            _ => server.url(),
        };
        let node = RedisNode::new(&url).name(format!("n{index}"));
        like(node)
    });
    let builder = LockManager::builder().redis_nodes(nodes);
    builder.ttl(TTL).max_ttl(TTL).node_timeout(1_000 * MS)
}

/// Who the server was when it began to vote.
fn identity(server: &Server) -> String {
    server.run("HGET lk!node identity")
}

fn identities(servers: &[Server]) -> Vec<String> {
    servers.iter().map(identity).collect()
}

async fn assert_not_granted(locks: &LockManager, who: &str) {
    match locks.try_acquire("k").await {
        Ok(_) => panic!("{who}: a second holder"),
        Err(error @ AcquireError::NoQuorum(_)) => drop(error),
        Err(error) => assert!(is_contended(&error), "{who}: {error}"),
    }
}

/// One server's data comes back to it from a replica that has its marker and not the lock, and the one who holds the
/// lock cannot be asked. Nobody else may be granted it: by the connection that saw it all, or by a fresh one.
/// `shown`: the replica was there for some looks. `noticed`: nobody asks for a lock before the failback was seen.
async fn come_back(kind: Kind, like: Like, shown: bool, noticed: bool) {
    let mut servers = Server::start_many(kind, 3);
    let witness = connected(process(&servers, like, None).bootstrap(true)).await;
    let spare = Server::replica_of(&servers[0], &[]);
    if shown {
        servers = looked_at(servers, 1).await;
    }
    assert_eq!(spare.run("REPLICAOF NO ONE"), "OK");
    assert_eq!(identity(&spare), identity(&servers[0]), "its marker");
    all_vote(&witness).await;
    let holder = process(&servers, like, Some(2)).connect().await.unwrap();
    let guard = holder.try_acquire("k").await.unwrap();

    servers[0].fail_back_from(&spare);
    let before = servers[0].info("run_id");
    assert!(identity(&servers[0]).starts_with(&before), "its own marker");
    if noticed {
        eventually("noticed", || is_quarantined(&witness, 0)).await;
    }
    assert_not_granted(&witness, "the connection that lived on").await;
    let fresh = process(&servers, like, None).connect_lazy().unwrap();
    eventually("asked", || is_quarantined(&fresh, 0)).await;
    assert_not_granted(&fresh, "a fresh connection").await;
    assert!(!guard.is_lost(), "too late to show anything");
    eventually("said", || is_quarantined(&witness, 0)).await;
}

#[tokio::test]
async fn a_declared_node_or_one_that_saw_a_replica_does_not_grant_at_once_what_it_forgot() {
    for kind in Kind::ALL {
        come_back(kind, EXPECTING, false, false).await;
        come_back(kind, PLAIN, true, false).await;
    }
}

#[tokio::test]
async fn a_plain_node_does_not_grant_what_it_forgot_in_a_failback_once_that_was_seen() {
    for kind in Kind::ALL {
        come_back(kind, PLAIN, false, true).await;
    }
}

/// The moment that no check has seen: the node grants a second process what the first holds. The check that sees it
/// tells the first, which would renew its lock 10 s later. `false`: the check came before the second lock.
async fn both_hold_it(kind: Kind) -> bool {
    let server = [Server::start(kind, &[])];
    let first = connected(process(&server, PLAIN, None).bootstrap(true)).await;
    let second = connected(process(&server, PLAIN, None)).await;
    let spare = Server::replica_of(&server[0], &[]);
    assert_eq!(spare.run("REPLICAOF NO ONE"), "OK");
    let Ok(guard) = first.try_acquire("k").await else {
        return false;
    };
    server[0].fail_back_from(&spare);
    let Ok(other) = second.try_acquire("k").await else {
        return false;
    };
    let end = tokio::time::timeout(4_000 * MS, guard.lost()).await;
    assert_eq!(end, Ok(LossReason::Taken), "{kind:?}: two holders for long");
    assert!(!other.is_lost(), "{kind:?}: it goes on");
    true
}

#[tokio::test]
async fn the_check_that_sees_a_failback_tells_the_first_of_two_holders() {
    for kind in Kind::ALL {
        let mut tries = 0;
        while !both_hold_it(kind).await {
            tries += 1;
            assert!(tries < 20, "{kind:?}: a check came first each time");
        }
    }
}

/// A rolling deploy: first replicas are expected, or nobody speaks of them, then attached, then required.
#[tokio::test]
async fn processes_that_require_replicas_and_those_that_do_not_get_along() {
    for (kind, like) in [
        (Kind::Redis, EXPECTING),
        (Kind::Valkey, EXPECTING),
        (Kind::Redis, PLAIN),
    ] {
        let masters = Server::start_many(kind, 3);
        let old = connected(process(&masters, like, None).bootstrap(true)).await;
        let early = old.try_acquire("early").await.unwrap();
        let markers = identities(&masters);
        let replicas: Vec<Server> = masters.iter().map(|m| Server::replica_of(m, &[])).collect();
        let new = connected(process(&masters, REQUIRING, None)).await;
        for round in 0..20 {
            for locks in [&old, &new] {
                let guard = locks.try_acquire(format!("k{round}")).await.unwrap();
                guard.release().await.unwrap();
                assert_eq!(voting(locks), 3, "{round}");
            }
        }
        let late = new.try_acquire("late").await.unwrap();
        let masters = looked_at(masters, 2).await;
        for locks in [&old, &new] {
            assert_eq!(voting(locks), 3);
            for held in ["early", "late"] {
                let error = locks.try_acquire(held).await.unwrap_err();
                assert!(is_contended(&error), "{error}");
            }
        }
        assert!(!early.is_lost() && !late.is_lost());
        assert_eq!(identities(&masters), markers);
        drop(replicas);
    }
}

/// Waits until each of so many processes has looked twice at the servers, without holding them up.
async fn looked_at(servers: Vec<Server>, processes: usize) -> Vec<Server> {
    let looks = move || {
        std::thread::scope(|scope| {
            for server in &servers {
                scope.spawn(move || server.wait_for_looks(processes, 2));
            }
        });
        servers
    };
    tokio::task::spawn_blocking(looks).await.unwrap()
}

async fn back_up_under_locks(kind: Kind) {
    let servers = Server::start_many(kind, 3);
    // The first was promoted once, and its backlog still tells of that.
    let spare = Server::start(kind, &[]);
    servers[0].fail_back_from(&spare);
    let locks = connected(process(&servers, PLAIN, None).bootstrap(true)).await;
    let declared = connected(process(&servers, EXPECTING, None)).await;
    let guard = locks.try_acquire("k").await.unwrap();
    let markers = identities(&servers);
    assert!(markers[0].contains('/') && !markers[1].contains('/'));

    let servers = back_up(servers).await;
    for server in &servers {
        server.run("CONFIG SET repl-backlog-ttl 1");
    }
    eventually("the backlog is freed", || {
        servers[0].info("second_repl_offset") == "-1"
    })
    .await;
    let servers = looked_at(servers, 2).await;
    let servers = back_up(servers).await;
    let fresh = connected(process(&servers, PLAIN, None)).await;
    for locks in [&locks, &declared, &fresh] {
        assert_eq!(voting(locks), 3);
        assert!(is_contended(&locks.try_acquire("k").await.unwrap_err()));
    }
    assert_eq!(identities(&servers), markers);
    assert_eq!(servers[0].run("HGET lk!node quarantine"), "(nil)");
    assert!(!guard.is_lost());
    let free = fresh.try_acquire("other").await.unwrap();
    free.release().await.unwrap();
}

#[tokio::test]
async fn a_backup_costs_no_vote() {
    back_up_under_locks(Kind::Redis).await;
}

#[tokio::test]
async fn a_backup_of_valkey_costs_no_vote() {
    back_up_under_locks(Kind::Valkey).await;
}

/// Makes a backup of each server, which is seen by two processes while it goes on.
async fn back_up(servers: Vec<Server>) -> Vec<Server> {
    let delay = |servers: &[Server], seconds: &str| {
        for server in servers {
            server.run("CONFIG SET repl-diskless-sync yes");
            server.run(&format!("CONFIG SET repl-diskless-sync-delay {seconds}"));
        }
    };
    delay(&servers, "600");
    let mut backups: Vec<_> = servers.iter().map(Server::backup).collect();
    let begun = |server: &Server| server.run("INFO replication").contains("port=0");
    eventually("begun", || servers.iter().all(begun)).await;
    let servers = looked_at(servers, 2).await;
    delay(&servers, "0");
    for backup in &mut backups {
        eventually("backed up", || backup.try_wait().unwrap().is_some()).await;
        assert!(backup.wait().unwrap().success());
    }
    looked_at(servers, 2).await
}

/// Has a server throw away what expires, which is the locks and not the marker.
fn evict(server: &Server) {
    server.run("SET lk:expires x PX 60000");
    server.run("CONFIG SET maxmemory-policy volatile-lru");
    server.run("CONFIG SET maxmemory 1");
    // Whatever is asked for, room is made first.
    server.run("SET lk:room room");
    assert_ne!(server.info("evicted_keys"), "0");
    assert_eq!(server.run("EXISTS lk:k"), "0");
}

fn evict_no_more(server: &Server) {
    server.run("CONFIG SET maxmemory 0");
    server.run("CONFIG SET maxmemory-policy noeviction");
}

/// Between two looks.
fn evict_for_a_moment(server: &Server) {
    evict(server);
    evict_no_more(server);
}

#[tokio::test]
async fn a_node_that_evicted_locks_forgot_them() {
    for (kind, seen) in [
        (Kind::Redis, true),
        (Kind::Redis, false),
        (Kind::Valkey, false),
    ] {
        let servers = Server::start_many(kind, 3);
        let witness = connected(process(&servers, PLAIN, None).bootstrap(true)).await;
        let holder = process(&servers, PLAIN, Some(2)).connect().await.unwrap();
        let guard = holder.try_acquire("k").await.unwrap();
        evict(&servers[0]);
        if seen {
            let state = || witness.snapshot().nodes[0].state.clone();
            eventually("refused", || matches!(state(), NodeState::Refused(_))).await;
        }
        evict_no_more(&servers[0]);
        // Also between two looks.
        eventually("noticed", || is_quarantined(&witness, 0)).await;
        assert_not_granted(&witness, "who saw it").await;
        let fresh = process(&servers, PLAIN, None).connect_lazy().unwrap();
        eventually("asked", || is_quarantined(&fresh, 0)).await;
        assert_not_granted(&fresh, "who came later").await;
        assert!(!guard.is_lost(), "too late to show anything");
    }
}

/// A count that a server had before its restart says nothing about the keys that it evicts after it.
#[tokio::test]
async fn as_many_evictions_as_before_a_restart_are_seen() {
    for kind in Kind::ALL {
        let args = ["--appendonly", "yes", "--appendfsync", "no"];
        let mut servers = vec![Server::start(kind, &args)];
        let mut evicted = String::new();
        for round in 0..2 {
            let brief = || {
                let builder = process(&servers, PLAIN, None);
                builder.ttl(4_000 * MS).max_ttl(4_000 * MS)
            };
            let (first, second) = (connected(brief()).await, connected(brief()).await);
            let guard = first.acquire("k").await.unwrap();
            // Each round has as many keys that can be evicted.
            let volatile = servers[0].run("INFO keyspace").matches("expires=").count();
            assert_eq!(volatile, 1, "there are some");
            evict_for_a_moment(&servers[0]);
            let count = servers[0].info("evicted_keys");
            assert!(
                round == 0 || count == evicted,
                "{count} and {evicted} show nothing"
            );
            evicted = count;
            eventually("noticed", || is_quarantined(&second, 0)).await;
            assert_not_granted(&second, "who saw it").await;
            assert!(!guard.is_lost(), "too late to show anything");
            drop(guard);
            all_vote(&second).await;
            for locks in [first, second] {
                locks.shutdown(Duration::ZERO).await;
            }
            servers[0].kill();
            servers[0].restart();
        }
    }
}

#[tokio::test]
async fn a_number_of_evictions_that_was_reset_costs_no_vote() {
    let servers = Server::start_many(Kind::Redis, 3);
    evict_for_a_moment(&servers[0]);
    // An operator may say that no lock was lost.
    let strict = connected(process(&servers, PLAIN, None).bootstrap(true)).await;
    let marker = identity(&servers[0]);
    assert_eq!(servers[0].run("CONFIG RESETSTAT"), "OK");
    let servers = looked_at(servers, 1).await;
    assert_eq!(voting(&strict), 3);
    assert_eq!(identity(&servers[0]), marker);
    let fresh = connected(process(&servers, PLAIN, None)).await;
    assert_eq!(voting(&fresh), 3);
    // And the next is a loss again, although their number is known.
    evict_for_a_moment(&servers[0]);
    eventually("noticed", || is_quarantined(&strict, 0)).await;
}

/// Nobody was there when it happened.
#[tokio::test]
async fn a_fresh_process_sees_that_a_node_evicted_locks() {
    let servers = Server::start_many(Kind::Redis, 3);
    let first = connected(process(&servers, PLAIN, None).bootstrap(true)).await;
    first.shutdown(Duration::ZERO).await;
    let cut_off = process(&servers, PLAIN, Some(0)).connect().await.unwrap();
    let guard = cut_off.try_acquire("other").await.unwrap();
    servers[0].run("SET lk:k x PX 60000");
    evict_for_a_moment(&servers[0]);
    let fresh = process(&servers, PLAIN, None).connect_lazy().unwrap();
    eventually("asked", || is_quarantined(&fresh, 0)).await;
    assert!(!guard.is_lost());
}
