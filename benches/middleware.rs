//! What the layer adds to a request, over a service that does nothing, with nodes in this process: so it is the
//! layer and the manager that are measured, not a network. Allocations are counted, for they do not depend on
//! what else the machine does.

use std::convert::Infallible;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::Full;
use tokio::runtime::Runtime;
use tower::{Service, ServiceExt as _};
use tower_redlock::{LockManager, RedlockLayer, key};

const ROUNDS: usize = 15;
const SIZE: u32 = 2_000;

type Body = Full<Bytes>;

/// As every request that comes through a router has extensions.
#[derive(Clone)]
struct Routed;

/// One service and the request it gets, again and again.
struct Case {
    name: &'static str,
    send: Box<dyn FnMut(u32)>,
    best: Duration,
    allocations: f64,
    bytes: f64,
}

pub(crate) fn run(runtime: &Rc<Runtime>) {
    let mut cases = vec![
        case(runtime, "no layer", Method::POST, bare()),
        layered(runtime, "a layer, method without lock", Method::GET, 5),
        layered(runtime, "a lock on 1 node", Method::POST, 1),
        layered(runtime, "a lock on 3 nodes", Method::POST, 3),
        layered(runtime, "a lock on 5 nodes", Method::POST, 5),
    ];
    watched(runtime, &mut cases);
    for _ in 0..ROUNDS {
        for case in &mut cases {
            let begin = Instant::now();
            (case.send)(SIZE);
            case.best = case.best.min(begin.elapsed() / SIZE);
        }
    }
    for case in &mut cases {
        let counted = allocation_counter::measure(|| (case.send)(SIZE));
        #[expect(clippy::cast_precision_loss, reason = "a few millions")]
        {
            case.allocations = counted.count_total as f64 / f64::from(SIZE);
            case.bytes = counted.bytes_total as f64 / f64::from(SIZE);
        }
    }
    print(&cases);
}

/// The lock on 5 nodes, with somebody who listens. The rows above have nobody: what they cost with and without the
/// features, a run with and one without `--features tracing,metrics` tells.
fn watched(runtime: &Rc<Runtime>, cases: &mut Vec<Case>) {
    let lock = |name| layered(runtime, name, Method::POST, 5);
    cases.push(lock("  nobody listens").around(|send| send()));
    #[cfg(feature = "tracing")]
    for (name, level) in [
        (
            "  events from INFO on",
            tracing_subscriber::filter::LevelFilter::INFO,
        ),
        (
            "  events from DEBUG on",
            tracing_subscriber::filter::LevelFilter::DEBUG,
        ),
    ] {
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(level)
            .with_writer(std::io::sink)
            .finish();
        let subscriber = tracing::Dispatch::new(subscriber);
        let case = lock(name);
        cases.push(case.around(move |send| tracing::dispatcher::with_default(&subscriber, send)));
    }
    #[cfg(feature = "metrics")]
    {
        let recorder = metrics_exporter_prometheus::PrometheusBuilder::new()
            .set_buckets(&[0.001, 0.01, 0.1, 1.0])
            .unwrap()
            .build_recorder();
        let case = lock("  metrics for Prometheus");
        cases.push(case.around(move |send| {
            metrics::with_local_recorder(&recorder, send);
            recorder.handle().run_upkeep();
        }));
    }
}

impl Case {
    /// The same, inside `world`.
    fn around(self, world: impl Fn(&mut dyn FnMut()) + 'static) -> Self {
        let mut send = self.send;
        let send = Box::new(move |times| world(&mut || send(times)));
        Self { send, ..self }
    }
}

fn print(cases: &[Case]) {
    println!("\nthe layer over a service that does nothing, nodes in memory");
    println!(
        "{:30} | {:>10} | {:>9} | {:>11} | {:>9}",
        "per request", "best of 15", "more", "allocations", "bytes"
    );
    let floor = cases[0].best;
    for case in cases {
        println!(
            "{:30} | {:>10.2?} | {:>9.2?} | {:>11.1} | {:>9.0}",
            case.name,
            case.best,
            case.best.saturating_sub(floor),
            case.allocations,
            case.bytes
        );
    }
}

fn bare()
-> impl Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + 'static {
    tower::service_fn(|_request: Request<Body>| async {
        Ok::<_, Infallible>(Response::new(Body::new(Bytes::from_static(b"done"))))
    })
}

fn layered(runtime: &Rc<Runtime>, name: &'static str, method: Method, nodes: usize) -> Case {
    let locks = {
        let _inside = runtime.enter();
        LockManager::builder().memory(nodes).connect_lazy().unwrap()
    };
    let layer = RedlockLayer::new(locks, key::header("x-order").prefix("order"));
    case(runtime, name, method, tower::Layer::layer(&layer, bare()))
}

fn case<S, R>(runtime: &Rc<Runtime>, name: &'static str, method: Method, service: S) -> Case
where
    S: Service<Request<Body>, Response = Response<R>, Error = Infallible> + Clone + 'static,
{
    let runtime = Rc::clone(runtime);
    let send = move |times: u32| {
        runtime.block_on(async {
            for number in 0..times {
                let request = Request::builder()
                    .method(method.clone())
                    .header("x-order", number)
                    .extension(Routed)
                    .body(Body::default())
                    .unwrap();
                let response = service.clone().oneshot(request).await.unwrap();
                assert!(response.status().is_success());
                // So that what goes on in the background is counted, too.
                tokio::task::yield_now().await;
            }
        });
    };
    Case {
        name,
        send: Box::new(send),
        best: Duration::MAX,
        allocations: 0.0,
        bytes: 0.0,
    }
}
