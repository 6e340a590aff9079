//! How fast locks are, beside the least that any such lock can cost and beside another library, on real servers
//! that this program starts itself. Run with `cargo bench --all-features`, or `cargo bench --all-features -- acquire`
//! for a part: acquire, middleware, idempotency, frozen, outages, queue, contention, permits, start, herd, deadline, fencing,
//! semaphores, readers, server, peers, mixed, held, keys; and `-- table` runs the last four and writes their measurements into `benches/peers/RESULTS.md`.
//! `REDLOCK_BENCH_SECONDS` shortens or lengthens those that run for a time.
//!
//! Nothing here fails for being slow: numbers of one machine say little about another, only the ratios within one
//! run do. The client runs on one thread, so that it and the servers disturb each other as little as can be.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a benchmark prints, and ends where it cannot go on"
)]

mod acquire;
mod children;
mod clock;
mod contention;
#[path = "../tests/support/contest.rs"]
#[allow(dead_code, unreachable_pub, reason = "the tests use the rest")]
mod contest;
mod cost;
mod deadline;
#[path = "../tests/chaos/dice.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod dice;
mod fanout;
mod fencing;
mod fleet;
mod floors;
#[path = "../tests/chaos/forwarder.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod forwarder;
mod frozen;
mod held;
mod herd;
// Only with both features are there requests that can be compared.
#[cfg(all(feature = "axum", feature = "idempotency"))]
mod idempotency;
mod measure;
mod middleware;
mod outages;
mod peers;
mod permits;
mod proxy;
mod queue;
mod readers;
mod scenes;
mod semaphores;
mod server;
mod start;
#[path = "../tests/support/mod.rs"]
mod support;
mod table;

use tokio::runtime::Runtime;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let runtime = std::rc::Rc::new(runtime);
    match words.split_first() {
        Some((mark, role)) if mark == children::MARK => runtime.block_on(child(role)),
        _ => bench(&runtime, &words),
    }
}

fn bench(runtime: &std::rc::Rc<Runtime>, words: &[String]) {
    children::clear_up_when_told_to_end();
    // Cargo adds flags of its own, as `--bench`.
    let wanted: Vec<_> = words.iter().filter(|word| !word.starts_with('-')).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|w| name.contains(*w));
    if is_wanted("acquire") {
        runtime.block_on(acquire::run());
    }
    if is_wanted("middleware") {
        middleware::run(runtime);
    }
    #[cfg(all(feature = "axum", feature = "idempotency"))]
    if is_wanted("idempotency") {
        runtime.block_on(idempotency::run());
    }
    if is_wanted("frozen") {
        runtime.block_on(frozen::run());
    }
    if is_wanted("outages") {
        runtime.block_on(outages::run());
    }
    if is_wanted("queue") {
        runtime.block_on(queue::run());
    }
    if is_wanted("contention") {
        runtime.block_on(contention::run());
    }
    if is_wanted("permits") {
        runtime.block_on(permits::run());
    }
    if is_wanted("start") {
        runtime.block_on(start::run());
    }
    if is_wanted("herd") {
        herd::run(runtime);
    }
    if is_wanted("deadline") {
        runtime.block_on(deadline::run());
    }
    if is_wanted("fencing") {
        runtime.block_on(fencing::run());
    }
    if is_wanted("semaphores") {
        semaphores::run();
    }
    if is_wanted("readers") {
        readers::run();
    }
    if is_wanted("server") {
        runtime.block_on(server::run());
    }
    compare(
        runtime,
        is_wanted,
        wanted.iter().any(|word| *word == "table"),
    );
}

/// The parts that compare libraries; all of them for the `table`, which is written only if it is asked for.
fn compare(runtime: &Runtime, is_wanted: impl Fn(&str) -> bool, table: bool) {
    let is_wanted = |name: &str| table || is_wanted(name);
    let mut measured = table::Measured::default();
    if is_wanted("peers") {
        measured.scenes = scenes::run();
    }
    if is_wanted("mixed") {
        measured.mixed = scenes::mixed();
    }
    if is_wanted("held") {
        measured.held = Some(runtime.block_on(held::held()));
    }
    if is_wanted("keys") {
        measured.keys = runtime.block_on(held::keys());
    }
    if table {
        table::write(&measured);
    }
}

/// Is one of the processes that a benchmark starts.
async fn child(role: &[String]) {
    match role.split_first() {
        Some((role, words)) if role == contention::ROLE => contention::child(words).await,
        Some((role, words)) if role == fleet::ROLE => fleet::child(words).await,
        Some((role, words)) if role == start::ROLE => start::child(words).await,
        _ => panic!("no such role: {role:?}"),
    }
}
