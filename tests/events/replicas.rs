//! What is told of a server that gets a replica while it serves.

use tower_redlock::AcquireError;
use tower_redlock::snapshot::VotingStatus;

use super::support::eventually;
use super::support::server::{Kind, Server};
use super::{SECOND, here, listen};

#[tokio::test]
async fn a_replica_that_appears_under_load_is_told_of_once_and_refuses_nothing() {
    for kind in Kind::ALL {
        let (book, _listening) = listen();
        let master = Server::start(kind, &[]);
        let builder = here().redis([master.url()]);
        // A busy machine does not reach the time-out.
        let builder = builder.node_timeout(2 * SECOND);
        let locks = builder.bootstrap(true).connect().await.unwrap();
        let replica = Server::replica_of(&master, &[]);
        let mut after = 0;
        while after < 100 {
            let guard = locks.try_acquire("order:1").await.unwrap();
            guard.release().await.unwrap();
            after += u32::from(book.count("has replicas") > 0);
        }
        let name = &locks.snapshot().nodes[0].name;
        book.assert_line("has replicas", "INFO", &[name]);
        let down = book.with("not up");
        assert!(!down.iter().any(|line| line.contains(name)), "{down:?}");

        // Demoted and promoted between two checks: it has another server's locks, and the next command sees that.
        let guard = locks.try_acquire("order:1").await.unwrap();
        replica.run("REPLICAOF NO ONE");
        master.fail_back_from(&replica);
        let error = locks.try_acquire("order:2").await.unwrap_err();
        assert!(matches!(error, AcquireError::NoQuorum(_)), "{error}");
        eventually("quarantined", || {
            let voting = &locks.snapshot().nodes[0].voting;
            matches!(voting, VotingStatus::Quarantined { .. })
        })
        .await;
        drop(guard);
    }
}
