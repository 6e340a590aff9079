//! A payment endpoint whose clients may send every request again, with a SQLite database.
//!
//! ```text
//! cargo run --features idempotency --example idempotent_payment             drives itself, checks, and exits
//! cargo run --features idempotency --example idempotent_payment -- --serve  says what to try with curl
//! REDLOCK_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 cargo run ..
//! ```
//!
//! Without `REDLOCK_NODES` there are five nodes inside this process. `LISTEN` sets the address of `--serve` (default
//! `127.0.0.1:3000`).
//!
//! From the outside to the inside of a request:
//!
//! * *Authentication* finds out who sends it. Idempotency keys belong to customers.
//! * *`IdempotencyLayer`* answers a repeat with the first answer, and lets one run at a time.
//! * *`RedlockLayer`* lets one payment of an account run at a time. It stands inside: a repeat needs no account, and a
//!   run goes on under both locks when its client has gone.
//! * *One transaction* checks the fencing tokens of both locks, looks for the key, moves the money and notes the key.
//!   The layers keep nearly all second runs away and give the same answer again; that the money moves once is up to the
//!   database, and holds even if both locks are lost.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "an example talks to the terminal"
)]

mod bank;
mod demo;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::http::header::AUTHORIZATION;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Json, Router};
use tokio::net::TcpListener;
use tower_redlock::idempotency::{Idempotent, caller};
use tower_redlock::{Held, IdempotencyLayer, LockHandle, LockManager, RedlockLayer, key};

use crate::bank::{ACCOUNT, Bank, Fence, Order, Outcome, Run};

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
    let locks = connect().await?;
    let bank = Bank::open()?;
    if std::env::args().any(|arg| arg == "--serve") {
        serve(app(&bank, &locks, PATIENCE)).await?;
        locks.shutdown(Duration::from_secs(5)).await;
        return Ok(ExitCode::SUCCESS);
    }
    let sound = demo::run(&bank, &locks).await?;
    locks.shutdown(Duration::from_secs(5)).await;
    Ok(if sound {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
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
    .max_wait(repeats_wait);
    // Parsed as the handler parses it: `/accounts/7` and `/accounts/07` are one account, and so one lock.
    let account = key::path("account").parse::<i64>().prefix("account");
    let one_at_a_time = RedlockLayer::new(locks.clone(), account).max_wait(PATIENCE);
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
    lock: Held,
    idempotent: Idempotent,
    State(bank): State<Bank>,
    Path(account): Path<i64>,
    Json(order): Json<Order>,
) -> Response {
    let key = idempotent.key().as_str().to_owned();
    let fences = [
        fence(format!("account:{account}"), &lock),
        fence(format!("key:{customer}:{key}"), idempotent.handle()),
    ];
    let [Some(of_account), Some(of_key)] = fences else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let fences = [of_account, of_key];
    let run = Run {
        customer,
        key,
        fences,
    };
    // A partner is asked whether the card may be charged.
    tokio::time::sleep(PARTNER).await;
    // On a thread of its own, as a database blocks. If this future is dropped, it goes on: the fencing tokens decide
    // whether it still may.
    let paid = tokio::task::spawn_blocking(move || bank.pay(&run, account, order)).await;
    match paid {
        Ok(Ok(Outcome::Paid(receipt))) => (StatusCode::CREATED, Json(receipt)).into_response(),
        Ok(Ok(Outcome::NoSuchAccount)) => StatusCode::NOT_FOUND.into_response(),
        Ok(Ok(Outcome::TooLittle)) => StatusCode::PAYMENT_REQUIRED.into_response(),
        Ok(Ok(Outcome::KeyReused)) => StatusCode::UNPROCESSABLE_ENTITY.into_response(),
        // It has changed nothing, and is not kept: a repeat finds out what came of the other run.
        Ok(Ok(Outcome::Overtaken)) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
        Ok(Err(_)) | Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
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
