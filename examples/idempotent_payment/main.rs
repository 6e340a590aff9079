//! A payment endpoint whose clients may send every request again: one effect and one response each, also when the
//! process dies half-way.
//!
//! ```text
//! cargo run --features idempotency --example idempotent_payment                drives itself, checks, and exits
//! cargo run --features idempotency --example idempotent_payment -- --postgres  the same, on a PostgreSQL server that it starts
//! cargo run --features idempotency --example idempotent_payment -- --serve     says what to try with curl
//! DATABASE_URL=postgres://me@localhost/test cargo run ..                       on yours, in which it makes four tables
//! REDLOCK_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 cargo run ..
//! ```
//!
//! Without `DATABASE_URL` there is a SQLite file, without `REDLOCK_NODES` five nodes inside this process. `LISTEN` sets the
//! address of `--serve` (default `127.0.0.1:3000`). With `DIE_AFTER_COMMIT` set it kills itself when the next payment is
//! committed, before anybody is told: with a bank that stays, such as `DATABASE_URL=sqlite:/tmp/bank.sqlite`, start it again
//! without that, and send the same request.
//!
//! From the outside to the inside of a request:
//!
//! * *Authentication* finds out who sends it. Idempotency keys belong to customers.
//! * *`IdempotencyLayer`* answers a repeat with the first response, and lets one run at a time.
//! * *`RedlockLayer`* lets one payment of an account run at a time. It stands inside: a repeat needs no account, and a
//!   run goes on under both locks when its client has gone.
//! * *One transaction* looks for the response of an earlier run, checks the fencing token of the account, moves the money
//!   and stores the response. The layers keep nearly all second runs away. That the money moves once, and that there is
//!   one response, is up to the database, and holds even if both locks are lost.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "an example talks to the terminal"
)]

mod bank;
mod demo;
mod postgres;
mod sqlite;
#[cfg(test)]
#[path = "../../tests/support/mod.rs"]
mod support;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::io::{BufRead as _, BufReader};
use std::path::{Path as FilePath, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::http::header::AUTHORIZATION;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Json, Router};
use tokio::net::TcpListener;
use tower_redlock::idempotency::{Idempotent, OnUnrecorded, caller};
use tower_redlock::layer::OnNoQuorum;
use tower_redlock::{Held, IdempotencyLayer, LockHandle, LockManager, RedlockLayer, key};

use crate::bank::{ACCOUNT, Bank, Fence, Order, Outcome, Payment};

