//! Files that nobody compiles. Cargo is silent about them: a directory below `tests` without a `main.rs` simply never
//! runs.

use std::collections::BTreeSet;

use crate::source::Files;

/// Files of cases that are shown to the compiler by themselves.
const CASES: &str = "tests/interface/cases/";

/// Every file that no target reaches, and every suite that tests nothing.
pub(crate) fn check(files: &Files, package: &serde_json::Value) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut alive = BTreeSet::new();
    for target in package["targets"].as_array().unwrap() {
        let path = target["src_path"].as_str().unwrap();
        let path = path
            .trim_start_matches(env!("CARGO_MANIFEST_DIR"))
            .trim_start_matches('/');
        let reached = reach(path, files);
        let has_tests = reached.iter().any(|file| {
            ["test]", "::test("]
                .iter()
                .any(|mark| files[file].contains(mark))
        });
        if target["kind"][0] == "test" && !(has_tests && target["test"] == true) {
            complaints.push(format!("{path}: a suite of which no test runs"));
        }
        if target["kind"][0] == "example" && has_tests && target["test"] != true {
            complaints.push(format!("{path}: not `test = true`, so its tests never run"));
        }
        alive.extend(reached);
    }
    // Of the packages inside of this one, of which cargo does not tell here.
    for (path, manifest) in files
        .iter()
        .filter(|(path, _)| path.ends_with("/Cargo.toml"))
    {
        let roots = manifest
            .lines()
            .filter_map(|line| line.strip_prefix("path = \""));
        for root in roots {
            let root = path.replace("Cargo.toml", root.trim_end_matches('"'));
            alive.extend(reach(&root, files));
        }
    }
    let cases = files.keys().filter(|path| path.starts_with(CASES));
    let cases: Vec<_> = cases.flat_map(|path| reach(path, files)).collect();
    alive.extend(cases);
    let included = included(&alive, files);
    for file in files.keys() {
        let is_page = file.ends_with(".lua") || file.starts_with("src/") && file.ends_with(".md");
        if file.ends_with(".rs") && !alive.contains(file) && !included.contains(file) {
            complaints.push(format!(
                "{file}: no target reaches it, so it is never compiled"
            ));
        }
        if is_page && !included.contains(file) {
            complaints.push(format!("{file}: nothing includes it, so nobody reads it"));
        }
    }
    complaints
}

/// The files that the module declarations of `root` lead to.
fn reach(root: &str, files: &Files) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut open = vec![root.to_owned()];
    while let Some(file) = open.pop() {
        let Some(text) = files.get(&file).filter(|_| !reached.contains(&file)) else {
            continue;
        };
        let (dir, name) = file.rsplit_once('/').unwrap_or(("", &file));
        let inner = match file == root || name == "mod.rs" {
            true => dir.to_owned(),
            false => format!("{dir}/{}", name.trim_end_matches(".rs")),
        };
        let mut attributes = String::new();
        for line in text.lines() {
            let unclosed = attributes.matches('[').count() > attributes.matches(']').count();
            if unclosed || line.starts_with("#[") {
                attributes.push_str(line);
                continue;
            }
            let declared = line
                .split_once("mod ")
                .filter(|(before, _)| !before.contains('/'));
            if let Some(child) = declared.and_then(|(_, name)| name.strip_suffix(';')) {
                match attributes.split_once("path = \"") {
                    Some((_, path)) => {
                        let path = path.split('"').next().unwrap_or_default();
                        open.push(normal(dir, path));
                    }
                    None => {
                        open.push(format!("{inner}/{child}.rs"));
                        open.push(format!("{inner}/{child}/mod.rs"));
                    }
                }
            }
            attributes.clear();
        }
        reached.insert(file);
    }
    reached
}

/// What `include!` and its kin bring in.
fn included(alive: &BTreeSet<String>, files: &Files) -> BTreeSet<String> {
    let mut included = BTreeSet::new();
    for file in alive {
        let dir = file.rsplit_once('/').map_or("", |(dir, _)| dir);
        let text = &files[file];
        // The name may be passed through a macro of the file's own, so any text counts there.
        if text.contains("include") {
            let texts = text
                .lines()
                .flat_map(|line| line.split('"').skip(1).step_by(2));
            included.extend(texts.map(|text| normal(dir, text)));
        }
    }
    included
}

/// `path` as seen from `dir`, without `.` and `..`.
fn normal(dir: &str, path: &str) -> String {
    let mut parts: Vec<&str> = dir.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[test]
fn dead_files_are_named() {
    let texts = [
        (
            "src/lib.rs",
            "mod a;\n#[cfg(test)]\n#[path = \"../tests/shared.rs\"]\nmod shared;",
        ),
        (
            "src/a/mod.rs",
            "pub(crate) mod x;\nconst L: &str = include_str!(\"../one.lua\");",
        ),
        ("src/a/x.rs", "#[cfg(test)]\nmod tests;"),
        ("src/a/x/tests.rs", ""),
        ("src/a/lost.rs", ""),
        ("src/one.lua", ""),
        ("src/two.lua", ""),
        ("src/page.md", ""),
        ("tests/shared.rs", ""),
        ("tests/empty.rs", "fn helper() {}"),
        ("tests/lost/case.rs", "#[test] fn t() {}"),
        ("tests/inner/Cargo.toml", "[[bin]]\npath = \"main.rs\"\n"),
        ("tests/inner/main.rs", "mod more;"),
        ("tests/inner/more.rs", ""),
    ];
    let files: Files = texts
        .map(|(path, text)| (path.to_owned(), text.to_owned()))
        .into();
    let root = env!("CARGO_MANIFEST_DIR");
    let target = |path: &str, kind: &str| serde_json::json!({ "src_path": format!("{root}/{path}"), "kind": [kind], "test": true });
    let targets = [
        target("src/lib.rs", "lib"),
        target("tests/empty.rs", "test"),
    ];
    let found = check(&files, &serde_json::json!({ "targets": targets }));
    let named = found
        .iter()
        .map(|complaint| complaint.split(':').next().unwrap());
    let wanted = [
        "src/a/lost.rs",
        "src/page.md",
        "src/two.lua",
        "tests/empty.rs",
        "tests/lost/case.rs",
    ];
    assert_eq!(named.collect::<BTreeSet<_>>(), BTreeSet::from(wanted));
}
