//! Databases with a table of orders, and sessions with them, all driven in one way: PostgreSQL and MariaDB by their own
//! command-line clients, SQLite by the library.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use rusqlite::Connection;
use rustix::process::{Pid, Signal, geteuid, kill_process};

use crate::support::PATIENCE;
use crate::support::server::{new_dir, program};

/// Who enters an order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holder {
    pub(crate) token: i64,
    pub(crate) owner: &'static str,
}

/// What a database says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// How many rows an `UPDATE` has found, and how many of those it has changed. Some drivers tell the one number and
    /// some the other, where the database does not count all found ones as changed.
    Rows {
        found: u64,
        changed: u64,
    },
    /// The number that was selected.
    Value(i64),
    Done,
    Error(String),
}

enum Request {
    Sql(String),
    Enter(Holder, usize),
}

/// A database of its own, with orders that have the balance 100: one for each mode, with the number of that.
pub(crate) trait Database {
    /// As the page calls it.
    const NAME: &'static str;
    /// How transactions may be run.
    const MODES: &'static [&'static str];
    /// The modes in which a holder that had to wait for another is told to begin again.
    const CONFLICTS_IN: &'static [&'static str] = &[];

    /// Starts it, with this statement to enter, and these for the other columns.
    fn start(enter: &str, columns: &[String]) -> Self;

    /// A session that runs its transactions in this mode.
    fn connect(&self, mode: &'static str) -> Session;

    /// Whether a session waits for what another has not committed.
    fn has_a_waiter(&self) -> bool;
}

fn orders<D: Database>(columns: &[String]) -> String {
    let values = (0..D::MODES.len()).map(|order| format!("({order}, 100)"));
    let values: Vec<_> = values.collect();
    format!(
        "CREATE TABLE orders (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL);\n{};\n\
         INSERT INTO orders (id, balance) VALUES {};",
        columns.join(";\n"),
        values.join(", ")
    )
}

/// A connection whose requests are answered in order. It ends with this value.
pub(crate) struct Session {
    pub(crate) mode: &'static str,
    /// The one for transactions of this mode.
    order: usize,
    send: Box<dyn FnMut(Request)>,
    replies: Receiver<Reply>,
    _client: Option<Client>,
}

struct Client(Child);

