//! Servers whose memory has a limit: stored responses leave room for locks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::routing::post;
use http::Request;
use http_body_util::BodyExt as _;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tower::ServiceExt as _;
use tower_redlock::InspectService;
use tower_redlock::snapshot::NodeStatus;

use crate::client::{Reply, request};
use crate::*;

const TTL: Duration = Duration::from_secs(2);
/// What servers use without any record, and as much again for records and for locks.
const LIMIT: &str = "8mb";
const BODY: usize = 50_000;

/// One route, whose responses are stored.
#[derive(Clone)]
struct Shop {
    app: Router,
    runs: Arc<AtomicUsize>,
}

impl Shop {
    /// Each response has so many bytes, and comes when so many run.
    fn open(locks: &LockManager, body: usize, at_once: usize) -> Self {
        let (runs, all_run) = (Arc::<AtomicUsize>::default(), Barrier::new(at_once));
        let (count, all_run) = (Arc::clone(&runs), Arc::new(all_run));
        let handler = post(move || async move {
            count.fetch_add(1, Ordering::SeqCst);
            all_run.wait().await;
            "x".repeat(body)
        });
        let layer = IdempotencyLayer::new(locks.clone(), caller::nobody());
        let app = Router::new().route("/orders", handler.layer(layer));
        Self { app, runs }
    }

    async fn send(self, number: usize) -> (Reply, bool) {
        let request = request("/orders".to_owned(), &format!("order-{number}"));
        Reply::read(self.app.oneshot(request).await.unwrap()).await
    }

    fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }
}

/// That there is room for locks.
async fn assert_room(locks: &LockManager) {
    let mut held = Vec::new();
    for order in 0..500 {
        held.push(locks.try_acquire(format!("order:{order}")).await.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_responses_leave_room_for_locks() {
    for kind in Kind::ALL {
        let servers = Server::start_many_with(kind, 3, &["--maxmemory", LIMIT]);
        bootstrap(&servers, TTL, 0).await;
        let locks = connected(on(&servers, TTL)).await;
        let shop = Shop::open(&locks, BODY, 1);
        let send = |number| shop.clone().send(number);
        // What no request knows is how full a server was made since the last look.
        let begun = std::time::Instant::now();
        let mut number = 0;
        let refused = loop {
            let (reply, _) = send(number).await;
            if reply.status != 200 {
                break reply;
            }
            number += 1;
            tokio::time::sleep(Duration::from_millis(50)).await;
            let is_early = begun.elapsed() < PATIENCE && number < 200;
            assert!(is_early, "{number} stored");
        };
        assert_eq!(refused.problem(), "nodes-full");
        let nodes = locks.snapshot().nodes;
        assert!(locks.has_quorum(), "it grants locks");
        let is_full = |node: &NodeStatus| node.server.as_ref().unwrap().is_full;
        assert!(nodes.iter().any(is_full), "{nodes:?}");
        let page = InspectService::new(locks.clone()).oneshot(Request::new(()));
        let page = page.await.unwrap().into_body();
        let page = String::from_utf8(page.collect().await.unwrap().to_bytes().into()).unwrap();
        let text = "votes; too full for more stored responses";
        assert!(page.contains(text), "{page}");
        assert_eq!(shop.runs(), number, "it did not run");
        let (_, replayed) = send(0).await;
        assert!(replayed, "what is stored is found");
        assert_room(&locks).await;
        let error = locks.begin_idempotent("job", TTL, Duration::ZERO).await;
        let error = error.unwrap_err().to_string();
        let told = [
            "three quarters of its `maxmemory`",
            "2 of 3 nodes must vote and have room",
            "of the 8.4 MB",
        ];
        assert!(told.iter().all(|text| error.contains(text)), "{error}");
        for server in &servers {
            assert!(server.run("CONFIG SET maxmemory 0").contains("OK"));
        }
        let mut again = 0;
        while again < 200 && send(number).await.0.status != 200 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            again += 1;
        }
        assert!(again < 200, "it is noticed");
    }
}

/// All of them begin while the servers are empty.
#[tokio::test(flavor = "multi_thread")]
async fn responses_of_many_that_run_at_once_leave_room_for_locks() {
    const AT_ONCE: usize = 64;
    // A busy machine takes a while for all of it.
    const LONG: Duration = Duration::from_secs(40);
    for kind in Kind::ALL {
        let servers = Server::start_many_with(kind, 3, &["--maxmemory", "16mb"]);
        bootstrap(&servers, LONG, 0).await;
        let locks = connected(on(&servers, LONG).node_timeout(LONG / 5)).await;
        let shop = Shop::open(&locks, 5 * BODY, AT_ONCE);
        let send = |number| shop.clone().send(number);
        let sent: JoinSet<_> = (0..AT_ONCE).map(send).collect();
        for (reply, replayed) in sent.join_all().await {
            assert!(reply.status == 200 && !replayed, "{reply:?}");
        }
        assert_room(&locks).await;
        let (mut stored, mut noted) = (0, 0);
        for number in 0..AT_ONCE {
            let (reply, replayed) = send(number).await;
            match reply.status.as_u16() {
                200 => assert!(replayed),
                _ => assert_eq!(reply.problem(), "not-replayable"),
            }
            stored += usize::from(replayed);
            noted += usize::from(!replayed);
        }
        // How many are stored depends on how soon a look sees that the servers fill up.
        assert!(stored > 10 && noted > 0, "{stored} and {noted}");
        assert_eq!(shop.runs(), AT_ONCE, "once each");
    }
}
