//! What must hold for any input. Each target is a plain function of bytes, which panics if something does not hold, and
//! returns whether the input was accepted as what the target reads: a corpus has both kinds.

mod config;
mod input;
mod node;
mod node_url;
#[path = "../../support/requests.rs"]
mod requests;
mod server;

/// All targets by name. What is read inside of the crate alone, records and replies, its unit tests try with corpora
/// of their own (`any_record`, `any_reply`), and names (`lock_key`, `namespace`, `idempotency::key`) with any text.
pub fn run(target: &str, input: &[u8]) -> bool {
    match target {
        "config" => config::run(input),
        "node" => node::run(input),
        "node_url" => node_url::run(input),
        "server" => server::run(input),
        other => panic!("there is no target `{other}`"),
    }
}

/// An error text fit for a log or a response: one line, and not a long one.
pub fn assert_short(text: &str, most: usize) {
    let is_line = !text.chars().any(char::is_control);
    assert!(is_line && text.chars().count() <= most, "{text:?}");
}
