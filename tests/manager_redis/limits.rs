//! What no lock on Redis can see, and what masks it.

use std::time::Duration;

use tower_redlock::node::redis::RedisNode;
use tower_redlock::{AcquireError, LockManager, Settings};

use crate::support::server::{Kind, Server};
use crate::{LONG, MS, connected, eventually, is_contended};

fn builder() -> Settings {
    let builder = LockManager::builder()
        .bootstrap(true)
        .ttl(LONG)
        .max_ttl(LONG);
    builder.node_timeout(1_000 * MS)
}

/// Sets a server's clock five minutes ahead, and waits until it uses that: it looks at its clock now and then.
async fn step(server: &Server) {
    server.command(&["SET", "probe", "", "PX", "60000"]);
    server.step_clock(300);
    eventually("the clock is stepped", || server.run("EXISTS probe") == "0").await;
}

/// A server expires keys by its wall clock. Neither the holder nor the restart guard sees that it was stepped.
#[tokio::test]
async fn a_clock_that_is_set_forward_ends_a_lock_early() {
    for kind in Kind::ALL {
        let server = Server::start_clocked(kind);
        let (first, second) = (
            connected(builder().redis([server.url()])).await,
            connected(builder().redis([server.url()])).await,
        );
        let guard = first.try_acquire("order:1").await.unwrap();
        let error = second.try_acquire("order:1").await.unwrap_err();
        assert!(is_contended(&error), "{error}");
        step(&server).await;
        let other = second.try_acquire("order:1").await.unwrap();
        assert!(!guard.is_lost(), "two holders");
        // Only the resource can tell.
        assert!(other.fence() > guard.fence());
    }
}

/// A quorum that masks a loss bears with one such server.
#[tokio::test]
async fn a_quorum_that_masks_a_loss_masks_a_clock_that_is_set_forward() {
    let servers: Vec<Server> = (0..4).map(|_| Server::start_clocked(Kind::Redis)).collect();
    let masking = || {
        builder()
            .redis(servers.iter().map(Server::url))
            .mask_losses(1)
    };
    let first = connected(masking()).await;
    let second = connected(masking()).await;
    for server in &servers {
        let guard = first.try_acquire("order:1").await.unwrap();
        step(server).await;
        let error = second.try_acquire("order:1").await.unwrap_err();
        assert!(is_contended(&error), "{error}");
        server.step_clock(0);
        assert!(!guard.is_lost());
        guard.release().await.unwrap();
    }
}

/// A server that evicts throws single keys away, and its marker stays.
#[tokio::test]
async fn an_evicted_lock_can_be_granted_again() {
    let limits = ["--maxmemory", "3mb", "--maxmemory-policy", "volatile-lru"];
    let server = Server::start(Kind::Redis, &limits);
    let node = || {
        let node = RedisNode::builder(&server.url()).accept_eviction(true);
        builder().redis_nodes([node])
    };
    let (first, second) = (connected(node()).await, connected(node()).await);
    let guard = first.try_acquire("order:1").await.unwrap();
    let filler = "x".repeat(100_000);
    let mut fillers = 0;
    eventually("evicted", || {
        let name = format!("filler:{fillers}");
        server.command(&["SET", &name, &filler, "PX", "600000"]);
        fillers += 1;
        server.locks().iter().all(|key| key != "lk:order:1")
    })
    .await;
    let other = match second.try_acquire("order:1").await {
        // No room for it yet: whatever is thrown away next makes some.
        Err(AcquireError::NoQuorum(_)) => {
            server.run("DEL filler:0");
            second
                .with_max_wait(Duration::from_secs(1))
                .acquire("order:1")
                .await
        }
        outcome => outcome,
    };
    assert!(other.is_ok() && !guard.is_lost(), "two holders: {other:?}");
}
