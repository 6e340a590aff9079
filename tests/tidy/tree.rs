//! The files of the project, and what cargo says of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use crate::dead;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Where this project keeps files of its own, so that what tools leave beside them is not judged.
const PLACES: [&str; 20] = [
    ".ci",
    ".config",
    "benches",
    "examples",
    "src",
    "tests",
    "ARCHITECTURE.md",
    "BENCHMARKS.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.toml",
    "Makefile",
    "README.md",
    "RELEASING.md",
    "SECURITY.md",
    "build.rs",
    "clippy.toml",
    "deny.toml",
    "rustfmt.toml",
    ".editorconfig",
];

/// All texts of the project by their path from its root, with `/` between the parts.
pub(crate) struct Tree {
    pub(crate) files: BTreeMap<String, String>,
    pub(crate) package: Package,
}

/// What the manifest says, as cargo understands it.
#[derive(Default)]
pub(crate) struct Package {
    pub(crate) version: String,
    pub(crate) rust_version: String,
    pub(crate) features: BTreeMap<String, Vec<String>>,
    /// The names by which dependencies appear in paths.
    pub(crate) crates: BTreeSet<String>,
    pub(crate) targets: Vec<Target>,
}

pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) path: String,
    pub(crate) kind: String,
    /// Whether `cargo test` runs it.
    pub(crate) tested: bool,
}

impl Tree {
    pub(crate) fn read() -> Self {
        let mut files = BTreeMap::new();
        for place in PLACES {
            read_into(&mut files, place);
        }
        let package = Package::read();
        Self { files, package }
    }

    /// Calls `check` with every Rust file.
    pub(crate) fn each_rust_file(&self, check: fn(&str, &str) -> Vec<String>) -> Vec<String> {
        let rust = self.files.iter().filter(|(path, _)| path.ends_with(".rs"));
        rust.flat_map(|(path, text)| check(path, text)).collect()
    }

    /// The Rust files of `src` that are more than tests.
    pub(crate) fn product(&self) -> impl Iterator<Item = (&String, &String)> {
        let reached = dead::reach("src/lib.rs", &self.files);
        self.files.iter().filter(move |(path, _)| {
            // What is not reached at all is the dead-file check's business, and is judged all the same.
            path.starts_with("src/") && path.ends_with(".rs") && reached.get(*path) != Some(&true)
        })
    }
}

fn read_into(files: &mut BTreeMap<String, String>, place: &str) {
    let path = Path::new(ROOT).join(place);
    if path.is_dir() {
        for entry in fs::read_dir(&path).expect("a directory of the project can be listed") {
            let name = entry.expect("an entry can be read").file_name();
            read_into(files, &format!("{place}/{}", name.to_string_lossy()));
        }
    } else if let Ok(text) = fs::read_to_string(&path) {
        // What is not text (a certificate in DER form) has no style.
        files.insert(place.to_owned(), text);
    }
}

impl Package {
    fn read() -> Self {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .current_dir(ROOT)
            .args(["metadata", "--no-deps", "--offline", "--format-version=1"])
            .output()
            .expect("cargo can be started");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "cargo metadata failed: {error}");
        let json: serde_json::Value =
            serde_json::from_slice(&output.stdout).expect("cargo writes JSON");
        // The workspace has another member, which only counts what locks take.
        let packages = json["packages"].as_array().expect("cargo lists packages");
        let own = |package: &&serde_json::Value| package["name"] == env!("CARGO_PKG_NAME");
        Self::of(packages.iter().find(own).expect("this package is listed"))
    }

    fn of(json: &serde_json::Value) -> Self {
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let list = |value: &serde_json::Value| value.as_array().cloned().unwrap_or_default();
        let features = json["features"].as_object().cloned().unwrap_or_default();
        Self {
            version: text(&json["version"]),
            rust_version: text(&json["rust_version"]),
            features: features
                .iter()
                .map(|(name, needs)| (name.clone(), list(needs).iter().map(text).collect()))
                .collect(),
            crates: list(&json["dependencies"])
                .iter()
                .map(|dependency| match dependency["rename"].as_str() {
                    Some(name) => name.replace('-', "_"),
                    None => text(&dependency["name"]).replace('-', "_"),
                })
                .collect(),
            targets: list(&json["targets"])
                .iter()
                .map(|target| Target {
                    name: text(&target["name"]),
                    path: relative(&text(&target["src_path"])),
                    kind: text(&target["kind"][0]),
                    tested: target["test"].as_bool().unwrap_or(false),
                })
                .collect(),
        }
    }
}

fn relative(path: &str) -> String {
    let path = Path::new(path);
    let inside = path.strip_prefix(ROOT).unwrap_or(path);
    inside.to_string_lossy().replace('\\', "/")
}
