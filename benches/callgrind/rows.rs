//! What is compared: ours as a multiple of the floor.

use std::collections::BTreeMap;

use crate::grind::Counts;

/// Case, and what its counts are set against.
const RATIOS: [(&str, &str); 6] = [
    ("full-5", "floor-5"),
    ("bare-5", "floor-5"),
    ("full-1", "floor-1"),
    ("bare-1", "floor-1"),
    ("rslock-5", "floor-5"),
    ("rslock-1", "floor-1"),
];
/// Here the floor is nothing at all, so it is the difference that counts.
const DIFFERENCES: [(&str, &str); 2] = [("layer", "service"), ("skipped", "service")];

/// Ratios, or counts of a request.
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
    let row = |name, base: &str, set: fn(f64, f64) -> f64| {
        let (this, base) = (&counts[name], &counts[base]);
        Row {
            name,
            instructions: set(this.instructions, base.instructions),
            allocations: set(this.allocations, base.allocations),
        }
    };
    let ratios = RATIOS.map(|(name, base)| row(name, base, |this, base| this / base));
    let differences = DIFFERENCES.map(|(name, base)| row(name, base, |this, base| this - base));
    ratios.into_iter().chain(differences).collect()
}

pub(crate) fn print(counts: &BTreeMap<&'static str, Counts>, rows: &[Row]) {
    println!(
        "{:10} {:>12} {:>11} | {:>12} {:>11} beside the floor",
        "per cycle", "instructions", "allocations", "instructions", "allocations"
    );
    for (name, counts) in counts {
        print!(
            "{name:10} {:>12.0} {:>11.1} |",
            counts.instructions, counts.allocations
        );
        match rows.iter().find(|row| row.name == *name) {
            Some(row) if row.instructions < 100.0 => {
                println!("{:>11.3} x {:>9.3} x", row.instructions, row.allocations);
            }
            Some(row) => println!(" {:>+12.0} {:>+11.1}", row.instructions, row.allocations),
            None => println!(),
        }
    }
}
