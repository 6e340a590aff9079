//! The statements of the page about one effect, on real databases: whoever comes second finds the response of the first,
//! also if both are there at once, and nothing of a run that has rolled back.

use crate::databases::{Entered, FIRST, SECOND, begin, entered, on_page, start_with};
use crate::sessions::{Database, MariaDb, Postgres, Reply, Session, Sqlite};
use crate::support::eventually;

const RESPONSE: &str = "a response";

/// The one for a database that begins with this word.
fn statement<D: Database>(start: &str) -> String {
    let mut statements = on_page("responses", D::NAME);
    statements.retain(|sql| sql.starts_with(start));
    assert_eq!(statements.len(), 1, "{}: {statements:?}", D::NAME);
    statements.remove(0)
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

/// A database with a place for responses.
fn with_responses<D: Database>() -> D {
    start_with([statement::<D>("CREATE")])
}

/// A run of the request `id`, in a session of its own.
struct Run {
    session: Session,
    insert: String,
    select: String,
    update: String,
}

impl Run {
    fn new<D: Database>(database: &D, mode: &'static str, id: &str) -> Self {
        // The modes of a server share the table.
        let id = &*format!("{id} {mode}");
        let select = filled(&statement::<D>("SELECT"), &[id]);
        let select = select.trim_end_matches(';');
        Self {
            session: database.connect(mode),
            insert: filled(&statement::<D>("INSERT"), &[id]),
            select: format!("SELECT coalesce(length(({select})), 0);"),
            update: filled(&statement::<D>("UPDATE"), &[RESPONSE, id]),
        }
    }

    /// Begins, and does not wait for the other.
    fn send_insert(&mut self) {
        self.session.run("BEGIN;");
        self.session.send(&self.insert);
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
        match self.session.run(&self.select) {
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
        self.session.run(&self.update);
        self.session.run("COMMIT;");
    }
}

async fn one_response<D: Database>() {
    let database = with_responses::<D>();
    let len = i64::try_from(RESPONSE.len()).unwrap();
    for mode in D::MODES {
        let run = |id: &str| Run::new(&database, mode, id);
        for expected in [0, len, len] {
            let mut again = run("one after the other");
            assert_eq!(again.begin(), expected, "{mode}");
            match expected {
                0 => again.commit(),
                _ => drop(again.session.run("ROLLBACK;")),
            }
        }

        for commits in [true, false] {
            let id = format!("at once, {commits}");
            let (mut first, mut second) = (run(&id), run(&id));
            assert_eq!(first.begin(), 0, "{mode}");
            second.send_insert();
            eventually("it waits", || database.has_a_waiter()).await;
            if commits {
                first.commit();
                assert_eq!(second.found(), len, "{mode}");
                second.session.run("ROLLBACK;");
            } else {
                first.session.run("ROLLBACK;");
                assert_eq!(second.found(), 0, "{mode}");
                second.commit();
            }
            assert_eq!(run(&id).begin(), len, "{mode}");
        }
    }
}

/// Why the page has a `SELECT` that locks: a plain one would show the other rows as they were before the late holder.
#[tokio::test]
async fn mariadb_shows_what_a_late_holder_has_left_to_the_one_that_enters_after_it() {
    let database = with_responses::<MariaDb>();
    for (number, mode) in MariaDb::MODES.iter().enumerate() {
        let other = (number + 1) % MariaDb::MODES.len();
        let balance = format!("SELECT balance FROM orders WHERE id = {other};");
        let mut late = database.connect(mode);
        begin(&mut late, FIRST, Entered::Yes);
        let mut run = Run::new(&database, mode, "behind a late holder");
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
    let database = with_responses::<D>();
    let run = |id| Run::new(&database, D::MODES[0], id);
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
