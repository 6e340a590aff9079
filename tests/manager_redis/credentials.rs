//! One callback for the credentials of all nodes of a manager.

use std::io::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tower_redlock::node::Credentials;

use crate::*;

fn long() -> Settings {
    let builder = LockManager::builder().bootstrap(true);
    builder.ttl(LONG).max_ttl(LONG)
}

#[tokio::test]
async fn a_manager_takes_locks_while_passwords_change_and_those_before_end() {
    let servers = Server::start_many(Kind::Redis, 3);
    for server in &servers {
        server.run("ACL SETUSER locks on >first ~* &* +@all");
        server.run("ACL SETUSER own on >own ~* &* +@all");
    }
    let rotated = Arc::new(AtomicBool::new(false));
    let here = std::thread::current().id();
    let credentials = {
        let rotated = Arc::clone(&rotated);
        move || {
            // Not on the manager's thread, which it could block.
            assert_eq!(std::thread::current().id(), here);
            let is_second = rotated.load(Ordering::SeqCst);
            let password = if is_second { "second" } else { "first" };
            let credentials = Credentials::password(password).user("locks");
            std::future::ready(Ok::<_, Error>(credentials.valid_for(200 * MS)))
        }
    };
    // One node has its own.
    let own = || async { Ok::<_, Error>(Credentials::password("own").user("own")) };
    let own = RedisNode::new(&servers[2].url()).credentials(own);
    let builder = long().redis([servers[0].url(), servers[1].url()]);
    let builder = builder.redis_nodes([own]);
    let locks = connected(builder.credentials(credentials)).await;
    let guard = locks.acquire("order:1").await.unwrap();
    // As the guide says: the new one first, then the callback, then the old one goes.
    let all = |line: &str| servers.iter().for_each(|server| drop(server.run(line)));
    all("ACL SETUSER locks >second");
    rotated.store(true, Ordering::SeqCst);
    tokio::time::sleep(400 * MS).await;
    all("ACL SETUSER locks <first");
    all("CLIENT KILL USER own");
    guard.release().await.unwrap();
    // All of them, with what the callback gives now.
    all("CLIENT KILL USER locks");
    eventually("connected anew", || {
        let users = ["locks", "locks", "own"].iter().zip(&servers);
        let mut connected = users.map(|(user, server)| {
            let (list, ours) = (server.run("CLIENT LIST"), format!("user={user} "));
            let mut named = list
                .lines()
                .filter(|line| line.contains("name=tower-redlock "));
            named.any(|line| line.contains(&ours))
        });
        connected.all(|connected| connected)
    })
    .await;
    all_vote(&locks).await;
    let guard = locks.acquire("order:1").await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_release_waits_for_a_node_that_is_refused_for_a_moment() {
    let servers = Server::start_many(Kind::Redis, 3);
    for server in &servers {
        server.run("ACL SETUSER locks on >s3cret ~* &* +@all");
    }
    let urls = servers
        .iter()
        .map(|server| server.url_as("locks", "s3cret"));
    let locks = connected(long().redis(urls)).await;
    let guard = locks.acquire("order:1").await.unwrap();
    let is_held = || servers[0].run("EXISTS lk:order:1") == "1";
    assert!(is_held());
    servers[0].run("ACL SETUSER locks resetpass >other");
    servers[0].run("CLIENT KILL USER locks");
    let is_refused = || matches!(locks.snapshot().nodes[0].state, NodeState::Refused(_));
    eventually("refused", is_refused).await;
    guard.release().await.unwrap();
    assert!(is_held());
    servers[0].run("ACL SETUSER locks resetpass >s3cret");
    eventually("released", || !is_held()).await;
}
