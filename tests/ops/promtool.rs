//! Prometheus' own tool. A missing one fails the tests: a skipped test proves nothing.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use serde_json::{Value, json};

use super::scrape::{SECONDS, Scrapes};
use super::support::server::{new_dir, program};

fn binary() -> PathBuf {
    if let Some(path) = env::var_os("PROMTOOL") {
        return path.into();
    }
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools");
    program("promtool", "PATH", [fetched]).unwrap_or_else(|| {
        panic!("no promtool found: run `make promtool`, or set PROMTOOL to its path")
    })
}

/// Runs `promtool test rules` or the like on `file`.
#[track_caller]
pub(crate) fn run(words: &[&str], file: &Path) {
    let done = Command::new(binary()).args(words).arg(file).output();
    let done = done.unwrap();
    assert!(
        done.status.success(),
        "promtool {words:?}:\n{}{}",
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr)
    );
}

/// Tests rules with the series of scrapes. JSON is YAML.
#[track_caller]
pub(crate) fn test(rules: &[PathBuf], scrapes: &Scrapes, claims: &[Value]) {
    let file = new_dir().join("rules.yml");
    let interval = format!("{SECONDS}s");
    let test = json!({
        "rule_files": rules,
        "evaluation_interval": interval,
        "tests": [{
            "interval": interval,
            "input_series": scrapes.series(),
            "promql_expr_test": claims,
        }],
    });
    fs::write(&file, test.to_string()).unwrap();
    run(&["test", "rules"], &file);
}

/// The path of a file of `examples/ops`.
pub(crate) fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("examples/ops")
        .join(name)
}
