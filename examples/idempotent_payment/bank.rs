//! Accounts in a database, and what it does with a payment. What must not happen twice is excluded there.

use std::num::NonZeroU32;
use std::sync::Arc;

use axum::body::Bytes;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, Response, StatusCode};
use serde::{Deserialize, Serialize};

use crate::AnyError;
use crate::postgres::PostgresBank;
use crate::sqlite::SqliteBank;

/// What an order asks for.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Order {
    pub(crate) amount: NonZeroU32,
}

/// The fencing token of a holder, and the hash of its owner token, which tells two holders apart in any case.
#[derive(Clone, Debug)]
pub(crate) struct Fence {
    pub(crate) resource: String,
    pub(crate) token: i64,
    pub(crate) owner: String,
}

/// Makes the bytes that are stored of a response.
pub(crate) type Encode = Arc<dyn Fn(&Response<Bytes>) -> Bytes + Send + Sync>;

/// All that the transaction is to know.
#[derive(Clone)]
pub(crate) struct Payment {
    /// The idempotency key with its caller and route, as text.
    pub(crate) id: String,
    pub(crate) encode: Encode,
    /// Of the lock on the account. `None` while the nodes are away.
    pub(crate) fence: Option<Fence>,
    pub(crate) customer: String,
    pub(crate) account: i64,
    pub(crate) amount: i64,
}

impl Payment {
    /// The response to it, and what is stored of that.
    pub(crate) fn paid(&self, payment: i64, balance: i64) -> (Outcome, Vec<u8>) {
        let (account, amount) = (self.account, self.amount);
        let receipt = Receipt {
            payment,
            account,
            amount,
            balance,
        };
        let response = receipt.response();
        let stored = (self.encode)(&response).to_vec();
        (Outcome::Paid(response), stored)
    }
}

/// What a client is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Receipt {
    pub(crate) payment: i64,
    pub(crate) account: i64,
    pub(crate) amount: i64,
    /// After the payment. It has changed since, so a repeat cannot read it again.
    pub(crate) balance: i64,
}

impl Receipt {
    fn response(&self) -> Response<Bytes> {
        let text = serde_json::to_vec(self).unwrap_or_default();
        let mut response = Response::new(Bytes::from(text));
        *response.status_mut() = StatusCode::CREATED;
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(CONTENT_TYPE, json);
        response
    }
}

/// What came of a payment.
#[derive(Debug)]
pub(crate) enum Outcome {
    Paid(Response<Bytes>),
    /// By an earlier run with the same key, which stored these bytes.
    PaidBefore(Vec<u8>),
    /// Another had the account since, so this run is too late and has changed nothing.
    Overtaken,
    NoSuchAccount,
    TooLittle,
}

/// The account of the customer `alice`.
pub(crate) const ACCOUNT: i64 = 7;
pub(crate) const BEGINNING: i64 = 100_000_000;

/// Accounts in a database.
#[derive(Clone)]
pub(crate) struct Bank {
    database: Database,
    /// The process kills itself when the next payment is committed, and nobody has been told.
    dies: bool,
}

#[derive(Clone)]
enum Database {
    Sqlite(Arc<SqliteBank>),
    Postgres(Arc<PostgresBank>),
}

impl Bank {
    /// `sqlite:` and a file, or where a PostgreSQL server is.
    pub(crate) async fn open(url: &str) -> Result<Self, AnyError> {
        let database = match url.strip_prefix("sqlite:") {
            Some(file) => Database::Sqlite(Arc::new(SqliteBank::open(file)?)),
            None => Database::Postgres(Arc::new(PostgresBank::open(url).await?)),
        };
        let dies = std::env::var_os("DIE_AFTER_COMMIT").is_some();
        Ok(Self { database, dies })
    }

    /// Pays, once for each id, however often it is asked.
    pub(crate) async fn pay(&self, payment: Payment) -> Result<Outcome, AnyError> {
        let outcome = match &self.database {
            Database::Sqlite(bank) => {
                let bank = Arc::clone(bank);
                // On a thread of its own, as it blocks. If this future is dropped, it goes on: the fencing token decides
                // whether it still may.
                tokio::task::spawn_blocking(move || bank.pay(&payment)).await??
            }
            Database::Postgres(bank) => bank.pay(&payment).await?,
        };
        if self.dies && matches!(outcome, Outcome::Paid(_)) {
            std::process::abort();
        }
        Ok(outcome)
    }

    /// How many payments were made, and what is left.
    pub(crate) async fn audit(&self) -> Result<(i64, i64), AnyError> {
        match &self.database {
            Database::Sqlite(bank) => Ok(bank.audit()?),
            Database::Postgres(bank) => Ok(bank.audit().await?),
        }
    }
}
