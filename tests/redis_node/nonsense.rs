//! Servers that answer what no server answers.

use crate::support::requests::*;
use std::sync::Arc;

use tower_redlock::FencingToken;
use tower_redlock::node::{Fence, Node, NodeErrorKind, NodeState};

use crate::kind_of;
use crate::support::eventually;
use crate::support::fake::{Fake, sound};
use crate::support::nodes::{
    LONG, acquire, extend, is_down, ready, refusal, release, settled, started, token,
};

#[tokio::test]
async fn a_server_of_another_kind_is_refused() {
    for answer in [
        "HTTP/1.1 400 Bad Request\r\n\r\n",
        "\u{15}\u{3}\u{3}\u{0}\u{2}\u{2}\u{2}\u{16}\r\n",
        "$99999999999999999999\r\n",
    ] {
        let fake = Fake::start(move |_| answer.to_owned()).await;
        let error = refusal(&started(&fake.url())).await;
        assert_eq!(error.kind(), NodeErrorKind::Misconfigured);
        assert!(error.to_string().contains("protocol"), "{error}");
    }
}

#[tokio::test]
async fn a_server_that_tells_nothing_of_itself_is_refused() {
    for info in [
        "+QUEUED\r\n",
        "$-1\r\n",
        ":7\r\n",
        "$3\r\na:b\r\n",
        "*0\r\n",
    ] {
        let fake = Fake::start(move |words| match words[0].as_str() {
            "INFO" => info.to_owned(),
            _ => sound(words),
        })
        .await;
        let error = refusal(&started(&fake.url())).await;
        assert!(
            error.to_string().contains("redis_version"),
            "{info:?}: {error}"
        );
    }
}

#[tokio::test]
async fn a_silent_server_is_down_not_waited_for() {
    let fake = Fake::start(|_| String::new()).await;
    let node = tower_redlock::node::RedisNode::new(&fake.url())
        .connect_timeout(std::time::Duration::from_millis(30))
        .build()
        .unwrap();
    node.start(crate::support::nodes::context());
    eventually("down", || is_down(&node)).await;
    let NodeState::Down(reason) = node.state() else {
        panic!("{:?}", node.state());
    };
    assert!(reason.to_string().contains("30ms"), "{reason}");
}

#[tokio::test]
async fn a_senseless_answer_is_garbled() {
    for answer in [
        "+QUEUED\r\n",
        "_\r\n",
        ":-7\r\n",
        "*0\r\n",
        "*1\r\n$1\r\nx\r\n",
        "*3\r\n:0\r\n:5\r\n$-1\r\n",
        "%1\r\n+a\r\n+b\r\n",
        ",nan\r\n",
    ] {
        let fake = Fake::start(move |words| match words[0].as_str() {
            "EVALSHA" | "SET" => answer.to_owned(),
            _ => sound(words),
        })
        .await;
        let node = ready(&fake.url()).await;
        let garbled = NodeErrorKind::Garbled;
        let acquired = node.acquire(acquire("k", 1)).await;
        assert!(acquired.as_ref().unwrap_err().outcome_unknown());
        assert_eq!(kind_of(acquired), garbled, "{answer:?}");
        assert_eq!(kind_of(node.release(release("k", 1)).await), garbled);
        let replies = node
            .extend(Arc::from([extend("k", 1), extend("j", 1)]))
            .await;
        for reply in replies.unwrap() {
            assert_eq!(kind_of(reply), garbled, "{answer:?}");
        }
    }
}

#[tokio::test]
async fn an_answer_that_cannot_be_parsed_breaks_the_connection() {
    let fake = Fake::start(move |words| match words[0].as_str() {
        "EVALSHA" | "SET" => "?!\r\n".to_owned(),
        _ => sound(words),
    })
    .await;
    let node = ready(&fake.url()).await;
    let error = node.acquire(acquire("k", 1)).await.unwrap_err();
    assert!(error.outcome_unknown(), "{error}");
    settled(&node).await.unwrap();
    let error = node.extend(Arc::from([extend("k", 1)])).await.unwrap_err();
    assert!(error.outcome_unknown(), "{error}");
}

#[tokio::test]
async fn a_script_that_stays_unknown_is_an_error() {
    let fake = Fake::start(move |words| match words[0].as_str() {
        "EVALSHA" => "-NOSCRIPT No matching script\r\n".to_owned(),
        _ => sound(words),
    })
    .await;
    let node = ready(&fake.url()).await;
    let rejected = NodeErrorKind::Rejected;
    let fence = Fence::new(FencingToken::new(7_000).unwrap(), LONG);
    let acquire = acquire("k", 1).fenced(Some(fence));
    assert_eq!(kind_of(node.acquire(acquire).await), rejected);
    let replies = node.extend(Arc::from([extend("k", 1)])).await.unwrap();
    assert_eq!(kind_of(replies[0].clone()), rejected);
}

#[tokio::test]
async fn quoted_tokens_and_passwords_are_never_repeated() {
    let quoting = |words: &[String]| {
        format!(
            "-ERR unknown command '{}' {1}, with args beginning with: {1}\r\n",
            words[0],
            words[1..].join(" ")
        )
    };
    let fake = Fake::start(move |words| match words[0].as_str() {
        "EVALSHA" | "SET" => quoting(words),
        _ => sound(words),
    })
    .await;
    let node = ready(&fake.url()).await;
    let error = node.acquire(acquire("k", 1)).await.unwrap_err();
    assert_eq!(error.kind(), NodeErrorKind::Rejected);
    let token = token(1);
    let token = std::str::from_utf8(token.expose()).unwrap();
    let text = format!("{error} {error:?}");
    assert!(!text.contains(token), "{text}");
    assert!(text.contains("unknown command"), "{text}");

    let fake = Fake::start(quoting).await;
    let node = started(&fake.url_with("s3cret"));
    let error = refusal(&node).await;
    let text = format!("{error} {error:?} {node:?} {:?}", node.state());
    assert!(!text.contains("s3cret"), "{text}");
}