impl Drop for Client {
    fn drop(&mut self) {
        // Fails only if it is gone already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Session {
    fn new<D: Database>(
        mode: &'static str,
        send: impl FnMut(Request) + 'static,
        replies: Receiver<Reply>,
        client: Option<Client>,
    ) -> Self {
        Self {
            mode,
            order: D::MODES.iter().position(|other| *other == mode).unwrap(),
            send: Box::new(send),
            replies,
            _client: client,
        }
    }

    #[track_caller]
    pub(crate) fn reply(&self) -> Reply {
        let reply = self.replies.recv_timeout(PATIENCE);
        reply.expect("the database has answered")
    }

    /// Runs what must succeed.
    #[track_caller]
    pub(crate) fn run(&mut self, sql: &str) -> Reply {
        self.send(sql);
        let reply = self.reply();
        assert!(!matches!(reply, Reply::Error(_)), "{sql}: {reply:?}");
        reply
    }

    /// Sends a statement, and does not wait for its reply.
    pub(crate) fn send(&mut self, sql: &str) {
        (self.send)(Request::Sql(sql.to_owned()));
    }

    /// Sends the statement that enters, and does not wait for its reply.
    pub(crate) fn send_enter(&mut self, holder: Holder) {
        (self.send)(Request::Enter(holder, self.order));
    }

    #[track_caller]
    pub(crate) fn balance(&mut self) -> i64 {
        let order = self.order;
        match self.run(&format!("SELECT balance FROM orders WHERE id = {order};")) {
            Reply::Value(balance) => balance,
            other => panic!("no balance: {other:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn set_balance(&mut self, balance: i64) {
        let order = self.order;
        self.run(&format!(
            "UPDATE orders SET balance = {balance} WHERE id = {order};"
        ));
    }
}

/// What one command-line client is told, and how it answers.
struct Dialect {
    enter: fn(Holder, usize) -> String,
    /// What makes it print [`END`](Self::END), in whatever state the transaction is.
    end: &'static str,
    reply: fn(&str) -> Reply,
}

impl Dialect {
    const END: &'static str = "the end";

    fn session<D: Database>(&self, mut client: Command, mode: &'static str) -> Session {
        // One pipe for both, so that errors are in their place.
        let (reader, writer) = io::pipe().unwrap();
        client
            .stdout(writer.try_clone().unwrap())
            .stderr(writer)
            .stdin(Stdio::piped());
        let mut child = client.spawn().unwrap();
        // It keeps the pipe open.
        drop(client);
        let mut stdin = child.stdin.take().unwrap();
        let (enter, end, reply) = (self.enter, self.end, self.reply);
        let send = move |request| {
            let sql = match request {
                Request::Sql(sql) => sql,
                Request::Enter(holder, order) => enter(holder, order),
            };
            write!(stdin, "{sql}\n{end}\n").unwrap();
        };
        let (answer, replies) = channel();
        thread::spawn(move || {
            let mut text = String::new();
            for line in BufReader::new(reader).lines() {
                let line = line.unwrap();
                if line.trim_matches(['|', ' ']) != Self::END {
                    text += &format!("{line}\n");
                } else if answer.send(reply(&text)).is_err() {
                    return;
                } else {
                    text.clear();
                }
            }
        });
        Session::new::<D>(mode, send, replies, Some(Client(child)))
    }
}

/// Where a program is: in one of the directories that the variable names, of `PATH`, or of these. A missing database
/// fails the test: a skipped test proves nothing.
fn find(name: &str, variable: &str, others: &[PathBuf], packages: &str) -> PathBuf {
    let found = program(name, variable, []).or_else(|| program(name, "PATH", others.to_vec()));
    found.unwrap_or_else(|| {
        panic!(
            "no `{name}` found: run `make databases`, or install it (Debian: {packages}), or set {variable} to its directory"
        )
    })
}

/// A program that works in `dir`. No database server runs as root.
fn unprivileged(program: &Path, dir: &Path) -> Command {
    const NOBODY: u32 = 65_534;
    let mut command = Command::new(program);
    if geteuid().is_root() {
        chown(dir, Some(NOBODY), Some(NOBODY)).unwrap();
        command.uid(NOBODY).gid(NOBODY);
    }
    let log = || {
        let log = fs::File::options()
            .append(true)
            .create(true)
            .open(dir.join("log"));
        log.unwrap()
    };
    command
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(log())
        .stderr(log());
    command
}

/// A server as a child process, with its files. It ends with this value.
struct Server {
    dir: PathBuf,
    child: Child,
    end: Signal,
    client: PathBuf,
    args: Vec<String>,
}

impl Server {
    /// Waits until a client gets through.
    fn start(
        dir: PathBuf,
        mut server: Command,
        end: Signal,
        client: PathBuf,
        args: &[&str],
    ) -> Self {
        let child = server.spawn().unwrap();
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        let mut server = Self {
            dir,
            child,
            end,
            client,
            args,
        };
        let begin = Instant::now();
        while server.ask("SELECT 1").is_err() {
            let ended = server.child.try_wait().unwrap();
            assert!(
                ended.is_none() && begin.elapsed() < PATIENCE,
                "the database does not start: {}",
                fs::read_to_string(server.dir.join("log")).unwrap()
            );
            thread::sleep(Duration::from_millis(1));
        }
        server
    }

    fn client(&self) -> Command {
        let mut client = Command::new(&self.client);
        client.args(&self.args);
        client
    }

    /// Runs statements in a session of their own.
    fn ask(&self, sql: &str) -> Result<String, String> {
        let mut client = self.client();
        client.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut client = client.stderr(Stdio::piped()).spawn().unwrap();
        // It may have ended already, because there is no server yet.
        let _ = client.stdin.take().unwrap().write_all(sql.as_bytes());
        let output = client.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        if output.status.success() && output.stderr.is_empty() {
            Ok(text(output.stdout))
        } else {
            Err(text(output.stderr))
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails only if it is gone already.
        let _ = kill_process(Pid::from_child(&self.child), self.end);
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

pub(crate) struct Postgres {
    server: Server,
    enter: String,
}

impl Database for Postgres {
    const NAME: &'static str = "PostgreSQL";
    const MODES: &'static [&'static str] = &["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];
    const CONFLICTS_IN: &'static [&'static str] = &["REPEATABLE READ", "SERIALIZABLE"];

    fn start(enter: &str, columns: &[String]) -> Self {
        let debian = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
        let debian: Vec<_> = debian.map(|dir| dir.unwrap().path().join("bin")).collect();
        let initdb = find("initdb", "POSTGRES_BIN", &debian, "postgresql");
        // It may be a link from elsewhere; the other programs are beside it.
        let initdb = initdb.canonicalize().unwrap();
        let dir = new_dir();
        let made = unprivileged(&initdb, &dir)
            .args(["-D", "data", "-U", "holder", "--auth=trust"])
            .args(["--no-sync", "--no-locale", "--encoding=UTF8"])
            .status();
        let log = || fs::read_to_string(dir.join("log")).unwrap();
        assert!(made.unwrap().success(), "no database: {}", log());
        let mut server = unprivileged(&initdb.with_file_name("postgres"), &dir);
        server.args(["-D", "data", "-k"]).arg(&dir).args([
            "-c",
            "listen_addresses=",
            "-c",
            "fsync=off",
        ]);
        let host = dir.display().to_string();
        let args = ["-XAt", "-h", &host, "-U", "holder", "-d", "postgres"];
        let psql = initdb.with_file_name("psql");
        // Its other processes end with it at this signal, and not if it is killed.
        let server = Server::start(dir, server, Signal::QUIT, psql, &args);
        server.ask(&orders::<Self>(columns)).unwrap();
        let enter = enter.to_owned();
        Self { server, enter }
    }

    fn connect(&self, mode: &'static str) -> Session {
        let dialect = Dialect {
            enter: |holder, order| {
                let Holder { token, owner } = holder;
                format!("EXECUTE enter ({token}, '{owner}', {order});")
            },
            end: r"\warn the end",
            reply: |text| {
                let line = text.lines().last().unwrap_or_default();
                if let Some((_, error)) = text.split_once("ERROR:") {
                    Reply::Error(error.trim().to_owned())
                } else if let Some(rows) = line.strip_prefix("UPDATE ") {
                    let found = rows.parse().unwrap();
                    let changed = found;
                    Reply::Rows { found, changed }
                } else {
                    line.parse().map_or(Reply::Done, Reply::Value)
                }
            },
        };
        let mut session = dialect.session::<Self>(self.server.client(), mode);
        session.run(r"\set VERBOSITY sqlstate");
        session.run(&format!("SET default_transaction_isolation = '{mode}';"));
        session.run(&format!("PREPARE enter AS {};", self.enter));
        session
    }

    fn has_a_waiter(&self) -> bool {
        let waiters = "SELECT count(*) FROM pg_locks WHERE NOT granted;";
        self.server.ask(waiters).unwrap().trim() != "0"
    }
}

pub(crate) struct MariaDb {
    server: Server,
    enter: String,
}

impl Database for MariaDb {
    const NAME: &'static str = "MariaDB";
    const MODES: &'static [&'static str] = &["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

    fn start(enter: &str, columns: &[String]) -> Self {
        let program = |name| {
            // Where only root's `PATH` leads.
            let others = ["/usr/sbin", "/usr/libexec"].map(PathBuf::from);
            let packages = "mariadb-server-core, mariadb-client-core";
            find(name, "MARIADB_BIN", &others, packages)
        };
        let (mariadbd, client) = (program("mariadbd"), program("mariadb"));
        let dir = new_dir();
        let mut server = unprivileged(&mariadbd, &dir);
        // Without its own tables, which take ten times as long to make as all the rest, it knows no users.
        server
            .args(["--no-defaults", "--skip-grant-tables", "--skip-networking"])
            .args(["--innodb-log-file-size=4M", "--innodb-buffer-pool-size=8M"])
            .args(["--pid-file=pid", "--socket=socket"])
            .arg(format!("--datadir={}", dir.display()));
        let socket = format!("--socket={}", dir.join("socket").display());
        let args = ["--no-defaults", &socket, "--skip-column-names"];
        let mut server = Server::start(dir, server, Signal::KILL, client, &args);
        server.ask("CREATE DATABASE shop").unwrap();
        server.args.push("--database=shop".to_owned());
        server.ask(&orders::<Self>(columns)).unwrap();
        let enter = enter.to_owned();
        Self { server, enter }
    }

    fn connect(&self, mode: &'static str) -> Session {
        let dialect = Dialect {
            enter: |holder, order| {
                let Holder { token: t, owner: o } = holder;
                format!("EXECUTE enter USING {t}, '{o}', {order}, {t}, {t}, '{o}';")
            },
            end: "SELECT 'the end';",
            reply: |text| {
                let find = |start| text.lines().find_map(|line| line.strip_prefix(start));
                if let Some(error) = find("ERROR ") {
                    Reply::Error(error.to_owned())
                } else if let Some(counts) = find("Rows matched: ") {
                    let mut counts = counts.split_whitespace();
                    let found = counts.next().unwrap().parse().unwrap();
                    assert_eq!(counts.next(), Some("Changed:"));
                    let changed = counts.next().unwrap().parse().unwrap();
                    Reply::Rows { found, changed }
                } else if let Some(value) = find("| ") {
                    Reply::Value(value.trim_matches(['|', ' ']).parse().unwrap())
                } else {
                    Reply::Done
                }
            },
        };
        let mut client = self.server.client();
        // Counts are shown from the third `v` on, and an error is not the end.
        client.args(["-vvv", "--unbuffered", "--force"]);
        let mut session = dialect.session::<Self>(client, mode);
        session.run(&format!("SET SESSION TRANSACTION ISOLATION LEVEL {mode};"));
        session.run(&format!("PREPARE enter FROM '{}';", self.enter));
        session
    }

    fn has_a_waiter(&self) -> bool {
        // `information_schema.innodb_trx` stays as it is while it is read more often than every 100 ms.
        let waits = "SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'";
        let count = self.server.ask(waits).unwrap();
        count.split_whitespace().last().unwrap() != "0"
    }
}

pub(crate) struct Sqlite {
    dir: PathBuf,
    enter: String,
    waits: Arc<AtomicBool>,
}

thread_local! {
    /// Set while the session of this thread waits.
    static WAITS: RefCell<Arc<AtomicBool>> = RefCell::default();
}

impl Sqlite {
    fn open(dir: &Path, mode: &str) -> Connection {
        let connection = Connection::open(dir.join(mode)).unwrap();
        connection
            .pragma_update(None, "journal_mode", mode)
            .unwrap();
        connection
    }

    fn reply(connection: &Connection, enter: &str, request: Request) -> rusqlite::Result<Reply> {
        match request {
            Request::Enter(Holder { token, owner }, order) => {
                let found = connection.execute(enter, (token, owner, order))?;
                let found = u64::try_from(found).unwrap();
                let changed = found;
                Ok(Reply::Rows { found, changed })
            }
            Request::Sql(sql) if sql.starts_with("SELECT") => {
                let value = connection.query_row(&sql, [], |row| row.get(0));
                value.map(Reply::Value)
            }
            Request::Sql(sql) => connection.execute_batch(&sql).map(|()| Reply::Done),
        }
    }
}

impl Database for Sqlite {
    const NAME: &'static str = "SQLite";
    const MODES: &'static [&'static str] = &["DELETE", "WAL"];

    fn start(enter: &str, columns: &[String]) -> Self {
        let (dir, waits) = (new_dir(), Arc::default());
        for mode in Self::MODES {
            let orders = orders::<Self>(columns);
            Self::open(&dir, mode).execute_batch(&orders).unwrap();
        }
        let enter = enter.to_owned();
        Self { dir, enter, waits }
    }

    fn connect(&self, mode: &'static str) -> Session {
        let connection = Self::open(&self.dir, mode);
        let (send, requests) = channel();
        let (answer, replies) = channel();
        let (enter, waits) = (self.enter.clone(), self.waits.clone());
        thread::spawn(move || {
            WAITS.set(waits.clone());
            let wait = |_| {
                WAITS.with_borrow(|waits| waits.store(true, Ordering::Relaxed));
                thread::yield_now();
                true
            };
            connection.busy_handler(Some(wait)).unwrap();
            for request in requests {
                let reply = Self::reply(&connection, &enter, request);
                let reply = reply.unwrap_or_else(|error| Reply::Error(error.to_string()));
                waits.store(false, Ordering::Relaxed);
                if answer.send(reply).is_err() {
                    return;
                }
            }
        });
        let send = move |request| send.send(request).unwrap();
        Session::new::<Self>(mode, send, replies, None)
    }

    fn has_a_waiter(&self) -> bool {
        self.waits.load(Ordering::Relaxed)
    }
}

impl Drop for Sqlite {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}
