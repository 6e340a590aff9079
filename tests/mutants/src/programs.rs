//! The programs of the suites, built from the copy.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// An error of the compiler.
#[derive(Debug)]
pub(crate) struct BuildError {
    said: String,
    /// The files that it points to, and the bytes in there.
    pub(crate) places: Vec<(String, usize)>,
}

impl BuildError {
    /// The function that is called where a constant one is needed, if that is the error.
    pub(crate) fn not_constant(&self) -> Option<&str> {
        let first = self.said.lines().next()?;
        let (_, after) = first.split_once("cannot call non-const ")?;
        let path = after.split('`').nth(1)?.split("::<").next()?;
        path.rsplit("::").next().filter(|name| *name != "is")
    }
}

/// Builds the `suites` of the tree in `copy`, and returns the program of each.
pub(crate) fn build<'a>(
    copy: &Path,
    suites: impl IntoIterator<Item = &'a str>,
    options: &[&str],
) -> Result<BTreeMap<String, PathBuf>, Vec<BuildError>> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build
        .args(["test", "--no-run", "--all-features"])
        .args(["--message-format", "json"])
        .args(options)
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
    let lines = String::from_utf8(output.stdout).unwrap();
    if !output.status.success() {
        return Err(lines.lines().filter_map(error).collect());
    }
    Ok(lines.lines().filter_map(program).collect())
}

/// Tells `command` where the servers are that `make test` fetches.
pub(crate) fn with_servers(command: &mut Command) {
    let valkey = crate::root().join("target/servers/valkey-server");
    if valkey.exists() && crate::variable("VALKEY_SERVER").is_none() {
        command.env("VALKEY_SERVER", valkey);
    }
}

/// The error that a message of cargo tells of.
fn error(message: &str) -> Option<BuildError> {
    let message: Value = serde_json::from_str(message).ok()?;
    let message = message.get("message").filter(|it| it["level"] == "error")?;
    let spans = message["spans"].as_array()?.iter();
    let places = spans
        .filter(|span| span["is_primary"] == true)
        .filter_map(|span| {
            let at = usize::try_from(span["byte_start"].as_u64()?).ok()?;
            Some((span["file_name"].as_str()?.to_owned(), at))
        });
    Some(BuildError {
        said: message["rendered"].as_str()?.to_owned(),
        places: places.collect(),
    })
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
