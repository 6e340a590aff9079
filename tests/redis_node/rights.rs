//! What a user may and what memory allows.

use tower_redlock::node::{
    AcquireRequest, CompleteReply, CompleteRequest, ExtendReply, Fence, Namespace, NoticeReceiver,
    Notices, RecallRequest, Record, ReleaseRequest,
};
use tower_redlock::{FencingToken, LockKey};

use crate::support::nodes::{FAR, listening, ready, refill, serves, subscribe, token, votes};
use crate::support::requests::*;
use crate::*;

/// The rule that the docs recommend.
fn documented_rule() -> &'static str {
    include_str!("../../src/docs/several_servers.md")
        .lines()
        .find_map(|line| line.strip_prefix("ACL SETUSER "))
        .expect("the docs show a rule")
}

/// A server with a user `locks`, of the documented rule and more.
fn with_user(kind: Kind, more: &str) -> Server {
    let server = Server::start(kind, &[]);
    let rule = documented_rule().replace("PASSWORD", "pw");
    assert_eq!(server.run(&format!("ACL SETUSER {rule}{more}")), "OK");
    server
}

fn url(server: &Server) -> String {
    server.url_as("locks", "pw")
}

fn done() -> Record {
    Record::new(FencingToken::new(1 << 62).unwrap(), "done".into(), FAR)
}

/// That a record or none, told by `release`, is kept under the documented rights.
async fn completes(node: &LiveNode) {
    let (config, fence) = votes(node).await.unwrap();
    let namespace = Namespace::default().idempotency();
    let key = namespace.node_key(&LockKey::new("k").unwrap());
    let (receiver, _listening) = listening(node, &key).await;
    let recall = async |adopt| {
        let lock = AcquireRequest::new(key.clone(), token(1), LONG).fenced(fence);
        let lock = lock.under(Some(Arc::clone(&config)));
        let recall = RecallRequest::new(lock, adopt, LONG);
        node.recall(recall).await.unwrap()
    };
    // A farewell too, for which a tombstone is written.
    let farewell = context().clock.now().saturating_sub(LONG);
    let release = ReleaseRequest::new(key.clone(), token(1), true);
    for (release, record) in [
        (release.clone(), None),
        (release.clone(), Some(done())),
        (release.since(farewell), Some(done())),
    ] {
        if matches!(recall(false).await, AcquireReply::Recorded(_)) {
            let reply = recall(true).await;
            assert!(matches!(reply, AcquireReply::Promised { .. }), "{reply:?}");
        }
        receiver.forget();
        let complete = CompleteRequest::new(release, record);
        let complete = complete.under(Some(Arc::clone(&config)));
        let stored = CompleteReply::Stored { listeners: 1 };
        assert_eq!(node.complete(complete).await, Ok(stored));
        eventually("told", || receiver.notices().released == 1).await;
    }
    assert_eq!(recall(false).await, AcquireReply::Recorded(done()));
}

#[tokio::test]
async fn the_documented_rights_are_enough() {
    for kind in Kind::ALL {
        for more in ["", " +client|id +client|kill", " +client|setname"] {
            let server = with_user(kind, more);
            let node = ready(&url(&server)).await;
            serves(&node).await.unwrap();
            completes(&node).await;
            let slot = Namespace::default().permits();
            let slot = slot.node_key(&LockKey::new("k").unwrap());
            for (key, any) in [(key("other"), false), (slot, true)] {
                let (receiver, _listening) = listening(&node, &key).await;
                // The first owner is buried.
                let acquire = AcquireRequest::new(key.clone(), token(2), LONG);
                node.acquire(AcquireRequest { any, ..acquire })
                    .await
                    .unwrap();
                let release = ReleaseRequest::new(key, token(2), true);
                let reply = node.release(release).await;
                assert_eq!(reply, Ok(ReleaseReply::Released { listeners: 1 }));
                eventually("told", || receiver.notices().released == 1).await;
            }
        }
    }
}

#[tokio::test]
async fn a_lock_that_may_not_be_looked_at_is_not_said_to_be_released() {
    for kind in Kind::ALL {
        let server = with_user(kind, "");
        let node = ready(&url(&server)).await;
        server.run("ACL SETUSER locks -get");
        let other = ready(&server.url()).await;
        assert_eq!(other.acquire(acquire("k", 1)).await, GRANTED);
        let released = node.release(release("k", 1)).await;
        assert_eq!(kind_of(released), NodeErrorKind::Rejected);
        let recall = RecallRequest::new(acquire("work", 1), false, LONG);
        other.recall(recall).await.unwrap();
        let complete = CompleteRequest::new(release("work", 1), Some(done()));
        let completed = node.complete(complete).await;
        assert_eq!(kind_of(completed), NodeErrorKind::Rejected);
    }
}

