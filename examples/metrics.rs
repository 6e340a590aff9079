//! A service whose locks Prometheus can watch.
//!
//! ```text
//! cargo run --example metrics --features metrics            # sends itself requests, prints a scrape, and ends
//! cargo run --example metrics --features metrics -- --stay  # goes on; scrape http://127.0.0.1:3000/metrics
//! ```
//!
//! The recorder is installed before the manager is built, so that the gauges count from the start. Whoever can read
//! `/metrics` learns the names of the nodes and how busy the service is: serve it where only the scraper comes.

#![allow(clippy::print_stdout, reason = "an example talks to the terminal")]

use std::error::Error;
use std::time::Duration;

use axum::Router;
use axum::routing::{get, post};
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio::net::TcpListener;
use tower_redlock::{Held, LockManager, RedlockLayer, key};

type AnyError = Box<dyn Error + Send + Sync>;

/// Bounds of the histograms, in seconds: a lock in one process takes microseconds, one that is waited for takes long.
const BUCKETS: [f64; 10] = [0.001, 0.005, 0.02, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0, 600.0];

#[tokio::main]
async fn main() -> Result<(), AnyError> {
    let prometheus = PrometheusBuilder::new()
        .set_buckets(&BUCKETS)?
        .install_recorder()?;
    tower_redlock::metrics::describe();
    let app = service(prometheus).await?;
    if std::env::args().any(|word| word == "--stay") {
        let listener = TcpListener::bind("127.0.0.1:3000").await?;
        println!("scrape http://{}/metrics", listener.local_addr()?);
        return Ok(axum::serve(listener, app).await?);
    }
    print!("{}", demo(app).await?);
    Ok(())
}

async fn service(prometheus: PrometheusHandle) -> Result<Router, AnyError> {
    let locks = LockManager::builder().memory(3).connect().await?;
    let layer = RedlockLayer::new(locks, key::path("order_id").prefix("order"));
    let pay = async |_lock: Held| {
        tokio::time::sleep(Duration::from_millis(50)).await;
        "paid"
    };
    // What has arrived is taken in whenever it is shown; a service that is rarely scraped calls `run_upkeep` as well.
    let metrics = get(move || std::future::ready(prometheus.render()));
    Ok(Router::new()
        .route("/orders/{order_id}/pay", post(pay).route_layer(layer))
        .route("/metrics", metrics))
}

/// Two payments of one order at once, of which one is refused, and a scrape.
async fn demo(app: Router) -> Result<String, AnyError> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let server = tokio::spawn(async move { axum::serve(listener, app).await });
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<bytes::Bytes>>();
    let pay = || Request::post(format!("http://{address}/orders/42/pay")).body(Empty::new());
    let (first, second) = tokio::join!(client.request(pay()?), client.request(pay()?));
    let mut answers = [first?.status().as_u16(), second?.status().as_u16()];
    answers.sort_unstable();
    if answers != [200, 409] {
        return Err(format!("one payment and one refusal were expected: {answers:?}").into());
    }
    let scrape = Request::get(format!("http://{address}/metrics")).body(Empty::new())?;
    let scrape = client.request(scrape).await?.into_body().collect().await?;
    server.abort();
    let text = String::from_utf8(scrape.to_bytes().into())?;
    let refused = r#"redlock_acquire_total{outcome="contended"} 1"#;
    if !text.contains(refused) {
        return Err(format!("no line {refused} in the scrape:\n{text}").into());
    }
    Ok(text)
}
