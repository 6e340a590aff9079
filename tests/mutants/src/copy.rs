//! A copy of the tree in which each defect can be switched on.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::table::Table;

/// What stands before the version of the crate.
const VERSION: &str = "name = \"tower-redlock\"\nversion = \"";

/// Makes the copy, or brings it up to date, and returns where it is. What has not changed is not written, so that cargo
/// builds it no second time.
pub(crate) fn make(table: &Table) -> PathBuf {
    let (root, copy) = (crate::root(), crate::target().join("mutants/tree"));
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
            bytes = table.apply(name.to_str().unwrap(), text).into_bytes();
        }
        // Another version, so that no build of the copy passes for one of the tree.
        if name == Path::new("Cargo.toml") || name == Path::new("Cargo.lock") {
            let text = String::from_utf8(bytes).unwrap();
            let (before, after) = text.split_once(VERSION).unwrap();
            let (version, rest) = after.split_once('"').unwrap();
            bytes = format!("{before}{VERSION}{version}+defects\"{rest}").into_bytes();
        }
        if name == Path::new("src/lib.rs") {
            bytes.extend_from_slice(b"\nmod mutant;\n");
        }
        write(&copy.join(&name), &bytes);
        kept.insert(name);
    }
    let module = Path::new("src/mutant.rs");
    write(&copy.join(module), table.module().as_bytes());
    kept.insert(module.to_owned());
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
