//! What goes wrong for every request is a line when it begins, one a minute while it lasts, and one when it ends.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tokio::time::sleep;
use tower::{Layer as _, ServiceExt as _, service_fn};
use tower_redlock::node::MemoryNode;

use super::{Book, connected, five, layer, listen};

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
    let (book, _listening, nodes, locks) = connected().await;
    let layer = layer(locks);
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
    let is_first = lines[0].contains("n0") && lines[0].ends_with("times=1");
    assert!(is_first, "{lines:#?}");
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
    let is_over = |line: &String| line.starts_with("INFO") && line.ends_with("refused=59");
    assert!(lines.len() == 1 && is_over(&lines[0]), "{lines:#?}");
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
    assert_eq!(lines, book.with("could not be released"));
    let times: Vec<_> = lines
        .iter()
        .filter_map(|line| line.rsplit_once("times="))
        .collect();
    let times: Vec<_> = times.iter().map(|(_, times)| *times).collect();
    assert_eq!(times, ["1", "100"], "{lines:#?}");
}
