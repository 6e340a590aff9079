//! A copy of the tree in which each defect, or each mutant, can be switched on.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// What stands before the version of the crate.
const VERSION: &str = "name = \"tower-redlock\"\nversion = \"";

/// The crates that have files of `src`, and where these find the module that says what is switched on.
const ROOTS: [(&str, &str); 3] = [
    ("src/lib.rs", "mutant.rs"),
    ("src/bin/redlock/main.rs", "../../mutant.rs"),
    ("tests/queue/main.rs", "../../src/mutant.rs"),
];

/// Makes the copy of this name, or brings it up to date, and returns where it is. `change` makes the text of each file of
/// `src`, and `module` is one more file. What has not changed is not written, so that cargo builds it no second time.
pub(crate) fn make(
    copy_name: &str,
    mut change: impl FnMut(&str, String) -> String,
    module: &str,
) -> PathBuf {
    let (root, copy) = (
        crate::root(),
        crate::target().join("mutants").join(copy_name),
    );
    let mut kept = BTreeSet::new();
    for path in files(&root) {
        let name = path.strip_prefix(&root).unwrap().to_owned();
        // Inside of the tree, cargo finds the flags of the tree, and twice the flags would be another build.
        if name.starts_with(".cargo") && copy.starts_with(&root) {
            continue;
        }
        let mut bytes = fs::read(&path).unwrap();
        if name.starts_with("src") {
            let text = String::from_utf8(bytes).unwrap();
            bytes = change(name.to_str().unwrap(), text).into_bytes();
        }
        // Another version, so that no build of the copy passes for one of the tree.
        if name == Path::new("Cargo.toml") || name == Path::new("Cargo.lock") {
            let text = String::from_utf8(bytes).unwrap();
            let (before, after) = text.split_once(VERSION).unwrap();
            let (version, rest) = after.split_once('"').unwrap();
            let version = format!("{version}+{copy_name}");
            bytes = format!("{before}{VERSION}{version}\"{rest}").into_bytes();
        }
        if let Some((_, place)) = ROOTS.iter().find(|(root, _)| name == Path::new(root)) {
            let module = format!("\n#[path = \"{place}\"]\nmod mutant;\n");
            bytes.extend_from_slice(module.as_bytes());
        }
        write(&copy.join(&name), &bytes);
        kept.insert(name);
    }
    let beside = Path::new("src/mutant.rs");
    write(&copy.join(beside), module.as_bytes());
    kept.insert(beside.to_owned());
    for path in files(&copy) {
        if !kept.contains(path.strip_prefix(&copy).unwrap()) {
            fs::remove_file(path).unwrap();
        }
    }
    copy
}

fn write(path: &Path, bytes: &[u8]) {
    if fs::read(path).is_ok_and(|before| before == bytes) {
        return;
    }
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// All files below `folder`, except those that git or cargo made.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        // `.cargo` has the flags without which no suite is built.
        if (name.starts_with('.') && name != ".cargo") || name == "target" {
            continue;
        }
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found
}
