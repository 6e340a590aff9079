//! The database that all processes share: a file, as it would be a server elsewhere.

use std::path::Path;
use std::sync::{Arc, Mutex};

use rusqlite::{Connection, params};

use crate::*;

/// What came of the requests.
#[derive(Clone)]
pub(crate) struct Ledger(Arc<Mutex<Connection>>);

impl Ledger {
    pub(crate) fn open(path: &Path) -> Self {
        let connection = Connection::open(path).unwrap();
        connection.busy_timeout(Duration::from_secs(10)).unwrap();
        // Processes are killed here, machines are not.
        connection
            .pragma_update(None, "synchronous", "OFF")
            .unwrap();
        Self(Arc::new(Mutex::new(connection)))
    }

    /// A new database.
    pub(crate) fn create(path: &Path) -> Self {
        let ledger = Self::open(path);
        let tables = "
            CREATE TABLE runs (run INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL);
            CREATE TABLE orders (key TEXT NOT NULL UNIQUE, run INTEGER NOT NULL);
        ";
        ledger.0.lock().unwrap().execute_batch(tables).unwrap();
        ledger
    }

    /// Notes that a handler runs, and returns the number of the run.
    pub(crate) async fn begin(&self, key: &str) -> u64 {
        let key = key.to_owned();
        let insert = "INSERT INTO runs (key) VALUES (?1) RETURNING run";
        self.with(move |db| db.query_row(insert, [key], |row| row.get(0)))
            .await
    }

    /// The effect of a run, which a unique key keeps from being had twice. Returns the run that had it.
    pub(crate) async fn order(&self, key: &str, run: u64) -> u64 {
        let key = key.to_owned();
        self.with(move |db| {
            let insert = "INSERT INTO orders VALUES (?1, ?2) ON CONFLICT (key) DO NOTHING";
            db.execute(insert, params![key, run])?;
            let select = "SELECT run FROM orders WHERE key = ?1";
            db.query_row(select, [key], |row| row.get(0))
        })
        .await
    }

    async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> T {
        let db = Arc::clone(&self.0);
        let work = tokio::task::spawn_blocking(move || work(&db.lock().unwrap()));
        work.await.unwrap().unwrap()
    }

    /// How often handlers began.
    pub(crate) fn runs(&self) -> usize {
        let db = self.0.lock().unwrap();
        db.query_row("SELECT count(*) FROM runs", [], |row| row.get(0))
            .unwrap()
    }

    /// All effects, in order of their keys, each with the run of a handler that had it.
    pub(crate) fn orders(&self) -> Vec<(String, u64)> {
        let db = self.0.lock().unwrap();
        let select = db.prepare("SELECT key, run FROM orders ORDER BY key");
        let mut select = select.unwrap();
        let orders = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
        orders.unwrap().map(Result::unwrap).collect()
    }
}
