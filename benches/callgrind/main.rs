//! What a cycle of acquire and release takes in instructions and allocations, counted by callgrind: ours, and beside it
//! the least that redis-rs needs for the same servers. Times of one machine say little about another, and a few percent
//! are lost in their noise; these counts differ by less than one from run to run. `make cost` compares them with
//! `expected.txt` and fails where they are more than ten percent above it; `make cost UPDATE=1` writes the file.
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
mod relay;
mod rows;
mod support;

use std::collections::BTreeMap;

use support::server::{Kind, Server};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.split_first() {
        Some((mark, rest)) if mark == grind::MARK => {
            let [case, gate, urls @ ..] = rest else {
                panic!("a case, the gate of a relay and its urls, not {rest:?}");
            };
            cases::counted(case, gate, urls);
        }
        Some((word, [])) if word == "--update" => expected::write(&measure()),
        None => {
            let complaints = expected::complaints(&measure());
            for complaint in &complaints {
                eprintln!("{complaint}");
            }
            std::process::exit(i32::from(!complaints.is_empty()));
        }
        Some(_) => panic!("unknown arguments: {words:?}"),
    }
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
