//! What was checked at connect and is looked at again while the connection lives.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use tower_redlock::clock::{Clock, Moment};
use tower_redlock::node::{CheckInMode, CheckInRequest, ClusterConfig, Namespace};

use crate::support::fake::{Fake, sound};
use crate::support::nodes::ready;
use crate::support::requests::*;
use crate::*;

/// Waits until nobody asks anything of the node and it is refused all the same, for a reason with these words.
async fn refused(node: &dyn Node, words: &str) {
    is_refused(node).await;
    let NodeState::Refused(reason) = node.state() else {
        panic!("{:?}", node.state());
    };
    assert_eq!(reason.kind(), NodeErrorKind::Misconfigured);
    assert!(reason.to_string().contains(words), "{reason}");
}

#[tokio::test]
async fn a_server_that_begins_to_evict_is_refused() {
    for kind in Kind::ALL {
        let (server, node) = served(kind).await;
        server.run("CONFIG SET maxmemory-policy allkeys-lru");
        refused(&node, "`maxmemory-policy` is `allkeys-lru`").await;
        server.run("CONFIG SET maxmemory-policy noeviction");
        up_again(&node).await;
    }
}

#[tokio::test]
async fn a_demoted_master_is_noticed_without_a_command() {
    for kind in Kind::ALL {
        let (server, node) = served(kind).await;
        server.run("REPLICAOF 127.0.0.1 1");
        refused(&node, "only a master").await;
        server.run("REPLICAOF NO ONE");
        up_again(&node).await;
    }
}

#[tokio::test]
async fn a_right_that_is_taken_away_is_noticed() {
    let server = Server::start(Kind::Redis, &[]);
    server.run("ACL SETUSER u on >p ~* &* +@all");
    let node = ready(&server.url_as("u", "p")).await;
    server.run("ACL SETUSER u -info");
    refused(&node, "ACL does not allow us to run `INFO`").await;
    server.run("ACL SETUSER u +info");
    up_again(&node).await;
}

/// A clock that stands still but for the steps it is made to take.
#[derive(Debug, Default)]
struct Steps(AtomicU64);

impl Clock for Steps {
    fn now(&self) -> Moment {
        Moment::from_nanos(self.0.load(Ordering::SeqCst))
    }
}

/// A node in a process that sleeps when it is told to, for so many seconds.
async fn sleeper(url: String) -> (LiveNode, impl Fn(u64)) {
    let (clock, mut context) = (Arc::new(Steps::default()), context());
    context.clock = Arc::clone(&clock) as Arc<dyn Clock>;
    let node = RedisNode::new(&url).build().unwrap();
    node.start(context);
    settled(&node).await.unwrap();
    let sleep = move |seconds: u64| {
        clock.0.fetch_add(seconds * 1_000_000_000, Ordering::SeqCst);
    };
    (node, sleep)
}

/// By the time that a process wakes up, what it saw may be old, although no time has passed for its timers.
#[tokio::test]
async fn a_process_that_slept_does_not_say_who_the_server_is() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&told);
    let fake = Fake::start(move |words| {
        if words[0] != "EVALSHA" {
            return sound(words);
        }
        // Behind the marker, the tombstone, the lock and its counter: token and ttl, then the digest and the identity.
        heard.lock().unwrap().push(words[9].clone());
        "*1\r\n:-1\r\n".to_owned()
    })
    .await;
    let (node, sleep) = sleeper(fake.url()).await;
    let config = Arc::new(ClusterConfig::new("nodes a"));
    for (seconds, who) in [(0, "fake"), (1, "fake"), (10, "ask")] {
        sleep(seconds);
        let request = acquire("k", 1).under(Some(Arc::clone(&config)));
        node.acquire(request).await.unwrap_err();
        let said = format!("{} {who}", config.digest);
        assert_eq!(told.lock().unwrap().pop().unwrap(), said);
    }
}

/// Without guard and fencing tokens a lock is a plain `SET`, which compares nothing: so not before a script has.
#[tokio::test]
async fn a_bare_process_that_slept_compares_its_list_again() {
    let server = Server::start(Kind::Redis, &[]);
    let (node, sleep) = sleeper(server.url()).await;
    let list = |text: &str| Arc::new(ClusterConfig::new(text).unguarded());
    let check_in = |text: &str, mode| {
        let (namespace, fresh) = (Namespace::default(), "fresh".to_owned());
        let request = CheckInRequest::new(namespace, list(text), LONG, fresh, mode);
        node.check_in(request)
    };
    // One owner's commands go by one connection.
    let acquired = |key: u32| {
        let request = acquire(&format!("k{key}"), 1);
        node.acquire(request.under(Some(list("nodes a"))))
    };
    let sets = || server.calls().get("set").copied().unwrap_or_default();
    check_in("nodes a", CheckInMode::Normal).await.unwrap();
    server.run("CONFIG RESETSTAT");
    acquired(1).await.unwrap();
    let scripts = server.calls().get("evalsha").copied();
    assert_eq!(scripts, Some(1), "the first one compares");
    server.run("CONFIG RESETSTAT");
    acquired(2).await.unwrap();
    assert_eq!((sets(), server.calls().get("evalsha")), (1, None));
    // Meanwhile an operator puts another list in its place.
    let former = Duration::ZERO;
    check_in("nodes b", CheckInMode::Adopt { former })
        .await
        .unwrap();
    sleep(10);
    assert_eq!(kind_of(acquired(3).await), NodeErrorKind::Foreign);
    // Also if the next look at the server came before.
    let looks = || server.calls().get("info").copied().unwrap_or_default();
    // Each of our own questions is an `INFO`, too.
    let (before, mut asked) = (looks(), 0);
    eventually("both connections were looked at", || {
        asked += 1;
        looks() >= before + asked + 4
    })
    .await;
    assert_eq!(kind_of(acquired(4).await), NodeErrorKind::Foreign);
}
