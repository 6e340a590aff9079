//! The compiler, as a user meets it: a few lines of Rust go in, what it says comes out.
//!
//! It is given the very library that this test was built with. Cargo says where that is, and as nothing has changed
//! since, that takes no time; a crate of its own for every mistake would have all dependencies built once more.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
/// The crates that the mistakes are made with.
const CRATES: [&str; 6] = [
    "tower_redlock",
    "axum",
    "http",
    "tower",
    "tower_layer",
    "tower_service",
];

pub(crate) struct Compiler {
    arguments: Vec<OsString>,
}

impl Compiler {
    pub(crate) fn find() -> Self {
        let artifacts = artifacts();
        let mut arguments = Vec::new();
        for name in CRATES {
            // Where there are two versions of a crate, nobody knows which one the library means.
            let [path] = artifacts.libraries.get(name).map_or(&[][..], Vec::as_slice) else {
                panic!("cargo names no library `{name}`, or several");
            };
            let mut definition = OsString::from(format!("{name}="));
            definition.push(path);
            arguments.extend(["--extern".into(), definition]);
        }
        for directory in artifacts.directories {
            let mut search = OsString::from("dependency=");
            search.push(directory);
            arguments.extend(["-L".into(), search]);
        }
        Self { arguments }
    }

    /// What the compiler says of `code`; `None` if it takes it.
    pub(crate) fn refuses(&self, code: &str) -> Option<String> {
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("messages");
        fs::create_dir_all(&out).expect("a directory for what comes out");
        let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let mut child = Command::new(rustc)
            .args(["--edition=2024", "--crate-type=lib", "--crate-name=case"])
            .args([
                "--emit=metadata",
                "-Awarnings",
                "--color=never",
                "--out-dir",
            ])
            .arg(out)
            .args(&self.arguments)
            .arg("-")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("rustc can be started");
        let mut input = child.stdin.take().expect("its input is a pipe");
        input
            .write_all(code.as_bytes())
            .expect("rustc reads its input");
        drop(input);
        let output = child.wait_with_output().expect("rustc ends");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (!output.status.success()).then_some(said)
    }
}

#[derive(Default)]
struct Artifacts {
    libraries: BTreeMap<String, Vec<PathBuf>>,
    directories: Vec<PathBuf>,
}

/// What this test is made of, and where it lies.
fn artifacts() -> Artifacts {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent();
    let mut command = Command::new(cargo);
    command
        .current_dir(ROOT)
        .args(["test", "--no-run", "--offline", "--quiet", "--all-features"])
        .args(["--test=messages", "--message-format=json", "--target-dir"])
        .arg(target.expect("the directory lies in the target directory"));
    for (name, _) in env::vars_os() {
        // Build scripts would see these changed, and run again.
        let text = name.to_string_lossy();
        if ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"]
            .iter()
            .any(|prefix| text.starts_with(prefix))
        {
            command.env_remove(name);
        }
    }
    let output = command.output().expect("cargo can be started");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo test --no-run: {error}");
    let mut artifacts = Artifacts::default();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let message: serde_json::Value = serde_json::from_str(line).expect("cargo writes JSON");
        if text_at(&message, "/reason") == "compiler-artifact" {
            artifacts.add(&message);
        }
    }
    artifacts
}

impl Artifacts {
    fn add(&mut self, message: &serde_json::Value) {
        let files = message.pointer("/filenames");
        let files = files.and_then(serde_json::Value::as_array).into_iter();
        for file in files.flatten().filter_map(|file| file.as_str()) {
            let file = Path::new(file);
            if file
                .extension()
                .is_some_and(|extension| extension == "rlib")
            {
                let name = text_at(message, "/target/name").to_owned();
                let paths = self.libraries.entry(name).or_default();
                paths.push(file.to_owned());
            }
            let directory = file.parent().unwrap_or(Path::new(ROOT)).to_owned();
            if !self.directories.contains(&directory) {
                self.directories.push(directory);
            }
        }
    }
}

fn text_at<'a>(message: &'a serde_json::Value, place: &str) -> &'a str {
    let value = message.pointer(place);
    value.and_then(|value| value.as_str()).unwrap_or_default()
}
