//! The layer and the lock layer around one handler, in either order.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::post;
use http::{Request, StatusCode};
use tokio::time::Instant;
use tower_redlock::idempotency::caller;
use tower_redlock::layer::OnNoQuorum;
use tower_redlock::node::MemoryNode;
use tower_redlock::{IdempotencyLayer, RedlockLayer, key};

use super::{MS, PATIENCE, Reply, TTL, layer, manager, nodes, send, send_and_go, sent};

/// What an account sees of those who work on it.
#[derive(Clone, Default)]
struct Account {
    runs: Arc<AtomicU32>,
    inside: Arc<AtomicU32>,
    most: Arc<AtomicU32>,
}

impl Account {
    /// A route on which requests take a tenth of a second each.
    fn route(&self) -> Router {
        let account = self.clone();
        let pay = post(move || async move {
            let run = account.runs.fetch_add(1, Ordering::SeqCst) + 1;
            let inside = account.inside.fetch_add(1, Ordering::SeqCst) + 1;
            account.most.fetch_max(inside, Ordering::SeqCst);
            tokio::time::sleep(100 * MS).await;
            account.inside.fetch_sub(1, Ordering::SeqCst);
            format!("payment {run}")
        });
        Router::new().route("/accounts/{account}/payments", pay)
    }

    fn runs(&self) -> u32 {
        self.runs.load(Ordering::SeqCst)
    }

    fn most(&self) -> u32 {
        self.most.load(Ordering::SeqCst)
    }
}

/// Which of the two layers stands around the other.
#[derive(Clone, Copy, Debug)]
enum Outside {
    Keys,
    Locks,
}

const ORDERS: [Outside; 2] = [Outside::Keys, Outside::Locks];

/// A lock on the account.
fn lock(nodes: &[MemoryNode]) -> RedlockLayer {
    let account = key::path("account").prefix("account");
    RedlockLayer::new(manager(nodes), account)
}

impl Outside {
    fn around(self, account: &Account, keys: IdempotencyLayer, locks: RedlockLayer) -> Router {
        match self {
            Self::Keys => account.route().route_layer(keys.with_lock(locks)),
            Self::Locks => account.route().route_layer(keys).route_layer(locks),
        }
    }

    /// A replica, which waits for what it needs.
    fn replica(self, account: &Account, nodes: &[MemoryNode]) -> Router {
        let keys = layer(nodes).max_wait(PATIENCE);
        self.around(account, keys, lock(nodes).max_wait(PATIENCE))
    }
}

fn pay(key: &str) -> Request<Body> {
    let request = Request::post("/accounts/7/payments").header("idempotency-key", key);
    request.body(Body::empty()).unwrap()
}

/// Sends ten keys four times each, at the same moment, to the replicas in turn.
async fn crowd(replicas: &[Router]) -> BTreeMap<String, Vec<Reply>> {
    let mut under_way = Vec::new();
    for n in 0..40 {
        let key = format!("k{}", n / 4);
        under_way.push((key.clone(), sent(&replicas[n % replicas.len()], pay(&key))));
    }
    let mut replies = BTreeMap::<_, Vec<_>>::new();
    for (key, reply) in under_way {
        replies.entry(key).or_default().push(reply.await.unwrap());
    }
    replies
}

#[tokio::test(start_paused = true)]
async fn duplicates_and_others_on_one_account_are_all_answered_in_either_order() {
    for outside in ORDERS {
        let (account, nodes) = (Account::default(), nodes());
        let replicas = [(); 2].map(|()| outside.replica(&account, &nodes));
        let began = Instant::now();
        let replies = crowd(&replicas).await;
        let took = began.elapsed();
        for (key, replies) in &replies {
            let alike = |reply: &Reply| reply.status == 200 && reply.body == replies[0].body;
            assert!(replies.iter().all(alike), "{outside:?} {key}: {replies:?}");
            assert_eq!(replies.iter().filter(|r| r.is_replayed()).count(), 3);
        }
        assert_eq!((account.runs(), account.most()), (10, 1), "{outside:?}");
        assert!(took < Duration::from_secs(4), "{outside:?}: {took:?}");
    }
}

/// Two versions of a service that have the layers in different orders: each may hold what the other waits for.
#[tokio::test(start_paused = true)]
async fn in_both_orders_at_once_nobody_blocks_another() {
    let (account, nodes) = (Account::default(), nodes());
    let replicas = ORDERS.map(|outside| outside.replica(&account, &nodes));
    let began = Instant::now();
    let replies = crowd(&replicas).await;
    let took = began.elapsed();
    assert!(took < Duration::from_secs(4), "it took {took:?}");
    for (key, replies) in &replies {
        let (paid, refused): (Vec<_>, Vec<_>) =
            replies.iter().partition(|r| r.status == StatusCode::OK);
        assert!(paid.iter().all(|reply| reply.body == paid[0].body), "{key}");
        for reply in refused {
            reply.assert_problem(409, "request-in-progress");
        }
        let why = "those that hold nothing wait for the answer";
        assert!(paid.len() >= 2, "{key}: {why}");
    }
    assert_eq!((account.runs(), account.most()), (10, 1));
}

