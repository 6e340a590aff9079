//! What it costs to answer a request once: the layer on one server and on five, the crate axum-idempotent on the same
//! one server, and as floors the handler alone, and the handler with a bare `GET` and `SET`.
//!
//! All use Valkey 9, for the sessions in which axum-idempotent keeps its answers need `HEXPIRE` (Redis 7.4). It gets
//! the set-up of its own documentation: keys from the header, inside of sessions, inside of cookies, on the client
//! that its session store is documented with. It promises less: of two requests with one key at the same time both
//! run, and when its server is gone all run.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum_idempotent::{IdempotentLayer, IdempotentOptions};
use fred::clients::Client as Fred;
use fred::interfaces::ClientLike as _;
use fred::types::config::Config;
use http::header::{CONTENT_TYPE, COOKIE};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt as _;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncCommands as _, IntoConnectionInfo as _};
use ruts::store::redis::RedisStore;
use ruts::{CookieOptions, SessionLayer};
use tower::ServiceExt as _;
use tower_cookies::CookieManagerLayer;
use tower_redlock::IdempotencyLayer;
use tower_redlock::idempotency::caller;

use crate::acquire::ours_at;
use crate::cost::Calls;
use crate::measure::{Candidate, Samples, Times, Watch, in_turns, print_halves, ratio};
use crate::proxy::Proxies;
use crate::support::server::{Kind, Server};

/// For how long answers are kept, by all.
const DAY: u64 = 86_400;
const TURNS: usize = 40;
const SIZE: usize = 100;
/// How far away the server is in the second part, each way, and how many turns that has.
const DISTANCE: Duration = Duration::from_micros(500);
const FAR_TURNS: usize = 10;
/// How often commands are counted. They are counted while nothing else happens, which takes its time.
const COUNTED: usize = 20;
const KEY: &str = "idempotency-key";
const ORDER: &str =
    r#"{"account":7,"amount":1250,"currency":"EUR","reference":"invoice 2024-00017"}"#;
const RECEIPT: &str = r#"{"payment":"pay_00000000000000017","status":"succeeded","amount":1250}"#;

const HALVES: [&str; 2] = ["first request", "replay"];

pub(crate) async fn run() {
    let one = Arc::new(Server::start_many(Kind::Valkey, 1));
    let five = Arc::new(Server::start_many(Kind::Valkey, 5));
    let bare = Work::on(&Arc::default());
    let floor = Case::new("handler (floor 1)", &[], bare.clone(), plain(bare));
    let mut cases = vec![floor];
    cases.extend(on_one(&Work::on(&one)).await);
    let work = Work::on(&five);
    let layered = layered(work.clone()).await;
    cases.push(Case::new("tower-redlock, 5 nodes", &[], work, layered));
    compare("one at a time", &cases, TURNS, &[1, 3]).await;
    println!(
        "\n{:30} | {:>14} | {:>13} | {:>8}",
        "commands sent to each server", "before handler", "after handler", "a replay"
    );
    for case in &cases[1..] {
        case.count().await;
    }
    far().await;
}

/// The same a network away.
async fn far() {
    let servers = Arc::new(Server::start_many(Kind::Valkey, 1));
    let proxies = Proxies::start(&[servers[0].port()], DISTANCE);
    let mut work = Work::on(&servers);
    work.urls = proxies.urls().into();
    let cases = on_one(&work).await;
    compare("0.5 ms away each way", &cases, FAR_TURNS, &[0, 2]).await;
}

/// The ways to do it with one server.
async fn on_one(work: &Work) -> [Case; 3] {
    let [first, second, third] = std::array::from_fn(|_| work.another());
    [
        Case::new(
            "redis-rs GET, SET (floor 2)",
            &["get", "setex"],
            first.clone(),
            get_and_set(first).await,
        ),
        Case::new(
            "tower-redlock, 1 node",
            &[],
            second.clone(),
            layered(second).await,
        ),
        Case::new(
            "axum-idempotent 0.6, 1 node",
            &["hget"],
            third.clone(),
            theirs(third).await,
        ),
    ]
}

async fn compare(how: &str, cases: &[Case], turns: usize, bases: &[usize]) {
    let mut candidates: Vec<_> = cases.iter().map(Case::candidate).collect();
    let rows = in_turns(&mut candidates, turns, SIZE).await;
    let title = format!("an idempotency key used for the first time, and again; {how}");
    print_halves(&title, HALVES, &rows, bases);
}

/// A way to answer a request once.
#[derive(Clone)]
struct Case {
    name: &'static str,
    /// The commands that it sends outside scripts.
    direct: &'static [&'static str],
    work: Work,
    app: Router,
}

