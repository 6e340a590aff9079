//! The rows that stand in the tree.

use std::path::{Path, PathBuf};

use crate::rows::Row;

/// By how much a row may be above what is written down. The noise is below one percent; the rest is for compilers.
const TOLERANCE: f64 = 0.10;

const HEAD: &str = "\
# Written by `make cost UPDATE=1`, compared by `make cost`. Instructions and allocations as multiples of a floor that is
# counted in the same run. A cycle of acquire and release on five servers and on one, with and without (bare) fencing
# tokens and restart guard: as multiples of redis-rs (benches/fanout.rs). A request through the layer over five nodes in
# memory, and one that needs no lock: as multiples of the request without the layer.
";

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("expected.txt")
}

pub(crate) fn write(rows: &[Row]) {
    let mut text = HEAD.to_owned();
    text += &format!("{:<10}{:>14}{:>14}\n", "#", "instructions", "allocations");
    for row in rows.iter().filter(|row| row.is_ours()) {
        let (name, instructions, allocations) = (row.name, row.instructions, row.allocations);
        text += &format!("{name:<10}{instructions:>14.3}{allocations:>14.3}\n");
    }
    std::fs::write(file(), text).unwrap();
    println!("written to {}", file().display());
}

/// Where the rows are above those in the file.
pub(crate) fn complaints(rows: &[Row]) -> Vec<String> {
    let text = std::fs::read_to_string(file()).unwrap();
    let mut complaints = Vec::new();
    for row in rows.iter().filter(|row| row.is_ours()) {
        let Some(line) = text.lines().find_map(|line| line.strip_prefix(row.name)) else {
            complaints.push(format!("{}: not in expected.txt", row.name));
            continue;
        };
        let expected: Vec<f64> = line
            .split_whitespace()
            .map(|word| word.parse().unwrap())
            .collect();
        let found = [
            ("instructions", row.instructions),
            ("allocations", row.allocations),
        ];
        for ((what, found), expected) in found.into_iter().zip(expected) {
            let change = found / expected - 1.0;
            if change > TOLERANCE {
                complaints.push(format!(
                    "{}: more {what}: {found:.3} for {expected:.3} ({:+.1} %)",
                    row.name,
                    change * 100.0
                ));
            }
        }
    }
    if !complaints.is_empty() {
        complaints.push(
            "If it must be so, write it down: make cost UPDATE=1. Where it goes: callgrind_annotate --inclusive=yes \
             target/callgrind/full-5.2"
                .to_owned(),
        );
    }
    complaints
}
