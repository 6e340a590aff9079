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

fn builder() -> Settings {
    let nodes = (0..3).map(|n| MemoryNode::new(format!("n{n}<b>")));
    LockManager::builder().nodes(nodes).clock(TokioClock::new())
}

pub(crate) async fn ask(locks: &LockManager, method: &str, path: &str) -> (u16, HeaderMap, String) {
    let service = InspectService::new(locks.clone());
    let app: Router = Router::new().nest_service("/locks", service);
    let request = Request::builder()
        .method(method)
        .uri(format!("/locks{path}"));
    let answer = app
        .oneshot(request.body(Body::empty()).unwrap())
        .await
        .unwrap();
    let (head, body) = answer.into_parts();
    let text = body.collect().await.unwrap().to_bytes();
    let text = String::from_utf8(text.into()).unwrap();
    (head.status.as_u16(), head.headers, text)
}

#[tokio::test(start_paused = true)]
async fn the_name_of_a_successor_is_text() {
    let locks = builder().connect().await.unwrap();
    let left = locks.retire_nodes("<b>new</b>").await.unwrap();
    tokio::time::sleep(left).await;
    let (_, _, page) = ask(&locks, "GET", "/").await;
    assert!(page.contains("&lt;b&gt;new&lt;/b&gt;"), "{page}");
    assert!(!page.contains("<b>"), "{page}");
}

#[tokio::test(start_paused = true)]
async fn hostile_names_are_text() {
    let locks = builder().connect().await.unwrap();
    let _guard = locks.try_acquire(HOSTILE).await.unwrap();
    let waiter = locks.clone();
    let waiter = tokio::spawn(async move { waiter.acquire(HOSTILE).await });
    tokio::task::yield_now().await;
    let (status, headers, page) = ask(&locks, "GET", "/").await;
    assert_eq!(
        (status, &headers["content-type"]),
        (200, &"text/html; charset=utf-8".parse().unwrap())
    );
    assert!(
        !page.contains("<script") && !page.contains('\u{202e}'),
        "{page}"
    );
    let escaped =
        "scope=\"row\">&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&amp;&quot;\\u{202e}</th>";
    assert_eq!(page.matches(escaped).count(), 2, "{page}");
    assert!(page.contains(">n1&lt;b&gt;</th>"), "{page}");
    assert!(page.contains("1 held, 1 in line"), "{page}");
    // Nothing is loaded from anywhere.
    assert!(!page.contains("http:") && !page.contains("src="), "{page}");
    waiter.abort();
}

