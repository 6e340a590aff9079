//! What is answered: tables, JSON and headers, and what is made of keys that would rather be a program.

use axum::Router;
use axum::body::Body;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::{HeaderMap, Request};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tower::ServiceExt as _;
use tower_redlock::InspectService;
use tower_redlock::clock::TokioClock;
use tower_redlock::node::MemoryNode;
use tower_redlock::{LockManager, Settings};

const HOSTILE: &str = "<script>alert('1')</script>&\"\u{202e}";

fn nodes() -> Vec<MemoryNode> {
    (0..3)
        .map(|n| MemoryNode::new(format!("n{n}<b>")))
        .collect()
}

fn builder(nodes: &[MemoryNode]) -> Settings {
    let builder = LockManager::builder().nodes(nodes.iter().cloned());
    builder.clock(TokioClock::new())
}

async fn manager() -> LockManager {
    builder(&nodes()).connect().await.unwrap()
}

pub(crate) async fn ask(locks: &LockManager, method: &str, path: &str) -> (u16, HeaderMap, String) {
    let service = InspectService::new(locks.clone());
    let app: Router = Router::new().nest_service("/locks", service);
    let request = Request::builder().method(method);
    let request = request.uri(format!("/locks{path}")).body(Body::empty());
    let answer = app.oneshot(request.unwrap()).await.unwrap();
    let (head, body) = answer.into_parts();
    let text = body.collect().await.unwrap().to_bytes();
    let text = String::from_utf8(text.into()).unwrap();
    (head.status.as_u16(), head.headers, text)
}

#[tokio::test(start_paused = true)]
async fn the_name_of_a_successor_is_text() {
    let locks = manager().await;
    let left = locks.retire_nodes("<b>new</b>").await.unwrap();
    tokio::time::sleep(left).await;
    let (_, _, page) = ask(&locks, "GET", "/").await;
    assert!(page.contains("&lt;b&gt;new&lt;/b&gt;"), "{page}");
    assert!(!page.contains("<b>"), "{page}");
}

/// Keys that differ in what nobody sees, one that would be two, and one that would be a program.
#[tokio::test(start_paused = true)]
async fn names_are_text_and_keys_that_are_not_one_do_not_look_like_one() {
    let locks = manager().await;
    let keys = [
        ("order:1", ">order:1<"),
        ("order:1\u{200b}", ">order:1\\u{200b}<"),
        ("ord\u{ad}er:1", ">ord\\u{ad}er:1<"),
        ("\u{feff}order:1", ">\\u{feff}order:1<"),
        (
            "order:1\u{fe0f}\u{180e}\u{e0041}",
            ">order:1\\u{fe0f}\\u{180e}\\u{e0041}<",
        ),
        ("\u{3164}", ">\\u{3164}<"),
        // The text that stands for another.
        ("order:1\\u{200b}", ">order:1\\\\u{200b}<"),
        ("a<br>b", ">a&lt;br&gt;b<"),
    ];
    let mut guards = vec![
        locks.try_acquire(HOSTILE).await.unwrap(),
        locks.acquire(["a", "b"]).await.unwrap(),
    ];
    for (key, _) in keys {
        guards.push(locks.try_acquire(key).await.unwrap());
    }
    let waiter = locks.clone();
    let waiter = tokio::spawn(async move { waiter.acquire(HOSTILE).await });
    tokio::task::yield_now().await;
    let (status, headers, page) = ask(&locks, "GET", "/").await;
    assert_eq!(
        (status, &headers["content-type"]),
        (200, &"text/html; charset=utf-8".parse().unwrap())
    );
    let hostile =
        "scope=\"row\">&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&amp;&quot;\\u{202e}</th>";
    let others = [
        (hostile, 2),
        (">n1&lt;b&gt;</th>", 1),
        ("<title>Locks: 10 held, 1 in line</title>", 1),
        (">a<br>b<", 1),
        ("<script", 0),
        ("\u{202e}", 0),
        // Nothing is loaded from anywhere.
        ("http:", 0),
        ("src=", 0),
    ];
    for (text, count) in keys.map(|(_, shown)| (shown, 1)).into_iter().chain(others) {
        assert_eq!(page.matches(text).count(), count, "{text} in {page}");
    }
    waiter.abort();
}

