//! Two services over the same five servers: one holds the lock and calls the other, which runs under it.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Request, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::{Json, Router};
use http_body_util::BodyExt as _;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::{JoinError, JoinHandle};
use tower_redlock::middleware::{LOAN_HEADER, loan_header};
use tower_redlock::{Held, LockManager, RedlockLayer, key};

use super::support::eventually;
use super::support::server::{Kind, Server};
use super::support::stalls::Stopwatch;

type Http = Client<HttpConnector, Body>;

/// The shop, which holds locks, and billing, which it calls.
struct Pair {
    servers: Vec<Server>,
    shop: SocketAddr,
    billing: Arc<Billing>,
    client: Http,
}

#[derive(Default)]
struct Billing {
    entered: AtomicU32,
    left: AtomicU32,
    go_on: Notify,
    shown: std::sync::Mutex<Vec<String>>,
}

struct Visit(Arc<Billing>);

impl Drop for Visit {
    fn drop(&mut self) {
        self.0.left.fetch_add(1, Ordering::SeqCst);
    }
}

/// What the shop's handlers need.
#[derive(Clone)]
struct Shop {
    billing: SocketAddr,
    client: Http,
}

fn layer(
    locks: &LockManager,
) -> RedlockLayer<impl tower_redlock::middleware::KeyExtractor + use<>> {
    RedlockLayer::new(
        locks.clone(),
        key::path("id").parse::<u64>().prefix("order"),
    )
}

async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// A call that goes with who waits for it.
struct Abort<T>(JoinHandle<T>);

impl<T> Future for Abort<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx)
    }
}

impl<T> Drop for Abort<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Calls billing and passes its answer on. What the path says: with the loan as it is, none, or a forged one; and
/// whether the shop goes before the answer is there.
async fn buy(
    lock: Held,
    State(shop): State<Shop>,
    Path((id, how)): Path<(u64, String)>,
) -> Response {
    let loan = lock.lend().unwrap();
    let (name, value) = loan_header(&loan);
    let shown = value.clone();
    let uri = format!("http://{}/bill/{id}", shop.billing);
    let mut request = Request::post(uri).body(Body::empty()).unwrap();
    let headers = request.headers_mut();
    match how.as_str() {
        "lend" | "stranger" | "twice" => drop(headers.insert(name, value)),
        "forge" => {
            let digits: String = lock.owner_hash().as_str().chars().rev().collect();
            let forged = format!("v2;{digits};1;70000");
            headers.insert(name, forged.parse().unwrap());
        }
        _ => {}
    }
    if how != "stranger" {
        headers.insert("x-from", "shop".parse().unwrap());
    }
    // A proxy that tries again, and goes on with the first answer to come.
    let copy = (how == "twice").then(|| {
        let mut copy = Request::post(request.uri().clone()).body(Body::empty());
        *copy.as_mut().unwrap().headers_mut() = request.headers().clone();
        copy.unwrap()
    });
    let send = |request| tokio::spawn(shop.client.request(request));
    let (first, second) = (send(request), copy.map(send));
    let call = async {
        let answer = match second {
            Some(second) => tokio::select! {
                answer = first => answer,
                answer = second => answer,
            },
            None => Abort(first).await,
        };
        let answer = answer.map_err(drop)?.map_err(drop)?;
        let (parts, body) = answer.into_parts();
        let body = body.collect().await.map_err(drop)?.to_bytes();
        // A careless proxy: what it got it passes on, and its own header too.
        let mut answer = Response::from_parts(parts, Body::from(body));
        answer.headers_mut().insert(LOAN_HEADER, shown);
        Ok::<_, ()>(answer)
    };
    match loan.run(call).await {
        Ok(answer) => answer,
        Err(()) => StatusCode::BAD_GATEWAY.into_response(),
    }
}

async fn bill(lock: Held, State(billing): State<Arc<Billing>>, headers: HeaderMap) -> Response {
    assert!(!headers.contains_key(LOAN_HEADER));
    billing.entered.fetch_add(1, Ordering::SeqCst);
    let _visit = Visit(Arc::clone(&billing));
    billing.go_on.notified().await;
    let told = (
        lock.is_borrowed(),
        lock.owner_hash().to_string(),
        lock.fence(),
    );
    Json(told).into_response()
}

impl Pair {
    async fn open(ttl: Duration) -> Self {
        let servers = Server::start_many(Kind::Redis, 5);
        let connect = async |first| {
            let builder = LockManager::builder()
                .ttl(ttl)
                .max_ttl(ttl)
                .bootstrap(first);
            // A busy machine is no dead node.
            let builder = builder.node_timeout(ttl / 4);
            let builder = builder.redis(servers.iter().map(Server::url));
            builder.connect().await.unwrap()
        };
        let (a, b) = (connect(true).await, connect(false).await);
        let billing = Arc::new(Billing::default());
        let seen = Arc::clone(&billing);
        let trusting = layer(&b).borrow_from(move |parts| {
            let shown = format!("{parts:?}");
            seen.shown.lock().unwrap().push(shown);
            parts.headers.contains_key("x-from")
        });
        let app = Router::new().route("/bill/{id}", post(bill).route_layer(trusting));
        let address = serve(app.with_state(Arc::clone(&billing))).await;
        let client = Client::builder(TokioExecutor::new()).build(HttpConnector::new());
        let shop = Shop {
            billing: address,
            client,
        };
        let app = Router::new().route("/buy/{id}/{how}", post(buy).route_layer(layer(&a)));
        let client = shop.client.clone();
        Self {
            shop: serve(app.with_state(shop)).await,
            servers,
            billing,
            client,
        }
    }

