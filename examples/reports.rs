//! Reports for tenants: at most three of a tenant are made at once, however many replicas the service has.
//!
//! ```text
//! cargo run --example reports              says what to try with curl
//! cargo run --example reports -- --demo    drives itself, checks, and exits
//! REDLOCK_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 cargo run ..
//! ```
//!
//! Without `REDLOCK_NODES` there are five nodes inside this process. `LISTEN` sets the address (default
//! `127.0.0.1:3000`).
//!
//! A report is heavy work, and one tenant must not take all of the machines. The layer takes one of three permits of the
//! tenant for each request. A fourth request waits, and is told 429 if no report has ended in time. Permits limit load;
//! they guard no data.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "an example talks to the terminal"
)]

use std::collections::BTreeMap;
use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::request::Parts;
use axum::http::{Request, Response, StatusCode};
use axum::routing::post;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tower::ServiceExt as _;
use tower_redlock::{Held, LockManager, RedlockLayer, key};

type AnyError = Box<dyn Error + Send + Sync>;

/// How many reports of one tenant are made at once.
const AT_ONCE: u32 = 3;
/// How long a report takes.
const WORK: Duration = Duration::from_secs(1);
/// How long a request waits for a permit, unless its client asks for less or more by the header `x-wait`.
const PATIENCE: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(true) => return ExitCode::SUCCESS,
        Ok(false) => println!("NOT as told"),
        Err(error) => eprintln!("reports: {error}"),
    }
    ExitCode::FAILURE
}

async fn run() -> Result<bool, AnyError> {
    let locks = connect().await?;
    let as_told = if std::env::args().any(|arg| arg == "--demo") {
        demo(&locks).await?
    } else {
        serve(app(&locks, &Reports::default())?).await?;
        true
    };
    locks.shutdown(Duration::from_secs(5)).await;
    Ok(as_told)
}

/// Redis nodes if `REDLOCK_NODES` names them, else five nodes inside this process.
async fn connect() -> Result<LockManager, AnyError> {
    let builder = LockManager::builder();
    let builder = match std::env::var("REDLOCK_NODES") {
        Ok(urls) => builder.redis(urls.split(',').map(str::trim).filter(|url| !url.is_empty())),
        Err(_) => builder.memory(5),
    };
    Ok(builder.connect().await?)
}

/// The service. All replicas must have the same limit.
fn app(locks: &LockManager, reports: &Reports) -> Result<Router, AnyError> {
    let tenant = key::path("tenant").parse::<u64>().prefix("reports");
    let layer = RedlockLayer::new(locks.permits(AT_ONCE)?, tenant)
        .max_wait(PATIENCE)
        .max_wait_with(asked_wait)
        .rate_limit("reports");
    Ok(Router::new()
        .route("/tenants/{tenant}/reports", post(make).route_layer(layer))
        .with_state(reports.clone()))
}

/// How long the client asks to wait for a permit, by its header `x-wait` in seconds.
fn asked_wait(parts: &Parts) -> Option<Duration> {
    let seconds = parts.headers.get("x-wait")?.to_str().ok()?;
    Some(Duration::from_secs(seconds.parse().ok()?))
}

async fn make(
    permit: Held,
    State(reports): State<Reports>,
    Path(tenant): Path<u64>,
) -> (StatusCode, String) {
    reports.write(tenant).await;
    let slot = permit.slot().unwrap_or_default();
    let text = format!("a report of tenant {tenant}, made in slot {slot}\n");
    (StatusCode::CREATED, text)
}

/// How many reports of each tenant are made now, and were made at once at most.
#[derive(Clone, Default)]
struct Reports(Arc<watch::Sender<BTreeMap<u64, Count>>>);

#[derive(Clone, Copy, Default)]
struct Count {
    now: u32,
    most: u32,
}

impl Reports {
    async fn write(&self, tenant: u64) {
        self.change(tenant, |count| {
            count.now += 1;
            count.most = count.most.max(count.now);
        });
        let _leave = Leave(self, tenant);
        tokio::time::sleep(WORK).await;
    }

    fn change(&self, tenant: u64, change: impl FnOnce(&mut Count)) {
        self.0
            .send_modify(|all| change(all.entry(tenant).or_default()));
    }