#[tokio::test]
async fn no_right_in_the_documented_rule_is_superfluous() {
    let server = Server::start(Kind::Redis, &[]);
    let rule = documented_rule().replace("PASSWORD", "pw");
    let rights = rule.split(' ').filter(|word| word.starts_with('+'));
    // A connection can do without the first, and locks without the others, which are for those who wait.
    let spare = ["+ping", "+publish", "+subscribe", "+unsubscribe"];
    for right in rights.filter(|right| !spare.contains(right)) {
        let less = rule.replace(&format!(" {right}"), "");
        server.run(&format!("ACL SETUSER {less}"));
        server.run("FLUSHALL");
        server.run("SET lk:held other");
        let node = started(&url(&server));
        let fine = settled(&node).await.is_ok() && serves(&node).await.is_ok();
        assert!(!fine, "it works without {right}");
    }
}

#[tokio::test]
async fn a_missing_right_is_named() {
    for (right, word) in [("info", "INFO"), ("script|load", "SCRIPT LOAD")] {
        let server = Server::start(Kind::Redis, &[]);
        let rule = documented_rule().replace("PASSWORD", "pw");
        let less = rule.replace(&format!(" +{right}"), "");
        server.run(&format!("ACL SETUSER {less}"));
        let error = refusal(&started(&url(&server))).await;
        assert_eq!(error.kind(), NodeErrorKind::Misconfigured);
        let text = error.to_string();
        assert!(text.contains("ACL") && text.contains(word), "{text}");
    }
    for kind in Kind::ALL {
        let server = with_user(kind, "");
        let node = ready(&url(&server)).await;
        server.run("ACL SETUSER locks -set -pexpire");
        let error = node.acquire(acquire("k", 1)).await.unwrap_err();
        assert_eq!(error.kind(), NodeErrorKind::Rejected);
        assert!(error.to_string().contains("ACL"), "{error}");
        // The rights of an extend are missed lock by lock.
        let replies = node.extend(Arc::from([refill("k", 1)])).await.unwrap();
        let error = replies[0].clone().unwrap_err();
        assert!(error.to_string().contains("ACL"), "{error}");
        assert_eq!(node.state(), NodeState::Up);
    }
}

/// Before any lock relies on it: keys would linger without `DEL`, and longer work would lose its lock without `PEXPIRE`.
#[tokio::test]
async fn a_right_that_scripts_need_is_missed_at_connect() {
    let rule = documented_rule();
    let (_, rights) = rule.split_once("+script|load ").unwrap();
    let (rights, _) = rights.split_once(" +publish").unwrap();
    for kind in Kind::ALL {
        let server = with_user(kind, "");
        let missing = async |less: &str| {
            let user = rule.replace("PASSWORD", "pw");
            assert_eq!(server.run(&format!("ACL SETUSER {user} {less}")), "OK");
            let error = refusal(&started(&url(&server))).await;
            let kind = error.kind();
            assert_eq!(kind, NodeErrorKind::Misconfigured, "{less}: {error}");
            error.to_string()
        };
        for right in rights.split(' ').chain(["+evalsha"]) {
            let name = right.trim_start_matches('+');
            let text = missing(&format!("-{name}")).await;
            let named = text.contains(&format!("`{}`", name.to_uppercase()));
            assert!(named && text.contains(&format!("`{right}`")), "{text}");
        }
        assert_eq!(
            missing("-del -pexpire").await,
            "its ACL user may not run `DEL`, `PEXPIRE`; add `+del +pexpire` to the user's rule (`docs::several_servers`, \"The rights\")"
        );
        for keys in ["~other:*", "~lk:*", "~lk!*"] {
            let text = missing(&format!("resetkeys {keys}")).await;
            assert!(text.contains("add `~lk:* ~lk!*`"), "{text}");
        }
    }
}

