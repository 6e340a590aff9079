//! Programs whose system says what a test wants: a library of a few functions of the system is loaded before it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Builds the library `name` from its source, for `LD_PRELOAD`.
pub fn library(dir: &Path, name: &str, source: &str, defined: &[String]) -> PathBuf {
    let (file, library) = (
        dir.join(format!("{name}.c")),
        dir.join(format!("{name}.so")),
    );
    fs::write(&file, source).unwrap();
    let mut cc = Command::new(env::var_os("CC").unwrap_or_else(|| "cc".into()));
    let built = cc
        .args(["-shared", "-fPIC", "-O1"])
        .args(defined.iter().map(|constant| format!("-D{constant}")))
        .arg("-o")
        .args([&library, &file])
        .status();
    let built = built.unwrap_or_else(|error| {
        panic!("no C compiler: install one, or set CC to its path: {error}")
    });
    assert!(built.success(), "the C compiler failed");
    library
}