    fn count(&self, tenant: u64) -> Count {
        self.0.borrow().get(&tenant).copied().unwrap_or_default()
    }

    async fn until(&self, tenant: u64, now: u32) -> Result<(), AnyError> {
        let mut counts = self.0.subscribe();
        let is_now = |count: &Count| count.now == now;
        counts
            .wait_for(|all| all.get(&tenant).is_some_and(is_now))
            .await?;
        Ok(())
    }
}

/// Also when the handler is dropped half-way: the client is gone, or the permit is lost.
struct Leave<'a>(&'a Reports, u64);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.change(self.1, |count| count.now -= 1);
    }
}

async fn serve(app: Router) -> Result<(), AnyError> {
    let wanted = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(&wanted)
        .await
        .map_err(|error| format!("cannot listen on `{wanted}` (set LISTEN): {error}"))?;
    let place = format!("http://{}/tenants", listener.local_addr()?);
    println!("reports on {place}; try:");
    println!("  curl -i -X POST {place}/7/reports     # takes a second");
    println!(
        "  for n in 1 2 3 4; do curl -X POST {place}/7/reports & done; wait     # the fourth waits"
    );
    println!(
        "  for n in 1 2 3 4; do curl -i -X POST -H 'x-wait: 0' {place}/7/reports & done; wait     # one is told 429"
    );
    println!("end it with ctrl-c");
    // The example `orders` shows how to stop without waiting for ever.
    tokio::select! {
        served = axum::serve(listener, app) => Ok(served?),
        _ = tokio::signal::ctrl_c() => Ok(()),
    }
}

/// Sends requests of its own to the service. Returns whether all went as it should.
async fn demo(locks: &LockManager) -> Result<bool, AnyError> {
    let reports = Reports::default();
    let app = app(locks, &reports)?;
    let mut created = JoinSet::new();
    let mut send = |tenant| created.spawn(ask(app.clone(), tenant, None));

    (0..AT_ONCE).for_each(|_| drop(send(7)));
    reports.until(7, AT_ONCE).await?;
    println!("reports of tenant 7 at once: {AT_ONCE}");

    let refused = ask(app.clone(), 7, Some("0")).await?;
    println!("one more that does not wait: {}", refused.status());
    let told = HEADERS.map(|(name, _)| {
        let value = refused.headers().get(name);
        (name, value.and_then(|value| value.to_str().ok()))
    });
    for (name, value) in told {
        println!("    {name}: {}", value.unwrap_or_default());
    }
    let is_refused = refused.status() == StatusCode::TOO_MANY_REQUESTS
        && told == HEADERS.map(|(name, value)| (name, Some(value)));

    send(8);
    reports.until(8, 1).await?;
    let beside = reports.count(7).now;
    println!("reports of tenant 7 beside one of tenant 8: {beside}");

    // These wait until others have ended.
    (0..4).for_each(|_| drop(send(7)));
    let mut made = 0;
    while let Some(response) = created.join_next().await {
        made += u32::from(response??.status() == StatusCode::CREATED);
    }
    let most = reports.count(7).most;
    println!("all that were made, with four more of tenant 7: {made}");
    println!("most of tenant 7 at once: {most}");
    let is_fair = beside == AT_ONCE && most == AT_ONCE && made == AT_ONCE + 5;
    Ok(is_refused && is_fair)
}

/// The headers of a refusal.
const HEADERS: [(&str, &str); 3] = [
    (
        "ratelimit-policy",
        r#""reports";q=3;qu="concurrent-requests""#,
    ),
    ("ratelimit", r#""reports";r=0"#),
    ("retry-after", "1"),
];

async fn ask(app: Router, tenant: u64, wait: Option<&str>) -> Result<Response<Body>, AnyError> {
    let mut request = Request::post(format!("/tenants/{tenant}/reports"));
    if let Some(wait) = wait {
        request = request.header("x-wait", wait);
    }
    Ok(app.oneshot(request.body(Body::empty())?).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn three_reports_of_a_tenant_are_made_at_once() {
        let locks = LockManager::builder().memory(5).connect().await.unwrap();
        assert!(demo(&locks).await.unwrap());
        assert_eq!(locks.snapshot().held, 0);
    }
}
