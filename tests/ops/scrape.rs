//! What Prometheus reads from a process, as the series of a test of rules.

use std::collections::{BTreeMap, BTreeSet};

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use serde_json::{Value, json};

/// How far scrapes are apart.
pub(crate) const SECONDS: usize = 15;
/// For how many scrapes what was seen once stays as it was.
pub(crate) const STAYS: usize = 40;

/// With the bounds that the guide has.
pub(crate) fn recorder() -> (PrometheusRecorder, PrometheusHandle) {
    let buckets = [0.001, 0.005, 0.02, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0, 600.0];
    let builder = PrometheusBuilder::new().set_buckets(&buckets).unwrap();
    let recorder = builder.build_recorder();
    let handle = recorder.handle();
    (recorder, handle)
}

/// Scrapes of one process, in order.
#[derive(Debug, Default)]
pub(crate) struct Scrapes(Vec<BTreeMap<String, f64>>);

impl Scrapes {
    pub(crate) fn take(&mut self, process: &PrometheusHandle) {
        process.run_upkeep();
        let text = process.render();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let series = lines.filter_map(|line| {
            let (name, number) = line.rsplit_once(' ')?;
            Some((labelled(name), number.parse().unwrap()))
        });
        self.0.push(series.collect());
    }

    /// When the last of the scrapes was read for the first time, in seconds; before that all was as in the others.
    pub(crate) fn last(&self) -> usize {
        (self.0.len() - 1) * STAYS * SECONDS
    }

    /// When the last was read for the last time.
    pub(crate) fn end(&self) -> usize {
        self.last() + (STAYS - 1) * SECONDS
    }

    /// The series of a test of rules: each scrape stays for ten minutes.
    pub(crate) fn series(&self) -> Value {
        let names: BTreeSet<&String> = self.0.iter().flat_map(BTreeMap::keys).collect();
        let series = names.into_iter().map(|name| {
            let values = self.0.iter().map(|scrape| match scrape.get(name) {
                Some(number) => format!("{number}x{}", STAYS - 1),
                None => format!("_x{STAYS}"),
            });
            let values: Vec<_> = values.collect();
            json!({ "series": name, "values": values.join(" ") })
        });
        series.collect()
    }
}

/// With the labels that Prometheus adds.
fn labelled(name: &str) -> String {
    const ADDED: &str = r#"job="orders",instance="a""#;
    match name.strip_suffix('}') {
        Some(inside) => format!("{inside},{ADDED}}}"),
        None => format!("{name}{{{ADDED}}}"),
    }
}
