//! The locks of all processes, where they are asked for: what is shown of them, and what is said of those that are not.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;
use tower_redlock::LockManager;
use tower_redlock::clock::TokioClock;
use tower_redlock::node::MemoryNode;
use tower_redlock::node::{NodeError, NodeErrorKind};

use super::answers::ask;
use super::wrapper::{Between, Call, Reply, Wrapped};

/// At most this many locks are listed.
const MOST: usize = 100;

/// A node that counts the scans, and may refuse to tell who holds keys.
#[derive(Clone, Debug)]
struct Counting {
    node: MemoryNode,
    scans: Arc<AtomicUsize>,
    refuses: bool,
}

impl Between for Counting {
    type Node = MemoryNode;

    fn node(&self) -> &MemoryNode {
        &self.node
    }

    fn pass<T: Send + 'static>(&self, call: Call, reply: Reply<T>) -> Reply<T> {
        if call == Call::Scan {
            self.scans.fetch_add(1, Ordering::SeqCst);
        }
        if call == Call::Holders && self.refuses {
            let error = NodeError::of(NodeErrorKind::Rejected, "no permission to <look>");
            return Box::pin(std::future::ready(Err(error)));
        }
        reply
    }
}

/// Two processes on three nodes: the one whose page is asked, and another one.
struct Fleet {
    nodes: Vec<Counting>,
    here: LockManager,
    there: LockManager,
}

impl Fleet {
    async fn start(refuses: &[usize]) -> Self {
        let node = |n: usize| Counting {
            node: MemoryNode::new(format!("n{n}<b>")),
            scans: Arc::default(),
            refuses: refuses.contains(&n),
        };
        let nodes: Vec<_> = (0..3).map(node).collect();
        let connect = async |instance: &str| {
            let builder = LockManager::builder().nodes(nodes.iter().cloned().map(Wrapped));
            let builder = builder.clock(TokioClock::new()).instance(instance);
            builder.connect().await.unwrap()
        };
        let (here, there) = (connect("here@1").await, connect("there@7").await);
        Self { nodes, here, there }
    }

    async fn page(&self, path: &str) -> String {
        let (status, _, page) = ask(&self.here, "GET", path).await;
        assert_eq!(status, 200, "{path}");
        page
    }
}

#[tokio::test(start_paused = true)]
async fn the_locks_of_other_processes_are_shown_with_holder_age_and_rest() {
    let fleet = Fleet::start(&[]).await;
    let _ours = fleet.here.try_acquire("order:1").await.unwrap();
    let theirs = fleet.there.try_acquire("order:<2>").await.unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    let page = fleet.page("/?fleet").await;
    assert!(page.contains("<title>Locks of all processes</title>"));
    let cells = |text: &str| {
        let (_, row) = page.split_once(text).unwrap_or_else(|| panic!("{page}"));
        row.split_once("</tr>").unwrap().0.to_owned()
    };
    assert!(cells(">order:1</th>").contains(">here@1 (owner "), "{page}");
    let row = cells(">order:&lt;2&gt;</th>");
    let owner = &theirs.owner_hash().to_string()[..8].to_owned();
    for cell in [
        &format!("data-label=\"Holder\">there@7 (owner {owner})</td>"),
        "data-label=\"Held for\" class=\"number\">2.0 s</td>",
        "data-label=\"Remaining\" class=\"number\">8.0 s</td>",
        "data-label=\"Nodes\" class=\"good\">3 of 3</td>",
    ] {
        assert!(row.contains(cell), "{cell}: {row}");
    }
    let is_whole = !page.contains("There may be more") && !page.contains("Not listed");
    assert!(is_whole, "{page}");

    let list = serde_json::to_value(fleet.here.list("", 10).await).unwrap();
    assert_eq!(list["locks"].as_array().unwrap().len(), 2);
    for path in ["/fleet.json", "/?fleet&json"] {
        let json: Value = serde_json::from_str(&fleet.page(path).await).unwrap();
        let keys =
            |list: &Value| format!("{} {}", list["locks"][0]["key"], list["locks"][1]["key"]);
        assert_eq!(keys(&json), keys(&list), "{path}");
        let holder = &json["locks"][1]["nodes"][2]["holder"];
        assert_eq!(holder["instance"], "there@7");
        assert_eq!(holder["remaining"], 8.0);
    }
    let token = String::from_utf8(fleet.nodes[0].node.holder("lk:order:1").unwrap()).unwrap();
    let json = fleet.page("/fleet.json").await;
    assert!(!page.contains(&token[..40]) && !json.contains(&token[..40]));
}

