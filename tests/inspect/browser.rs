//! The page in a browser: what stands in it, that no key becomes a part of it, and that it fits its window.

use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tower_redlock::InspectService;
use tower_redlock::node::MemoryNode;
use tower_redlock::snapshot::VotingStatus;
use tower_redlock::{LockGuard, LockManager};

use super::chromium::{Picture, dom};

/// Everything that HTML could take for something else than text, and one word that is wider than a telephone.
const HOSTILE: &str = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">\
    </th></table>&lt;\u{202e}aVeryLongWordThatHasNoPlaceWhereItCouldBeBrokenIntoTwoLinesByItself";

/// Pixels at both sides that nothing is drawn in, however narrow the window.
const MARGIN: usize = 12;

/// A served page with a bit of everything on it. The locks end with it.
struct Scene {
    url: String,
    _guards: Vec<LockGuard>,
}

impl Scene {
    async fn set() -> Self {
        let node = |n| MemoryNode::new(format!("node-{n}.internal:6379"));
        let nodes = [0, 1, 2, 3, 4].map(node);
        let (builder, long) = (LockManager::builder(), Duration::from_secs(600));
        let builder = builder.nodes(nodes.iter().cloned()).max_wait(long);
        let locks = builder.ttl(long).max_ttl(long).connect().await.unwrap();
        let guards = vec![
            locks.try_acquire(HOSTILE).await.unwrap(),
            locks.acquire(["account:3", "account:7"]).await.unwrap(),
        ];
        for _ in 0..3 {
            let locks = locks.clone();
            tokio::spawn(async move { locks.acquire(HOSTILE).await });
        }
        nodes[3].forget();
        nodes[4].go_down();
        // The manager looks after its nodes now and then.
        let settled = async {
            while !is_settled(&locks) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let settled = tokio::time::timeout(Duration::from_secs(10), settled).await;
        assert!(settled.is_ok(), "{:#?}", locks.snapshot());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/locks", listener.local_addr().unwrap());
        let app: Router = Router::new().nest_service("/locks", InspectService::new(locks));
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self {
            url,
            _guards: guards,
        }
    }
}

fn is_settled(locks: &LockManager) -> bool {
    let snapshot = locks.snapshot();
    let quarantined = matches!(snapshot.nodes[3].voting, VotingStatus::Quarantined { .. });
    snapshot.waiting == 3 && quarantined
}

#[tokio::test]
async fn a_browser_finds_tables_and_takes_no_key_for_a_part_of_the_page() {
    let scene = Scene::set().await;
    let dom = dom(&scene.url).await;
    for told in [
        "<html lang=\"en\">",
        // It would be another had a script run.
        "<title>Locks: 2 held, 3 in line</title>",
        "<h2>Nodes</h2>",
        "<h2>Held locks</h2>",
        "<h2>Queues</h2>",
        ">node-0.internal:6379</th>",
        ">quarantined for another ",
        ">down: the node is down<",
        ">does not count<",
        ">quorum: 3 of 5 vote, 3 needed</p>",
        ">account:3<br>account:7</th>",
        "scope=\"col\">Longest wait</th>",
    ] {
        assert_eq!(dom.matches(told).count(), 1, "{told}: {dom}");
    }
    let text = "<th role=\"rowheader\" scope=\"row\">&lt;script&gt;document.title='owned'&lt;/script&gt;&lt;img src=x \
        onerror=\"document.title='owned'\"&gt;&lt;/th&gt;&lt;/table&gt;&amp;lt;\\u{202e}aVeryLong";
    assert_eq!(
        dom.matches(text).count(),
        2,
        "once as held, once with its queue: {dom}"
    );
    for element in ["<script", "<img"] {
        assert!(!dom.contains(element), "{element}: {dom}");
    }
    assert_eq!(dom.matches("<table").count(), 3, "{dom}");
    assert_eq!(
        dom.matches("<tr").count(),
        3 + 5 + 2 + 1,
        "a row for each: {dom}"
    );
}

#[tokio::test]
async fn the_page_can_be_seen_by_day_by_night_and_on_a_telephone() {
    let scene = Scene::set().await;
    for (query, width, height, dark) in [
        ("still", 1_200, 800, false),
        ("still", 1_200, 800, true),
        ("still", 400, 1_400, false),
        ("fleet", 400, 1_400, false),
    ] {
        let url = format!("{}?{query}", scene.url);
        let picture = Picture::of(&url, width, height, dark).await;
        let what = format!("{query}, {width} by {height}, dark: {dark}");
        assert_eq!(
            (picture.width, picture.height),
            (width as usize, height as usize),
            "{what}"
        );
        // Text has many shades; a blank page, or one without its style, has not.
        assert!(
            picture.colours() > 50,
            "{what}: {} colours",
            picture.colours()
        );
        let page: u32 = picture.pixel(0, 0).iter().copied().map(u32::from).sum();
        assert_eq!(page < 200, dark, "{what}");
        // Nothing stands over the edge of the page into its margin.
        let (first, last) = picture.reach();
        let inside = first >= MARGIN && last + MARGIN < picture.width;
        assert!(inside, "{what}: {first} to {last}");
        assert!(last > picture.width / 2, "{what}: {first} to {last}");
    }
}
