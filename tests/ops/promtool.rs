//! Prometheus' own tool. A missing one fails the tests: a skipped test proves nothing.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use super::support::server::new_dir;

fn binary() -> PathBuf {
    if let Some(path) = env::var_os("PROMTOOL") {
        return path.into();
    }
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools");
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain([fetched])
        .map(|dir| dir.join("promtool"))
        .find(|file| file.is_file())
        .unwrap_or_else(|| {
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

/// The same on a file that holds this value. JSON is YAML.
#[track_caller]
pub(crate) fn run_on(words: &[&str], value: &serde_json::Value) {
    let file = new_dir().join("rules.yml");
    fs::write(&file, value.to_string()).unwrap();
    run(words, &file);
}

/// The path of a file of `examples/ops`.
pub(crate) fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("examples/ops")
        .join(name)
}
