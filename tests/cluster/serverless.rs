//! Services that show themselves as one server with all slots, and allow little.

use tower_redlock::error::LossReason;
use tower_redlock::idempotency::IdempotentRun;
use tower_redlock::node::Node as _;

use crate::nodes::published;
use crate::support::nodes::{acquire, context, serves, settled};
use crate::support::serverless::Serverless;
use crate::*;

/// Two processes that wait for locks.
fn two(service: &Serverless, ttl: Duration) -> [Settings; 2] {
    [(), ()].map(|()| settings(the_node(service), ttl).max_wait(20_000 * MS))
}

fn the_node(service: &Serverless) -> RedisNode {
    RedisNode::cluster([service.url()]).slots(1)
}

/// Everything that locks are for: they are extended, waited for and released, and work is done once.
async fn is_served(service: &Serverless, [holder, waiter]: [Settings; 2]) {
    let (holder, waiter) = (connected(holder).await, connected(waiter).await);
    let guard = holder.acquire("order:42").await.unwrap();
    let name = service.server.run("KEYS *}lk:order:42");
    let rest = || -> i64 { service.server.run(&format!("PTTL {name}")).parse().unwrap() };
    let mut before = rest();
    let extended = || {
        let now = rest();
        now > std::mem::replace(&mut before, now)
    };
    eventually_or_tell("extended", extended, String::new).await;
    // As at a server of the service that never had them.
    assert_eq!(service.server.run("SCRIPT FLUSH"), "OK");
    let waiting = tokio::spawn(async move { waiter.acquire("order:42").await.map(drop) });
    let channels = || service.server.run("PUBSUB SHARDCHANNELS");
    let listens = || channels().contains("}lk!free:order:42");
    eventually_or_tell("subscribed", listens, channels).await;
    let before = published(&service.server);
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap();
    assert!(published(&service.server) > before);
    let begin = || holder.begin_idempotent("invoice:7", LONG, Duration::ZERO);
    let Ok(IdempotentRun::Execute(run)) = begin().await else {
        panic!("it was never done");
    };
    run.complete("sent").await.unwrap();
    let Ok(IdempotentRun::Replay(result)) = begin().await else {
        panic!("it was done");
    };
    assert_eq!(result, "sent");
    assert_eq!(service.undeclared(), [""; 0]);
}

#[tokio::test]
async fn a_service_that_tells_its_identity_is_guarded() {
    for kind in Kind::ALL {
        let service = Serverless::start(kind, false).await;
        is_served(&service, two(&service, 2_000 * MS)).await;
        assert!(service.server.run("KEYS *!node").ends_with("}lk!node"));
    }
}

#[tokio::test]
async fn a_service_that_hides_its_identity_is_used_without_the_guard() {
    for kind in Kind::ALL {
        let service = Serverless::start(kind, true).await;
        let [guarded, _] = two(&service, 2_000 * MS);
        let error = guarded.connect().await.unwrap_err().to_string();
        assert!(error.contains("`restart_guard = false`"), "{error}");
        let unguarded = two(&service, 2_000 * MS);
        let unguarded = unguarded.map(|process| process.without_restart_guard());
        is_served(&service, unguarded).await;
    }
}

#[tokio::test]
async fn every_script_declares_its_keys() {
    for kind in Kind::ALL {
        let service = Serverless::start(kind, false).await;
        let node = the_node(&service).build().unwrap();
        node.start(context());
        settled(&node).await.unwrap();
        node.acquire(acquire("held", 2)).await.unwrap();
        serves(&node).await.unwrap();
        assert_eq!(service.undeclared(), [""; 0]);
    }
}

#[tokio::test]
async fn an_operator_takes_a_lock_from_a_living_holder() {
    for kind in Kind::ALL {
        let service = Serverless::start(kind, false).await;
        let [process, _] = two(&service, 2_000 * MS);
        let locks = connected(process).await;
        let guard = locks.acquire("order:42").await.unwrap();
        let list = locks.list("", 10).await;
        assert_eq!((list.locks.len(), list.failures.len()), (1, 0), "{list:?}");
        assert_eq!(locks.force_release(&list.locks[0], true).await, Ok(1));
        // It does not set the key again, for its tombstone is there.
        let lost = tokio::time::timeout(Duration::from_secs(10), guard.lost());
        assert_eq!(lost.await, Ok(LossReason::Taken));
        assert_eq!(service.undeclared(), [""; 0]);
    }
}

#[tokio::test]
async fn the_service_of_these_tests_refuses_an_undeclared_key() {
    for kind in Kind::ALL {
        let service = Serverless::start(kind, true).await;
        let client = redis::Client::open(service.url()).unwrap();
        let mut raw = client.get_multiplexed_async_connection().await.unwrap();
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg("return redis.pcall('GET', ARGV[1])");
        let hash: String = load.query_async(&mut raw).await.unwrap();
        let mut run = redis::cmd("EVALSHA");
        run.arg(hash).arg(0).arg("{3f1}lk:k");
        let error = run.exec_async(&mut raw).await.unwrap_err();
        assert!(error.to_string().contains("does not declare"), "{error}");
        assert_eq!(service.undeclared(), ["{3f1}lk:k"]);
    }
}
