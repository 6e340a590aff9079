//! What a lock costs the servers.

use std::collections::BTreeMap;

use futures_util::future::{join, join_all};

use crate::support::server::cannot;
use crate::*;

const KEEP: Duration = Duration::from_secs(86_400);

/// How often each command ran since the statistics were reset, without the supervisor's and the test's own.
fn calls(server: &Server) -> BTreeMap<String, u32> {
    let resetting = named(server, "config|resetstat");
    let overhead = ["ping", "info", "exists", "keys", "config|get", &*resetting];
    let calls = server.calls().into_iter();
    calls
        .filter(|(name, _)| !overhead.contains(&name.as_str()))
        .collect()
}

/// How the statistics of `server` call a command with a subcommand: `config|get`, or `config`, as before Redis 7.0.
fn named(server: &Server, command: &str) -> String {
    // One that no lock needs.
    server.run("CONFIG GET port");
    let calls = server.calls();
    if calls.contains_key("config|get") {
        return command.to_owned();
    }
    assert!(calls.contains_key("config"), "it counts neither: {calls:?}");
    cannot("count calls of subcommands");
    command.split('|').next().unwrap().to_owned()
}

/// How often `server` has run a command since the statistics were reset.
fn ran(server: &Server, name: &str) -> u32 {
    calls(server).get(name).copied().unwrap_or(0)
}

/// What a server is to have run, as [`calls`] tells it.
fn of(expected: &[(&str, u32)]) -> BTreeMap<String, u32> {
    let expected = expected.iter();
    expected.map(|(name, n)| ((*name).to_owned(), *n)).collect()
}

/// With the restart guard every process asks its nodes now and then whether they vote, which is counted too.
fn unguarded(cluster: &Cluster) -> Settings {
    cluster.builder().without_restart_guard()
}

async fn cycle(cluster: &Cluster, locks: &LockManager) {
    let guard = locks.try_acquire("order:1").await.unwrap();
    eventually("everywhere", || cluster.holding("order:1") == 5).await;
    guard.release().await.unwrap();
    cluster.settle_free("released").await;
}

#[tokio::test]
async fn an_uncontended_lock_costs_two_scripts_per_server_or_without_a_number_a_plain_set() {
    // What runs inside the scripts is counted too: a look at the marker, one at the keys, and three writes to take and to
    // number the lock; a look, DEL and PUBLISH to give it back.
    let numbered = [
        ("evalsha", 2),
        ("set", 2),
        ("hmget", 1),
        ("hset", 1),
        ("mget", 1),
    ];
    let plain = [("evalsha", 1), ("set", 1)];
    let released = [("get", 1), ("del", 1), ("publish", 1)];
    for fenced in [true, false] {
        let cluster = Cluster::start();
        let (builder, taken) = match fenced {
            true => (unguarded(&cluster), &numbered[..]),
            false => (unguarded(&cluster).without_fencing(), &plain[..]),
        };
        let locks = connected(builder).await;
        let expected = of(&[taken, &released].concat());
        // The first lock has its scripts loaded.
        cycle(&cluster, &locks).await;
        cluster.run("CONFIG RESETSTAT");
        cycle(&cluster, &locks).await;
        let seen = cluster.servers.iter().map(calls);
        assert!(
            seen.clone().all(|calls| calls == expected),
            "{:?}",
            seen.collect::<Vec<_>>()
        );
    }
}

/// The counter is not prolonged: a missing one stands for the highest of all, and the next renewal writes it again.
#[tokio::test]
async fn a_renewal_costs_one_write_and_writes_a_counter_that_has_expired() {
    let cluster = Cluster::start();
    let keep = Duration::from_millis(2_400);
    let builder = cluster.short(Duration::from_millis(300)).fencing_keep(keep);
    let locks = connected(builder.without_restart_guard()).await;
    let _guard = locks.acquire("held").await.unwrap();
    eventually("everywhere", || cluster.holding("held") == 5).await;
    let server = &cluster.servers[0];
    server.run("CONFIG RESETSTAT");
    let writes = || ["mget", "pexpire", "set"].map(|name| ran(server, name));
    eventually("some renewals", || writes()[0] >= 12).await;
    let [renewals, extended, set] = writes();
    assert_eq!(extended, renewals);
    assert!(set <= 1, "{set} in {renewals} renewals");
    eventually("the counter again", || writes()[2] == 1).await;
}

/// They differ in their namespace, and in how long their counters live.
#[tokio::test]
async fn locks_and_runs_that_were_begun_by_turns_are_extended_in_two_scripts() {
    let cluster = Cluster::start();
    let builder = cluster
        .short(Duration::from_secs(9))
        .node_timeout(1_000 * MS);
    let locks = connected(builder.without_restart_guard()).await;
    // At the same time, for the sake of a busy machine: then they are due together.
    let held = join_all((0..20).map(|n| {
        let run = locks.begin_idempotent(format!("run:{n}"), KEEP, Duration::ZERO);
        join(run, locks.try_acquire(format!("lock:{n}")))
    }));
    let held = held.await;
    assert!(held.iter().all(|(run, lock)| run.is_ok() && lock.is_ok()));
    let server = &cluster.servers[0];
    server.run("CONFIG RESETSTAT");
    eventually("some renewals", || ran(server, "pexpire") >= 40).await;
    let (scripts, renewals) = (ran(server, "evalsha"), ran(server, "pexpire"));
    // All forty at one look of the watchdog or, if the beginning took a while, at a few.
    assert!(scripts * 5 <= renewals, "{scripts} for {renewals}");
}

#[tokio::test]
async fn a_refused_attempt_costs_one_script_per_server() {
    let cluster = Cluster::start();
    let ours = connected(unguarded(&cluster)).await;
    let theirs = connected(unguarded(&cluster)).await;
    let guard = ours.try_acquire("order:1").await.unwrap();
    eventually("everywhere", || cluster.holding("order:1") == 5).await;
    let expected = of(&[("evalsha", 1), ("hmget", 1), ("mget", 1), ("pttl", 1)]);
    let mut seen = Vec::new();
    for _ in 0..5 {
        cluster.run("CONFIG RESETSTAT");
        theirs.try_acquire("order:1").await.unwrap_err();
        // The last answers come after the verdict.
        let all_asked = || {
            cluster
                .servers
                .iter()
                .all(|server| ran(server, "evalsha") > 0)
        };
        eventually("all asked", all_asked).await;
        seen = cluster.servers.iter().map(calls).collect();
        if seen.iter().all(|calls| *calls == expected) {
            return drop(guard);
        }
        // Where the machine stood still, a process compares the lists again beside it.
    }
    panic!("not once: {seen:?}");
}
