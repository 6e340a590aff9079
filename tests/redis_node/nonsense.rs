//! Servers that answer what no server answers.

use tower_redlock::FencingToken;
use tower_redlock::node::Fence;

use crate::support::fake::{Fake, sound};
use crate::support::nodes;
use crate::support::requests::*;
use crate::*;

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
    for info in ["+QUEUED", "$-1", ":7", "$3\r\na:b", "*0"] {
        let fake = Fake::start(move |words| match words[0].as_str() {
            "INFO" => format!("{info}\r\n"),
            _ => sound(words),
        })
        .await;
        let error = refusal(&started(&fake.url())).await;
        let text = error.to_string();
        assert!(text.contains("redis_version"), "{info:?}: {text}");
    }
}

#[tokio::test]
async fn a_script_that_stays_unknown_is_an_error() {
    let fake = answering("-NOSCRIPT No matching script").await;
    let node = nodes::ready(&fake.url()).await;
    let rejected = NodeErrorKind::Rejected;
    let fence = Fence::new(FencingToken::new(7_000).unwrap(), LONG);
    let acquire = acquire("k", 1).fenced(Some(fence));
    assert_eq!(kind_of(node.acquire(acquire).await), rejected);
    let replies = node.extend(Arc::from([extend("k", 1)])).await.unwrap();
    assert_eq!(kind_of(replies[0].clone()), rejected);
}

/// A server that says this to every command for a lock.
async fn answering(answer: &'static str) -> Fake {
    let answer = move |words: &[String]| match words[0].as_str() {
        "EVALSHA" | "SET" => format!("{answer}\r\n"),
        _ => sound(words),
    };
    Fake::start(answer).await
}

#[tokio::test]
async fn a_silent_server_is_down_not_waited_for() {
    let fake = Fake::start(|_| String::new()).await;
    let node = RedisNode::new(&fake.url()).connect_timeout(Duration::from_millis(30));
    down(&start(node), "30ms").await;
}

#[tokio::test]
async fn a_senseless_answer_is_garbled() {
    for answer in [
        "+QUEUED",
        "_",
        ":-7",
        "*0",
        "*1\r\n$1\r\nx",
        "*3\r\n:0\r\n:5\r\n$-1",
        "%1\r\n+a\r\n+b",
        ",nan",
    ] {
        let fake = answering(answer).await;
        let node = nodes::ready(&fake.url()).await;
        let garbled = NodeErrorKind::Garbled;
        let acquired = node.acquire(acquire("k", 1)).await;
        assert!(acquired.as_ref().unwrap_err().outcome_unknown());
        assert_eq!(kind_of(acquired), garbled, "{answer:?}");
        assert_eq!(kind_of(node.release(release("k", 1)).await), garbled);
        let batch = Arc::from([extend("k", 1), extend("j", 1)]);
        for reply in node.extend(batch).await.unwrap() {
            assert_eq!(kind_of(reply), garbled, "{answer:?}");
        }
    }
    // What cannot be parsed breaks the connection.
    let fake = answering("?!").await;
    let node = nodes::ready(&fake.url()).await;
    let error = node.acquire(acquire("k", 1)).await.unwrap_err();
    assert!(error.outcome_unknown(), "{error}");
    settled(&node).await.unwrap();
    let error = node.extend(Arc::from([extend("k", 1)])).await.unwrap_err();
    assert!(error.outcome_unknown(), "{error}");
}
