//! The database, and the one transaction in which a payment is made. What must not happen twice is excluded here.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _, Transaction, TransactionBehavior, params};
use serde::{Deserialize, Serialize};

/// What an order asks for.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Order {
    amount: NonZeroU32,
}

impl Order {
    /// `None` if there is nothing to pay.
    pub(crate) fn of(amount: u32) -> Option<Self> {
        let amount = NonZeroU32::new(amount)?;
        Some(Self { amount })
    }

    fn amount(self) -> i64 {
        i64::from(self.amount.get())
    }
}

/// Who pays: everything that the transaction is to know of the run that makes it.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) customer: String,
    /// The client's key.
    pub(crate) key: String,
    /// Under which locks it runs, and with which fencing tokens: the account's, and the key's.
    pub(crate) fences: [Fence; 2],
}

/// The fencing token of a holder, and the hash of its owner token, which tells two holders apart in any case.
#[derive(Clone, Debug)]
pub(crate) struct Fence {
    pub(crate) resource: String,
    pub(crate) token: i64,
    pub(crate) owner: String,
}

/// What a client is told, and told again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Receipt {
    pub(crate) payment: i64,
    pub(crate) account: i64,
    pub(crate) amount: i64,
    pub(crate) balance: i64,
}

/// What came of a payment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// By this run, or by one before it with the same key.
    Paid(Receipt),
    /// Another run was there since, so this one is too late and has changed nothing.
    Overtaken,
    /// The key stands in the database beside another payment.
    KeyReused,
    NoSuchAccount,
    TooLittle,
}

/// Accounts in a database file that goes away with the last of these.
#[derive(Clone)]
pub(crate) struct Bank(Arc<Inner>);

struct Inner {
    dir: PathBuf,
    connection: Mutex<Connection>,
}

/// The account of the customer `alice`.
pub(crate) const ACCOUNT: i64 = 7;
pub(crate) const BEGINNING: i64 = 100_000;

/// `fence` has the greatest fencing token that was seen of each resource. The last line of `payment` is what no run,
/// however late, can get around.
const TABLES: &str = "
    CREATE TABLE account (
        id INTEGER PRIMARY KEY,
        customer TEXT NOT NULL,
        balance INTEGER NOT NULL CHECK (balance >= 0)
    );
    CREATE TABLE fence (
        resource TEXT PRIMARY KEY,
        token INTEGER NOT NULL,
        owner TEXT NOT NULL
    );
    CREATE TABLE payment (
        id INTEGER PRIMARY KEY,
        account INTEGER NOT NULL REFERENCES account,
        amount INTEGER NOT NULL CHECK (amount > 0),
        balance INTEGER NOT NULL,
        customer TEXT NOT NULL,
        idempotency_key TEXT NOT NULL,
        UNIQUE (customer, idempotency_key)
    );";

/// Registers a holder, unless one with a greater fencing token, or another with the same, was there before.
const ENTER: &str = "INSERT INTO fence (resource, token, owner) VALUES (?1, ?2, ?3)
    ON CONFLICT (resource) DO UPDATE SET token = excluded.token, owner = excluded.owner
    WHERE token < excluded.token OR (token = excluded.token AND owner = excluded.owner)";

impl Bank {
    pub(crate) fn open() -> Result<Self, crate::AnyError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let (process, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let name = format!("redlock-payments-{process}-{count}");
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir)?;
        let connection = Connection::open(dir.join("bank.sqlite"))?;
        connection.busy_timeout(Duration::from_secs(10))?;
        connection.execute_batch(TABLES)?;
        let open = "INSERT INTO account (id, customer, balance) VALUES (?1, 'alice', ?2)";
        connection.execute(open, params![ACCOUNT, BEGINNING])?;
        let connection = Mutex::new(connection);
        Ok(Self(Arc::new(Inner { dir, connection })))
    }

    /// Pays, once for each key of a customer, however often it is asked.
    pub(crate) fn pay(&self, run: &Run, account: i64, order: Order) -> rusqlite::Result<Outcome> {
        let mut connection = self.connection();
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let outcome = pay(&transaction, run, account, order)?;
        if matches!(outcome, Outcome::Overtaken) {
            // Its fencing tokens are not stored either.
            transaction.rollback()?;
        } else {
            transaction.commit()?;
        }
        Ok(outcome)
    }

    /// How many payments were made, and what is left.
    pub(crate) fn audit(&self) -> rusqlite::Result<(i64, i64)> {
        let read =
            "SELECT (SELECT count(*) FROM payment WHERE payment.account = account.id), balance
            FROM account WHERE id = ?1";
        let connection = self.connection();
        connection.query_row(read, [ACCOUNT], |row| Ok((row.get(0)?, row.get(1)?)))
    }

    fn connection(&self) -> std::sync::MutexGuard<'_, Connection> {
        let connection = self.0.connection.lock();
        connection.unwrap_or_else(PoisonError::into_inner)
    }
}

fn pay(
    transaction: &Transaction<'_>,
    run: &Run,
    account: i64,
    order: Order,
) -> rusqlite::Result<Outcome> {
    // Before anything is read, so that what is read cannot be changed by a run with a smaller fencing token.
    for fence in &run.fences {
        let values = params![fence.resource, fence.token, fence.owner];
        if transaction.execute(ENTER, values)? == 0 {
            return Ok(Outcome::Overtaken);
        }
    }
    // A run before this one may have come so far and no further.
    if let Some(receipt) = find(transaction, run)? {
        let same = receipt.account == account && receipt.amount == order.amount();
        return Ok(if same {
            Outcome::Paid(receipt)
        } else {
            Outcome::KeyReused
        });
    }
    let read = "SELECT balance FROM account WHERE id = ?1 AND customer = ?2";
    let balance: Option<i64> = transaction
        .query_row(read, params![account, run.customer], |row| row.get(0))
        .optional()?;
    let Some(balance) = balance else {
        return Ok(Outcome::NoSuchAccount);
    };
    let Some(balance) = balance
        .checked_sub(order.amount())
        .filter(|left| *left >= 0)
    else {
        return Ok(Outcome::TooLittle);
    };
    let write = "UPDATE account SET balance = ?2 WHERE id = ?1";
    transaction.execute(write, params![account, balance])?;
    let insert = "INSERT INTO payment (account, amount, balance, customer, idempotency_key)
        VALUES (?1, ?2, ?3, ?4, ?5)";
    let values = params![account, order.amount(), balance, run.customer, run.key];
    transaction.execute(insert, values)?;
    Ok(Outcome::Paid(Receipt {
        payment: transaction.last_insert_rowid(),
        account,
        amount: order.amount(),
        balance,
    }))
}

/// The payment that was made with this key.
fn find(transaction: &Transaction<'_>, run: &Run) -> rusqlite::Result<Option<Receipt>> {
    let read = "SELECT id, account, amount, balance FROM payment
        WHERE customer = ?1 AND idempotency_key = ?2";
    let found = transaction.query_row(read, params![run.customer, run.key], |row| {
        Ok(Receipt {
            payment: row.get(0)?,
            account: row.get(1)?,
            amount: row.get(2)?,
            balance: row.get(3)?,
        })
    });
    found.optional()
}

impl Drop for Inner {
    fn drop(&mut self) {
        // What is left lies in the directory for temporary files.
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