type AnyError = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("idempotent_payment: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<ExitCode, AnyError> {
    let is_asked = |what: &str| std::env::args().any(|arg| arg == what);
    let (place, _end) = place(is_asked("--postgres"))?;
    let locks = connect().await?;
    let bank = Bank::open(&place).await?;
    if is_asked("--serve") {
        serve(app(&bank, &locks, PATIENCE)).await?;
        locks.shutdown(Duration::from_secs(5)).await;
        return Ok(ExitCode::SUCCESS);
    }
    let mut itself = Command::new(std::env::current_exe()?);
    itself.arg("--serve").env("DATABASE_URL", place);
    let sound = demo::run(&bank, &locks, itself).await?;
    locks.shutdown(Duration::from_secs(5)).await;
    Ok(if sound {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Where the bank is, and what goes away with this value.
fn place(on_postgres: bool) -> Result<(String, Box<dyn std::any::Any>), AnyError> {
    if on_postgres {
        let server = Postgres::start()?;
        return Ok((server.url.clone(), Box::new(server)));
    }
    if let Ok(url) = std::env::var("DATABASE_URL") {
        return Ok((url, Box::new(())));
    }
    let dir = Dir::new()?;
    Ok((dir.bank(), Box::new(dir)))
}

struct Dir(PathBuf);

impl Dir {
    fn new() -> Result<Self, AnyError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let (process, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let name = format!("redlock-payments-{process}-{count}");
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir)?;
        Ok(Self(dir))
    }

    fn bank(&self) -> String {
        format!("sqlite:{}", self.0.join("bank.sqlite").display())
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        // What is left lies in the directory for temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server by `examples/ops/postgres.sh`, which ends when its input does: with this value, or with this process.
struct Postgres {
    script: Child,
    url: String,
}

impl Postgres {
    fn start() -> Result<Self, AnyError> {
        let path = FilePath::new(env!("CARGO_MANIFEST_DIR")).join("examples/ops/postgres.sh");
        let mut script = Command::new("sh");
        script.arg(path);
        script.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut script = script.spawn()?;
        let mut line = String::new();
        let output = script.stdout.take().ok_or("no output")?;
        BufReader::new(output).read_line(&mut line)?;
        let url = line.trim().strip_prefix("DATABASE_URL=");
        let url = url.ok_or("the database did not start")?.to_owned();
        Ok(Self { script, url })
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        drop(self.script.stdin.take());
        let _ = self.script.wait();
    }
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

/// How long a request waits for its account, and a repeat for the first one.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a partner takes to say yes.
const PARTNER: Duration = Duration::from_millis(50);

/// The service. Repeats of what still runs wait for so long, and are told 409 then.
fn app(bank: &Bank, locks: &LockManager, repeats_wait: Duration) -> Router {
    let once = IdempotencyLayer::new(
        locks.clone(),
        caller::extension(|customer: &Customer| customer.0.clone()),
    )
    .max_wait(repeats_wait)
    // The response is in the transaction, so the database alone excludes a second effect: payments go on while too few
    // nodes answer, and each client gets the response of its payment even if no node has stored it.
    .on_no_quorum(OnNoQuorum::RunUnlocked)
    .on_unrecorded(OnUnrecorded::Respond)
    // The rows stay for a day. The nodes need a response only while a repeat of it is likely.
    .retention(Duration::from_secs(60 * 60));
    // Parsed as the handler parses it: `/accounts/7` and `/accounts/07` are one account, and so one lock.
    let account = key::path("account").parse::<i64>().prefix("account");
    let one_at_a_time = RedlockLayer::new(locks.clone(), account)
        .max_wait(PATIENCE)
        .on_no_quorum(OnNoQuorum::RunUnlocked);
    // The lock stands directly inside: that an account is busy is no answer to keep. What is added last stands outside.
    let pay = post(pay)
        .route_layer(once.with_lock(one_at_a_time))
        .route_layer(from_fn(authenticate));
    Router::new()
        .route("/accounts/{account}/payments", pay)
        .with_state(bank.clone())
}

/// Who sends a request.
#[derive(Clone)]
struct Customer(String);

/// Stands for whatever checks credentials.
async fn authenticate(mut request: Request, next: Next) -> Response {
    let credentials = request.headers().get(AUTHORIZATION);
    let customer = match credentials.map(|value| value.as_bytes()) {
        Some(b"Bearer alices-secret") => "alice",
        Some(b"Bearer bobs-secret") => "bob",
        _ => return (StatusCode::UNAUTHORIZED, [("www-authenticate", "Bearer")]).into_response(),
    };
    request
        .extensions_mut()
        .insert(Customer(customer.to_owned()));
    next.run(request).await
}

async fn pay(
    Extension(Customer(customer)): Extension<Customer>,
    lock: Option<Held>,
    idempotent: Idempotent,
    State(bank): State<Bank>,
    Path(account): Path<i64>,
    Json(order): Json<Order>,
) -> Response {
    // Without a lock, the database decides alone: by the row of the account, and the unique id of the request.
    let fence = lock.and_then(|lock| fence(format!("account:{account}"), &lock));
    // A partner is asked whether the card may be charged.
    tokio::time::sleep(PARTNER).await;
    let run = idempotent.clone();
    let payment = Payment {
        id: idempotent.id().to_owned(),
        encode: Arc::new(move |response| run.encode(response)),
        fence,
        customer,
        account,
        amount: i64::from(order.amount.get()),
    };
    match bank.pay(payment).await {
        Ok(Outcome::Paid(response)) => response.map(Body::from),
        Ok(Outcome::PaidBefore(stored)) => idempotent.decode(stored).map(Body::from),
        Ok(Outcome::NoSuchAccount) => StatusCode::NOT_FOUND.into_response(),
        Ok(Outcome::TooLittle) => StatusCode::PAYMENT_REQUIRED.into_response(),
        // It has changed nothing, and is not kept: a repeat finds out what came of the other run.
        Ok(Outcome::Overtaken) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

fn fence(resource: String, lock: &LockHandle) -> Option<Fence> {
    Some(Fence {
        resource,
        token: lock.fence()?.as_i64(),
        owner: lock.owner_hash().to_string(),
    })
}

async fn serve(app: Router) -> Result<(), AnyError> {
    let wanted = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(&wanted)
        .await
        .map_err(|error| format!("cannot listen on `{wanted}` (set LISTEN): {error}"))?;
    let address = listener.local_addr()?;
    let order = |amount| {
        format!(
            "curl -i http://{address}/accounts/{ACCOUNT}/payments -H 'authorization: Bearer alices-secret' \\
    -H 'idempotency-key: k1' -H 'content-type: application/json' -d '{{\"amount\": {amount}}}'"
        )
    };
    println!("payments on http://{address}; try, each twice:");
    println!("  {}", order(1_250));
    println!(
        "  {}      # another payment under the same key: 422",
        order(9_999)
    );
    println!("end it with ctrl-c");
    // The example `orders` shows how to stop without waiting for ever.
    tokio::select! {
        served = axum::serve(listener, app) => Ok(served?),
        _ = tokio::signal::ctrl_c() => Ok(()),
    }
}
