//! What no lock on Redis can see, and what masks it.

use crate::*;

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
