//! How fast locks are, beside the least that any such lock can cost and beside another library, on real servers
//! that this program starts itself. Run with `cargo bench`, or `cargo bench -- acquire` for a part.
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
mod floors;
mod frozen;
mod measure;
mod middleware;
#[path = "../tests/support/mod.rs"]
mod support;

fn main() {
    // Cargo adds flags of its own, as `--bench`.
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|w| name.contains(w));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let runtime = std::rc::Rc::new(runtime);
    if is_wanted("acquire") {
        runtime.block_on(acquire::run());
    }
    if is_wanted("middleware") {
        middleware::run(&runtime);
    }
    if is_wanted("frozen") {
        runtime.block_on(frozen::run());
    }
}
