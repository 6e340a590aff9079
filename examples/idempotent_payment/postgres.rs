//! The bank in a PostgreSQL database, by `tokio-postgres`: it has transactions and nothing that hides them.

use tokio::sync::Mutex;
use tokio_postgres::{Client, Error, NoTls, Transaction};

use crate::bank::{ACCOUNT, BEGINNING, Outcome, Payment};

/// As in SQLite, but for the names of types.
const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS account (
        id BIGINT PRIMARY KEY,
        customer TEXT NOT NULL,
        balance BIGINT NOT NULL CHECK (balance >= 0)
    );
    CREATE TABLE IF NOT EXISTS payment (
        id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        account BIGINT NOT NULL REFERENCES account,
        amount BIGINT NOT NULL CHECK (amount > 0)
    );
    CREATE TABLE IF NOT EXISTS fence (resource TEXT PRIMARY KEY, token BIGINT NOT NULL, owner TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS responses (id VARCHAR(76) PRIMARY KEY, response BYTEA);";

const ENTER: &str = "INSERT INTO fence (resource, token, owner) VALUES ($1, $2, $3)
    ON CONFLICT (resource) DO UPDATE SET token = excluded.token, owner = excluded.owner
    WHERE fence.token < excluded.token OR (fence.token = excluded.token AND fence.owner = excluded.owner)";

/// One connection, so that there is no more here than needs be. A service has a pool.
pub(crate) struct PostgresBank(Mutex<Client>);

impl PostgresBank {
    pub(crate) async fn open(url: &str) -> Result<Self, Error> {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        // It ends with the client.
        tokio::spawn(connection);
        client.batch_execute(TABLES).await?;
        let account = "INSERT INTO account (id, customer, balance) VALUES ($1, 'alice', $2) ON CONFLICT DO NOTHING";
        client.execute(account, &[&ACCOUNT, &BEGINNING]).await?;
        Ok(Self(Mutex::new(client)))
    }

    pub(crate) async fn pay(&self, payment: &Payment) -> Result<Outcome, Error> {
        let mut client = self.0.lock().await;
        // Dropped before its commit is sent, it is rolled back; after that a repeat finds what came of it.
        let transaction = client.transaction().await?;
        let outcome = pay(&transaction, payment).await?;
        match outcome {
            Outcome::Paid(_) => transaction.commit().await?,
            // Nothing of it stays: neither its fencing token nor its row without a response.
            _ => transaction.rollback().await?,
        }
        Ok(outcome)
    }

    pub(crate) async fn audit(&self) -> Result<(i64, i64), Error> {
        let read =
            "SELECT (SELECT count(*) FROM payment WHERE payment.account = account.id), balance
            FROM account WHERE id = $1";
        let row = self.0.lock().await.query_one(read, &[&ACCOUNT]).await?;
        Ok((row.get(0), row.get(1)))
    }
}

async fn pay(transaction: &Transaction<'_>, payment: &Payment) -> Result<Outcome, Error> {
    let id = &payment.id;
    let insert = "INSERT INTO responses (id) VALUES ($1) ON CONFLICT DO NOTHING";
    transaction.execute(insert, &[id]).await?;
    let select = "SELECT response FROM responses WHERE id = $1";
    let found: Option<Vec<u8>> = transaction.query_one(select, &[id]).await?.get(0);
    if let Some(response) = found {
        return Ok(Outcome::PaidBefore(response));
    }
    if let Some(fence) = &payment.fence {
        let entered = transaction
            .execute(ENTER, &[&fence.resource, &fence.token, &fence.owner])
            .await?;
        if entered == 0 {
            return Ok(Outcome::Overtaken);
        }
    }
    // The row is locked, because payments of one account can meet here while the nodes are away.
    let read = "SELECT balance FROM account WHERE id = $1 AND customer = $2 FOR UPDATE";
    let row = transaction
        .query_opt(read, &[&payment.account, &payment.customer])
        .await?;
    let Some(row) = row else {
        return Ok(Outcome::NoSuchAccount);
    };
    let balance = row.get::<_, i64>(0) - payment.amount;
    if balance < 0 {
        return Ok(Outcome::TooLittle);
    }
    let write = "UPDATE account SET balance = $2 WHERE id = $1";
    transaction
        .execute(write, &[&payment.account, &balance])
        .await?;
    let insert = "INSERT INTO payment (account, amount) VALUES ($1, $2) RETURNING id";
    let row = transaction
        .query_one(insert, &[&payment.account, &payment.amount])
        .await?;
    let (paid, stored) = payment.paid(row.get(0), balance);
    let update = "UPDATE responses SET response = $1 WHERE id = $2";
    transaction.execute(update, &[&stored, id]).await?;
    Ok(paid)
}
