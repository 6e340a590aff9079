//! An order service where each order is paid at most once, however many requests come at the same time.
//!
//! ```text
//! cargo run --example orders              five nodes inside this process
//! cargo run --example orders -- --redis   five servers on this machine, which it starts and stops
//! cargo run --example orders -- --cluster   a Redis Cluster of three masters on this machine, likewise
//! cargo run --example orders -- --demo    drives itself over HTTP, checks, prints a table and exits; also with these
//! REDLOCK_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 cargo run --example orders
//! ```
//!
//! Servers need `redis-server` or `valkey-server`, and run by `examples/ops/nodes.sh`. `LISTEN` sets the address
//! (default `127.0.0.1:3000`), `UNNOTICED` for how many seconds it still listens when it was told to stop (default 1):
//! as long as load balancers take to notice that `/healthz` fails.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "an example talks to the terminal"
)]

mod demo;
mod nodes;
mod shop;
mod watch;

use std::error::Error;
use std::future::ready;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::routing::{get, post};
use tokio::net::TcpListener;
use tower_redlock::{LockManager, RedlockLayer, key};

use crate::nodes::Nodes;
use crate::shop::Shop;

type AnyError = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("orders: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<ExitCode, AnyError> {
    let asked = |word: &str| std::env::args().any(|arg| arg == word);
    let nodes = match (asked("--redis"), asked("--cluster")) {
        (false, false) => None,
        (_, in_cluster) => Some(Nodes::start(in_cluster, |_| {})?),
    };
    let locks = connect(nodes.as_ref()).await?;
    if asked("--demo") {
        return Ok(if drive(&locks).await? {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        });
    }

    let app = app(Shop::default(), &locks);
    let wanted = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(&wanted)
        .await
        .map_err(|error| format!("cannot listen on `{wanted}` (set LISTEN): {error}"))?;
    let address = listener.local_addr()?;
    print_help(address, &locks);
    serve(listener, app, &locks, told_to_stop(), unnoticed()?).await?;
    // Requests that run on, if any, are told that their locks are lost.
    let report = locks.shutdown(Duration::from_secs(1)).await;
    println!("\nstopped; {} locks were cut short", report.lost);
    if !report.is_all_released() {
        println!("others may have to wait for a ttl: {report:?}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Sends itself requests, and tells whether all went as it should.
async fn drive(locks: &LockManager) -> Result<bool, AnyError> {
    let shop = Shop::default();
    let app = app(shop.clone(), locks);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let server = tokio::spawn(async move { axum::serve(listener, app).await });
    let sound = demo::run(address, &shop).await?;
    server.abort();
    locks.shutdown(Duration::from_secs(5)).await;
    Ok(sound)
}

/// Serves until `stop`. Streams are told then, so that they can end, and `/healthz` fails, which load balancers notice
/// after `unnoticed`. From then on nothing new is taken, and requests come to their end; but it does not wait for ever:
/// one client that never sends the rest of its request would keep the process from stopping.
async fn serve(
    listener: TcpListener,
    app: Router,
    locks: &LockManager,
    stop: impl Future<Output = ()> + Send + 'static,
    unnoticed: Duration,
) -> std::io::Result<()> {
    let draining = locks.draining();
    let told = locks.clone();
    let server = axum::serve(listener, app).with_graceful_shutdown(async move {
        stop.await;
        told.drain();
        // The listener closes when this returns.
        tokio::time::sleep(unnoticed).await;
    });
    tokio::select! {
        biased;
        served = server.into_future() => served,
        () = async { draining.await; tokio::time::sleep(unnoticed + GRACE).await } => Ok(()),
    }
}

/// For how long it still listens when it was told to stop.
fn unnoticed() -> Result<Duration, AnyError> {
    let Ok(set) = std::env::var("UNNOTICED") else {
        return Ok(Duration::from_secs(1));
    };
    let seconds = set.parse().ok().filter(|seconds| *seconds <= 3_600);
    let seconds = seconds.ok_or_else(|| format!("UNNOTICED is `{set}`; set whole seconds"))?;
    Ok(Duration::from_secs(seconds))
}

/// Ctrl-c, or what service managers send. Without it the process just ends, and the locks with their ttl.
async fn told_to_stop() {
    #[cfg(unix)]
    if let Ok(mut told) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
    {
        tokio::select! {
            biased;
            _ = told.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
        return;
    }
    let _ = tokio::signal::ctrl_c().await;
}

/// How long requests may take to end when the service stops.
const GRACE: Duration = Duration::from_secs(5);

/// How long the client asks to wait for a lock, by its header `x-wait` in seconds.
fn asked_wait(parts: &Parts) -> Option<Duration> {
    let seconds = parts.headers.get("x-wait")?.to_str().ok()?;
    Some(Duration::from_secs(seconds.parse().ok()?))
}

/// The service. The lock stands at the route whose path names the order.
fn app(shop: Shop, locks: &LockManager) -> Router {
    let one_at_a_time = RedlockLayer::new(
        locks.clone(),
        // Parsed as the handler parses it: `/orders/7` and `/orders/07` are one order, and so one lock.
        key::path("order_id").parse::<u64>().prefix("order"),
    )
    // Who finds the order locked is told so at once, unless it asks to wait, which nobody does longer than the
    // manager's `max_wait`.
    .max_wait_with(asked_wait);
    // A lock of its own, so that watching an order keeps nobody from paying it.
    let one_watcher = RedlockLayer::new(
        locks.clone(),
        key::path("order_id").parse::<u64>().prefix("watcher"),
    )
    // Streams of events are asked for by GET.
    .all_methods();
    Router::new()
        .route("/orders/{order_id}", get(shop::show))
        .route(
            "/orders/{order_id}/pay",
            // On the method, so that the answer 405 to other methods needs no lock.
            post(shop::pay).route_layer(one_at_a_time),
        )
        .route(
            "/orders/{order_id}/watch",
            get(watch::watch).route_layer(one_watcher),
        )
        .with_state(shop)
        .merge(healthz(locks.clone()))
}

/// What a load balancer asks before it sends requests here. Not for what restarts the process: a restart brings no
/// lock server back.
fn healthz(locks: LockManager) -> Router {
    let health = move || {
        ready(match locks.has_quorum() && !locks.is_draining() {
            true => (StatusCode::OK, "ready\n"),
            false => (
                StatusCode::SERVICE_UNAVAILABLE,
                "too few lock nodes vote, or it ends\n",
            ),
        })
    };
    Router::new().route("/healthz", get(health))
}

/// The servers that were started for this, else Redis nodes if `REDLOCK_NODES` names them, else five nodes inside this
/// process.
async fn connect(nodes: Option<&Nodes>) -> Result<LockManager, AnyError> {
    let builder = LockManager::builder().ttl(Duration::from_secs(10));
    let builder = match (nodes, std::env::var("REDLOCK_NODES")) {
        // They have just been started for this process alone, so no lock is held on them; otherwise nodes without data
        // wait for the end of those that they may have forgotten.
        (Some(nodes), _) => match nodes.in_cluster {
            true => builder.cluster(&nodes.urls),
            false => builder.redis(&nodes.urls),
        }
        .bootstrap(true)
        // They share this machine with the service and its clients.
        .node_timeout(Duration::from_secs(1)),
        (None, Ok(urls)) => {
            builder.redis(urls.split(',').map(str::trim).filter(|url| !url.is_empty()))
        }
        (None, Err(_)) => builder.memory(5),
    };
    Ok(builder.connect().await?)
}

fn print_help(address: SocketAddr, locks: &LockManager) {
    let nodes: Vec<String> = locks
        .snapshot()
        .nodes
        .into_iter()
        .map(|node| node.name)
        .collect();
    println!(
        "order service on http://{address}, locks on {}",
        nodes.join(", ")
    );
    println!("try:");
    println!("  curl -i -X POST http://{address}/orders/42/pay     # takes half a second");
    println!(
        "  curl -i -X POST http://{address}/orders/43/pay &   # twice at once: one of them is told 409"
    );
    println!("  curl -i -X POST http://{address}/orders/43/pay");
    println!(
        "  curl -i -X POST http://{address}/orders/44/pay &   # twice at once: the second waits for its turn"
    );
    println!("  curl -i -X POST -H 'x-wait: 2' http://{address}/orders/44/pay");
    println!("  curl -i http://{address}/orders/42                 # reading needs no lock");
    println!(
        "  curl -N http://{address}/orders/42/watch           # a stream of 50 s, which ends with the service; once per order"
    );
    println!("end it with ctrl-c");
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::Request;
    use http_body_util::BodyExt as _;
    use hyper_util::client::legacy::Client;
    use hyper_util::client::legacy::connect::HttpConnector;
    use hyper_util::rt::TokioExecutor;
    use tokio::io::AsyncWriteExt as _;
    use tokio::sync::oneshot;
    use tokio::time::Instant;
    use tower::ServiceExt as _;

    use super::*;

    #[tokio::test]
    async fn it_is_ready_while_a_quorum_votes() {
        let locks = LockManager::builder().memory(5).connect().await.unwrap();
        let health = async || {
            let app = app(Shop::default(), &locks);
            let request = Request::get("/healthz").body(Body::empty()).unwrap();
            app.oneshot(request).await.unwrap().status()
        };
        assert_eq!(health().await, StatusCode::OK);
        locks.shutdown(Duration::ZERO).await;
        assert_eq!(health().await, StatusCode::SERVICE_UNAVAILABLE);
    }

    async fn locks() -> LockManager {
        LockManager::builder().memory(3).connect().await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_never_ends_its_request_does_not_keep_the_service_up() {
        let soon = tokio::time::sleep(Duration::from_millis(10));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = tokio::net::TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        client.write_all(b"POST /orders/1/pay HT").await.unwrap();
        let locks = locks().await;
        let began = Instant::now();
        let served = serve(listener, Router::new(), &locks, soon, Duration::ZERO);
        served.await.unwrap();
        let waited = began.elapsed();
        assert!(waited >= GRACE, "the client was connected: {waited:?}");
    }

    #[tokio::test]
    async fn it_takes_requests_until_load_balancers_have_noticed_that_it_ends() {
        let locks = locks().await;
        let app = app(Shop::default(), &locks);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let place = format!("http://{}", listener.local_addr().unwrap());
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = tokio::spawn({
            let locks = locks.clone();
            let stop = async { stopped.await.unwrap() };
            async move { serve(listener, app, &locks, stop, Duration::from_secs(60)).await }
        });
        // A new connection for each, as of another client.
        let ask = async |method: &str, path: &str| {
            let client: Client<HttpConnector, Body> =
                Client::builder(TokioExecutor::new()).build(HttpConnector::new());
            let request = Request::builder().method(method);
            let request = request.uri(format!("{place}{path}"));
            let response = client.request(request.body(Body::empty()).unwrap()).await;
            response.unwrap().status()
        };
        assert_eq!(ask("GET", "/healthz").await, StatusCode::OK);
        stop.send(()).unwrap();
        locks.draining().await;
        let health = ask("GET", "/healthz").await;
        assert_eq!(health, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(ask("POST", "/orders/1/pay").await, StatusCode::OK);
        serving.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_of_events_ends_by_itself_before_its_lock_would() {
        let locks = locks().await;
        let request = Request::get("/orders/1/watch").body(Body::empty());
        let app = app(Shop::default(), &locks);
        let began = Instant::now();
        let stream = app.oneshot(request.unwrap()).await.unwrap().into_body();
        let events = stream.collect().await.unwrap().to_bytes();
        assert!(events.ends_with(b"event: moved\ndata: connect again\n\n"));
        assert!(began.elapsed() >= watch::LONGEST);
        assert!(watch::LONGEST + Duration::from_secs(10) <= Duration::from_secs(60));
        assert_eq!(locks.snapshot().held, 0);
    }

    /// On the real clock, for the stream is a real connection.
    #[tokio::test]
    async fn a_stream_of_events_ends_with_the_service_and_not_with_its_grace() {
        let locks = locks().await;
        let app = app(Shop::default(), &locks);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let watched = format!("http://{}/orders/1/watch", listener.local_addr().unwrap());
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = tokio::spawn({
            let locks = locks.clone();
            let stop = async { stopped.await.unwrap() };
            async move { serve(listener, app, &locks, stop, Duration::ZERO).await }
        });

        let client: Client<HttpConnector, http_body_util::Empty<&[u8]>> =
            Client::builder(TokioExecutor::new()).build(HttpConnector::new());
        let watch = async || client.get(watched.parse().unwrap()).await.unwrap();
        let mut stream = watch().await.into_body();
        let first = stream.frame().await.unwrap().unwrap();
        let first = first.into_data().unwrap();
        assert_eq!(&first[..], b"event: paid\ndata: false\n\n");
        assert_eq!(watch().await.status(), 409, "one watcher of an order");
        assert_eq!(locks.snapshot().held, 1);

        let began = Instant::now();
        stop.send(()).unwrap();
        serving.await.unwrap().unwrap();
        let waited = began.elapsed();
        assert!(
            waited < GRACE,
            "the server waited for the stream: {waited:?}"
        );
        let rest = stream.collect().await.unwrap().to_bytes();
        let rest = String::from_utf8_lossy(&rest).into_owned();
        assert!(
            rest.ends_with("event: moved\ndata: connect again\n\n"),
            "{rest:?}"
        );
        let report = locks.shutdown(Duration::from_secs(1)).await;
        assert!(report.lost == 0 && report.is_all_released(), "{report:?}");
    }
}
