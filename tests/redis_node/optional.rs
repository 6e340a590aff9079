//! Servers that lack a command or an answer that a node can do without.

use tower_redlock::node::{NodeContext, ServerRegistry};
use tower_redlock::{LockManager, Settings};

use crate::support::fake::{Fake, INFO, Proxy, sound};
use crate::support::nodes::context_with;
use crate::support::sentinel::says;
use crate::*;

/// The commands that a plain node can do without.
const OPTIONAL: &str = "CLIENT PUBLISH SUBSCRIBE UNSUBSCRIBE WAIT CONFIG";

/// For a busy machine.
fn patient() -> Settings {
    let secs = Duration::from_secs;
    let builder = LockManager::builder().node_timeout(secs(5));
    builder.max_wait(secs(20)).connect_timeout(secs(20))
}

#[tokio::test]
async fn a_server_without_the_optional_commands_serves_also_callers_that_wait() {
    for kind in Kind::ALL {
        let names = OPTIONAL.split(' ');
        let renamed = names.flat_map(|name| ["--rename-command", name, ""]);
        let server = Server::start(kind, &renamed.collect::<Vec<_>>());
        let builder = || patient().redis(server.url());
        let holder = builder().bootstrap(true).connect().await.unwrap();
        let other = builder().connect().await.unwrap();
        let held = holder.acquire("order:42").await.unwrap();
        let before = refusals(&server);
        let waiting = tokio::spawn(async move { other.acquire("order:42").await.unwrap() });
        // Of the name of its third connection, and of the subscription.
        let refused = || refusals(&server) >= before + 2;
        eventually("refused", refused).await;
        held.release().await.unwrap();
        waiting.await.unwrap().release().await.unwrap();
        assert_eq!(server.locks(), [""; 0]);
    }
}

/// How many commands the server did not know.
fn refusals(server: &Server) -> u32 {
    let stats = server.run("INFO errorstats");
    let count = stats.split_once("errorstat_ERR:count=").unwrap().1;
    count.lines().next().unwrap().parse().unwrap()
}

/// A server that says `info` of itself, and nothing to a script. It has evicted keys.
async fn telling(info: String) -> Fake {
    let info = info + "evicted_keys:7\r\n";
    let answer = move |words: &[String]| match words[0].as_str() {
        "INFO" => format!("${}\r\n{info}\r\n", info.len()),
        "EVALSHA" => "-ERR This Redis command is not allowed from script\r\n".to_owned(),
        _ => sound(words),
    };
    Fake::start(answer).await
}

fn unguarded(builder: RedisNode, mut context: NodeContext) -> LiveNode {
    let node = builder.build().unwrap();
    context.guarded = false;
    node.start(context);
    node
}

#[tokio::test]
async fn a_server_that_hides_which_one_it_is_needs_the_guard_to_be_off() {
    for field in ["run_id", "master_replid2", "second_repl_offset"] {
        let fake = telling(INFO.replace(field, "x")).await;
        let error = refusal(&started(&fake.url())).await;
        assert_eq!(error.kind(), NodeErrorKind::Misconfigured);
        let text = error.to_string();
        assert!(text.contains("`restart_guard = false`"), "{text}");
        let node = unguarded(RedisNode::new(&fake.url()), context());
        settled(&node).await.unwrap();
    }
}

#[tokio::test]
async fn two_servers_that_hide_which_one_they_are_are_two_nodes() {
    let registry = ServerRegistry::new();
    for _ in 0..2 {
        let fake = telling(INFO.replace("run_id", "x")).await;
        let node = RedisNode::new(&fake.url());
        let node = unguarded(node, context_with(registry.clone()));
        settled(&node).await.unwrap();
    }
}

#[tokio::test]
async fn a_server_behind_sentinels_must_say_which_one_it_is_without_the_guard_too() {
    let fake = telling(INFO.replace("run_id", "x")).await;
    let port = fake.url().rsplit(':').next().unwrap().parse().unwrap();
    let sentinel = Fake::start(move |words| says(words, "s", "127.0.0.1", port, 1)).await;
    let builder = RedisNode::sentinel([sentinel.url()], "mymaster");
    let error = refusal(&unguarded(builder, context())).await;
    assert!(error.to_string().contains("`run_id`"), "{error}");
}

#[tokio::test]
async fn without_the_guard_a_server_that_hides_which_one_it_is_is_locked_restarted_and_locked_again()
 {
    for kind in Kind::ALL {
        let mut server = Server::start(kind, &[]);
        let proxy = Proxy::hiding("run_id", server.port()).await;
        let builder = patient().redis([("main", proxy.url())]);
        let builder = builder.without_restart_guard();
        let locks = builder.connect().await.unwrap();
        let first = locks.acquire("order:42").await.unwrap();
        first.release().await.unwrap();
        server.kill();
        eventually("down", || !locks.has_quorum()).await;
        server.restart();
        eventually("up", || locks.has_quorum()).await;
        let again = locks.acquire("order:42").await.unwrap();
        assert!(again.fence().is_some());
        again.release().await.unwrap();
    }
}
