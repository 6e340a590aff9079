//! The statements of the page about fencing, on real databases. A holder enters an order with the first statement of
//! each of its transactions; the claims are those that the page makes, for every way to run transactions.

use crate::sessions::{Database, Holder, MariaDb, Postgres, Reply, Session, Sqlite};
use crate::support::eventually;

const PAGE: &str = include_str!("../../src/docs/one_effect.md");

/// Of two holders one after the other. Their tokens differ by one, and not as floating-point numbers.
pub(crate) const FIRST: Holder = Holder {
    token: 1_843_200_001_536_000_000,
    owner: "1111111111111111111111111111111111111111",
};
pub(crate) const SECOND: Holder = Holder {
    token: FIRST.token + 1,
    owner: "2222222222222222222222222222222222222222",
};
const THIRD: Holder = Holder {
    token: FIRST.token + 2,
    owner: FIRST.owner,
};

/// The statements of the page for a table of a database.
pub(crate) fn on_page(table: &str, database: &str) -> Vec<String> {
    let blocks = PAGE.split("```sql\n").skip(1);
    let blocks = blocks.map(|block| block.split_once("```").unwrap().0);
    let parts = blocks.flat_map(|block| block.split("-- ").skip(1));
    let mut statements = Vec::new();
    for part in parts {
        let (title, sql) = part.split_once('\n').unwrap();
        if title.starts_with("All") || title.contains(database) {
            let each = sql.split(';').map(str::trim).filter(|it| !it.is_empty());
            let each = each.filter(|it| it.contains(table));
            statements.extend(each.map(str::to_owned));
        }
    }
    statements
}

/// One that enters, and those for its columns.
fn statements(database: &str) -> (String, Vec<String>) {
    let (mut enter, columns): (Vec<_>, Vec<_>) = on_page("orders", database)
        .into_iter()
        .partition(|sql| sql.starts_with("UPDATE"));
    assert_eq!(enter.len(), 1, "{database}: {enter:?}");
    (enter.remove(0), columns)
}

/// With more than the columns.
pub(crate) fn start_with<D: Database>(more: impl IntoIterator<Item = String>) -> D {
    let (enter, mut tables) = statements(D::NAME);
    tables.extend(more);
    D::start(&enter, &tables)
}

/// What came of an attempt to enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entered {
    Yes,
    /// No row: stop.
    No,
    /// The transaction has to begin again.
    Conflict,
}
use Entered::{Conflict, No, Yes};

#[track_caller]
pub(crate) fn entered(session: &Session) -> Entered {
    match session.reply() {
        Reply::Rows { found, changed } => {
            assert_eq!(found, changed, "it depends on the driver");
            assert!(found < 2);
            if found == 1 { Yes } else { No }
        }
        Reply::Error(error) if error == "40001" => Conflict,
        other => panic!("entering fails: {other:?}"),
    }
}

#[track_caller]
fn enter(session: &mut Session, holder: Holder, expected: Entered) {
    session.send_enter(holder);
    assert_eq!(entered(session), expected, "{}", session.mode);
}

/// Begins a transaction and enters.
#[track_caller]
pub(crate) fn begin(session: &mut Session, holder: Holder, expected: Entered) {
    session.run("BEGIN;");
    enter(session, holder, expected);
}

/// The whole of a transaction in which nothing else is done.
#[track_caller]
fn pass(session: &mut Session, holder: Holder) {
    begin(session, holder, Yes);
    session.run("COMMIT;");
}

#[track_caller]
fn is_stopped(session: &mut Session, holder: Holder) {
    begin(session, holder, No);
    session.run("ROLLBACK;");
}

/// Begins a transaction, enters, and has to wait.
async fn begin_waiting<D: Database>(database: &D, session: &mut Session, holder: Holder) {
    assert!(!database.has_a_waiter());
    session.run("BEGIN;");
    session.send_enter(holder);
    eventually("it waits", || database.has_a_waiter()).await;
}

/// What came of it after the other has committed. Where the database only says that there was another, the transaction
/// begins again.
#[track_caller]
fn entered_after_waiting<D: Database>(session: &mut Session, holder: Holder, expected: Entered) {
    if D::CONFLICTS_IN.contains(&session.mode) {
        assert_eq!(entered(session), Conflict, "{}", session.mode);
        session.run("ROLLBACK;");
        return begin(session, holder, expected);
    }
    assert_eq!(entered(session), expected, "{}", session.mode);
}

async fn the_same_holder_enters_again<D: Database>(database: &D, mode: &'static str) {
    let mut session = database.connect(mode);
    for _ in 0..3 {
        begin(&mut session, FIRST, Yes);
        enter(&mut session, FIRST, Yes);
        session.run("COMMIT;");
    }
    begin(&mut database.connect(mode), FIRST, Yes);
}

