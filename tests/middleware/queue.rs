//! Requests that wait in line: their order, the bounds, those who leave it, and the lock that passes from one
//! to the next.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty, Full};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tower::util::BoxCloneSyncService;
use tower::{ServiceBuilder, ServiceExt as _, service_fn};
use tower_redlock::error::LossReason;
use tower_redlock::layer::{LayerBody, OnNoQuorum};
use tower_redlock::{Held, LockHandle, LockManager, RedlockLayer, key};

use super::{KEY, MS, Nodes, keyed, layer, ok, post};

const PATIENCE: Duration = Duration::from_secs(60);

type Answer = Response<LayerBody<Full<Bytes>>>;
type Service = BoxCloneSyncService<Request<Empty<Bytes>>, Answer, Infallible>;

/// A service behind a layer, whose handlers write down what they saw of their locks.
struct Desk {
    locks: LockManager,
    service: Service,
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
    fn new(locks: &LockManager, layer: RedlockLayer, work: Duration) -> Self {
        let visits = Visits::default();
        let inner = service_fn({
            let visits = Arc::clone(&visits);
            move |request| visit(Arc::clone(&visits), work, request)
        });
        Self {
            locks: locks.clone(),
            service: BoxCloneSyncService::new(ServiceBuilder::new().layer(layer).service(inner)),
            visits,
        }
    }

    /// Sends a request and lets it come as far as it comes without any time passing.
    async fn send(&self, name: &str) -> JoinHandle<Answer> {
        self.send_for(name, KEY).await
    }

    async fn send_for(&self, name: &str, key: &str) -> JoinHandle<Answer> {
        let mut request = post();
        for (header, value) in [("x-name", name), ("x-key", key)] {
            let value = HeaderValue::from_str(value).unwrap();
            request.headers_mut().insert(header, value);
        }
        let service = self.service.clone();
        let sent = tokio::spawn(async move { service.oneshot(request).await.unwrap() });
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        sent
    }

    /// In the order in which they ran.
    fn names(&self) -> Vec<String> {
        let visits = self.visits.lock().unwrap();
        visits.iter().map(|visit| visit.name.clone()).collect()
    }

    fn waiting(&self) -> usize {
        self.locks.snapshot().waiting
    }

    #[track_caller]
    fn assert_nothing_left(&self) {
        let now = self.locks.snapshot();
        assert_eq!((now.held, now.keys, now.waiting), (0, 0, 0));
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
        let mut before = visits
            .iter()
            .filter(|before| before.lock.key() == lock.key());
        assert!(before.all(|before| before.done && before.lock.is_lost()));
        assert!(!lock.is_lost());
        visits.push(Visit {
            name: request.headers()["x-name"].to_str().unwrap().to_owned(),
            lock: lock.clone(),
            done: false,
        });
        visits.len() - 1
    };
    sleep(work).await;
    assert!(!lock.is_lost(), "nothing ended it while the handler ran");
    visits.lock().unwrap()[own].done = true;
    Ok(ok("ran"))
}

async fn kind(response: Answer) -> (u16, String) {
    let status = response.status().as_u16();
    let text = super::text(response).await;
    let kind = text.split_once("problem:").map(|(_, rest)| rest);
    let kind = kind.and_then(|rest| rest.split_once('"'));
    let kind = kind.map(|(kind, _)| kind.to_owned());
    (status, kind.unwrap_or(text))
}

fn ran() -> (u16, String) {
    (200, "ran".to_owned())
}

fn refused(kind: &str) -> (u16, String) {
    (503, kind.to_owned())
}

fn patient(nodes: &Nodes) -> LockManager {
    nodes.builder().max_wait(PATIENCE).connect_lazy().unwrap()
}

/// A second is as good as none: each of them sees its own lock, in the order in which it came.
#[tokio::test(start_paused = true)]
async fn requests_run_in_the_order_in_which_they_came_under_locks_of_their_own() {
    for hand_off in [true, false] {
        let nodes = Nodes::five();
        let builder = nodes.builder().max_wait(PATIENCE).hand_off(hand_off);
        let locks = builder.connect_lazy().unwrap();
        let desk = Desk::new(&locks, layer(&locks).max_wait(PATIENCE), 10 * MS);
        let names: Vec<String> = (0..10).map(|number| number.to_string()).collect();
        let mut sent = Vec::new();
        for name in &names {
            sent.push(desk.send(name).await);
        }
        assert_eq!(desk.waiting(), 9);
        for (number, sent) in sent.into_iter().enumerate() {
            assert_eq!(kind(sent.await.unwrap()).await, ran());
            let lock = desk.visits.lock().unwrap()[number].lock.clone();
            assert!(lock.is_lost(), "its response is out: {number}");
            assert_eq!(lock.lost().await, LossReason::Released);
            assert_eq!(lock.key().as_str(), KEY);
            assert_eq!(lock.waited(), u32::try_from(number).unwrap() * 10 * MS);
        }
        assert_eq!(desk.names(), names);
        desk.assert_nothing_left();
        nodes.assert_free();
        let rounds = if hand_off { 1 } else { 10 };
        // Each round sets the lock on five nodes and gives it back there.
        assert_eq!(nodes.commands(), rounds * 2 * 5, "{hand_off}");
    }
}

