//! The compiler and its documentation tool: they are given the very crates that this test was built with. Cargo says where
//! those are, and as nothing has changed since, that takes no time.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use serde_json::Value;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
pub(crate) const LIBRARY: &str = "tower_redlock";

pub(crate) struct Compiler {
    /// Our own package, as cargo knows it.
    package: Value,
    /// The library and the crates that it uses, by the names that it has for them.
    crates: BTreeMap<String, PathBuf>,
    directories: BTreeSet<PathBuf>,
}

impl Compiler {
    pub(crate) fn get() -> &'static Self {
        static FOUND: LazyLock<Compiler> = LazyLock::new(Compiler::find);
        &FOUND
    }

    fn find() -> Self {
        let metadata = cargo(&["metadata", "--no-deps", "--format-version=1"]);
        let metadata: Value = serde_json::from_slice(&metadata).expect("cargo writes JSON");
        let packages = metadata.get("packages").and_then(Value::as_array);
        let packages = packages.expect("a list");
        let own = |package: &&Value| package["name"] == env!("CARGO_PKG_NAME");
        let mut found = Self {
            package: packages.iter().find(own).expect("it is listed").clone(),
            crates: BTreeMap::new(),
            directories: BTreeSet::new(),
        };
        // Several versions of a crate may have been built; these are what the manifest asks for.
        let tree = cargo(&[
            "tree",
            "--all-features",
            "--edges=normal,dev",
            "--depth=1",
            "--prefix=none",
        ]);
        let tree = String::from_utf8(tree).expect("cargo writes text");
        let uses: BTreeSet<String> = tree
            .lines()
            .filter_map(|line| {
                let mut words = line.split(' ');
                let name = words.next()?;
                Some(format!("{name}@{}", words.next()?.strip_prefix('v')?))
            })
            .collect();
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent();
        let target = target.and_then(Path::to_str).expect("a directory of text");
        // What this test is made of; it is not built again.
        let built = [
            "test",
            "--no-run",
            "--quiet",
            "--all-features",
            "--test=interface",
            "--message-format=json",
            "--target-dir",
            target,
        ];
        for line in cargo(&built).split(|byte| *byte == b'\n') {
            if !line.is_empty() {
                let message = serde_json::from_slice(line).expect("cargo writes JSON");
                found.add(&message, &uses);
            }
        }
        found
    }

    fn add(&mut self, message: &Value, uses: &BTreeSet<String>) {
        let name = text(message, "/target/name");
        let (place, version) = text(message, "/package_id")
            .rsplit_once('#')
            .unwrap_or_default();
        // The version stands alone where the name is that of the directory.
        let ours = place.starts_with("path+") && name == LIBRARY;
        let files = list(message, "/filenames").filter_map(Value::as_str);
        for file in files.map(Path::new) {
            if (ours || uses.contains(version))
                && file
                    .extension()
                    .is_some_and(|extension| extension == "rlib")
            {
                self.crates.insert(name.to_owned(), file.to_owned());
            }
            self.directories.extend(file.parent().map(Path::to_owned));
        }
    }

    /// Where the crates are that the library uses; and the library itself, for a user of it.
    fn arguments(&self, with_library: bool) -> Vec<OsString> {
        let mut arguments = Vec::new();
        let met = |(name, _): &(&String, &PathBuf)| with_library || *name != LIBRARY;
        for (name, path) in self.crates.iter().filter(met) {
            let mut definition = OsString::from(format!("{name}="));
            definition.push(path);
            arguments.extend(["--extern".into(), definition]);
        }
        for directory in &self.directories {
            let mut search = OsString::from("dependency=");
            search.push(directory);
            arguments.extend(["-L".into(), search]);
        }
        arguments
    }

    /// The documentation of the crate whose root is `root`, with all features of the library, as data: in this file.
    pub(crate) fn documents(&self, root: &Path, out: &str) -> PathBuf {
        let rustdoc = env::var_os("RUSTDOC").unwrap_or_else(|| "rustdoc".into());
        let features = self.package.pointer("/features").and_then(Value::as_object);
        let features = features.into_iter().flatten();
        let features = features.flat_map(|(name, _)| {
            let feature = format!("feature=\"{name}\"");
            ["--cfg".to_owned(), feature]
        });
        let out = scratch(out);
        let output = Command::new(rustdoc)
            // This form of output is unstable. What is read of it has not changed for years.
            .env("RUSTC_BOOTSTRAP", "1")
            .args(["-Zunstable-options", "--output-format=json"])
            .args(["--edition=2024", "--crate-name", LIBRARY, "-Awarnings"])
            .arg("--out-dir")
            .arg(&out)
            .args(features)
            .args(self.arguments(false))
            .arg(root)
            .output()
            .expect("rustdoc can be started");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "rustdoc failed: {error}");
        out.join(format!("{LIBRARY}.json"))
    }

    /// What the compiler says of a program that it refuses.
    pub(crate) fn refuses(&self, program: &Path) -> String {
        let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let output = Command::new(rustc)
            .args(["--edition=2024", "--crate-type=lib", "--emit=metadata"])
            .arg("--out-dir")
            .arg(scratch("cases"))
            .args(self.arguments(true))
            .arg(program)
            .output()
            .expect("rustc can be started");
        assert!(!output.status.success(), "{} compiles", program.display());
        String::from_utf8(output.stderr).expect("rustc writes text")
    }

    /// The crates whose types the manifest allows in our interface.
    pub(crate) fn allowed(&self) -> BTreeSet<String> {
        let place = "/metadata/cargo_check_external_types/allowed_external_types";
        let types = list(&self.package, place).filter_map(Value::as_str);
        types
            .map(|pattern| {
                let name = pattern.strip_suffix("::*");
                name.expect("whole crates are allowed").to_owned()
            })
            .collect()
    }
}

/// A directory for one test, because several may run at the same time.
pub(crate) fn scratch(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("interface");
    let path = path.join(name);
    fs::create_dir_all(&path).expect("a directory for what comes out");
    path
}

fn cargo(arguments: &[&str]) -> Vec<u8> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(ROOT).args(arguments).arg("--offline");
    for (name, _) in env::vars_os() {
        // Build scripts would see these changed, and run again.
        let text = name.to_string_lossy();
        let ours = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"];
        if ours.iter().any(|prefix| text.starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    let output = command.output().expect("cargo can be started");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo {arguments:?}: {error}");
    output.stdout
}

fn list<'a>(value: &'a Value, place: &str) -> impl Iterator<Item = &'a Value> {
    let array = value.pointer(place).and_then(Value::as_array);
    array.into_iter().flatten()
}

fn text<'a>(value: &'a Value, place: &str) -> &'a str {
    let value = value.pointer(place);
    value.and_then(Value::as_str).unwrap_or_default()
}