async fn a_late_holder_is_stopped<D: Database>(database: &D, mode: &'static str) {
    let mut session = database.connect(mode);
    pass(&mut session, FIRST);
    pass(&mut session, SECOND);
    is_stopped(&mut session, FIRST);
    // A lock that passes on inside a process keeps its owner.
    let owner = SECOND.owner;
    is_stopped(&mut session, Holder { owner, ..FIRST });
}

async fn an_equal_token_of_another_owner_is_refused<D: Database>(database: &D, mode: &'static str) {
    let mut session = database.connect(mode);
    pass(&mut session, FIRST);
    let owner = SECOND.owner;
    is_stopped(&mut session, Holder { owner, ..FIRST });
    begin(&mut session, FIRST, Yes);
}

async fn a_late_holder_waits_for_the_next_one_and_is_stopped<D: Database>(
    database: &D,
    mode: &'static str,
) {
    let (mut late, mut next) = (database.connect(mode), database.connect(mode));
    begin(&mut next, SECOND, Yes);
    begin_waiting(database, &mut late, FIRST).await;
    next.run("COMMIT;");
    entered_after_waiting::<D>(&mut late, FIRST, No);
}

async fn the_next_holder_waits_for_a_late_one_and_sees_its_work<D: Database>(
    database: &D,
    mode: &'static str,
) {
    let (mut late, mut next) = (database.connect(mode), database.connect(mode));
    begin(&mut late, FIRST, Yes);
    let balance = late.balance();
    begin_waiting(database, &mut next, SECOND).await;
    late.set_balance(balance + 10);
    late.run("COMMIT;");
    entered_after_waiting::<D>(&mut next, SECOND, Yes);
    let balance = next.balance();
    next.set_balance(balance + 20);
    next.run("COMMIT;");
    begin(&mut late, FIRST, No);
    assert_eq!(late.balance(), 130, "{mode}");
}

async fn a_late_holder_that_has_read_before_loses_no_update<D: Database>(
    database: &D,
    mode: &'static str,
) {
    let (mut late, mut next) = (database.connect(mode), database.connect(mode));
    let read = |session: &mut Session, holder| {
        begin(session, holder, Yes);
        let balance = session.balance();
        session.run("COMMIT;");
        balance
    };
    let write = |session: &mut Session, holder, balance| {
        begin(session, holder, Yes);
        session.set_balance(balance);
        session.run("COMMIT;");
    };
    let old = read(&mut late, FIRST);
    let seen = read(&mut next, SECOND);
    assert_eq!((old, seen), (100, 100), "{mode}");
    // What it would write now, the next holder would write over.
    is_stopped(&mut late, FIRST);
    write(&mut next, SECOND, seen + 20);
    // It has a lock again, and starts from the beginning.
    let seen = read(&mut late, THIRD);
    write(&mut late, THIRD, seen + 10);
    assert_eq!(next.balance(), 130, "{mode}");
}

async fn a_rollback_lets_a_late_holder_in<D: Database>(database: &D, mode: &'static str) {
    let (mut late, mut next) = (database.connect(mode), database.connect(mode));
    begin(&mut next, SECOND, Yes);
    next.run("ROLLBACK;");
    begin(&mut late, FIRST, Yes);
}

/// Makes a test of each claim and each database, over a database of its own, in all modes.
macro_rules! hold {
    ($($claim:ident,)*) => {$(
        mod $claim {
            use super::*;

            async fn holds<D: Database>() {
                let database: D = start_with(None);
                for mode in D::MODES {
                    super::$claim(&database, mode).await;
                }
            }

            #[tokio::test]
            async fn in_postgres() {
                holds::<Postgres>().await;
            }

            #[tokio::test]
            async fn in_mariadb() {
                holds::<MariaDb>().await;
            }

            #[tokio::test]
            async fn in_sqlite() {
                holds::<Sqlite>().await;
            }
        }
    )*};
}

hold! {
    the_same_holder_enters_again,
    a_late_holder_is_stopped,
    an_equal_token_of_another_owner_is_refused,
    a_late_holder_waits_for_the_next_one_and_is_stopped,
    the_next_holder_waits_for_a_late_one_and_sees_its_work,
    a_late_holder_that_has_read_before_loses_no_update,
    a_rollback_lets_a_late_holder_in,
}

/// Why the page has another statement for MariaDB.
#[test]
fn mariadb_changes_no_row_for_a_holder_that_enters_again_unless_something_is_counted() {
    let (enter, columns) = statements(MariaDb::NAME);
    let uncounted = enter.replace(", entries = entries + 1", "");
    assert_ne!(uncounted, enter);
    let database = MariaDb::start(&uncounted, &columns);
    let mut session = database.connect("READ COMMITTED");
    for changed in [1, 0] {
        session.send_enter(FIRST);
        let found = 1;
        assert_eq!(session.reply(), Reply::Rows { found, changed });
    }
}
