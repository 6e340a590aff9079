//! What a fencing token is for, on a SQLite database.
//!
//! ```text
//! cargo run --example fencing --features test-util
//! ```
//!
//! Two processes add to one account: they lock it, read the balance, and write the sum. The first one stops between
//! the two for longer than its lock lives, as a process does that is swapped out or whose virtual machine is moved. The
//! second takes the lock. Then the first goes on: it still believes that it holds the lock, and no check on its side
//! could prevent that, for it may stop right after the check. Only the account can tell, by the token. Both runs have
//! the same order of events: the first reads, the second reads, the first writes, the second writes.
//!
//! * *Entering*: every transaction begins with a statement that registers the token, also one that only reads. The read
//!   of the second shuts the first out, whose next transaction fails at its first statement. It starts again.
//! * *A check at the write*: the first writes before the second has left a trace, so its token is the highest that the
//!   account has seen; and the second writes over it. One deposit is gone, and both were told that all went well.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "an example talks to the terminal"
)]

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use std::{fs, thread};

use rusqlite::{Connection, TransactionBehavior, params};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tower_redlock::node::MemoryNode;
use tower_redlock::{LockGuard, LockManager};

type AnyError = Box<dyn Error + Send + Sync>;

const ACCOUNT: i64 = 7;
const BEGINNING: i64 = 100;
/// What the first and the second process add.
const DEPOSITS: [i64; 2] = [10, 20];
/// A stopped process keeps the others waiting for so long.
const TTL: Duration = Duration::from_millis(300);

fn main() -> ExitCode {
    match (run(Check::Enter), run(Check::Write)) {
        (Ok(entering), Ok(writing)) => {
            let sound = entering.is_sound();
            let lossy = writing.loses_the_first_deposit();
            if sound && lossy {
                println!("as told: entering lost nothing, the check at the write lost a deposit");
                return ExitCode::SUCCESS;
            }
            println!("NOT as told: {entering:?}, {writing:?}");
        }
        (Err(error), _) | (_, Err(error)) => eprintln!("fencing: {error}"),
    }
    ExitCode::FAILURE
}

/// Where the account looks at the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Check {
    /// At the beginning of every transaction: the way to do it.
    Enter,
    /// Only at the write: not enough.
    Write,
}

/// What came of a run.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    /// Whether the process that had stopped was told so at its first statement.
    refused: bool,
    balance: i64,
}

impl Outcome {
    fn is_sound(&self) -> bool {
        let all = BEGINNING + DEPOSITS.iter().sum::<i64>();
        self.refused && self.balance == all
    }

    fn loses_the_first_deposit(&self) -> bool {
        !self.refused && self.balance == BEGINNING + DEPOSITS[1]
    }
}

/// One run: the first process on a thread with a runtime of its own, the second on this one.
fn run(check: Check) -> Result<Outcome, AnyError> {
    println!(
        "{}",
        match check {
            Check::Enter => "Entering with the first statement of every transaction:",
            Check::Write => "A check that stands only at the write:",
        }
    );
    // Both processes use the same five nodes and the same database.
    let nodes: Vec<_> = (0..5)
        .map(|n| MemoryNode::new(format!("node-{n}")))
        .collect();
    let database = Database::create(check)?;
    let (stopped, on_stop) = channel();
    let (go_on, on_go) = channel();
    let (wrote, mut on_write) = unbounded_channel();

    let refused = thread::scope(|scope| {
        let (nodes, database) = (&nodes, &database);
        let first = scope.spawn(move || first(nodes, database, &stopped, &on_go, &wrote));
        let second = second(nodes, database, &on_stop, &go_on, &mut on_write);
        // If it failed, the first need not wait for it.
        drop(go_on);
        let first = first.join().map_err(|_| "the first process panicked")?;
        second.and(first)
    })?;
    let balance = database.open()?.balance()?;
    let wanted = BEGINNING + DEPOSITS.iter().sum::<i64>();
    println!("  the balance is {balance}; it should be {wanted}\n");
    Ok(Outcome { refused, balance })
}