    async fn buy(&self, how: &str) -> (StatusCode, HeaderMap, Bytes) {
        let uri = format!("http://{}/buy/42/{how}", self.shop);
        let request = Request::post(uri).body(Body::empty()).unwrap();
        let response = self.client.request(request).await.unwrap();
        let (parts, body) = response.into_parts();
        (
            parts.status,
            parts.headers,
            body.collect().await.unwrap().to_bytes(),
        )
    }

    fn holding(&self) -> usize {
        let servers = self.servers.iter();
        servers.filter(|server| !server.locks().is_empty()).count()
    }

    /// Waits until no server holds a key, which must be long before any ttl.
    async fn all_free(&self) {
        let begin = Stopwatch::start();
        eventually("no key is left", || self.holding() == 0).await;
        assert!(begin.elapsed() < Duration::from_millis(500));
    }

    async fn entered(&self) {
        eventually("billing is at work", || {
            self.billing.entered.load(Ordering::SeqCst) == 1
        })
        .await;
    }

    async fn left(&self) {
        eventually("billing was dropped", || {
            self.billing.left.load(Ordering::SeqCst) == 1
        })
        .await;
    }
}

#[tokio::test]
async fn the_second_service_runs_under_the_lock_of_the_first() {
    let pair = Pair::open(Duration::from_secs(10)).await;
    // One that waits for nothing.
    pair.billing.go_on.notify_one();
    let (status, headers, body) = pair.buy("lend").await;
    assert_eq!(status, StatusCode::OK, "{body:?}");
    let (borrowed, owner, fence): (bool, String, Option<String>) =
        serde_json::from_slice(&body).unwrap();
    assert!(borrowed && fence.is_some());
    assert!(!headers.contains_key(LOAN_HEADER), "{headers:?}");
    for shown in pair.billing.shown.lock().unwrap().iter() {
        assert!(!shown.contains(&owner), "the predicate does not see it");
    }
    pair.all_free().await;
    // Without the loan the second finds what the first holds.
    let (status, _, body) = pair.buy("alone").await;
    assert_eq!(status, StatusCode::CONFLICT, "{body:?}");
}

#[tokio::test]
async fn a_forged_proof_and_a_stranger_are_told_so() {
    let pair = Pair::open(Duration::from_secs(10)).await;
    for (how, status, kind) in [
        ("forge", StatusCode::PRECONDITION_FAILED, "loan-ended"),
        ("stranger", StatusCode::FORBIDDEN, "loan-refused"),
    ] {
        let (answered, _, body) = pair.buy(how).await;
        assert_eq!(answered, status);
        let text = String::from_utf8_lossy(&body);
        assert!(text.contains(kind), "{text}");
        assert_eq!(pair.billing.entered.load(Ordering::SeqCst), 0);
        // Both have answered, so nothing is left to expire.
        pair.all_free().await;
    }
}

#[tokio::test]
async fn the_work_of_the_second_is_cut_when_the_first_loses_the_lock() {
    let ttl = Duration::from_millis(800);
    let pair = Arc::new(Pair::open(ttl).await);
    let call = {
        let pair = Arc::clone(&pair);
        tokio::spawn(async move { pair.buy("lend").await })
    };
    pair.entered().await;
    // Longer than a ttl: it follows the extensions.
    tokio::time::sleep(2 * ttl).await;
    assert_eq!(pair.billing.left.load(Ordering::SeqCst), 0);
    let begin = Stopwatch::start();
    pair.servers.iter().for_each(Server::freeze);
    pair.left().await;
    assert!(begin.elapsed() < ttl + Duration::from_millis(200));
    let (status, _, _) = call.await.unwrap();
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    pair.servers.iter().for_each(Server::thaw);
}

#[tokio::test]
async fn a_first_service_that_gives_up_leaves_the_lock_to_expire() {
    let ttl = Duration::from_secs(2);
    let pair = Arc::new(Pair::open(ttl).await);
    let call = {
        let pair = Arc::clone(&pair);
        tokio::spawn(async move { pair.buy("lend").await })
    };
    pair.entered().await;
    let begin = Stopwatch::start();
    call.abort();
    // The connections go, one after the other.
    pair.left().await;
    tokio::time::sleep(ttl / 4).await;
    assert_eq!(pair.holding(), 5, "nobody knows that billing has stopped");
    eventually("it has expired", || pair.holding() == 0).await;
    assert!(
        begin.elapsed() <= ttl + Duration::from_millis(500),
        "{:?}",
        begin.elapsed()
    );
}

/// One of the copies has the loan; the other's answer is all that the first service gets, which is done then and gives
/// its lock back. Nobody else has it before the copy that runs is done, too.
#[tokio::test]
async fn of_a_call_that_a_proxy_sends_twice_one_copy_runs_and_nobody_beside_it() {
    let pair = Pair::open(Duration::from_secs(10)).await;
    let answered = tokio::time::timeout(Duration::from_secs(5), pair.buy("twice")).await;
    let (status, _, body) = answered.expect("both copies run");
    let text = String::from_utf8_lossy(&body);
    assert_eq!(status, StatusCode::CONFLICT, "{text}");
    assert!(text.contains("loan-taken"), "{text}");
    pair.entered().await;
    let begin = Stopwatch::start();
    while begin.elapsed() < Duration::from_secs(1) {
        let (status, _, body) = pair.buy("alone").await;
        let text = String::from_utf8_lossy(&body);
        assert!(text.contains("contended"), "{status} {text}");
        assert_eq!(pair.holding(), 5);
    }
    pair.billing.go_on.notify_one();
    pair.left().await;
    // Long before the ttl, when the first service looks again.
    eventually("no key is left", || pair.holding() == 0).await;
    assert!(begin.elapsed() < Duration::from_secs(5));
    assert_eq!(pair.billing.entered.load(Ordering::SeqCst), 1);
}
