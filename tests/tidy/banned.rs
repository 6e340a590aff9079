//! Calls that are not made here, each for a reason that its message gives, and tests that do not run.

use std::collections::BTreeSet;

use crate::facts::{Facts, Place, UsedPath, module_of};

/// Calls that the product does not make.
pub(crate) fn calls(path: &str, text: &str) -> Vec<String> {
    let facts = Facts::of(path, text);
    let module = module_of(path);
    let mut complaints = Vec::new();
    let mut complain = |line: usize, what: &str| complaints.push(format!("{path}:{line}: {what}"));
    for used in &facts.paths {
        if let Some(what) = banned_path(path, &full_path(&facts, used, &module)) {
            complain(used.line, what);
        }
    }
    for (name, line) in &facts.methods {
        if matches!(
            name.as_str(),
            "unwrap" | "expect" | "unwrap_err" | "expect_err"
        ) {
            complain(*line, "a panic waiting to happen; handle the other case");
        }
    }
    for (name, first, line) in &facts.macros {
        match name.as_str() {
            "todo" | "unimplemented" => complain(*line, "unfinished"),
            "dbg" | "print" | "println" | "eprint" | "eprintln" => {
                complain(*line, "a library does not print; emit an event");
            }
            "select" if first != "biased" => complain(
                *line,
                "`select!` without `biased;` picks branches by a hidden random number; say the order",
            ),
            _ => {}
        }
    }
    complaints.dedup();
    complaints
}

/// The path as it would read without imports.
fn full_path(facts: &Facts, used: &UsedPath, module: &[String]) -> Vec<String> {
    let crates = BTreeSet::from(["tokio".to_owned(), "rand".to_owned()]);
    match facts.place(used, module, &crates) {
        Some(Place::Theirs(path)) => path,
        Some(Place::Ours(_)) => Vec::new(),
        None => used.segments.clone(),
    }
}

fn banned_path(file: &str, path: &[String]) -> Option<&'static str> {
    let pair = |before: &[&str], after: &[&str]| {
        path.windows(2)
            .any(|two| before.contains(&two[0].as_str()) && after.contains(&two[1].as_str()))
    };
    let is_protocol = file.starts_with("src/protocol/");
    let is_manager = file.starts_with("src/manager/");
    let from_tokio = path.first().is_some_and(|first| first == "tokio");
    let wall = pair(&["time"], &["Instant", "SystemTime", "*"]);
    if wall && (is_protocol || (is_manager && !from_tokio)) {
        return Some(
            "a clock that stands still during suspend, or is set back; ask the `Clock` port",
        );
    }
    if pair(&["mem"], &["forget"]) {
        return Some("a guard that is forgotten is never released; use `Option::take`");
    }
    if pair(&["Option", "Result"], &["unwrap", "expect"]) {
        return Some("a panic waiting to happen; handle the other case");
    }
    let named = |name: &str| path.iter().any(|segment| segment == name);
    if path.first().is_some_and(|first| first == "rand") || named("thread_rng") {
        return Some("hidden randomness; take it from the caller, or from `random`");
    }
    let is_seam = matches!(
        file,
        "src/random.rs" | "src/simulation.rs" | "src/task.rs" | "src/node/redis/transport.rs"
    );
    if !is_seam && path.first().is_some_and(|first| first == "getrandom") {
        return Some("randomness that a simulation does not know of; take it from `random`");
    }
    if !is_seam && from_tokio && path.last().is_some_and(|last| last == "spawn") {
        return Some("a task that a simulation does not know of; use `task::spawn`");
    }
    None
}

/// Tests that do not run.
pub(crate) fn tests(path: &str, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let comment = line.strip_prefix("//").unwrap_or_default();
        let doc = comment.strip_prefix(['/', '!']);
        let mut complain = |what| complaints.push(format!("{path}:{}: {what}", index + 1));
        if line.starts_with("#[") && words_of(line).any(|word| word == "ignore") {
            complain("an ignored test; make it run, or remove it");
        }
        if doc.is_none() && (comment.contains("#[test]") || comment.contains("::test]")) {
            complain("a commented-out test; make it run, or remove it");
        }
        let fence = doc.and_then(|doc| doc.trim_start().strip_prefix("```"));
        if fence.is_some_and(|fence| words_of(fence).any(|word| word == "ignore")) {
            complain("an example that is not compiled; `no_run` is the least");
        }
    }
    complaints
}

fn words_of(line: &str) -> impl Iterator<Item = &str> {
    line.split(|character: char| !character.is_alphanumeric() && character != '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_banned(path: &str, text: &str) {
        let found = calls(path, text);
        assert!(!found.is_empty(), "{path}: {text}");
        let tested = format!("#[cfg(test)] mod tests {{ {text} }}");
        assert_eq!(calls(path, &tested), [""; 0], "{path}: {text}");
    }

    #[test]
    fn wall_clocks_are_banned_where_deadlines_are_reckoned() {
        for path in ["src/protocol/round.rs", "src/manager/guard.rs"] {
            assert_banned(path, "use std::time::Instant;");
            assert_banned(path, "use std::time::{Duration, SystemTime};");
            assert_banned(path, "use std::time::*;");
            assert_banned(path, "use std::time; fn f() { time::Instant::now(); }");
            assert_banned(path, "fn f() { m!(std::time::SystemTime::now()); }");
            assert_eq!(calls(path, "use std::time::Duration;"), [""; 0]);
        }
        let tokio = "use tokio::time::Instant;";
        assert_banned("src/protocol/round.rs", tokio);
        assert_eq!(calls("src/manager/timer.rs", tokio), [""; 0]);
        assert_eq!(calls("src/clock.rs", "use std::time::Instant;"), [""; 0]);
    }

    #[test]
    fn banned_calls_are_found_in_every_spelling() {
        for text in [
            "use std::mem::forget;",
            "use std::mem; fn f() { mem::forget(x); }",
            "fn f() { std::mem::forget(x) }",
            "fn f() { x.unwrap(); }",
            "fn f() { x\n.expect(\"y\") }",
            "fn f() { m! { x.unwrap() } }",
            "fn f() { x.map(Result::unwrap) }",
            "fn f() { std::println!(\"x\") }",
            "async fn f() { tokio::select! { _ = x => {} } }",
            "async fn f() { select! { _ = x => {} } }",
            "async fn f() { m! { select! { _ = x => {} } } }",
            "fn f() { rand::random() }",
            "use rand::Rng;",
            "fn f() { r::thread_rng() }",
            "fn f() { getrandom::u64() }",
            "fn f() { tokio::spawn(x) }",
            "use tokio::task; fn f() { task::spawn(x) }",
            "use tokio::spawn;",
        ] {
            assert_banned("src/x.rs", text);
        }
        for name in ["todo", "unimplemented", "dbg"] {
            assert_banned("src/x.rs", &format!("fn f() {{ {name}!(x) }}"));
        }
    }

    #[test]
    fn their_neighbours_are_not() {
        let text = "async fn f() { tokio::select! { biased; _ = x => {} } x.unwrap_or(1); write!(f, \"\"); }";
        assert_eq!(calls("src/x.rs", text), [""; 0]);
    }

    #[test]
    fn tests_that_do_not_run_are_found() {
        for attribute in ["ignore", "ignore = \"slow\"", "cfg_attr(miri, ignore)"] {
            let text = format!("    #[{attribute}]");
            assert_eq!(tests("x.rs", &text).len(), 1, "{text}");
        }
        for text in [
            "// #[test]",
            "//    #[tokio::test]",
            "/// ```ignore",
            "//! ```rust,ignore",
        ] {
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
}
