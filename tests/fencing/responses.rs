//! The statements of the page about one effect, on real databases: whoever comes second finds the response of the first,
//! also if both are there at once, and nothing of a run that has rolled back.

use crate::databases::{Entered, FIRST, SECOND, begin, entered, on_page, start_with};
use crate::sessions::{Database, MariaDb, Postgres, Reply, Session, Sqlite};
use crate::support::eventually;

const RESPONSE: &str = "a response";

/// Those for one database.
struct Statements {
    create: String,
    insert: String,
    select: String,
    update: String,
}

impl Statements {
    fn of(database: &str) -> Self {
        let statements = on_page("responses", database);
        let find = |start: &str| {
            let mut found = statements.iter().filter(|sql| sql.starts_with(start));
            let one = found.next().unwrap().clone();
            assert_eq!(found.next(), None, "{database}");
            one
        };
        Self {
            create: find("CREATE"),
            insert: find("INSERT"),
            select: find("SELECT"),
            update: find("UPDATE"),
        }
    }
}

/// The statement with its values, in the order of its marks. That is also the order of their numbers: SQLite takes `$2` for a
/// name, and binds values in the order in which names come first.
fn filled(sql: &str, values: &[&str]) -> String {
    let mut sql = sql.to_owned();
    for (index, value) in values.iter().enumerate() {
        let at = sql.find(['$', '?']).unwrap();
        let number = format!("${}", index + 1);
        let mark = if sql[at..].starts_with(&number) {
            &*number
        } else {
            "?"
        };
        sql = sql.replacen(mark, &format!("'{value}'"), 1);
    }
    assert!(!sql.contains(['$', '?']), "{sql}");
    sql + ";"
}

/// A run of the request `id`, in a session of its own.
struct Run<'a> {
    session: Session,
    sql: &'a Statements,
    id: String,
}

impl<'a> Run<'a> {
    fn new<D: Database>(database: &D, sql: &'a Statements, mode: &str, id: &str) -> Self {
        Self {
            session: database.connect(mode),
            sql,
            // The modes of a server share the table.
            id: format!("{id} {mode}"),
        }
    }

    /// Begins, and does not wait for the other.
    fn send_insert(&mut self) {
        self.session.run("BEGIN;");
        let insert = filled(&self.sql.insert, &[&self.id]);
        self.session.send(&insert);
    }

    /// How long the response is that it finds, zero if there is none. After a conflict it begins again.
    #[track_caller]
    fn found(&mut self) -> i64 {
        match self.session.reply() {
            Reply::Done => {}
            Reply::Error(error) => {
                let conflict = ["40001", "1213", "1020"];
                assert!(conflict.iter().any(|it| error.contains(it)), "{error}");
                self.session.run("ROLLBACK;");
                self.send_insert();
                assert_eq!(self.session.reply(), Reply::Done);
            }
            other => panic!("no insert: {other:?}"),
        }
        let select = filled(&self.sql.select, &[&self.id]);
        let select = select.trim_end_matches(';');
        match self
            .session
            .run(&format!("SELECT coalesce(length(({select})), 0);"))
        {
            Reply::Value(len) => len,
            other => panic!("no length: {other:?}"),
        }
    }

    #[track_caller]
    fn begin(&mut self) -> i64 {
        self.send_insert();
        self.found()
    }

    #[track_caller]
    fn commit(&mut self) {
        let update = filled(&self.sql.update, &[RESPONSE, &self.id]);
        self.session.run(&update);
        self.session.run("COMMIT;");
    }
}

