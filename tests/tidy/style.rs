//! What no lint says: calls that are not made in some places, tests that do not run, and how long a file may be.

use crate::source::{Place, Unit};

/// Lines of a file without its tests and comments.
const FILE: usize = 600;

/// The place that a simulation takes over.
const SEAM: &str = "src/seam.rs";

/// What the product does that it should not do.
pub(crate) fn product(path: &str, unit: &Unit) -> Vec<String> {
    let mut complaints = Vec::new();
    let crates = ["getrandom", "rand", "tokio"].map(str::to_owned).into();
    for used in &unit.used {
        if let Some(Place::Theirs(target)) = unit.place(used, &crates)
            && let Some(what) = banned(path, &target)
        {
            complaints.push(format!("{path}:{}: {what}", used.line));
        }
    }
    for (index, line) in unit.code.lines().enumerate() {
        let next = unit
            .code
            .lines()
            .skip(index + 1)
            .find(|line| !line.trim().is_empty());
        let is_biased =
            line.contains("biased;") || next.is_some_and(|next| next.trim() == "biased;");
        if line.contains("select! {") && !is_biased {
            let line = index + 1;
            complaints.push(format!("{path}:{line}: `select!` without `biased;` picks branches by a hidden random number"));
        }
    }
    let lines = unit
        .code
        .lines()
        .filter(|line| !line.trim().is_empty())
        .count();
    if lines > FILE {
        complaints.push(format!("{path}: {lines} lines, at most {FILE}"));
    }
    complaints.dedup();
    complaints
}

fn banned(file: &str, path: &[String]) -> Option<&'static str> {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let reckons = file.starts_with("src/protocol/") || file.starts_with("src/manager/");
    match path[..] {
        ["std" | "core", "time", "Instant" | "SystemTime" | "*", ..] if reckons => {
            Some("a clock that stands still during suspend, or is set back; ask the `Clock` port")
        }
        ["tokio", "time", "Instant", ..] if file.starts_with("src/protocol/") => {
            Some("a clock that stands still during suspend; ask the `Clock` port")
        }
        ["rand", ..] => Some("hidden randomness; take it from the caller, or from `seam`"),
        ["getrandom", ..] if file != SEAM => {
            Some("randomness that a simulation does not know of; take it from `seam`")
        }
        ["tokio", .., "spawn"] if file != SEAM => {
            Some("a task that a simulation does not know of; use `seam::spawn`")
        }
        _ => None,
    }
}

/// Tests and examples that do not run.
pub(crate) fn tests(path: &str, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let is_ignored = line.starts_with("#[") && line.contains("ignore") && !line.contains('"');
        let is_put_off =
            line.starts_with("//") && !line.starts_with("///") && line.contains("test]");
        let is_example = line.starts_with("//") && line.contains("```") && line.contains("ignore");
        if is_ignored || is_put_off || is_example {
            complaints.push(format!(
                "{path}:{}: it does not run; make it run, or remove it",
                index + 1
            ));
        }
    }
    complaints
}

#[test]
fn what_is_not_to_be_is_found() {
    let of = |path: &str, text: &str| product(path, &Unit::read(path, text)).len();
    for (path, text, count) in [
        ("src/manager/a.rs", "use std::time::{Duration, Instant};", 1),
        (
            "src/protocol/a.rs",
            "use std::time; fn f() { time::SystemTime::now(); }",
            1,
        ),
        ("src/protocol/a.rs", "use tokio::time::Instant;", 1),
        (
            "src/manager/a.rs",
            "use tokio::time::Instant; use std::time::Duration;",
            0,
        ),
        ("src/clock.rs", "use std::time::Instant;", 0),
        ("src/x.rs", "fn f() { getrandom::u64(); }", 1),
        ("src/seam.rs", "fn f() { getrandom::u64(); }", 0),
        ("src/x.rs", "use tokio::task; fn f() { task::spawn(x) }", 1),
        (
            "src/x.rs",
            "fn f() {\n    select! {\n        () = a => {}\n    }\n}",
            1,
        ),
        (
            "src/x.rs",
            "fn f() {\n    select! {\n        biased;\n        () = a => {}\n    }\n}",
            0,
        ),
        ("src/x.rs", &"f();\n".repeat(FILE + 1), 1),
    ] {
        assert_eq!(of(path, text), count, "{path}: {text}");
    }
    let hidden = [
        concat!("#[", "ignore]"),
        "#[cfg_attr(miri, ignore)]",
        "// #[tokio::test]",
        "/// ```ignore",
    ];
    for text in hidden {
        assert_eq!(tests("x.rs", text).len(), 1, "{text}");
    }
    for text in [
        "#[test]",
        "/// #[tokio::test]",
        "// ignore",
        "/// ```no_run",
    ] {
        assert_eq!(tests("x.rs", text), [""; 0], "{text}");
    }
}
