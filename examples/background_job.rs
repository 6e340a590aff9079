//! A request that starts a job is answered at once, and the job goes on under the lock.
//!
//! ```text
//! cargo run --example background_job
//! ```
//!
//! The handler takes a guard of its lock along into the job and answers 202. So the answer no longer releases the lock:
//! who asks for the same report meanwhile is told 409, and it is free when the job has ended. A job that loses its lock
//! must stop by itself, for the layer watches a request only until its answer is out.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "an example talks to the terminal"
)]

use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::http::{Request, StatusCode};
use axum::routing::post;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tower_redlock::{Held, LockManager, RedlockLayer, key};

type AnyError = Box<dyn Error + Send + Sync>;

/// How long a report takes.
const WORK: Duration = Duration::from_millis(300);

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok([first, second, third]) => {
            println!("the first request:               {first}");
            println!("another one while the job runs:  {second}");
            println!("one more when it has ended:      {third}");
            if [first, second, third] == EXPECTED {
                return ExitCode::SUCCESS;
            }
            println!("NOT as told");
        }
        Err(error) => eprintln!("background_job: {error}"),
    }
    ExitCode::FAILURE
}

const EXPECTED: [StatusCode; 3] = [
    StatusCode::ACCEPTED,
    StatusCode::CONFLICT,
    StatusCode::ACCEPTED,
];

/// Serves the reports and asks for one of them three times.
async fn run() -> Result<[StatusCode; 3], AnyError> {
    let locks = LockManager::builder().memory(5).connect().await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let app = app(&locks);
    let server = tokio::spawn(async move { axum::serve(listener, app).await });

    let first = ask(address).await?;
    let second = ask(address).await?;
    // It is free as soon as the job has released it.
    locks.acquire("report:7").await?.release().await?;
    let third = ask(address).await?;

    server.abort();
    // The last job gets the time to end.
    locks.shutdown(WORK * 10).await;
    Ok([first, second, third])
}

fn app(locks: &LockManager) -> Router {
    let layer = RedlockLayer::new(
        locks.clone(),
        key::path("id").parse::<u64>().prefix("report"),
    );
    Router::new().route("/reports/{id}", post(start).route_layer(layer))
}

async fn start(lock: Held, Path(id): Path<u64>) -> StatusCode {
    let Ok(guard) = lock.into_guard() else {
        return StatusCode::SERVICE_UNAVAILABLE;
    };
    tokio::spawn(async move {
        tokio::select! {
            biased;
            () = write_report(id) => {}
            reason = guard.lost() => eprintln!("report {id} is given up: {reason}"),
        }
        // What cannot be released now is tried on in the background.
        let _ = guard.release().await;
    });
    StatusCode::ACCEPTED
}

async fn write_report(_id: u64) {
    tokio::time::sleep(WORK).await;
}

async fn ask(address: SocketAddr) -> Result<StatusCode, AnyError> {
    let client = Client::builder(TokioExecutor::new()).build_http();
    let uri = format!("http://{address}/reports/7");
    let answer = client.request(Request::post(uri).body(Body::empty())?);
    Ok(answer.await?.status())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_lock_lasts_as_long_as_the_job() {
        assert_eq!(run().await.unwrap(), EXPECTED);
    }
}