fn full_body() -> String {
    "{\"type\":\"urn:tower-redlock:problem:queue-full\",\"title\":\"Too many requests wait\",\"status\":503,\
     \"detail\":\"Too many requests already wait for a lock on this server. \
     This request was not processed.\",\"executed\":\"no\"}"
        .to_owned()
}

async fn assert_full(response: Answer) {
    assert_eq!(response.status(), 503);
    let headers = response.headers();
    assert_eq!(headers["content-type"], "application/problem+json");
    assert_eq!(headers["cache-control"], "no-store");
    assert_eq!(headers["retry-after"], "1");
    assert_eq!(super::text(response).await, full_body());
}

#[tokio::test(start_paused = true)]
async fn a_request_too_many_for_its_key_is_told_so_at_once() {
    let nodes = Nodes::five();
    let builder = nodes.builder().max_wait(PATIENCE).max_waiters_per_key(2);
    let locks = builder.connect_lazy().unwrap();
    let layer = keyed(&locks, key::header("x-key")).max_wait(PATIENCE);
    let desk = Desk::new(&locks, layer.clone(), 100 * MS);
    let first = desk.send("first").await;
    let second = desk.send("second").await;
    let third = desk.send("third").await;
    let commands = nodes.commands();
    assert_full(desk.send("fourth").await.await.unwrap()).await;

    // It is no missing quorum, and nothing of the resource.
    let otherwise = layer
        .on_no_quorum(OnNoQuorum::RunUnlocked)
        .busy_status(StatusCode::LOCKED);
    let other = Desk::new(&locks, otherwise.clone(), 100 * MS);
    assert_full(other.send("fourth").await.await.unwrap()).await;
    // Who does not wait has no need of the queue.
    let hasty = Desk::new(&locks, otherwise.max_wait(Duration::ZERO), 100 * MS);
    let answer = hasty.send("fourth").await.await.unwrap();
    assert_eq!(kind(answer).await, (423, "contended".to_owned()));
    assert_eq!(nodes.commands(), commands, "no node was asked");

    let elsewhere = desk.send_for("fifth", "order:2").await;
    for sent in [first, second, third, elsewhere] {
        assert_eq!(kind(sent.await.unwrap()).await, ran());
    }
    assert_eq!(kind(desk.send("sixth").await.await.unwrap()).await, ran());
    desk.assert_nothing_left();
}

#[tokio::test(start_paused = true)]
async fn a_request_too_many_in_all_is_told_so_at_once() {
    let nodes = Nodes::five();
    let builder = nodes.builder().max_wait(PATIENCE).max_waiters(2);
    let locks = builder.connect_lazy().unwrap();
    let layer = keyed(&locks, key::header("x-key")).max_wait(PATIENCE);
    let desk = Desk::new(&locks, layer, MS);
    let held = [
        locks.try_acquire("a").await.unwrap(),
        locks.try_acquire("b").await.unwrap(),
        locks.try_acquire("c").await.unwrap(),
    ];
    let waiting = [desk.send_for("a", "a").await, desk.send_for("b", "b").await];
    assert_full(desk.send_for("c", "c").await.await.unwrap()).await;
    let free = desk.send_for("d", "d").await.await.unwrap();
    assert_eq!(kind(free).await, ran(), "who need not wait is let in");
    drop(held);
    for sent in waiting {
        assert_eq!(kind(sent.await.unwrap()).await, ran());
    }
    let again = desk.send_for("c", "c").await.await.unwrap();
    assert_eq!(kind(again).await, ran());
    desk.assert_nothing_left();
}

#[tokio::test(start_paused = true)]
async fn a_client_that_goes_away_leaves_no_entry_and_the_next_gets_its_turn() {
    let nodes = Nodes::five();
    let locks = patient(&nodes);
    let desk = Desk::new(&locks, layer(&locks).max_wait(PATIENCE), 100 * MS);
    let first = desk.send("first").await;
    let gone = desk.send("gone").await;
    let next = desk.send("next").await;
    assert_eq!(desk.waiting(), 2);
    gone.abort();
    assert!(gone.await.unwrap_err().is_cancelled());
    assert_eq!(desk.waiting(), 1);
    let began = Instant::now();
    assert_eq!(kind(first.await.unwrap()).await, ran());
    assert_eq!(kind(next.await.unwrap()).await, ran());
    assert_eq!(
        began.elapsed(),
        200 * MS,
        "nothing was waited for in between"
    );
    assert_eq!(desk.names(), ["first", "next"]);
    desk.assert_nothing_left();
    nodes.settle_free().await;
}