#[tokio::test(start_paused = true)]
async fn every_answer_forbids_to_keep_it_and_to_run_anything() {
    let locks = manager().await;
    for (method, paths, status) in [
        (
            "GET",
            &[
                "/",
                "/snapshot.json",
                "/?json",
                "/?still",
                "/?fleet",
                "/fleet.json",
            ] as &[_],
            200,
        ),
        ("HEAD", &["/"], 200),
        (
            "GET",
            &["/x", "/snapshot", "/snapshot.json/", "/../", "/%2e"],
            404,
        ),
        ("POST", &["/", "/?json", "/snapshot.json"], 405),
        ("PUT", &["/", "/?json", "/snapshot.json"], 405),
        ("DELETE", &["/"], 405),
        ("OPTIONS", &["/"], 405),
        ("TRACE", &["/"], 405),
        ("BREW", &["/"], 405),
    ] {
        for path in paths {
            let (got, headers, _) = ask(&locks, method, path).await;
            assert_eq!(got, status, "{method} {path}");
            if status == 405 {
                assert_eq!(headers["allow"], "GET, HEAD");
            }
            assert_eq!(headers["cache-control"], "no-store");
            assert_eq!(headers["x-content-type-options"], "nosniff");
            assert_eq!(headers["cross-origin-resource-policy"], "same-origin");
            let policy = headers["content-security-policy"].to_str().unwrap();
            assert!(policy.starts_with("default-src 'none'; "), "{policy}");
            assert!(
                !policy.contains("script-src") && !policy.contains("unsafe"),
                "{policy}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_policy_allows_the_style_of_the_page_and_no_other() {
    let locks = manager().await;
    let (_, headers, page) = ask(&locks, "GET", "/").await;
    let style = page.split_once("<style>").unwrap().1;
    let style = style.split_once("</style>").unwrap().0;
    let hash = BASE64_STANDARD.encode(Sha256::digest(style));
    let policy = headers["content-security-policy"].to_str().unwrap();
    let allowed = format!("; style-src 'sha256-{hash}';");
    assert!(policy.contains(&allowed), "put {allowed} into {policy}");
    assert!(
        !page.contains(" style="),
        "an attribute would not be obeyed"
    );
}

#[tokio::test(start_paused = true)]
async fn the_page_stands_still_where_it_is_asked_to() {
    let locks = manager().await;
    for path in ["", "/"] {
        let (status, _, page) = ask(&locks, "GET", path).await;
        assert_eq!(status, 200);
        assert!(page.contains("http-equiv=\"refresh\"") && page.contains("href=\"?still\""));
        let (_, _, still) = ask(&locks, "GET", &format!("{path}?still")).await;
        assert!(!still.contains("http-equiv") && still.contains("href=\"?\""));
    }
}

#[tokio::test(start_paused = true)]
async fn it_opens_with_whether_a_quorum_votes() {
    let nodes = nodes();
    let locks = builder(&nodes).connect().await.unwrap();
    let opening = async || {
        let (_, _, page) = ask(&locks, "GET", "/").await;
        let (_, text) = page.split_once("<h1>Locks</h1>\n").unwrap();
        text.lines().next().unwrap().to_owned()
    };
    let good = "<p class=\"good\">quorum: 3 of 3 vote, 2 needed</p>";
    assert_eq!(opening().await, good);
    nodes[0].go_down();
    nodes[1].go_down();
    let bad = "<p class=\"bad\">quorum: 1 of 3 vote, 2 needed; no lock is granted</p>";
    assert_eq!(opening().await, bad);
    let (_, _, page) = ask(&locks, "GET", "/").await;
    assert_eq!(
        page.matches(">down: the node is down<").count(),
        2,
        "{page}"
    );
    assert_eq!(page.matches(">does not count<").count(), 2, "{page}");
}

/// Its connection is there, so the vote has the reason.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_up_and_does_not_answer_is_told_with_the_reason() {
    let nodes = nodes();
    let locks = builder(&nodes).connect().await.unwrap();
    nodes[0].freeze();
    for key in ["order:1", "order:2"] {
        drop(locks.try_acquire(key).await.unwrap());
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
    let (_, _, page) = ask(&locks, "GET", "/").await;
    assert_eq!(page.matches(">does not count: ").count(), 1, "{page}");
    assert_eq!(page.matches(">votes<").count(), 2, "{page}");
}

#[tokio::test(start_paused = true)]
async fn as_many_locks_as_are_shown_may_not_be_all() {
    let locks = manager().await;
    let mut guards = Vec::new();
    for (count, told) in [(99, 0), (100, 1)] {
        while guards.len() < count {
            let key = format!("order:{}", guards.len());
            guards.push(locks.try_acquire(key.as_str()).await.unwrap());
        }
        let (_, _, page) = ask(&locks, "GET", "/").await;
        assert_eq!(page.matches("there may be more").count(), told, "{count}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_json_is_the_snapshot_without_secrets() {
    let nodes = nodes();
    let locks = builder(&nodes).connect().await.unwrap();
    let _guard = locks.try_acquire("order:1").await.unwrap();
    let token = String::from_utf8(nodes[0].holder("lk:order:1").unwrap()).unwrap();
    // The link is a query: it works whether or not there is a slash at the end of the page's own address.
    for path in ["/snapshot.json", "?json", "/?json"] {
        let (status, headers, text) = ask(&locks, "GET", path).await;
        assert_eq!(
            (status, &headers["content-type"]),
            (200, &"application/json".parse().unwrap())
        );
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value, serde_json::to_value(locks.snapshot()).unwrap());
        assert_eq!(value["locks"][0]["keys"], json!(["order:1"]));
        assert!(!text.contains(&token));
    }
    let (_, _, page) = ask(&locks, "GET", "/").await;
    assert!(page.contains("order:1") && !page.contains(&token));
}

#[tokio::test(start_paused = true)]
async fn redacted_keys_are_on_no_page() {
    let locks = builder(&nodes()).redact_keys(true).connect().await.unwrap();
    let guard = locks.try_acquire("order:1").await.unwrap();
    for path in ["/", "/?fleet", "/fleet.json"] {
        let (_, _, page) = ask(&locks, "GET", path).await;
        assert!(
            page.contains(&guard.key().redacted()) && !page.contains("order:1"),
            "{path}: {page}"
        );
    }
}
