//! Servers whose wall clock a test can step.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Builds the library that is preloaded into them.
pub fn library(dir: &Path) -> PathBuf {
    let (source, library) = (dir.join("clock.c"), dir.join("clock.so"));
    fs::write(&source, include_str!("clock.c")).unwrap();
    let mut cc = Command::new(env::var_os("CC").unwrap_or_else(|| "cc".into()));
    let built = cc
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .args([&library, &source])
        .status();
    let built = built.unwrap_or_else(|error| {
        panic!("no C compiler: install one, or set CC to its path: {error}")
    });
    assert!(built.success(), "the C compiler failed");
    library
}