/// A scan is dear: no page reloads into one, and nobody makes one by mistake.
#[tokio::test(start_paused = true)]
async fn nodes_are_scanned_only_for_who_asks_and_the_page_says_what_that_costs() {
    let fleet = Fleet::start(&[]).await;
    let scans = || fleet.nodes[0].scans.load(Ordering::SeqCst);
    let page = fleet.page("/").await;
    assert!(page.contains("<a href=\"?fleet\">Ask the nodes"), "{page}");
    for query in ["still", "json", "fleet=", "fleets"] {
        fleet.page(&format!("/?{query}")).await;
    }
    fleet.page("/snapshot.json").await;
    for path in ["/?fleet", "/fleet.json", "/?fleet&json"] {
        assert_eq!(ask(&fleet.here, "POST", path).await.0, 405, "{path}");
    }
    assert_eq!(scans(), 0);
    let page = fleet.page("/?fleet").await;
    assert_eq!(scans(), 1);
    assert!(!page.contains("http-equiv"), "{page}");
    let most = MOST;
    assert!(page.contains(&format!("Up to {most} locks, without idempotency keys.")));
    assert!(page.contains("scanned its keys (SCAN), for at most ten seconds"));
    assert!(page.contains("<p>None.</p>"), "{page}");
}

#[tokio::test(start_paused = true)]
async fn what_is_left_out_is_said() {
    let fleet = Fleet::start(&[]).await;
    let mut guards = Vec::new();
    for number in 0..MOST {
        guards.push(fleet.there.try_acquire(number.to_string()).await.unwrap());
    }
    let page = fleet.page("/?fleet").await;
    assert_eq!(page.matches("<tr").count(), 1 + MOST);
    assert!(!page.contains("There may be more"), "{page}");
    guards.push(fleet.there.try_acquire("more").await.unwrap());
    let page = fleet.page("/?fleet").await;
    assert_eq!(page.matches("<tr").count(), 1 + MOST);
    let more = "<p class=\"bad\">There may be more locks. ";
    assert!(page.contains(more), "{page}");
    let json: Value = serde_json::from_str(&fleet.page("/fleet.json").await).unwrap();
    assert_eq!(json["more"], true);
}

#[tokio::test(start_paused = true)]
async fn nodes_that_do_not_answer_are_named_with_the_reason() {
    let fleet = Fleet::start(&[2]).await;
    let _guard = fleet.there.try_acquire("order:1").await.unwrap();
    // It has told its keys, and not who holds them.
    let page = fleet.page("/?fleet").await;
    let refused = "<p class=\"bad\">Not listed: n2&lt;b&gt; (";
    assert_eq!(page.matches(refused).count(), 1, "{page}");
    assert!(page.contains("no permission to &lt;look&gt;"), "{page}");
    assert!(page.contains("class=\"good\">2 of 3</td>"), "{page}");
    fleet.nodes[0].node.go_down();
    let page = fleet.page("/?fleet").await;
    let not_listed = page.matches("<p class=\"bad\">Not listed: ").count();
    assert_eq!(not_listed, 2, "{page}");
    for told in [
        "Not listed: n0&lt;b&gt; (",
        "class=\"bad\">1 of 3, no quorum</td>",
    ] {
        assert!(page.contains(told), "{told}: {page}");
    }
    let json: Value = serde_json::from_str(&fleet.page("/fleet.json").await).unwrap();
    assert_eq!(json["failures"].as_array().unwrap().len(), 2, "{json}");
}
