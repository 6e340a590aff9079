//! Documents in several parts: requests that read one run together, and one that writes it alone, however many replicas
//! the service has.
//!
//! ```text
//! cargo run --example documents              says what to try with curl
//! cargo run --example documents -- --demo    drives itself, checks, and exits
//! REDLOCK_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 cargo run ..
//! ```
//!
//! Without `REDLOCK_NODES` there are five nodes inside this process. `LISTEN` sets the address (default
//! `127.0.0.1:3000`).
//!
//! A document lies in a store without transactions, as files or objects do. It is read and written part by part, and who
//! reads while another writes gets parts of two versions. So GET shares the lock of the document, and PUT has it alone. A
//! request that was paused may go on when its lock has ended: the store turns a late writer away by its fencing token, and
//! a reader looks at the end whether a newer writer has come.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::indexing_slicing,
    reason = "an example talks to the terminal, and counts the parts of a document"
)]

use std::collections::BTreeMap;
use std::error::Error;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Path, State};
use axum::http::{Method, Request, StatusCode};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tower::ServiceExt as _;
use tower_redlock::{FencingToken, Held, LockManager, RedlockLayer, key};

type AnyError = Box<dyn Error + Send + Sync>;

const PARTS: usize = 4;
/// How long the store takes to write one part, twice as long as to read one.
const STEP: Duration = Duration::from_millis(10);
/// How long a request waits for the lock.
const PATIENCE: Duration = Duration::from_secs(10);

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(true) => return ExitCode::SUCCESS,
        Ok(false) => println!("NOT as told"),
        Err(error) => eprintln!("documents: {error}"),
    }
    ExitCode::FAILURE
}

