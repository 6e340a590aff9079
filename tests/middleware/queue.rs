//! Requests that wait in line: their order, the bounds, and the lock that passes from one to the next.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{Empty, Full};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tower::util::BoxCloneSyncService;
use tower::{Layer as _, ServiceExt as _, service_fn};
use tower_redlock::error::LossReason;
use tower_redlock::layer::{LayerBody, OnNoQuorum};
use tower_redlock::{Held, LockHandle, LockManager, RedlockLayer, key};

use super::answers::assert_problem;
use super::{Answer, KEY, MS, Nodes, keyed, layer, ok, post, with};

const PATIENCE: Duration = Duration::from_secs(60);

type Sent = Response<LayerBody<Full<Bytes>>>;

/// A service behind a layer, whose handlers write down what they saw of their locks.
struct Desk {
    service: BoxCloneSyncService<Request<Empty<Bytes>>, Sent, Infallible>,
    visits: Visits,
}

type Visits = Arc<Mutex<Vec<Visit>>>;

/// One run of the handler.
struct Visit {
    name: String,
    lock: LockHandle,
    done: bool,
}

impl Desk {
    /// Handlers that take `work` each.
    fn new(layer: &RedlockLayer, work: Duration) -> Self {
        let visits = Visits::default();
        let noting = Arc::clone(&visits);
        let inner = service_fn(move |request| visit(Arc::clone(&noting), work, request));
        let service = BoxCloneSyncService::new(layer.layer(inner));
        Self { service, visits }
    }

    /// Sends a request and lets it come as far as it comes without any time passing.
    async fn send(&self, name: &str, key: &str) -> JoinHandle<Sent> {
        let request = with(with(post(), "x-name", name), "x-key", key);
        let service = self.service.clone();
        let sent = tokio::spawn(async move { service.oneshot(request).await.unwrap() });
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        sent
    }

    async fn answer(&self, name: &str, key: &str) -> Answer {
        answered(self.send(name, key).await).await
    }

    /// In the order in which they ran.
    fn names(&self) -> Vec<String> {
        let visits = self.visits.lock().unwrap();
        visits.iter().map(|visit| visit.name.clone()).collect()
    }
}

async fn visit(
    visits: Visits,
    work: Duration,
    request: Request<Empty<Bytes>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let lock = LockHandle::clone(&Held::of(request.extensions()).unwrap());
    let own = {
        let mut visits = visits.lock().unwrap();
        // No two at once: all who came before for this key are done, and their handles know.
        let mut before = visits.iter().filter(|it| it.lock.key() == lock.key());
        assert!(before.all(|before| before.done && before.lock.is_lost()));
        assert!(!lock.is_lost());
        let name = request.headers()["x-name"].to_str().unwrap().to_owned();
        let lock = lock.clone();
        visits.push(Visit {
            name,
            lock,
            done: false,
        });
        visits.len() - 1
    };
    sleep(work).await;
    assert!(!lock.is_lost(), "nothing ended it while the handler ran");
    visits.lock().unwrap()[own].done = true;
    Ok(ok("ran"))
}

async fn answered(sent: JoinHandle<Sent>) -> Answer {
    Answer::of(sent.await.unwrap()).await
}

#[track_caller]
fn assert_nothing_left(locks: &LockManager) {
    let now = locks.snapshot();
    assert_eq!((now.held, now.keys, now.waiting), (0, 0, 0));
}

/// A second is as good as none: each of them sees its own lock, in the order in which it came.
#[tokio::test(start_paused = true)]
async fn requests_run_in_the_order_in_which_they_came_under_locks_of_their_own() {
    for (hand_off, rounds) in [(true, 1), (false, 10)] {
        let nodes = Nodes::five();
        let builder = nodes.builder().max_wait(PATIENCE).hand_off(hand_off);
        let locks = builder.connect_lazy().unwrap();
        let desk = Desk::new(&layer(&locks).max_wait(PATIENCE), 10 * MS);
        let names: Vec<String> = (0..10).map(|number| number.to_string()).collect();
        let mut sent = Vec::new();
        for name in &names {
            sent.push(desk.send(name, KEY).await);
        }
        assert_eq!(locks.snapshot().waiting, 9);
        for (number, sent) in sent.into_iter().enumerate() {
            assert_eq!(answered(sent).await.told(), (200, "ran"));
            let lock = desk.visits.lock().unwrap()[number].lock.clone();
            assert!(lock.is_lost(), "its response is out: {number}");
            assert_eq!(lock.lost().await, LossReason::Released);
            assert_eq!(lock.key().as_str(), KEY);
            assert_eq!(lock.waited(), u32::try_from(number).unwrap() * 10 * MS);
        }
        assert_eq!(desk.names(), names);
        assert_nothing_left(&locks);
        nodes.assert_free();
        // Each round sets the lock on five nodes and gives it back there.
        assert_eq!(nodes.commands(), rounds * 2 * 5, "{hand_off}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_too_many_for_its_key_is_told_so_at_once() {
    let nodes = Nodes::five();
    let builder = nodes.builder().max_wait(PATIENCE).max_waiters_per_key(2);
    let locks = builder.connect_lazy().unwrap();
    let layer = keyed(&locks, key::header("x-key")).max_wait(PATIENCE);
    let desk = Desk::new(&layer, 100 * MS);
    let mut sent = Vec::new();
    for name in ["first", "second", "third"] {
        sent.push(desk.send(name, KEY).await);
    }
    let commands = nodes.commands();
    // It is no missing quorum, and nothing of the resource.
    let otherwise = layer
        .clone()
        .on_no_quorum(OnNoQuorum::RunUnlocked)
        .busy_status(StatusCode::LOCKED);
    for layer in [layer, otherwise.clone()] {
        let full = Desk::new(&layer, 100 * MS).answer("fourth", KEY).await;
        let texts = [
            "Too many requests wait",
            "Too many requests already wait for a lock on this server. This request was not processed.",
        ];
        assert_problem(&full, 503, "queue-full", Some("1"), texts);
    }
    // Who does not wait has no need of the queue.
    let hasty = Desk::new(&otherwise.max_wait(Duration::ZERO), 100 * MS);
    assert_eq!(hasty.answer("fourth", KEY).await.told(), (423, "contended"));
    assert_eq!(nodes.commands(), commands, "no node was asked");

    sent.push(desk.send("fifth", "order:2").await);
    for sent in sent {
        assert_eq!(answered(sent).await.told(), (200, "ran"));
    }
    assert_eq!(desk.answer("sixth", KEY).await.told(), (200, "ran"));
    assert_nothing_left(&locks);
}
