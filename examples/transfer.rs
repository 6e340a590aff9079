//! Money moves between two accounts, and a layer locks both of them for each request.
//!
//! ```text
//! cargo run --example transfer
//! ```
//!
//! Clients move money in a circle between three accounts, in both directions at once. A handler reads two balances,
//! goes away for a moment as if to a database, and writes two balances: without the lock money would be made and lost.
//! The layer takes both keys in one step on each node, so that transfers in opposite directions never wait for each
//! other. The lock has one fencing token, which both accounts register before anything is read: a holder that comes too
//! late for one of them changes neither.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "an example talks to the terminal"
)]

use std::collections::BTreeMap;
use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{Request, StatusCode};
use axum::routing::post;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tower_redlock::OwnerHash;
use tower_redlock::{FencingToken, Held, LockManager, RedlockLayer, key};

type AnyError = Box<dyn Error + Send + Sync>;

const ACCOUNTS: [u64; 3] = [1, 2, 3];
const BEGINNING: i64 = 1_000;
const TRANSFERS: usize = 60;

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(outcome) => {
            println!("{outcome:?}");
            if outcome.is_sound() {
                println!("sound: every transfer was made, and no money was made or lost");
                return ExitCode::SUCCESS;
            }
            println!("BROKEN");
        }
        Err(error) => eprintln!("transfer: {error}"),
    }
    ExitCode::FAILURE
}

/// What came of all transfers.
#[derive(Debug)]
struct Outcome {
    made: usize,
    sum: i64,
}

impl Outcome {
    fn is_sound(&self) -> bool {
        let all = i64::try_from(ACCOUNTS.len()).unwrap_or(0) * BEGINNING;
        self.made == TRANSFERS && self.sum == all
    }
}

/// Serves the bank and sends it all transfers at once.
async fn run() -> Result<Outcome, AnyError> {
    let locks = LockManager::builder().memory(5).connect().await?;
    let bank = Bank::new();
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let app = app(bank.clone(), &locks);
    let server = tokio::spawn(async move { axum::serve(listener, app).await });

    let (circle, next) = (ACCOUNTS.iter().cycle(), ACCOUNTS.iter().cycle().skip(1));
    let pairs = circle.zip(next).enumerate().take(TRANSFERS);
    let transfers = pairs.map(|(n, (a, b))| {
        let (from, to) = if n % 2 == 0 { (*a, *b) } else { (*b, *a) };
        tokio::spawn(send(address, from, to))
    });
    let transfers: Vec<_> = transfers.collect();
    let mut made = 0;
    for transfer in transfers {
        made += usize::from(transfer.await?? == StatusCode::NO_CONTENT);
    }
    server.abort();
    locks.shutdown(Duration::from_secs(1)).await;
    let sum = bank.accounts().values().map(|it| it.balance).sum();
    Ok(Outcome { made, sum })
}

/// The service. The lock stands at the route whose path names both accounts.
fn app(bank: Bank, locks: &LockManager) -> Router {
    let account = |name| key::path(name).parse::<u64>().prefix("account");
    let both = account("from").also(account("to"));
    let layer = RedlockLayer::new(locks.clone(), both).max_wait(Duration::from_secs(5));
    Router::new()
        .route(
            "/accounts/{from}/to/{to}",
            post(transfer).route_layer(layer),
        )
        .with_state(bank)
}

/// Moves one unit. Two of these at once for one account would lose one of the changes.
async fn transfer(
    lock: Held,
    State(bank): State<Bank>,
    Path((from, to)): Path<(u64, u64)>,
) -> StatusCode {
    // A transfer to oneself has one key.
    debug_assert_eq!(lock.keys().len(), if from == to { 1 } else { 2 });
    let Some(fence) = lock.fence() else {
        return StatusCode::INTERNAL_SERVER_ERROR;
    };
    if !bank.enter([from, to], (fence, lock.owner_hash())) {
        return StatusCode::CONFLICT;
    }
    let (mine, yours) = (bank.balance(from), bank.balance(to));
    tokio::time::sleep(Duration::from_millis(1)).await;
    if from != to {
        bank.set(from, mine - 1);
        bank.set(to, yours + 1);
    }
    StatusCode::NO_CONTENT
}

/// The token of a lock, and its owner.
type Holder = (FencingToken, OwnerHash);

#[derive(Default)]
struct Account {
    balance: i64,
    /// The last holder that has registered.
    holder: Option<Holder>,
}

/// All accounts. Each single read and write is sound; a transfer is several.
#[derive(Clone)]
struct Bank(Arc<Mutex<BTreeMap<u64, Account>>>);

impl Bank {
    fn new() -> Self {
        let account = |number| {
            let holder = None;
            let balance = BEGINNING;
            (number, Account { balance, holder })
        };
        Self(Arc::new(Mutex::new(ACCOUNTS.map(account).into())))
    }

    fn accounts(&self) -> MutexGuard<'_, BTreeMap<u64, Account>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers the token of a lock with all accounts that it covers, or with none: in a database by the statement of
    /// the guide's page about fencing with `WHERE id IN (..)`, whose count must be that of the accounts.
    fn enter(&self, numbers: [u64; 2], holder: Holder) -> bool {
        let mut accounts = self.accounts();
        let may_enter = |number: &u64| {
            let last = accounts.get(number).and_then(|account| account.holder);
            last.is_none_or(|last| last.0 < holder.0 || last == holder)
        };
        if !numbers.iter().all(may_enter) {
            return false;
        }
        for number in numbers {
            accounts.entry(number).or_default().holder = Some(holder);
        }
        true
    }

    fn balance(&self, number: u64) -> i64 {
        let accounts = self.accounts();
        accounts.get(&number).map_or(0, |account| account.balance)
    }

    fn set(&self, number: u64, balance: i64) {
        self.accounts().entry(number).or_default().balance = balance;
    }
}

async fn send(address: SocketAddr, from: u64, to: u64) -> Result<StatusCode, AnyError> {
    let client = Client::builder(TokioExecutor::new()).build_http();
    let uri = format!("http://{address}/accounts/{from}/to/{to}");
    let answer = client.request(Request::post(uri).body(Body::empty())?);
    Ok(answer.await?.status())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn no_money_is_made_or_lost() {
        let outcome = run().await.unwrap();
        assert!(outcome.is_sound(), "{outcome:?}");
    }

    #[tokio::test]
    async fn who_comes_too_late_for_one_account_enters_neither() {
        let locks = LockManager::builder().memory(5).connect().await.unwrap();
        let holder = async |keys: &[&str]| {
            let lock = locks.acquire(keys).await.unwrap();
            (lock.fence().unwrap(), lock.owner_hash())
        };
        let late = holder(&["account:1", "account:2"]).await;
        let next = holder(&["account:2"]).await;
        let bank = Bank::new();
        assert!(bank.enter([2, 2], next));
        assert!(!bank.enter([1, 2], late));
        assert!(bank.accounts()[&1].holder.is_none());
        let last = holder(&["account:1", "account:2"]).await;
        assert!(bank.enter([1, 2], last));
        assert!(bank.enter([1, 2], last), "the next transaction of the same");
    }

    #[tokio::test]
    async fn a_transfer_to_oneself_is_one_lock() {
        use tower::ServiceExt as _;

        let locks = LockManager::builder().memory(5).connect().await.unwrap();
        let request = Request::post("/accounts/1/to/01").body(Body::empty());
        let answer = app(Bank::new(), &locks).oneshot(request.unwrap()).await;
        assert_eq!(answer.unwrap().status(), StatusCode::NO_CONTENT);
    }
}
