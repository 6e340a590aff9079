//! The programs of the suites, built from the copy.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// Builds the `suites` of the tree in `copy`, and returns the program of each.
pub(crate) fn build<'a>(
    copy: &Path,
    suites: impl IntoIterator<Item = &'a str>,
) -> BTreeMap<String, PathBuf> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build
        .args(["test", "--no-run", "--all-features"])
        .args(["--message-format", "json"])
        .arg("--target-dir")
        .arg(crate::target())
        .current_dir(copy)
        .stderr(Stdio::inherit());
    // What cargo told this program of its package would have the build scripts of others run again.
    let told = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in env::vars().filter(|(name, _)| told(name)) {
        build.env_remove(name);
    }
    for suite in suites {
        match suite {
            "lib" => build.arg("--lib"),
            suite => build.args(["--test", suite]),
        };
    }
    let output = build.output().unwrap();
    assert!(output.status.success(), "the suites cannot be built");
    let lines = String::from_utf8(output.stdout).unwrap();
    lines.lines().filter_map(program).collect()
}

/// The program that a message of cargo tells of.
fn program(message: &str) -> Option<(String, PathBuf)> {
    let message: Value = serde_json::from_str(message).ok()?;
    let path = message["executable"].as_str()?;
    let kind = message["target"]["kind"][0].as_str()?;
    let suite = match kind {
        "test" => message["target"]["name"].as_str()?,
        kind => kind,
    };
    Some((suite.to_owned(), path.into()))
}