/// With data of other programs under any name, and the right comes while the node is refused.
#[tokio::test]
async fn rights_are_looked_at_without_a_trace_and_again() {
    for kind in Kind::ALL {
        let server = with_user(kind, " -del");
        server.run("SET lk:rights x");
        let node = started(&url(&server));
        refusal(&node).await;
        server.run("ACL SETUSER locks +del");
        eventually("up", || node.state() == NodeState::Up).await;
        assert_eq!(server.run("KEYS *"), "lk:rights");
        assert_eq!(server.run("GET lk:rights"), "x");
        assert_eq!(server.info("rdb_changes_since_last_save"), "1");
    }
}

#[tokio::test]
async fn a_user_who_may_not_publish_can_still_release() {
    for kind in Kind::ALL {
        for missing in [" -publish", " resetchannels"] {
            let server = with_user(kind, missing);
            let _listener = server.subscribe(&key("k").channel().concat());
            let node = ready(&url(&server)).await;
            node.acquire(acquire("k", 1)).await.unwrap();
            let reply = node.release(release("k", 1)).await;
            assert_eq!(reply, Ok(ReleaseReply::Released { listeners: 0 }));
            assert_eq!(server.locks(), [""; 0]);
        }
    }
}

#[tokio::test]
async fn without_a_right_to_it_waiters_hear_less() {
    for kind in Kind::ALL {
        for missing in [" -subscribe", " resetchannels"] {
            let server = with_user(kind, missing);
            let node = ready(&url(&server)).await;
            let receiver = NoticeReceiver::new(1);
            // Two, of which the refusal is one: the client expects as many answers as channels.
            let _both = (
                subscribe(&node, "k", &receiver),
                subscribe(&node, "other", &receiver),
            );
            let refused = || server.calls().get("subscribe") == Some(&0);
            eventually("refused", refused).await;
            node.acquire(acquire("k", 1)).await.unwrap();
            node.release(release("k", 1)).await.unwrap();
            assert_eq!(receiver.notices(), Notices::default(), "silence");
            assert_eq!(node.state(), NodeState::Up);
        }
    }
}

#[tokio::test]
async fn a_key_that_is_no_lock_is_left_alone() {
    for kind in Kind::ALL {
        let (server, node) = served(kind).await;
        server.command(&["RPUSH", key("k").as_str(), "item"]);
        let error = node.acquire(acquire("k", 1)).await.unwrap_err();
        assert_eq!(error.kind(), NodeErrorKind::WrongType);
        assert!(error.to_string().contains("not a lock"), "{error}");
        let batch = Arc::from([refill("k", 1), refill("new", 1)]);
        let replies = node.extend(batch).await.unwrap();
        assert_eq!(kind_of(replies[0].clone()), NodeErrorKind::WrongType);
        assert_eq!(replies[1], Ok(ExtendReply::Refilled), "the others go on");
        let reply = node.release(release("k", 1)).await;
        assert_eq!(reply, Ok(ReleaseReply::NotOwner));
        assert_eq!(server.command(&["LLEN", key("k").as_str()]), "1");
    }
}

#[tokio::test]
async fn a_server_without_memory_extends_and_releases() {
    for kind in Kind::ALL {
        let (server, node) = served(kind).await;
        node.acquire(acquire("k", 1)).await.unwrap();
        node.acquire(acquire("other", 2)).await.unwrap();
        server.run("CONFIG SET maxmemory 1");

        let error = node.acquire(acquire("new", 1)).await.unwrap_err();
        assert_eq!(error.kind(), NodeErrorKind::Full);
        assert!(error.to_string().contains("maxmemory"), "{error}");
        // It has refused the `SET` of this owner, too, and tells all the same who is in the way.
        let reply = node.acquire(acquire("other", 1)).await.unwrap();
        assert!(matches!(reply, AcquireReply::Held(_)), "{reply:?}");
        // The refill comes first: a script that has written is not stopped any more.
        let number = Some(Fence::new(FencingToken::new(1 << 60).unwrap(), LONG));
        let batch = Arc::from([
            refill("new", 1).fenced(number),
            // There is no room for its counter, and it is extended all the same.
            extend("k", 1).fenced(number),
            extend("other", 1),
        ]);
        let replies = node.extend(batch).await.unwrap();
        assert_eq!(kind_of(replies[0].clone()), NodeErrorKind::Full);
        assert_eq!(replies[1], Ok(ExtendReply::Extended));
        assert!(matches!(replies[2], Ok(ExtendReply::Held(_))));
        let reply = node.release(release("k", 1)).await;
        assert_eq!(reply, Ok(ReleaseReply::Released { listeners: 0 }));
        assert_eq!(node.state(), NodeState::Up);
    }
}
