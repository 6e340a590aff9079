//! What is compared: ours as a multiple of the floor.

use std::collections::BTreeMap;

use crate::grind::Counts;

/// Each case, and the floor that it is a multiple of. Both are counted in the same run, so that a compiler, a library or
/// a server which takes more or less of both changes little.
const RATIOS: [(&str, &str); 8] = [
    ("full-5", "floor-5"),
    ("bare-5", "floor-5"),
    ("full-1", "floor-1"),
    ("bare-1", "floor-1"),
    ("rslock-5", "floor-5"),
    ("rslock-1", "floor-1"),
    ("layer", "service"),
    ("skipped", "service"),
];

/// Multiples of the floor.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) instructions: f64,
    pub(crate) allocations: f64,
}

impl Row {
    /// A peer stands beside ours; that it changes is nothing to complain of.
    pub(crate) fn is_ours(&self) -> bool {
        !self.name.starts_with("rslock")
    }
}

pub(crate) fn of(counts: &BTreeMap<&'static str, Counts>) -> Vec<Row> {
    let row = |(name, floor)| {
        let (this, floor): (&Counts, &Counts) = (&counts[name], &counts[floor]);
        Row {
            name,
            instructions: this.instructions / floor.instructions,
            allocations: this.allocations / floor.allocations,
        }
    };
    RATIOS.map(row).into()
}

pub(crate) fn print(counts: &BTreeMap<&'static str, Counts>, rows: &[Row]) {
    println!(
        "{:10} {:>12} {:>11} | {:>12} {:>11} as multiples of the floor",
        "per cycle", "instructions", "allocations", "instructions", "allocations"
    );
    for (name, counts) in counts {
        print!(
            "{name:10} {:>12.0} {:>11.1} |",
            counts.instructions, counts.allocations
        );
        match rows.iter().find(|row| row.name == *name) {
            Some(row) => println!("{:>11.3} x {:>9.3} x", row.instructions, row.allocations),
            None => println!(),
        }
    }
}
