//! The bank in a SQLite file.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _, Transaction, TransactionBehavior, params};

use crate::bank::{ACCOUNT, BEGINNING, Outcome, Payment};

/// `fence` has the greatest fencing token that was seen of each resource. What no run can get around, however late, is
/// the primary key of `responses`.
const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS account (
        id INTEGER PRIMARY KEY,
        customer TEXT NOT NULL,
        balance INTEGER NOT NULL CHECK (balance >= 0)
    );
    CREATE TABLE IF NOT EXISTS payment (
        id INTEGER PRIMARY KEY,
        account INTEGER NOT NULL REFERENCES account,
        amount INTEGER NOT NULL CHECK (amount > 0)
    );
    CREATE TABLE IF NOT EXISTS fence (resource TEXT PRIMARY KEY, token INTEGER NOT NULL, owner TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS responses (id VARCHAR(76) PRIMARY KEY, response BLOB);";

/// Registers a holder, unless one with a greater fencing token, or another with the same, was there before.
const ENTER: &str = "INSERT INTO fence (resource, token, owner) VALUES (?1, ?2, ?3)
    ON CONFLICT (resource) DO UPDATE SET token = excluded.token, owner = excluded.owner
    WHERE token < excluded.token OR (token = excluded.token AND owner = excluded.owner)";

pub(crate) struct SqliteBank(Mutex<Connection>);

impl SqliteBank {
    pub(crate) fn open(file: &str) -> rusqlite::Result<Self> {
        let connection = Connection::open(file)?;
        connection.busy_timeout(Duration::from_secs(10))?;
        connection.execute_batch(TABLES)?;
        let account =
            "INSERT OR IGNORE INTO account (id, customer, balance) VALUES (?1, 'alice', ?2)";
        connection.execute(account, params![ACCOUNT, BEGINNING])?;
        Ok(Self(Mutex::new(connection)))
    }

    pub(crate) fn pay(&self, payment: &Payment) -> rusqlite::Result<Outcome> {
        let mut connection = self.connection();
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let outcome = pay(&transaction, payment)?;
        match outcome {
            Outcome::Paid(_) => transaction.commit()?,
            // Nothing of it stays: neither its fencing token nor its row without a response.
            _ => transaction.rollback()?,
        }
        Ok(outcome)
    }

    pub(crate) fn audit(&self) -> rusqlite::Result<(i64, i64)> {
        let read =
            "SELECT (SELECT count(*) FROM payment WHERE payment.account = account.id), balance
            FROM account WHERE id = ?1";
        self.connection()
            .query_row(read, [ACCOUNT], |row| Ok((row.get(0)?, row.get(1)?)))
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn pay(transaction: &Transaction<'_>, payment: &Payment) -> rusqlite::Result<Outcome> {
    let id = &payment.id;
    let insert = "INSERT INTO responses (id) VALUES (?1) ON CONFLICT DO NOTHING";
    transaction.execute(insert, [id])?;
    let select = "SELECT response FROM responses WHERE id = ?1";
    let found: Option<Vec<u8>> = transaction.query_row(select, [id], |row| row.get(0))?;
    if let Some(response) = found {
        return Ok(Outcome::PaidBefore(response));
    }
    if let Some(fence) = &payment.fence {
        let fence = params![fence.resource, fence.token, fence.owner];
        if transaction.execute(ENTER, fence)? == 0 {
            return Ok(Outcome::Overtaken);
        }
    }
    let read = "SELECT balance FROM account WHERE id = ?1 AND customer = ?2";
    let balance: Option<i64> = transaction
        .query_row(read, params![payment.account, payment.customer], |row| {
            row.get(0)
        })
        .optional()?;
    let Some(balance) = balance else {
        return Ok(Outcome::NoSuchAccount);
    };
    let balance = balance - payment.amount;
    if balance < 0 {
        return Ok(Outcome::TooLittle);
    }
    let write = "UPDATE account SET balance = ?2 WHERE id = ?1";
    transaction.execute(write, params![payment.account, balance])?;
    let insert = "INSERT INTO payment (account, amount) VALUES (?1, ?2)";
    transaction.execute(insert, params![payment.account, payment.amount])?;
    let (paid, stored) = payment.paid(transaction.last_insert_rowid(), balance);
    let update = "UPDATE responses SET response = ?2 WHERE id = ?1";
    transaction.execute(update, params![id, stored])?;
    Ok(paid)
}