impl Case {
    fn new(name: &'static str, direct: &'static [&'static str], work: Work, app: Router) -> Self {
        Self {
            name,
            direct,
            work,
            app,
        }
    }

    fn candidate(&self) -> Candidate {
        let case = self.clone();
        Candidate {
            name: self.name,
            batch: Box::new(move |size| {
                let case = case.clone();
                Box::pin(async move { case.batch(size).await })
            }),
        }
    }

    /// So many keys, each used twice, all of one client.
    async fn batch(&self, size: usize) -> Samples {
        let client = serial();
        let mut samples = Vec::with_capacity(size);
        for _ in 0..size {
            let key = serial();
            let [first, replay] = [request(client, key), request(client, key)];
            let mut watch = Watch::start();
            self.send(first, false).await;
            watch.half();
            let half = Instant::now();
            self.send(replay, true).await;
            let acquire = watch.stop().acquire;
            samples.push(Times {
                acquire,
                cycle: half.elapsed(),
            });
        }
        samples
    }

    async fn send(&self, request: Request<Body>, again: bool) {
        let response = self.app.clone().oneshot(request).await.unwrap();
        let replayed = is_replayed(response.headers());
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!((status, &*body), (StatusCode::OK, RECEIPT.as_bytes()));
        // The floor 1 knows nothing of keys.
        assert_eq!(
            replayed,
            again && !self.work.servers.is_empty(),
            "{}",
            self.name
        );
    }

    /// Prints what a request has the servers do.
    async fn count(&self) {
        let mut counts: [Vec<u64>; 3] = Default::default();
        self.work.watched.store(true, Ordering::Relaxed);
        for _ in 0..COUNTED {
            let (client, key) = (serial(), serial());
            let began = self.work.look().await;
            self.send(request(client, key), false).await;
            let inside = self.work.seen.lock().unwrap().take().unwrap();
            let done = self.work.look().await;
            self.send(request(client, key), true).await;
            let end = self.work.look().await;
            counts[0].push(inside.since(&began).sent(self.direct));
            counts[1].push(done.since(&inside).sent(self.direct));
            counts[2].push(end.since(&done).sent(self.direct));
        }
        // The median, as a manager also looks after its nodes once in a while.
        let servers = u64::try_from(self.work.servers.len()).unwrap();
        let [before, after, replay] = counts.map(|mut counts| {
            counts.sort_unstable();
            ratio(counts[COUNTED / 2], servers)
        });
        println!(
            "{:30} | {before:>14.1} | {after:>13.1} | {replay:>8.1}",
            self.name
        );
    }
}

/// Both mark a repeat, each in its own way, and so does the floor 2.
fn is_replayed(headers: &HeaderMap) -> bool {
    let names = ["idempotent-replayed", "idempotency-replayed"];
    names.iter().any(|name| headers.contains_key(*name))
}

/// What the handler does: nothing, unless it is watched.
#[derive(Clone)]
struct Work {
    servers: Arc<Vec<Server>>,
    // Where they are for who uses them.
    urls: Arc<[String]>,
    watched: Arc<AtomicBool>,
    seen: Arc<Mutex<Option<Calls>>>,
}

impl Work {
    fn on(servers: &Arc<Vec<Server>>) -> Self {
        Self {
            servers: Arc::clone(servers),
            urls: servers.iter().map(Server::url).collect(),
            watched: Arc::default(),
            seen: Arc::default(),
        }
    }

    /// Another on the same servers.
    fn another(&self) -> Self {
        Self {
            urls: Arc::clone(&self.urls),
            ..Self::on(&self.servers)
        }
    }

    async fn run(&self) {
        if self.watched.load(Ordering::Relaxed) {
            let calls = self.look().await;
            *self.seen.lock().unwrap() = Some(calls);
        }
    }

    /// What the servers have done, all that is on its way included.
    async fn look(&self) -> Calls {
        tokio::time::sleep(Duration::from_millis(20)).await;
        Calls::of(&self.servers)
    }
}

async fn pay(State(work): State<Work>, _order: String) -> Response {
    work.run().await;
    ([(CONTENT_TYPE, "application/json")], RECEIPT).into_response()
}

fn plain(work: Work) -> Router {
    Router::new().route("/payments", post(pay)).with_state(work)
}

/// The layer as it is by default, on a manager as it is by default.
async fn layered(work: Work) -> Router {
    let locks = ours_at(work.urls.iter().cloned()).await;
    plain(work).layer(IdempotencyLayer::new(locks, caller::header("x-account")))
}

async fn theirs(work: Work) -> Router {
    let config = Config::from_url(&work.urls[0]).unwrap();
    let client = Fred::new(config, None, None, None);
    client.connect();
    client.wait_for_connect().await.unwrap();
    let store = RedisStore::new(Arc::new(client)).await.unwrap();
    let options = IdempotentOptions::default()
        .use_idempotency_key_header(Some("Idempotency-Key"), true)
        .expire_after(i64::try_from(DAY).unwrap());
    plain(work)
        .layer(IdempotentLayer::<RedisStore<Fred>>::new(options))
        .layer(
            SessionLayer::new(Arc::new(store))
                .with_cookie_options(CookieOptions::build().name("session")),
        )
        .layer(CookieManagerLayer::new())
}

/// Not a way to do it: nothing keeps two from running at the same time.
async fn get_and_set(work: Work) -> Router {
    let info = work.urls[0].as_str().into_connection_info().unwrap();
    let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
    let client = redis::Client::open(info).unwrap();
    let connection = client.get_multiplexed_async_connection().await.unwrap();
    let handler = post(get_pay_set).with_state((work, connection));
    Router::new().route("/payments", handler)
}

async fn get_pay_set(
    State((work, mut connection)): State<(Work, MultiplexedConnection)>,
    headers: HeaderMap,
    order: String,
) -> Response {
    let key = format!("floor:{}", headers[KEY].to_str().unwrap());
    let known: Option<Vec<u8>> = connection.get(&key).await.unwrap();
    if let Some(body) = known {
        let headers = [
            ("content-type", "application/json"),
            ("idempotent-replayed", "true"),
        ];
        return (headers, body).into_response();
    }
    let response = pay(State(work), order).await;
    let () = connection.set_ex(&key, RECEIPT, DAY).await.unwrap();
    response
}

/// The same for all: each takes from it what it needs.
fn request(client: u64, key: u64) -> Request<Body> {
    // A session is 128 bits in base64.
    let session = format!("session={client:021}A");
    Request::post("/payments")
        .header(KEY, format!("{key:032}"))
        .header(COOKIE, session)
        .header("x-account", format!("account-{client}"))
        .header(CONTENT_TYPE, "application/json")
        .body(Body::from(ORDER))
        .unwrap()
}

fn serial() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