#[tokio::test(start_paused = true)]
async fn every_answer_forbids_to_keep_it_and_to_run_anything() {
    let locks = builder().connect().await.unwrap();
    for (method, path) in [
        ("GET", "/"),
        ("GET", "/snapshot.json"),
        ("GET", "/?json"),
        ("GET", "/?still"),
        ("GET", "/?fleet"),
        ("GET", "/fleet.json"),
        ("GET", "/x"),
        ("PUT", "/"),
    ] {
        let (_, headers, _) = ask(&locks, method, path).await;
        assert_eq!(headers["cache-control"], "no-store");
        assert_eq!(headers["x-content-type-options"], "nosniff");
        assert_eq!(headers["cross-origin-resource-policy"], "same-origin");
        let policy = headers["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; ") && !policy.contains("script-src"));
        assert!(!policy.contains("unsafe"), "{policy}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_policy_allows_the_style_of_the_page_and_no_other() {
    let locks = builder().connect().await.unwrap();
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
    let locks = builder().connect().await.unwrap();
    // The links are queries: they work whether or not there is a slash at the end of the page's own address.
    for path in ["", "/"] {
        let (status, _, page) = ask(&locks, "GET", path).await;
        assert_eq!(status, 200);
        assert!(page.contains("http-equiv=\"refresh\"") && page.contains("href=\"?still\""));
        let (_, _, still) = ask(&locks, "GET", &format!("{path}?still")).await;
        assert!(!still.contains("http-equiv") && still.contains("href=\"?\""));
        let (_, headers, text) = ask(&locks, "GET", &format!("{path}?json")).await;
        assert_eq!(headers["content-type"], "application/json");
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value, serde_json::to_value(locks.snapshot()).unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn it_opens_with_whether_a_quorum_votes() {
    let nodes: Vec<_> = (0..3).map(|n| MemoryNode::new(format!("n{n}"))).collect();
    let builder = LockManager::builder()
        .clock(TokioClock::new())
        .nodes(nodes.iter().cloned());
    let locks = builder.clock(TokioClock::new()).connect().await.unwrap();
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
}

/// Two keys that differ in what nobody sees, and one that would be two.
#[tokio::test(start_paused = true)]
async fn keys_that_are_not_one_do_not_look_like_one() {
    let locks = builder().connect().await.unwrap();
    let mut guards = Vec::new();
    for key in [
        "order:1",
        "order:1\u{200b}",
        "ord\u{ad}er:1",
        "\u{feff}order:1",
        "order:1\u{fe0f}\u{180e}\u{e0041}",
        "\u{3164}",
        // The text that stands for another.
        "order:1\\u{200b}",
    ] {
        guards.push(locks.try_acquire(key).await.unwrap());
    }
    guards.push(locks.acquire(["a", "b"]).await.unwrap());
    guards.push(locks.try_acquire("a<br>b").await.unwrap());
    let (_, _, page) = ask(&locks, "GET", "/").await;
    for shown in [
        ">order:1<",
        ">order:1\\u{200b}<",
        ">ord\\u{ad}er:1<",
        ">\\u{feff}order:1<",
        ">order:1\\u{fe0f}\\u{180e}\\u{e0041}<",
        ">\\u{3164}<",
        ">order:1\\\\u{200b}<",
    ] {
        assert_eq!(page.matches(shown).count(), 1, "{shown} in {page}");
    }
    assert_eq!(page.matches(">a<br>b<").count(), 1, "{page}");
    assert_eq!(page.matches(">a&lt;br&gt;b<").count(), 1, "{page}");
}

#[tokio::test(start_paused = true)]
async fn the_json_is_the_snapshot_without_secrets() {
    let nodes: Vec<_> = (0..3).map(|n| MemoryNode::new(format!("n{n}"))).collect();
    let builder = LockManager::builder()
        .clock(TokioClock::new())
        .nodes(nodes.iter().cloned());
    let locks = builder.clock(TokioClock::new()).connect().await.unwrap();
    let _guard = locks.try_acquire("order:1").await.unwrap();
    let token = String::from_utf8(nodes[0].holder("lk:order:1").unwrap()).unwrap();
    let (status, headers, text) = ask(&locks, "GET", "/snapshot.json").await;
    assert_eq!(
        (status, &headers["content-type"]),
        (200, &"application/json".parse().unwrap())
    );
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value, serde_json::to_value(locks.snapshot()).unwrap());
    assert_eq!(value["locks"][0]["keys"], json!(["order:1"]));
    let (_, _, page) = ask(&locks, "GET", "/").await;
    assert!(page.contains("order:1") && !page.contains(&token) && !text.contains(&token));
}

#[tokio::test(start_paused = true)]
async fn other_paths_and_methods_are_refused() {
    let locks = builder().connect().await.unwrap();
    for path in ["/x", "/snapshot", "/snapshot.json/", "/../", "/%2e"] {
        assert_eq!(ask(&locks, "GET", path).await.0, 404, "{path}");
    }
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "BREW"] {
        for path in ["/", "/?json", "/snapshot.json"] {
            let (status, headers, _) = ask(&locks, method, path).await;
            assert_eq!(status, 405, "{method} {path}");
            assert_eq!(headers["allow"], "GET, HEAD");
        }
    }
    let (status, headers, _) = ask(&locks, "HEAD", "/").await;
    assert_eq!(status, 200);
    assert_eq!(headers["cache-control"], "no-store");
}

#[tokio::test(start_paused = true)]
async fn redacted_keys_are_on_no_page() {
    let locks = builder().redact_keys(true).connect().await.unwrap();
    let guard = locks.try_acquire("order:1").await.unwrap();
    for path in ["/", "/?fleet", "/fleet.json"] {
        let (_, _, page) = ask(&locks, "GET", path).await;
        assert!(
            page.contains(&guard.key().redacted()) && !page.contains("order:1"),
            "{path}: {page}"
        );
    }
}