/// Its turn has come, and it goes before it has looked.
#[tokio::test(start_paused = true)]
async fn a_client_that_goes_away_when_it_is_called_passes_the_lock_on() {
    let nodes = Nodes::five();
    let locks = patient(&nodes);
    let desk = Desk::new(&locks, layer(&locks).max_wait(PATIENCE), 100 * MS);
    let held = locks.try_acquire(KEY).await.unwrap();
    let mut request = post();
    request
        .headers_mut()
        .insert("x-name", HeaderValue::from_static("gone"));
    let mut gone = Box::pin(desk.service.clone().oneshot(request));
    super::drive(&mut gone, || desk.waiting() == 1).await;
    let next = desk.send("next").await;
    drop(held);
    assert_eq!(desk.waiting(), 1, "the lock is on its way to who is gone");
    drop(gone);
    assert_eq!(desk.waiting(), 0);
    let began = Instant::now();
    assert_eq!(kind(next.await.unwrap()).await, ran());
    assert_eq!(began.elapsed(), 100 * MS);
    assert_eq!(desk.names(), ["next"]);
    desk.assert_nothing_left();
    nodes.settle_free().await;
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_held_to_the_end_of_the_body_passes_then() {
    let nodes = Nodes::five();
    let locks = patient(&nodes);
    let layer = layer(&locks).max_wait(PATIENCE);
    let desk = Desk::new(&locks, layer.hold_until_body(), 10 * MS);
    let first = desk.send("first").await.await.unwrap();
    let second = desk.send("second").await;
    let third = desk.send("third").await;
    let commands = nodes.commands();
    sleep(200 * MS).await;
    assert_eq!(desk.names(), ["first"], "its body is not out yet");
    assert!(!desk.visits.lock().unwrap()[0].lock.is_lost());

    assert_eq!(super::text(first).await, "ran");
    assert!(desk.visits.lock().unwrap()[0].lock.is_lost());
    let second = second.await.unwrap();
    assert_eq!(desk.names(), ["first", "second"]);
    // A body that is dropped ends as well.
    drop(second);
    let third = third.await.unwrap();
    assert_eq!(nodes.commands(), commands, "it passed without the nodes");
    assert_eq!(third.into_body().collect().await.unwrap().to_bytes(), "ran");
    assert_eq!(desk.names(), ["first", "second", "third"]);
    nodes.settle_free().await;
    desk.assert_nothing_left();
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_lost_ends_its_request_and_not_those_who_wait() {
    let nodes = Nodes::five();
    let locks = patient(&nodes);
    let desk = Desk::new(&locks, layer(&locks).max_wait(PATIENCE), 30_000 * MS);
    let first = desk.send("first").await;
    let second = desk.send("second").await;
    nodes.each(|n| n.freeze());
    assert_eq!(kind(first.await.unwrap()).await, refused("lock-lost"));
    assert_eq!(desk.names(), ["first"]);
    nodes.each(|n| n.thaw());
    // The handler was dropped; it never got to say so itself.
    desk.visits.lock().unwrap()[0].done = true;
    assert_eq!(kind(second.await.unwrap()).await, ran());
    assert_eq!(desk.names(), ["first", "second"]);
    desk.assert_nothing_left();
    nodes.settle_free().await;
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_sends_all_who_wait_away_at_once() {
    let nodes = Nodes::five();
    let locks = patient(&nodes);
    // One goes for a key that another process holds, the others are behind it, or behind one that runs.
    let _abroad = nodes.manager().try_acquire("abroad").await.unwrap();
    let layer = keyed(&locks, key::header("x-key")).max_wait(PATIENCE);
    let desk = Desk::new(&locks, layer, 1_000 * MS);
    let running = desk.send("running").await;
    let mut waiting = vec![desk.send("behind").await, desk.send("behind").await];
    for _ in 0..3 {
        waiting.push(desk.send_for("abroad", "abroad").await);
    }
    assert_eq!(desk.waiting(), 5);

    let began = Instant::now();
    let shutdown = tokio::spawn(async move { locks.shutdown(PATIENCE).await });
    for sent in waiting {
        assert_eq!(kind(sent.await.unwrap()).await, refused("shutting-down"));
    }
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert_eq!(desk.waiting(), 0);
    assert_eq!(kind(running.await.unwrap()).await, ran(), "it has its time");
    assert_eq!(shutdown.await.unwrap().lost, 0);
    assert_eq!(desk.names(), ["running"]);
    desk.assert_nothing_left();
}
