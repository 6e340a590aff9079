//! What `examples/ops` gives operators, in use: every alarm fires for the fault that it is for, by real metrics and by
//! Prometheus' own `promtool`; the dashboard shows something in each panel; the local nodes start and end.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking, in its helpers too"
)]

mod alarms;
mod dashboard;
mod files;
mod nodes;
mod promtool;
mod scenes;
mod scrape;
#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeSet;

/// A file of `examples/ops`.
fn ops(name: &str) -> String {
    let path = format!("{}/examples/ops/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The names of the alarms.
fn alarms() -> BTreeSet<String> {
    let text = ops("alerts.yml");
    let names = text.lines().filter_map(|line| {
        let name = line.trim().strip_prefix("- alert: ")?;
        Some(name.to_owned())
    });
    names.collect()
}

/// The names of the metrics in an expression, without what Prometheus puts behind those of histograms.
fn metrics_in(expression: &str) -> BTreeSet<String> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let names = words.filter(|word| word.starts_with("redlock_"));
    let ends = ["_bucket", "_sum", "_count"];
    let name = |name: &str| {
        let end = ends.iter().find_map(|end| name.strip_suffix(end));
        end.unwrap_or(name).to_owned()
    };
    names.map(name).collect()
}

/// The names of the metrics in the table of the docs.
fn documented() -> BTreeSet<String> {
    let rows = include_str!("../../src/metrics.rs").lines();
    let names = rows.filter_map(|line| {
        let rest = line.strip_prefix("//! | `redlock_")?;
        Some(format!("redlock_{}", rest.split('`').next()?))
    });
    names.collect()
}
