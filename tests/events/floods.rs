//! What goes wrong for every request is a line when it begins, one a minute while it lasts, and one when it ends.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use http_body_util::Full;
use tokio::time::sleep;
use tower::{Layer as _, ServiceExt as _, service_fn};
use tower_redlock::node::MemoryNode;
use tower_redlock::{LockKey, RedlockLayer};

use super::support::server::{Kind, Server};
use super::{Book, five, here, listen};

/// The lines of this level or a more urgent one, after those that were read before.
fn told(book: &Book, read: &mut usize) -> Vec<String> {
    let lines = book.lines();
    let news = lines[*read..].iter();
    let news = news.filter(|line| !line.starts_with("DEBUG")).cloned();
    let news = news.collect();
    *read = lines.len();
    news
}

#[tokio::test(start_paused = true)]
async fn refused_requests_are_counted_while_there_is_no_quorum() {
    let (book, _listening) = listen();
    let (nodes, builder) = five();
    let locks = builder.connect().await.unwrap();
    let layer = RedlockLayer::new(locks, |_: &Parts| LockKey::new("order:1").unwrap());
    let send = async || {
        let inner = service_fn(async |_: Request<Full<Bytes>>| {
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
        });
        let request = Request::post("/").body(Full::default()).unwrap();
        let response = layer.layer(inner).oneshot(request).await.unwrap();
        response.status().as_u16()
    };
    let mut read = 0;
    assert_eq!(send().await, 200);
    nodes[..3].iter().for_each(MemoryNode::go_down);
    for second in 0..150 {
        assert_eq!(send().await, 503, "second {second}");
        assert_eq!(send().await, 503, "second {second}");
        sleep(Duration::from_secs(1)).await;
    }
    let lines = told(&book, &mut read);
    assert_eq!(lines.len(), 3, "{lines:#?}");
    assert!(lines.iter().all(|line| line.contains("locks are refused")));
    assert!(
        lines[0].contains("n0") && lines[0].ends_with("times=1"),
        "{lines:#?}"
    );
    for count in &lines[1..] {
        assert!(count.starts_with("WARN") && count.contains("n0"), "{count}");
        let (_, times) = count.rsplit_once("times=").unwrap();
        let times: u32 = times.parse().unwrap();
        assert!((118..=122).contains(&times), "{count}");
    }
    nodes[..3].iter().for_each(MemoryNode::come_up);
    // One that succeeds may be one of few: it comes and goes.
    sleep(Duration::from_secs(50)).await;
    assert_eq!(send().await, 200);
    assert_eq!(told(&book, &mut read), [""; 0]);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(send().await, 200);
    let lines = told(&book, &mut read);
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert!(
        lines[0].starts_with("INFO") && lines[0].ends_with("refused=59"),
        "{lines:#?}"
    );
    sleep(Duration::from_secs(120)).await;
    assert_eq!(send().await, 200);
    assert_eq!(told(&book, &mut read), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn locks_that_a_dead_node_keeps_are_counted() {
    let (book, _listening) = listen();
    let (nodes, builder) = five();
    let builder = builder.max_ttl(Duration::from_secs(10));
    let locks = builder.connect().await.unwrap();
    nodes[0].freeze();
    for count in [100, 1] {
        for number in 0..count {
            let guard = locks.acquire(format!("order:{number}").as_str()).await;
            guard.unwrap().release().await.unwrap();
        }
        sleep(Duration::from_secs(100)).await;
    }
    let lines = told(&book, &mut 0);
    assert_eq!(lines.len(), 2, "{lines:#?}");
    assert!(
        lines
            .iter()
            .all(|line| line.contains("could not be released"))
    );
    assert!(lines[0].ends_with("times=1"), "{lines:#?}");
    assert!(lines[1].ends_with("times=100"), "{lines:#?}");
}

#[tokio::test]
async fn commands_that_a_server_refuses_are_told_of_once_for_each_kind() {
    let (book, _listening) = listen();
    let servers = Server::start_many(Kind::Redis, 3);
    for server in &servers {
        server.run("ACL SETUSER locks on >secret ~* &* +@all");
    }
    let urls = servers
        .iter()
        .map(|server| server.url_as("locks", "secret"));
    let builder = here().redis(urls).bootstrap(true);
    let locks = builder.connect().await.unwrap();
    servers[0].run("ACL SETUSER locks -del");
    for number in 0..50 {
        let guard = locks.acquire(format!("order:{number}").as_str()).await;
        guard.unwrap().release().await.unwrap();
    }
    assert!(locks.shutdown(Duration::from_secs(5)).await.lost == 0);
    let lines = book.lines();
    let refused = lines
        .iter()
        .filter(|line| line.contains("a node refused a command"));
    let refused: Vec<_> = refused.collect();
    assert_eq!(refused.len(), 1, "{lines:#?}");
    assert!(refused[0].contains("command=\"release\""), "{refused:?}");
    assert!(!lines.concat().contains("secret"));
}