/// The process that stops. Returns whether it was refused when it went on.
#[tokio::main(flavor = "current_thread")]
async fn first(
    nodes: &[MemoryNode],
    database: &Database,
    stopped: &Sender<()>,
    go_on: &Receiver<()>,
    wrote: &UnboundedSender<()>,
) -> Result<bool, AnyError> {
    // It is not renewed: a process that stands still renews nothing, and this one has a thread that would.
    let locks = connect(nodes).await?.with_max_hold(TTL)?;
    let mut account = database.open()?;
    let lock = locks.acquire("account:7").await?;
    let holder = Holder::of("first", &lock)?;
    let Some(seen) = account.read(&holder)? else {
        return Err("the first holder of all was refused".into());
    };

    // The process stops.
    stopped.send(())?;
    go_on.recv()?;
    // It goes on as if no time had passed.
    let refused = !account.write(&holder, seen + DEPOSITS[0])?;
    wrote.send(())?;
    drop(lock);

    if refused {
        // Whoever is refused has not done anything yet, and may start again from the beginning.
        let lock = locks.acquire("account:7").await?;
        let holder = Holder::of("first", &lock)?;
        let seen = account.read(&holder)?.ok_or("refused with a new lock")?;
        if !account.write(&holder, seen + DEPOSITS[0])? {
            return Err("refused with a new lock".into());
        }
        let _ = lock.release().await;
    }
    Ok(refused)
}

/// The process that takes over.
#[tokio::main(flavor = "current_thread")]
async fn second(
    nodes: &[MemoryNode],
    database: &Database,
    on_stop: &Receiver<()>,
    go_on: &Sender<()>,
    on_write: &mut UnboundedReceiver<()>,
) -> Result<(), AnyError> {
    let locks = connect(nodes).await?;
    let mut account = database.open()?;
    on_stop.recv()?;
    println!("  first:  stops");
    // Until the lease of the first ends.
    let lock = locks.acquire("account:7").await?;
    let holder = Holder::of("second", &lock)?;
    let seen = account.read(&holder)?.ok_or("the holder was refused")?;
    println!("  first:  goes on");
    go_on.send(())?;
    // Unlike the first, it renews its lock while it waits.
    on_write.recv().await.ok_or("the first process failed")?;
    if !account.write(&holder, seen + DEPOSITS[1])? {
        return Err("the holder was refused".into());
    }
    // Whether it was lost meanwhile is of no consequence: the account has decided.
    let _ = lock.release().await;
    Ok(())
}

async fn connect(nodes: &[MemoryNode]) -> Result<LockManager, AnyError> {
    let locks = LockManager::builder()
        .nodes(nodes.to_vec())
        .ttl(TTL)
        .max_wait(Duration::from_secs(10));
    Ok(locks.connect().await?)
}

/// Who acts, as the account knows it.
struct Holder {
    name: &'static str,
    fence: i64,
    owner: String,
}

impl Holder {
    fn of(name: &'static str, lock: &LockGuard) -> Result<Self, AnyError> {
        let fence = lock.fence().ok_or("the manager gives no fencing tokens")?;
        println!("  {name:<7} gets the lock with the token {fence}");
        Ok(Self {
            name,
            fence: fence.as_i64(),
            owner: lock.owner_hash().to_string(),
        })
    }

    fn says(&self, what: &str) {
        let name = format!("{}:", self.name);
        println!("  {name:<7} {what}");
    }
}

/// The account as one process sees it.
struct Account {
    connection: Connection,
    check: Check,
}

/// Registers a holder, unless one with a higher token, or another with the same, was there before. The owner hash
/// beside it tells two holders with one fencing token apart in any case. The guide has the statement for servers;
/// MariaDB and MySQL need another one.
const ENTER: &str = "UPDATE account SET fence = ?2, owner = ?3
    WHERE id = ?1 AND (fence < ?2 OR (fence = ?2 AND owner = ?3))";
/// The way that is not enough: the token is looked at and noted by the write only.
const WRITE_CHECKED: &str = "UPDATE account SET fence = ?2, owner = ?3, balance = ?4
    WHERE id = ?1 AND (fence < ?2 OR (fence = ?2 AND owner = ?3))";

