//! An order service where each order is paid at most once, however many requests come at the same time.
//!
//! ```text
//! cargo run --example orders              five nodes inside this process
//! cargo run --example orders -- --redis   five servers on this machine, which it starts and stops
//! cargo run --example orders -- --demo    drives itself over HTTP, checks, prints a table and exits; also with --redis
//! REDLOCK_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 cargo run --example orders
//! ```
//!
//! `--redis` needs `redis-server` or `valkey-server`, and runs `examples/ops/nodes.sh`. `LISTEN` sets the address
//! (default `127.0.0.1:3000`).

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "an example talks to the terminal"
)]

mod demo;
mod nodes;
mod shop;

use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use axum::Router;
use axum::routing::{get, post};
use tokio::net::TcpListener;
use tower_redlock::middleware::prefer_wait;
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
    let nodes = match asked("--redis") {
        true => Some(Nodes::start(|_| {})?),
        false => None,
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
    serve(listener, app, told_to_stop).await?;
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

/// Serves until `stop`, and then lets requests come to their end, but does not wait for ever: one client that
/// never sends the rest of its request would keep the process from stopping.
async fn serve<F>(listener: TcpListener, app: Router, stop: fn() -> F) -> std::io::Result<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    let server = axum::serve(listener, app).with_graceful_shutdown(stop());
    tokio::select! {
        biased;
        served = server.into_future() => served,
        () = async { stop().await; tokio::time::sleep(GRACE).await } => Ok(()),
    }
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

/// The service. The lock stands at the route whose path names the order.
fn app(shop: Shop, locks: &LockManager) -> Router {
    let one_at_a_time = RedlockLayer::new(
        locks.clone(),
        // Parsed as the handler parses it: `/orders/7` and `/orders/07` are one order, and so one lock.
        key::path("order_id").parse::<u64>().prefix("order"),
    )
    // Who finds the order locked is told so at once, unless it asks to wait, which nobody does longer than the
    // manager's `max_wait`.
    .max_wait_with(prefer_wait);
    Router::new()
        .route("/orders/{order_id}", get(shop::show))
        .route(
            "/orders/{order_id}/pay",
            // On the method, so that the answer 405 to other methods needs no lock.
            post(shop::pay).route_layer(one_at_a_time),
        )
        .with_state(shop)
}

/// The servers that were started for this, else Redis nodes if `REDLOCK_NODES` names them, else five nodes inside this
/// process.
async fn connect(nodes: Option<&Nodes>) -> Result<LockManager, AnyError> {
    let builder = LockManager::builder().ttl(Duration::from_secs(10));
    let builder = match (nodes, std::env::var("REDLOCK_NODES")) {
        // They have just been started for this process alone, so no lock is held on them; otherwise nodes without data
        // wait for the end of those that they may have forgotten.
        (Some(nodes), _) => builder
            .redis(&nodes.urls)
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
    let nodes: Vec<String> = locks.nodes().into_iter().map(|node| node.name).collect();
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
    println!("  curl -i -X POST -H 'Prefer: wait=2' http://{address}/orders/44/pay");
    println!("  curl -i http://{address}/orders/42                 # reading needs no lock");
    println!("end it with ctrl-c");
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_never_ends_its_request_does_not_keep_the_service_up() {
        async fn soon() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = tokio::net::TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        client.write_all(b"POST /orders/1/pay HT").await.unwrap();
        let began = tokio::time::Instant::now();
        serve(listener, Router::new(), soon).await.unwrap();
        let waited = began.elapsed();
        assert!(waited >= GRACE, "the client was connected: {waited:?}");
    }
}
