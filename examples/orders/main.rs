//! An order service where each order is paid at most once, however many requests come at the same time.
//!
//! ```text
//! cargo run --example orders              five nodes inside this process
//! cargo run --example orders -- --demo    drives itself over HTTP, checks, prints a table and exits
//! REDLOCK_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 cargo run --example orders
//! ```
//!
//! `LISTEN` sets the address (default `127.0.0.1:3000`).

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "an example talks to the terminal"
)]

mod demo;
mod shop;

use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use axum::Router;
use axum::routing::{get, post};
use tokio::net::TcpListener;
use tower_redlock::{LockManager, RedlockLayer, key};

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
    let driven = std::env::args().any(|arg| arg == "--demo");
    let locks = connect().await?;
    let shop = Shop::default();
    let app = app(shop.clone(), &locks);

    let listener = TcpListener::bind(if driven {
        "127.0.0.1:0".into()
    } else {
        address()
    })
    .await?;
    let address = listener.local_addr()?;
    if driven {
        let server = tokio::spawn(async move { axum::serve(listener, app).await });
        let sound = demo::run(address, &shop).await?;
        server.abort();
        locks.shutdown(Duration::from_secs(5)).await;
        return Ok(if sound {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        });
    }

    print_help(address, &locks);
    axum::serve(listener, app)
        .with_graceful_shutdown(async {
            // Without a signal handler the process just ends, and the locks with their ttl.
            let _ = tokio::signal::ctrl_c().await;
        })
        .await?;
    let report = locks.shutdown(Duration::from_secs(10)).await;
    println!("\nstopped; {} locks were cut short", report.lost);
    Ok(ExitCode::SUCCESS)
}

/// The service. The lock stands at the route whose path names the order.
fn app(shop: Shop, locks: &LockManager) -> Router {
    let one_at_a_time = RedlockLayer::new(locks.clone(), key::path("order_id").prefix("order"));
    Router::new()
        .route("/orders/{order_id}", get(shop::show))
        .route(
            "/orders/{order_id}/pay",
            // On the method, so that the answer 405 to other methods needs no lock.
            post(shop::pay).route_layer(one_at_a_time),
        )
        .with_state(shop)
}

/// Redis nodes if `REDLOCK_NODES` names them, else five nodes inside this process.
async fn connect() -> Result<LockManager, AnyError> {
    let builder = LockManager::builder().ttl(Duration::from_secs(10));
    let builder = match std::env::var("REDLOCK_NODES") {
        Ok(urls) => builder.redis(urls.split(',').map(str::trim).filter(|url| !url.is_empty())),
        Err(_) => builder.memory(5),
    };
    Ok(builder.connect().await?)
}

fn address() -> String {
    std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".to_owned())
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
        "  curl -i -X POST http://{address}/orders/42/pay &   # twice at once: one of them is told 409"
    );
    println!("  curl -i -X POST http://{address}/orders/42/pay");
    println!("  curl -i http://{address}/orders/42                 # reading needs no lock");
    println!("end it with ctrl-c");
}