impl Account {
    /// The balance; `None` if the holder was refused.
    fn read(&mut self, holder: &Holder) -> rusqlite::Result<Option<i64>> {
        let balance = match self.check {
            Check::Enter => {
                let transaction = self
                    .connection
                    .transaction_with_behavior(TransactionBehavior::Immediate)?;
                if !enter(&transaction, holder)? {
                    return Ok(None);
                }
                let balance = balance(&transaction)?;
                transaction.commit()?;
                balance
            }
            Check::Write => balance(&self.connection)?,
        };
        holder.says(&format!("reads {balance}"));
        Ok(Some(balance))
    }

    /// Whether the balance was written; if not, the holder was refused.
    fn write(&mut self, holder: &Holder, balance: i64) -> rusqlite::Result<bool> {
        let done = match self.check {
            Check::Enter => {
                let transaction = self
                    .connection
                    .transaction_with_behavior(TransactionBehavior::Immediate)?;
                let entered = enter(&transaction, holder)?;
                if entered {
                    let write = "UPDATE account SET balance = ?2 WHERE id = ?1";
                    transaction.execute(write, params![ACCOUNT, balance])?;
                    transaction.commit()?;
                }
                entered
            }
            Check::Write => {
                let values = params![ACCOUNT, holder.fence, holder.owner, balance];
                self.connection.execute(WRITE_CHECKED, values)? == 1
            }
        };
        if done {
            holder.says(&format!("writes {balance}"));
        } else {
            holder.says("is refused, has written nothing, and starts again");
        }
        Ok(done)
    }

    fn balance(&self) -> rusqlite::Result<i64> {
        balance(&self.connection)
    }
}

/// The first statement of a transaction. Whoever is told `false` must stop.
fn enter(transaction: &Connection, holder: &Holder) -> rusqlite::Result<bool> {
    let rows = transaction.execute(ENTER, params![ACCOUNT, holder.fence, holder.owner])?;
    Ok(rows == 1)
}

fn balance(connection: &Connection) -> rusqlite::Result<i64> {
    let read = "SELECT balance FROM account WHERE id = ?1";
    connection.query_row(read, [ACCOUNT], |row| row.get(0))
}

/// A database file that goes away with this value.
struct Database {
    dir: PathBuf,
    check: Check,
}

impl Database {
    fn create(check: Check) -> Result<Self, AnyError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let (process, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let name = format!("redlock-fencing-{process}-{count}");
        let dir = std::env::temp_dir().join(name);
        fs::create_dir_all(&dir)?;
        let database = Self { dir, check };
        database.open()?.connection.execute_batch(&format!(
            "CREATE TABLE account (
                 id INTEGER PRIMARY KEY,
                 balance INTEGER NOT NULL,
                 fence INTEGER NOT NULL DEFAULT 0,
                 owner TEXT NOT NULL DEFAULT ''
             );
             INSERT INTO account (id, balance) VALUES ({ACCOUNT}, {BEGINNING});"
        ))?;
        Ok(database)
    }

    fn open(&self) -> rusqlite::Result<Account> {
        let connection = Connection::open(self.dir.join("accounts.sqlite"))?;
        connection.busy_timeout(Duration::from_secs(10))?;
        Ok(Account {
            connection,
            check: self.check,
        })
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // What is left lies in the directory for temporary files.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_that_stopped_is_refused_where_all_enter() {
        let outcome = run(Check::Enter).unwrap();
        assert!(outcome.is_sound(), "{outcome:?}");
    }

    #[test]
    fn a_check_at_the_write_loses_a_deposit() {
        let outcome = run(Check::Write).unwrap();
        assert!(outcome.loses_the_first_deposit(), "{outcome:?}");
    }

    #[test]
    fn another_owner_with_the_same_token_does_not_enter() {
        let database = Database::create(Check::Enter).unwrap();
        let account = database.open().unwrap();
        let enters = |fence, owner: &str| {
            let owner = owner.to_owned();
            let holder = Holder {
                name: "x",
                fence,
                owner,
            };
            enter(&account.connection, &holder).unwrap()
        };
        assert!(enters(34, "a"));
        assert!(enters(34, "a"), "once more");
        assert!(!enters(34, "b"));
        assert!(!enters(33, "a"));
        assert!(enters(35, "b"));
    }
}
