//! The cost and the path of a lock, counted by callgrind. Times of one machine say little about another, and a few percent are lost in
//! their noise; counts differ by less than one percent from run to run.
//!
//! * `make cost`: the instructions and allocations of a lock, as multiples of the least that redis-rs needs for the same
//!   servers, and those of a request through the layer, as multiples of the request without it. It compares these ratios
//!   with `expected.txt` and fails where one is more than ten percent above it; `make cost UPDATE=1` writes the file.
//! * `make path`: the files and functions of the crate that one lock passes through ([`path`]).
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::exit,
    reason = "a benchmark prints, and ends where it cannot go on"
)]

mod cases;
mod expected;
#[path = "../fanout.rs"]
mod fanout;
mod grind;
mod path;
mod relay;
mod rows;
mod support;

use std::collections::BTreeMap;

use support::server::{Kind, Server};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let complaints = match words[..] {
        [grind::MARK, case, gate, ref urls @ ..] => return cases::counted(case, gate, urls),
        [grind::CYCLES, url, socket] => return path::cycles(url, socket),
        ["--update"] => return expected::write(&measure()),
        [] => expected::complaints(&measure()),
        ["path"] => path::complaints(false),
        ["path", "--list"] => path::complaints(true),
        _ => panic!("unknown arguments: {words:?}"),
    };
    for complaint in &complaints {
        eprintln!("{complaint}");
    }
    std::process::exit(i32::from(!complaints.is_empty()));
}

/// Counts every case, and prints all rows.
fn measure() -> Vec<rows::Row> {
    let mut counts = BTreeMap::new();
    for case in cases::CASES {
        let servers = Server::start_many(Kind::Redis, case.servers);
        let urls: Vec<String> = servers.iter().map(Server::url).collect();
        let relay = relay::Relay::start(&urls);
        counts.insert(case.name, grind::count(case, &relay));
    }
    let rows = rows::of(&counts);
    rows::print(&counts, &rows);
    rows
}
