//! The dashboard: Grafana's form as far as it can be checked without Grafana, and every expression by promtool.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{documented, metrics_in, ops, promtool, scenes};

fn panels() -> Vec<Value> {
    let dashboard: Value = serde_json::from_str(&ops("dashboard.json")).unwrap();
    dashboard["panels"].as_array().unwrap().clone()
}

/// The title of its panel, and the expression with Grafana's variables filled in as Grafana does.
fn expressions() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for panel in panels() {
        for target in panel["targets"].as_array().unwrap() {
            let expression = target["expr"].as_str().unwrap();
            let expression = expression
                .replace("$__rate_interval", "1m")
                .replace("$__range", "1h")
                .replace("$job", ".*")
                .replace("$instance", ".*");
            assert!(!expression.contains('$'), "{expression}");
            found.push((panel["title"].as_str().unwrap().to_owned(), expression));
        }
    }
    found
}

#[test]
fn it_shows_every_metric_and_no_other() {
    let shown: BTreeSet<_> = expressions()
        .iter()
        .flat_map(|(_, expression)| metrics_in(expression))
        .collect();
    assert_eq!(shown, documented());
}

#[test]
fn panels_have_numbers_of_their_own_and_do_not_overlap() {
    let panels = panels();
    let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64()).collect();
    assert_eq!(ids.len(), panels.len());
    let mut covered = BTreeSet::new();
    for panel in &panels {
        let at = |side: &str| panel["gridPos"][side].as_u64().unwrap();
        for x in at("x")..at("x") + at("w") {
            assert!(x < 24, "{panel}");
            for y in at("y")..at("y") + at("h") {
                assert!(covered.insert((x, y)), "{} covers another", panel["title"]);
            }
        }
    }
}

#[test]
fn waits_and_hold_times_are_histograms() {
    for metric in ["redlock_acquire_wait_seconds", "redlock_hold_seconds"] {
        let kinds: BTreeSet<String> = panels()
            .iter()
            .filter(|panel| panel["targets"].to_string().contains(metric))
            .map(|panel| panel["type"].as_str().unwrap().to_owned())
            .collect();
        let both = kinds.contains("heatmap") && kinds.contains("bargauge");
        assert!(both, "{kinds:?}");
    }
}

/// Of real servers, after a lock: no panel is empty.
#[tokio::test]
async fn each_panel_shows_something() {
    let scrapes = scenes::a_lock_is_lost().await;
    let at = format!("{}s", scrapes.last() + 60);
    let claims = expressions().into_iter().map(|(_, expression)| {
        let expr = format!("count({expression}) > bool 0");
        json!({ "expr": expr, "eval_time": at, "exp_samples": [{ "labels": "{}", "value": 1 }] })
    });
    promtool::test(&[], &scrapes, &claims.collect::<Vec<_>>());
}