async fn one_response<D: Database>() {
    let sql = Statements::of(D::NAME);
    let database: D = start_with([sql.create.clone()]);
    let len = i64::try_from(RESPONSE.len()).unwrap();
    for mode in D::MODES {
        let run = |id| Run::new(&database, &sql, mode, id);
        let mut first = run("one after the other");
        assert_eq!(first.begin(), 0, "{mode}");
        first.commit();
        for _ in 0..2 {
            let mut again = run("one after the other");
            assert_eq!(again.begin(), len, "{mode}");
            again.session.run("ROLLBACK;");
        }

        let (mut first, mut second) = (run("at once"), run("at once"));
        assert_eq!(first.begin(), 0, "{mode}");
        second.send_insert();
        eventually("it waits", || database.has_a_waiter()).await;
        first.commit();
        assert_eq!(second.found(), len, "{mode}");
        second.session.run("ROLLBACK;");

        let (mut first, mut second) = (run("given up"), run("given up"));
        assert_eq!(first.begin(), 0, "{mode}");
        second.send_insert();
        eventually("it waits", || database.has_a_waiter()).await;
        first.session.run("ROLLBACK;");
        assert_eq!(second.found(), 0, "{mode}");
        second.commit();
        assert_eq!(run("given up").begin(), len, "{mode}");
    }
}

/// Why the page has a `SELECT` that locks: a plain one would show the other rows as they were before the late holder.
#[tokio::test]
async fn mariadb_shows_what_a_late_holder_has_left_to_the_one_that_enters_after_it() {
    let sql = Statements::of(MariaDb::NAME);
    let database: MariaDb = start_with([sql.create.clone()]);
    for (number, mode) in MariaDb::MODES.iter().enumerate() {
        let other = (number + 1) % MariaDb::MODES.len();
        let balance = format!("SELECT balance FROM orders WHERE id = {other};");
        let mut late = database.connect(mode);
        assert_eq!(begin(&mut late, FIRST), Entered::Yes, "{mode}");
        let mut run = Run::new(&database, &sql, mode, "behind a late holder");
        assert_eq!(run.begin(), 0, "{mode}");
        run.session.send_enter(SECOND);
        eventually("it waits", || database.has_a_waiter()).await;
        late.run(&format!(
            "UPDATE orders SET balance = balance + 30 WHERE id = {other};"
        ));
        let left = late.run(&balance);
        late.run("COMMIT;");
        assert_eq!(entered(&run.session), Entered::Yes, "{mode}");
        assert_eq!(run.session.run(&balance), left, "{mode}");
        run.session.run("ROLLBACK;");
    }
}

/// `idle` ends a transaction that stands still, and `wait` a statement that waits for one, with this `error`.
async fn ends_a_stand_still<D: Database>(idle: &str, wait: &str, error: &str) {
    let sql = Statements::of(D::NAME);
    let database: D = start_with([sql.create.clone()]);
    let run = |id| Run::new(&database, &sql, D::MODES[0], id);
    let (mut still, mut other) = (run("stands still"), run("stands still"));
    assert_eq!(still.begin(), 0);
    other.session.run(wait);
    other.send_insert();
    match other.session.reply() {
        Reply::Error(text) => assert!(text.contains(error), "{text}"),
        reply => panic!("it waited, and got {reply:?}"),
    }
    let (mut still, mut other) = (run("ended"), run("ended"));
    still.session.run(idle);
    assert_eq!(still.begin(), 0);
    other.send_insert();
    assert_eq!(other.found(), 0, "nothing is left of it");
    other.commit();
}

#[tokio::test]
async fn postgres_ends_a_run_that_stands_still() {
    let idle = "SET idle_in_transaction_session_timeout = 300;";
    ends_a_stand_still::<Postgres>(idle, "SET lock_timeout = 100;", "55P03").await;
}

#[tokio::test]
async fn mariadb_ends_a_run_that_stands_still() {
    let idle = "SET SESSION idle_transaction_timeout = 1;";
    let wait = "SET SESSION innodb_lock_wait_timeout = 1;";
    ends_a_stand_still::<MariaDb>(idle, wait, "1205").await;
}

#[tokio::test]
async fn postgres_keeps_one_response_for_each_id() {
    one_response::<Postgres>().await;
}

#[tokio::test]
async fn mariadb_keeps_one_response_for_each_id() {
    one_response::<MariaDb>().await;
}

#[tokio::test]
async fn sqlite_keeps_one_response_for_each_id() {
    one_response::<Sqlite>().await;
}