async fn run() -> Result<bool, AnyError> {
    let locks = connect().await?;
    let as_told = if std::env::args().any(|arg| arg == "--demo") {
        demo(&locks).await?
    } else {
        serve(app(&locks, &Store::default())).await?;
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

fn app(locks: &LockManager, store: &Store) -> Router {
    let document = key::path("id").parse::<u64>().prefix("document");
    let layer = RedlockLayer::new(locks.clone(), document)
        .shared_for([Method::GET, Method::HEAD])
        .max_wait(PATIENCE);
    Router::new()
        .route("/documents/{id}", get(read).put(write).route_layer(layer))
        .with_state(store.clone())
}

async fn read(
    lock: Held,
    State(store): State<Store>,
    Path(id): Path<u64>,
) -> Result<String, StatusCode> {
    let parts = store.read(id).await;
    if store.written_by(id) > lock.fence() {
        // A newer writer came while this request stood still.
        return Err(StatusCode::SERVICE_UNAVAILABLE);
    }
    Ok(parts.join(""))
}

async fn write(
    lock: Held,
    State(store): State<Store>,
    Path(id): Path<u64>,
    text: String,
) -> StatusCode {
    match store.write(id, &text, lock.fence()).await {
        Ok(()) => StatusCode::NO_CONTENT,
        Err(Late) => StatusCode::CONFLICT,
    }
}

/// A store without transactions. Each document has the fencing token of its last writer.
#[derive(Clone, Default)]
struct Store(Arc<Mutex<BTreeMap<u64, Document>>>);

#[derive(Clone, Default)]
struct Document {
    parts: [String; PARTS],
    fence: Option<FencingToken>,
}

/// A newer writer has been there.
#[derive(Debug)]
struct Late;

impl Store {
    fn on<T>(&self, id: u64, step: impl FnOnce(&mut Document) -> T) -> T {
        let mut documents = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        step(documents.entry(id).or_default())
    }

    fn written_by(&self, id: u64) -> Option<FencingToken> {
        self.on(id, |document| document.fence)
    }

    async fn read(&self, id: u64) -> Vec<String> {
        let mut parts = Vec::new();
        for part in 0..PARTS {
            parts.push(self.on(id, |document| document.parts[part].clone()));
            tokio::time::sleep(STEP / 2).await;
        }
        parts
    }

    async fn write(&self, id: u64, text: &str, fence: Option<FencingToken>) -> Result<(), Late> {
        for part in 0..PARTS {
            self.on(id, |document| {
                if document.fence > fence {
                    return Err(Late);
                }
                document.fence = fence;
                document.parts[part] = text.to_owned();
                Ok(())
            })?;
            tokio::time::sleep(STEP).await;
        }
        Ok(())
    }
}

async fn serve(app: Router) -> Result<(), AnyError> {
    let wanted = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(&wanted)
        .await
        .map_err(|error| format!("cannot listen on `{wanted}` (set LISTEN): {error}"))?;
    let place = format!("http://{}/documents", listener.local_addr()?);
    println!("documents on {place}; try:");
    println!("  curl -i -X PUT -d a {place}/7");
    println!("  curl {place}/7     # aaaa");
    println!(
        "  for n in 1 2 3 4; do curl -X PUT -d $n {place}/7 & curl {place}/7 & done; wait     # four of one, never mixed"
    );
    println!("end it with ctrl-c");
    // The example `orders` shows how to stop without waiting for ever.
    tokio::select! {
        served = axum::serve(listener, app) => Ok(served?),
        _ = tokio::signal::ctrl_c() => Ok(()),
    }
}

/// Reads and writes a document many times at once. Returns whether all went as it should.
async fn demo(locks: &LockManager) -> Result<bool, AnyError> {
    let store = Store::default();
    let (torn, _) = crowd(|version| plain(store.clone(), version)).await?;
    println!("without a lock: {torn} of {READS} reads got parts of two versions");

    let app = app(locks, &Store::default());
    let (mixed, took) = crowd(|version| send(app.clone(), version)).await?;
    println!("with GET sharing the lock and PUT alone: {mixed} of {READS}");
    let alone = STEP * u32::try_from(PARTS * (READS / 2 + WRITES))?;
    println!("it took {took:.1?}; one after the other takes at least {alone:.1?}");
    Ok(torn > 0 && mixed == 0 && took < alone)
}

const READS: usize = 60;
const WRITES: usize = 6;

/// So many reads, and a write after every tenth; tells how many reads got parts of two versions, and how long all took.
async fn crowd<F>(request: impl Fn(Option<String>) -> F) -> Result<(usize, Duration), AnyError>
where
    F: Future<Output = Result<String, AnyError>> + Send + 'static,
{
    let began = tokio::time::Instant::now();
    let mut requests = JoinSet::new();
    for number in 0..READS {
        requests.spawn(request(None));
        if number % (READS / WRITES) == 0 {
            requests.spawn(request(Some(number.to_string())));
        }
        tokio::time::sleep(STEP / 4).await;
    }
    let mut torn = 0;
    while let Some(text) = requests.join_next().await {
        let text = text??;
        let (first, rest) = text.split_at(text.len() / PARTS);
        torn += usize::from(first.repeat(PARTS - 1) != rest);
    }
    Ok((torn, began.elapsed()))
}

async fn plain(store: Store, version: Option<String>) -> Result<String, AnyError> {
    let Some(text) = version else {
        return Ok(store.read(7).await.join(""));
    };
    let _ = store.write(7, &text, None).await;
    Ok(String::new())
}

async fn send(app: Router, version: Option<String>) -> Result<String, AnyError> {
    let request = match &version {
        Some(_) => Request::put("/documents/7"),
        None => Request::get("/documents/7"),
    };
    let body = Body::from(version.unwrap_or_default());
    let response = app.oneshot(request.body(body)?).await?;
    let status = response.status();
    let body = to_bytes(response.into_body(), 1 << 20).await?;
    let text = String::from_utf8(body.to_vec())?;
    match status.is_success() {
        true => Ok(text),
        false => Err(format!("{status}: {text}").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn no_read_gets_parts_of_two_versions() {
        let locks = LockManager::builder().memory(5).connect().await.unwrap();
        assert!(demo(&locks).await.unwrap());
        assert_eq!(locks.snapshot().held, 0);
    }
}