/// Else a client would be told for a day that an account is busy.
#[tokio::test(start_paused = true)]
async fn a_lock_that_is_held_is_not_the_answer_to_a_key() {
    for outside in ORDERS {
        let (account, nodes) = (Account::default(), nodes());
        // What a policy says of other answers does not matter.
        let keys = layer(&nodes).record_if(|_: &http::response::Parts| true);
        let app = outside.around(&account, keys, lock(&nodes));
        let other = manager(&nodes).try_acquire("account:7").await.unwrap();
        let busy = send(&app, pay("a")).await;
        busy.assert_problem(409, "contended");
        // An earlier request with the key may have run, of which the outer lock layer knows nothing.
        let executed = match outside {
            Outside::Keys => "\"executed\":\"unknown\"",
            Outside::Locks => "\"executed\":\"no\"",
        };
        assert!(busy.body.contains(executed), "{outside:?}: {}", busy.body);
        other.release().await.unwrap();
        for run in ["first", "repeat"] {
            let reply = send(&app, pay("a")).await;
            assert_eq!(reply.body, "payment 1", "{outside:?}, {run}");
            assert_eq!(reply.is_replayed(), run == "repeat");
        }
    }
}

/// The layer goes on with a request whose client has gone. A lock outside of it is given back then, one inside is not.
#[tokio::test(start_paused = true)]
async fn a_client_that_goes_away_does_not_free_the_account_if_keys_are_outside() {
    let (account, nodes) = (Account::default(), nodes());
    let app = Outside::Keys.replica(&account, &nodes);
    send_and_go(&app, pay("a")).await;
    assert_eq!(send(&app, pay("b")).await.body, "payment 2");
    assert_eq!(send(&app, pay("a")).await.body, "payment 1");
    assert_eq!(account.most(), 1);
}

/// A request that holds a lock does not wait for a key, whichever of its layers acquired the lock.
#[tokio::test(start_paused = true)]
async fn a_request_under_an_outer_lock_does_not_wait_though_an_inner_layer_finds_no_key() {
    let (nodes, down) = (nodes(), nodes());
    down.iter().for_each(MemoryNode::go_down);
    let lock = |name| RedlockLayer::new(manager(&nodes), key::header(name).optional());
    let without = RedlockLayer::new(manager(&down), key::header("x-down").optional());
    let slow = post(async || tokio::time::sleep(Duration::from_secs(1)).await)
        .route_layer(layer(&nodes).max_wait(Duration::from_secs(2)))
        .route_layer(lock("x-other"))
        .route_layer(lock("x-lock"))
        .route_layer(without.on_no_quorum(OnNoQuorum::RunUnlocked));
    let app = Router::new().route("/", slow);
    let request = |name: &str| {
        let request = Request::post("/").header("idempotency-key", "k");
        request.header(name, "a").body(Body::empty()).unwrap()
    };
    let unlocked = sent(&app, request("x-none"));
    tokio::time::sleep(100 * MS).await;
    let began = Instant::now();
    let refused = send(&app, request("x-lock")).await;
    refused.assert_problem(409, "request-in-progress");
    assert!(began.elapsed() < 500 * MS, "it waited");
    let waited = send(&app, request("x-down")).await;
    assert!(waited.is_replayed(), "it holds no lock: {waited:?}");
    assert_eq!(unlocked.await.unwrap().status, StatusCode::OK);
}

/// A request that waits for the lock does not yet hold it, so its `max_hold` has not begun.
#[tokio::test(start_paused = true)]
async fn the_wait_for_the_lock_inside_is_no_part_of_the_time_that_a_run_may_take() {
    let (account, nodes) = (Account::default(), nodes());
    let locks = manager(&nodes).with_max_hold(TTL).unwrap();
    let keys = IdempotencyLayer::new(locks.clone(), caller::nobody());
    let account_of = key::path("account").prefix("account");
    let inside = RedlockLayer::new(locks.clone(), account_of);
    let app = |max_wait| {
        let lock = inside.clone().max_wait(max_wait);
        account.route().route_layer(keys.clone().with_lock(lock))
    };
    let (patient, hasty) = (app(5 * TTL), app(3 * TTL));
    let other = manager(&nodes);
    let held = other.try_acquire("account:7").await.unwrap();
    let release = async {
        tokio::time::sleep(4 * TTL).await;
        held.release().await.unwrap();
    };
    let (waited, refused) = (send(&patient, pay("patient")), send(&hasty, pay("hasty")));
    let (waited, refused, ()) = tokio::join!(waited, refused, release);
    assert_eq!(waited.status, StatusCode::OK, "{waited:?}");
    refused.assert_problem(409, "wait-timeout");
    assert_eq!(account.runs(), 1);
}

/// The idempotency layer lets the request in, and the lock layer decides for itself.
#[tokio::test(start_paused = true)]
async fn without_a_quorum_each_of_the_two_layers_has_its_own_choice() {
    for (on_no_quorum, status, marked) in [
        (OnNoQuorum::Reject, StatusCode::SERVICE_UNAVAILABLE, None),
        (OnNoQuorum::RunUnlocked, StatusCode::OK, Some("true")),
    ] {
        let (account, nodes) = (Account::default(), nodes());
        let keys = layer(&nodes).on_no_quorum(OnNoQuorum::RunUnlocked);
        let locks = RedlockLayer::new(manager(&nodes), key::path("account"));
        let both = keys.with_lock(locks.on_no_quorum(on_no_quorum));
        let app = account.route().route_layer(both);
        nodes[..3].iter().for_each(MemoryNode::go_down);
        let reply = send(&app, pay("a")).await;
        assert_eq!(reply.status, status);
        assert_eq!(reply.header("idempotent-unrecorded"), marked);
        assert_eq!(account.runs(), u32::from(marked.is_some()));
    }
}
