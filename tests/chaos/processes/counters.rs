//! Two counters for each key, beside each other in a database: one that lets only holders in whose fencing token is not
//! below that of another, and one that lets everybody in.
//!
//! Both are read at the beginning of the work and written at its end, as by a client that computes something in
//! between. Each also counts how often it was written, so that it is known what it should be.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rusqlite::{Connection, Transaction, TransactionBehavior, params};
use tower_redlock::LockGuard;

use super::part::KEYS;

/// The database.
#[derive(Clone)]
pub(crate) struct Counters(Arc<Mutex<Connection>>);

/// Who writes, as the database knows it.
#[derive(Clone, Debug)]
pub(crate) struct Holder {
    key: &'static str,
    fence: i64,
    owner: String,
}

impl Holder {
    pub(crate) fn of(guard: &LockGuard, key: &'static str) -> Self {
        Self {
            key,
            fence: guard.fence().unwrap().as_i64(),
            owner: guard.owner_hash().to_string(),
        }
    }
}

/// What a holder has read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// Nothing if it came too late.
    fenced: Option<i64>,
    unfenced: i64,
}

/// What has become of one kind of counter.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Count {
    pub(crate) writes: u64,
    /// How many of them were overwritten by a holder that had not seen them.
    pub(crate) lost: u64,
    pub(crate) refused: u64,
}

/// The first statement of each transaction, which changes no row if the holder is too late.
const ENTER: &str = "UPDATE fenced SET fence = ?2, owner = ?3
    WHERE key = ?1 AND (fence < ?2 OR (fence = ?2 AND owner = ?3))";

impl Counters {
    pub(crate) fn open(path: &Path) -> Self {
        let connection = Connection::open(path).unwrap();
        // Longer than any process is stopped, which may hold the database meanwhile.
        connection.busy_timeout(Duration::from_secs(10)).unwrap();
        // Processes are killed here, machines are not.
        connection
            .pragma_update(None, "synchronous", "OFF")
            .unwrap();
        Self(Arc::new(Mutex::new(connection)))
    }

    /// A new database.
    pub(crate) fn create(path: &Path) -> Self {
        let counters = Self::open(path);
        let rows = KEYS.map(|key| format!("('{key}')")).join(", ");
        let tables = format!(
            "CREATE TABLE unfenced (
                 key TEXT PRIMARY KEY,
                 value INTEGER NOT NULL DEFAULT 0,
                 writes INTEGER NOT NULL DEFAULT 0
             );
             CREATE TABLE fenced (
                 key TEXT PRIMARY KEY,
                 value INTEGER NOT NULL DEFAULT 0,
                 writes INTEGER NOT NULL DEFAULT 0,
                 refused INTEGER NOT NULL DEFAULT 0,
                 fence INTEGER NOT NULL DEFAULT 0,
                 owner TEXT NOT NULL DEFAULT ''
             );
             INSERT INTO unfenced (key) VALUES {rows};
             INSERT INTO fenced (key) VALUES {rows};"
        );
        counters.0.lock().unwrap().execute_batch(&tables).unwrap();
        counters
    }

    /// Reads both counters.
    pub(crate) async fn read(&self, holder: &Holder) -> Seen {
        let holder = holder.clone();
        self.transaction(move |db| {
            let value = |table| {
                let select = format!("SELECT value FROM {table} WHERE key = ?1");
                db.query_row(&select, [holder.key], |row| row.get(0))
            };
            let fenced = if enter(db, &holder)? {
                Some(value("fenced")?)
            } else {
                None
            };
            let unfenced = value("unfenced")?;
            Ok(Seen { fenced, unfenced })
        })
        .await
    }

    /// Writes both counters, one more than was seen.
    pub(crate) async fn write(&self, holder: &Holder, seen: Seen) {
        let holder = holder.clone();
        self.transaction(move |db| {
            let write = |table, seen: i64| {
                let update =
                    format!("UPDATE {table} SET value = ?2, writes = writes + 1 WHERE key = ?1");
                db.execute(&update, params![holder.key, seen + 1])
            };
            let entered = enter(db, &holder)?;
            if let (true, Some(seen)) = (entered, seen.fenced) {
                write("fenced", seen)?;
            } else {
                let refuse = "UPDATE fenced SET refused = refused + 1 WHERE key = ?1";
                db.execute(refuse, [holder.key])?;
            }
            write("unfenced", seen.unfenced)
        })
        .await;
    }

    async fn transaction<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> T {
        let db = Arc::clone(&self.0);
        let work = tokio::task::spawn_blocking(move || {
            let mut db = db.lock().unwrap();
            let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let done = work(&transaction)?;
            transaction.commit()?;
            Ok::<_, rusqlite::Error>(done)
        });
        work.await.unwrap().unwrap()
    }

    /// What has become of the counter with the fence.
    pub(crate) fn fenced(&self) -> Count {
        self.count("SELECT sum(writes), sum(value), sum(refused) FROM fenced")
    }

    /// What has become of the one without.
    pub(crate) fn unfenced(&self) -> Count {
        self.count("SELECT sum(writes), sum(value), 0 FROM unfenced")
    }

    fn count(&self, select: &str) -> Count {
        let db = self.0.lock().unwrap();
        let read = |row: &rusqlite::Row<'_>| {
            let (writes, value): (u64, u64) = (row.get(0)?, row.get(1)?);
            Ok(Count {
                writes,
                lost: writes - value,
                refused: row.get(2)?,
            })
        };
        db.query_row(select, [], read).unwrap()
    }
}

fn enter(db: &Transaction<'_>, holder: &Holder) -> rusqlite::Result<bool> {
    let rows = db.execute(ENTER, params![holder.key, holder.fence, holder.owner])?;
    Ok(rows == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::server::new_dir;

    #[tokio::test]
    async fn a_late_write_is_lost_where_nothing_is_fenced_and_refused_where_it_is() {
        let dir = new_dir();
        let counters = Counters::create(&dir.join("counters.sqlite"));
        let holder = |fence| Holder {
            key: KEYS[0],
            fence,
            owner: format!("owner {fence}"),
        };
        let (first, second) = (holder(5), holder(6));
        let early = counters.read(&first).await;
        let late = counters.read(&second).await;
        counters.write(&second, late).await;
        counters.write(&first, early).await;
        let (fenced, unfenced) = (counters.fenced(), counters.unfenced());
        drop(counters);
        std::fs::remove_dir_all(dir).unwrap();
        assert_eq!((fenced.writes, fenced.lost, fenced.refused), (1, 0, 1));
        assert_eq!((unfenced.writes, unfenced.lost), (2, 1));
    }
}
