//! What is counted, each in a process of its own under callgrind.

use std::convert::Infallible;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::Full;
use tokio::runtime::Runtime;
use tower::{Layer as _, Service, ServiceExt as _};
use tower_redlock::{LockManager, RedlockLayer, key};

use crate::fanout::Fanout;
use crate::relay;

pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) servers: usize,
    pub(crate) batches: usize,
    /// Of one batch. With servers, far less than a second: so the least batch is one without a look at them.
    pub(crate) cycles: usize,
}

const fn on(name: &'static str, servers: usize) -> Case {
    Case {
        name,
        servers,
        batches: 25,
        cycles: 20,
    }
}

/// Without servers, every batch is as the other.
const fn alone(name: &'static str) -> Case {
    Case {
        name,
        servers: 0,
        batches: 4,
        cycles: 200,
    }
}

pub(crate) const CASES: &[Case] = &[
    on("floor-5", 5),
    on("full-5", 5),
    on("bare-5", 5),
    on("rslock-5", 5),
    on("floor-1", 1),
    on("full-1", 1),
    on("bare-1", 1),
    on("rslock-1", 1),
    alone("service"),
    alone("layer"),
    alone("skipped"),
];

/// Until connections stand and buffers have grown.
const WARM_UP: usize = 60;
const TTL: Duration = Duration::from_secs(30);
/// Under valgrind all is slow.
const PATIENCE: Duration = Duration::from_secs(5);

type Work = Pin<Box<dyn Future<Output = ()>>>;
/// So many cycles, one after the other.
type Batch = Box<dyn FnMut(usize) -> Work>;

/// Runs a case, in the process that callgrind counts in.
pub(crate) fn counted(name: &str, gate: &str, urls: &[&str]) {
    let case = CASES.iter().find(|case| case.name == name).unwrap();
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all();
    if case.servers > 0 {
        // The runtime looks for replies only when it has nothing else to do, and then all of them are there.
        let gate = relay::reach(gate);
        builder.on_thread_park(move || relay::call(&gate));
        builder.event_interval(u32::MAX);
    }
    let runtime = builder.build().unwrap();
    let mut batch = runtime.block_on(batch(name, urls));
    runtime.block_on(batch(WARM_UP));
    for _ in 0..case.batches {
        counted_by_callgrind(&runtime, batch(case.cycles));
    }
}

/// Callgrind counts in here alone.
#[inline(never)]
fn counted_by_callgrind(runtime: &Runtime, work: Work) {
    runtime.block_on(work);
}

async fn batch(name: &str, urls: &[&str]) -> Batch {
    let urls = urls.iter().map(|url| (*url).to_owned());
    let ours = || {
        LockManager::builder()
            .instance("web-1@4711")
            .ttl(TTL)
            .max_ttl(TTL)
            .node_timeout(PATIENCE)
    };
    match name.split('-').next().unwrap() {
        "floor" => {
            let fanout = Fanout::connect(urls, "cost:floor").await;
            Box::new(move |cycles| Box::pin(floor(fanout.clone(), cycles)))
        }
        "full" => {
            let locks = ours().bootstrap(true).redis(urls).connect().await.unwrap();
            // For a second, the first fencing tokens are ahead of the clock, which takes longer replies.
            tokio::time::sleep(Duration::from_millis(1100)).await;
            lock(locks)
        }
        "bare" => {
            let builder = ours().redis(urls).without_fencing();
            let builder = builder.without_restart_guard();
            lock(builder.connect().await.unwrap())
        }
        "rslock" => {
            let locks = rslock::LockManager::new(urls.collect());
            Box::new(move |cycles| Box::pin(theirs(locks.clone(), cycles)))
        }
        "service" => requests(service(), Method::POST),
        "layer" => requests(layered(), Method::POST),
        "skipped" => requests(layered(), Method::GET),
        _ => panic!("no such case: {name}"),
    }
}

async fn floor(fanout: Fanout, cycles: usize) {
    for _ in 0..cycles {
        fanout.acquire().await;
        fanout.release().await;
    }
}

fn lock(locks: LockManager) -> Batch {
    Box::new(move |cycles| {
        let locks = locks.clone();
        Box::pin(async move {
            for _ in 0..cycles {
                let guard = locks.try_acquire("cost:ours").await.unwrap();
                guard.release().await.unwrap();
            }
        })
    })
}

async fn theirs(locks: rslock::LockManager, cycles: usize) {
    for _ in 0..cycles {
        let lock = locks.lock("cost:rslock", TTL).await.unwrap();
        locks.unlock(&lock).await;
    }
}

type Body = Full<Bytes>;

fn service()
-> impl Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + 'static {
    tower::service_fn(|_request: Request<Body>| async {
        Ok::<_, Infallible>(Response::new(Body::new(Bytes::from_static(b"done"))))
    })
}

fn layered()
-> impl Service<Request<Body>, Response = Response<impl Send>, Error = Infallible> + Clone + 'static
{
    let locks = LockManager::builder().memory(5).connect_lazy().unwrap();
    RedlockLayer::new(locks, key::header("x-order").prefix("order")).layer(service())
}

/// As every request that comes through a router has extensions.
#[derive(Clone)]
struct Routed;

fn requests<S, R>(service: S, method: Method) -> Batch
where
    S: Service<Request<Body>, Response = Response<R>, Error = Infallible> + Clone + 'static,
{
    Box::new(move |cycles| {
        let (service, method) = (service.clone(), method.clone());
        Box::pin(async move {
            for _ in 0..cycles {
                let request = Request::builder()
                    .method(method.clone())
                    .header("x-order", "17")
                    .extension(Routed);
                let request = request.body(Body::default()).unwrap();
                let response = service.clone().oneshot(request).await.unwrap();
                assert!(response.status().is_success());
                // So that what goes on in the background is counted, too.
                tokio::task::yield_now().await;
            }
        })
    })
}
