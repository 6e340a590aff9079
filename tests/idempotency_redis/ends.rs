//! When what is kept ends: on servers whose clocks differ, and which are given it at different times.

use crate::*;

const TTL: Duration = Duration::from_secs(2);
/// Nothing here depends on how fast the servers are, and a busy machine takes its time.
const NODE_TIMEOUT: Duration = Duration::from_millis(500);
const KEEP: Duration = Duration::from_secs(1_000);
const DAY: Duration = Duration::from_secs(86_400);
/// By how many seconds the clocks of the servers are ahead.
const SKEWS: [i64; 3] = [0, 20, -20];

/// Three servers whose clocks differ.
struct Site(Vec<Server>);

impl Site {
    async fn open(kind: Kind) -> Self {
        let site = Self(SKEWS.map(|_| Server::start_clocked(kind)).into());
        site.set_clocks(0);
        bootstrap(&site.0, TTL, 0).await;
        site
    }

    async fn manager(&self) -> LockManager {
        connected(on(&self.0, TTL).node_timeout(NODE_TIMEOUT)).await
    }

    /// Has a server lack the record, as if it had been away for longer than the others tried to bring it.
    fn forget(&self, server: usize) {
        let script =
            "for _, key in ipairs(redis.call('KEYS', ARGV[1])) do redis.call('DEL', key) end";
        let words = ["EVAL", script, "0", "lk!idem!record:*"];
        self.0[server].command(&words);
        assert_eq!(records(&self.0[server]), [""; 0]);
    }

    /// Has all servers believe that it is so many seconds later than it is, each by its own clock.
    fn set_clocks(&self, seconds: i64) {
        for (server, skew) in self.0.iter().zip(SKEWS) {
            server.step_clock(seconds + skew);
        }
    }

    /// The same, until they know: a server looks at its clock now and then.
    async fn later(&self, seconds: i64) {
        for server in &self.0 {
            server.command(&["SET", "probe", "", "PX", "4000"]);
        }
        self.set_clocks(seconds);
        for server in &self.0 {
            eventually("the clock is stepped", || server.run("EXISTS probe") == "0").await;
        }
    }
}

/// What is told, if it is not to be done.
async fn told(locks: &LockManager) -> Option<Vec<u8>> {
    let begun = locks.begin_idempotent("order", DAY, MAX_WAIT).await;
    match begun.unwrap() {
        IdempotentRun::Replay(body) => Some(body.to_vec()),
        IdempotentRun::Execute(run) => {
            run.abandon().await.unwrap();
            None
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_record_ends_once_whatever_servers_it_is_brought_to_later() {
    for kind in Kind::ALL {
        let site = Site::open(kind).await;
        let (first, second) = (site.manager().await, site.manager().await);
        site.0[2].freeze();
        let Ok(IdempotentRun::Execute(run)) = first.begin_idempotent("order", KEEP, MAX_WAIT).await
        else {
            panic!("nobody did it");
        };
        run.complete("done").await.unwrap();
        drop(first);
        site.0[2].thaw();
        let done = Some(b"done".to_vec());
        site.later(900).await;
        site.forget(2);
        // Another process, which keeps records for a day, meets one server that has it and one that lacks it.
        site.0[0].freeze();
        assert_eq!(told(&second).await, done);
        site.0[0].thaw();
        site.later(940).await;
        assert_eq!(told(&second).await, done);
        // To one of them, it has ended.
        site.later(985).await;
        assert_eq!(told(&second).await, done);
        // To one of them, it has not.
        site.later(1_008).await;
        assert_eq!(told(&second).await, None);
        site.later(1_030).await;
        assert_eq!(told(&second).await, None);
    }
}
