//! The page for operators, with something to see on it.
//!
//! ```text
//! cargo run --example inspect --features inspect,test-util            # asks itself for the page, and ends
//! cargo run --example inspect --features inspect,test-util -- --stay  # open http://127.0.0.1:3000/locks/
//! ```
//!
//! Of five nodes in this process one is down, and one has forgotten what it knew and sits that out. Some locks are
//! held, and some requests wait. The page is served on a port of its own: whoever can open it reads the lock keys.

#![allow(clippy::print_stdout, reason = "an example talks to the terminal")]

use std::error::Error;
use std::time::Duration;

use axum::Router;
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tower_redlock::InspectService;
use tower_redlock::node::MemoryNode;
use tower_redlock::{LockGuard, LockManager};

type AnyError = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), AnyError> {
    let stay = std::env::args().any(|word| word == "--stay");
    let listener = TcpListener::bind(if stay {
        "127.0.0.1:3000"
    } else {
        "127.0.0.1:0"
    })
    .await?;
    let address = listener.local_addr()?;
    let (locks, _busy) = busy_service().await?;
    let app: Router = Router::new().nest_service("/locks", InspectService::new(locks));
    let server = tokio::spawn(async move { axum::serve(listener, app).await });
    if stay {
        println!("open http://{address}/locks/");
        return Ok(server.await??);
    }
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<bytes::Bytes>>();
    let page = Request::get(format!("http://{address}/locks/?json")).body(Empty::new())?;
    let page = client.request(page).await?.into_body().collect().await?;
    server.abort();
    let snapshot: serde_json::Value = serde_json::from_slice(&page.to_bytes())?;
    println!("{snapshot:#}");
    let count = |of: &str| snapshot.get(of).and_then(serde_json::Value::as_u64);
    if (count("held"), count("waiting")) != (Some(4), Some(6)) {
        return Err("four locks and six who wait were expected".into());
    }
    Ok(())
}

/// A manager whose locks are in use, and what keeps them so.
async fn busy_service() -> Result<(LockManager, Vec<LockGuard>), AnyError> {
    let nodes: Vec<_> = (1..=5)
        .map(|n| MemoryNode::new(format!("redis-{n}.internal:6379")))
        .collect();
    let locks = LockManager::builder()
        .nodes(nodes.iter().cloned())
        .ttl(Duration::from_secs(60))
        .max_ttl(Duration::from_secs(60))
        .max_hold(Duration::from_secs(3600))
        .max_wait(Duration::from_secs(3600))
        .connect()
        .await?;
    let mut guards = Vec::new();
    for key in [
        "order:1042",
        "order:1043",
        "tenant:acme%3Aeu:report:2026-05",
    ] {
        guards.push(locks.acquire(key).await?);
    }
    guards.push(locks.acquire(["account:3", "account:7"]).await?);
    for (key, count) in [("order:1042", 4), ("account:3", 2)] {
        for _ in 0..count {
            let locks = locks.clone();
            tokio::spawn(async move { locks.acquire(key).await });
        }
    }
    let [.., forgetful, dead] = &nodes[..] else {
        return Err("five nodes".into());
    };
    dead.go_down();
    forgetful.forget();
    // Until all of them wait, and the manager has seen what became of its nodes.
    while !is_settled(&locks) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok((locks, guards))
}

fn is_settled(locks: &LockManager) -> bool {
    let snapshot = locks.snapshot();
    let voting = snapshot
        .nodes
        .iter()
        .filter(|node| node.voting == tower_redlock::snapshot::VotingStatus::Voting);
    snapshot.waiting == 6 && voting.count() <= 4
}
