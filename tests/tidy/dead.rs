//! Files that nobody compiles. Cargo is silent about them: a directory below `tests` without a `main.rs` simply
//! never runs.

use std::collections::{BTreeMap, BTreeSet};

use crate::facts::{Facts, is_test_cfg};
use crate::tree::Tree;

/// Every file that no target reaches, and every target that tests nothing.
pub(crate) fn check(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut alive = BTreeSet::new();
    for target in &tree.package.targets {
        let reached = reach(&target.path, &tree.files);
        let path = &target.path;
        let is_test = target.kind == "test";
        let has_tests = reached
            .keys()
            .any(|file| tests_something(&tree.files[file]));
        if !target.tested && (is_test || has_tests) {
            complaints.push(format!("{path}: not `test = true`, so it never runs"));
        }
        if is_test && !has_tests {
            complaints.push(format!("{path}: a test target without a test"));
        }
        alive.extend(reached.into_keys());
    }
    alive.extend(programs(&tree.files));
    let included = included(&alive, &tree.files);
    let (refused, lacking) = refused(&alive, &tree.files);
    complaints.extend(lacking);
    let used =
        |file: &String| alive.contains(file) || included.contains(file) || refused.contains(file);
    for file in tree.files.keys() {
        if file.ends_with(".rs") && !used(file) {
            complaints.push(format!(
                "{file}: no target reaches it, so it is never compiled"
            ));
        }
        if file.ends_with(".lua") && !included.contains(file) {
            complaints.push(format!("{file}: nothing includes it, so it is never run"));
        }
        if file.starts_with("src/") && file.ends_with(".md") && !included.contains(file) {
            complaints.push(format!("{file}: nothing includes it, so nobody reads it"));
        }
    }
    complaints
}

/// The files of the packages inside of this one, which cargo does not tell of.
fn programs(files: &BTreeMap<String, String>) -> BTreeSet<String> {
    let manifests = files
        .iter()
        .filter(|(path, _)| path.ends_with("/Cargo.toml"));
    let roots = manifests.flat_map(|(path, manifest)| {
        let dir = path.trim_end_matches("/Cargo.toml");
        let paths = manifest
            .lines()
            .filter_map(|line| line.strip_prefix("path = \""));
        paths.map(move |root| format!("{dir}/{}", root.trim_end_matches('"')))
    });
    roots
        .flat_map(|root| reach(&root, files).into_keys())
        .collect()
}

/// The files that the module declarations of `root` lead to, each with whether only tests see it.
pub(crate) fn reach(root: &str, files: &BTreeMap<String, String>) -> BTreeMap<String, bool> {
    let mut reached = BTreeMap::new();
    let mut open = vec![(root.to_owned(), true, false)];
    while let Some((file, is_root, in_tests)) = open.pop() {
        let Some(text) = files.get(&file) else {
            continue;
        };
        let ast =
            syn::parse_file(text).unwrap_or_else(|error| panic!("{file} is not Rust: {error}"));
        let (dir, name) = file.rsplit_once('/').unwrap_or(("", &file));
        let owns_dir = is_root || name == "mod.rs";
        let inner = match owns_dir {
            true => dir.to_owned(),
            false => format!("{dir}/{}", name.trim_end_matches(".rs")),
        };
        declared(
            &ast.items,
            dir,
            &inner,
            in_tests,
            &mut |child, child_in_tests| {
                if files.contains_key(&child) && !reached.contains_key(&child) {
                    open.push((child, false, child_in_tests));
                }
            },
        );
        reached.insert(file, in_tests);
    }
    reached
}

/// Calls `found` with each path that a `mod name;` may mean.
fn declared(
    items: &[syn::Item],
    dir: &str,
    inner: &str,
    in_tests: bool,
    found: &mut impl FnMut(String, bool),
) {
    for item in items {
        let syn::Item::Mod(module) = item else {
            continue;
        };
        let metas = || module.attrs.iter().map(|attribute| &attribute.meta);
        let in_tests = in_tests || metas().any(is_test_cfg);
        let name = &module.ident;
        if let Some((_, items)) = &module.content {
            declared(items, dir, &format!("{inner}/{name}"), in_tests, found);
        } else if let Some(path) = metas().find_map(path_attribute) {
            found(normal(dir, &path), in_tests);
        } else {
            found(format!("{inner}/{name}.rs"), in_tests);
            found(format!("{inner}/{name}/mod.rs"), in_tests);
        }
    }
}

/// The text of `#[path = "text"]`.
fn path_attribute(meta: &syn::Meta) -> Option<String> {
    match meta {
        syn::Meta::NameValue(pair) if pair.path.is_ident("path") => literal(&pair.value),
        _ => None,
    }
}

fn literal(value: &syn::Expr) -> Option<String> {
    match value {
        syn::Expr::Lit(syn::ExprLit {
            lit: syn::Lit::Str(text),
            ..
        }) => Some(text.value()),
        _ => None,
    }
}

/// What `include!` and its kin bring in, outside tests.
fn included(alive: &BTreeSet<String>, files: &BTreeMap<String, String>) -> BTreeSet<String> {
    let mut included = BTreeSet::new();
    for file in alive {
        let dir = file.rsplit_once('/').map_or("", |(dir, _)| dir);
        let macros = Facts::of(file, &files[file]).macros;
        // The name may be passed through a macro of the file's own, so any first argument counts there.
        if macros.iter().any(|(name, ..)| name.starts_with("include")) {
            let texts = macros.iter().map(|(_, argument, _)| argument);
            let texts = texts.filter(|argument| argument.starts_with('"'));
            included.extend(texts.map(|argument| normal(dir, argument.trim_matches('"'))));
        }
    }
    included
}

/// The cases that a test has the compiler refuse, by `compile_fail("directory/*.rs")`, with the modules that they
/// share; and which of them lack what the compiler says, or which texts their case.
fn refused(
    alive: &BTreeSet<String>,
    files: &BTreeMap<String, String>,
) -> (BTreeSet<String>, Vec<String>) {
    let (mut refused, mut complaints) = (BTreeSet::new(), Vec::new());
    let texts = alive.iter().map(|file| files[file].as_str());
    let globs = texts.flat_map(|text| text.split("compile_fail(\"").skip(1));
    for directory in globs.filter_map(|glob| Some(glob.split_once("*.rs\"")?.0)) {
        let inside = files.keys().filter(|file| file.starts_with(directory));
        for (stem, end) in inside.filter_map(|file| file.rsplit_once('.')) {
            let lacking = match end {
                "rs" => "stderr",
                _ => "rs",
            };
            if !files.contains_key(&format!("{stem}.{lacking}")) {
                complaints.push(format!("{stem}.{end}: there is no {stem}.{lacking}"));
            }
            if end == "rs" {
                refused.extend(reach(&format!("{stem}.rs"), files).into_keys());
            }
        }
    }
    (refused, complaints)
}

/// `path` as seen from `dir`, without `.` and `..`.
fn normal(dir: &str, path: &str) -> String {
    let mut parts: Vec<&str> = dir.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

fn tests_something(text: &str) -> bool {
    ["#[test]", "::test]", "::test("]
        .iter()
        .any(|mark| text.contains(mark))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::{Package, Target};

    fn tree(files: &[(&str, &str)], targets: &[(&str, &str, bool)]) -> Tree {
        let files = files
            .iter()
            .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
        let targets = targets.iter().map(|(path, kind, tested)| Target {
            name: String::new(),
            path: (*path).to_owned(),
            kind: (*kind).to_owned(),
            tested: *tested,
        });
        Tree {
            files: files.collect(),
            package: Package {
                targets: targets.collect(),
                ..Package::default()
            },
        }
    }

    #[test]
    fn modules_are_followed_to_their_files() {
        let tree = tree(
            &[
                (
                    "src/lib.rs",
                    "mod a; mod b; mod c { mod d; } #[path = \"odd/e.rs\"] mod f;",
                ),
                (
                    "src/a.rs",
                    "mod x; const L: &str = include_str!(\"lua/one.lua\");",
                ),
                ("src/a/x.rs", "#[cfg(test)] mod tests;"),
                ("src/a/x/tests.rs", "mod more;"),
                ("src/a/x/tests/more.rs", ""),
                ("src/b/mod.rs", "mod y;"),
                (
                    "src/b/y.rs",
                    "macro_rules! m { ($x:literal) => { include_str!($x) } } static L: X = m!(\"../lua/two.lua\");",
                ),
                ("src/c/d.rs", ""),
                ("src/odd/e.rs", ""),
                ("src/lua/one.lua", ""),
                ("src/lua/two.lua", ""),
                ("tests/t.rs", "mod support; #[test] fn t() {}"),
                ("tests/support/mod.rs", ""),
                ("tests/inner/Cargo.toml", "[[bin]]\npath = \"main.rs\"\n"),
                ("tests/inner/main.rs", "mod more;"),
                ("tests/inner/more.rs", ""),
            ],
            &[("src/lib.rs", "lib", true), ("tests/t.rs", "test", true)],
        );
        assert_eq!(check(&tree), [""; 0]);
        let reached = reach("src/lib.rs", &tree.files);
        let tests = reached
            .iter()
            .filter(|(_, in_tests)| **in_tests)
            .map(|(file, _)| &**file);
        assert_eq!(
            tests.collect::<Vec<_>>(),
            ["src/a/x/tests.rs", "src/a/x/tests/more.rs"]
        );
    }

    #[test]
    fn cases_that_the_compiler_refuses_have_what_it_says() {
        let of = |more: &[(&str, &str)]| {
            let test = "#[test] fn t() { c.compile_fail(\"tests/cases/*.rs\"); }";
            let mut files = vec![
                ("tests/t.rs", test),
                ("tests/shared.rs", ""),
                ("tests/cases/a.rs", "#[path = \"../shared.rs\"] mod shared;"),
                ("tests/cases/a.stderr", "error"),
            ];
            files.extend(more);
            check(&tree(&files, &[("tests/t.rs", "test", true)]))
        };
        assert_eq!(of(&[]), [""; 0]);
        let (case, said) = ("tests/cases/b.rs", "tests/cases/b.stderr");
        assert_eq!(of(&[(case, "")]), [format!("{case}: there is no {said}")]);
        assert_eq!(of(&[(said, "")]), [format!("{said}: there is no {case}")]);
        assert_eq!(of(&[("tests/other/b.rs", "")]).len(), 1);
    }

    #[test]
    fn dead_files_are_named() {
        let tree = tree(
            &[
                ("src/lib.rs", "mod a;"),
                (
                    "src/a.rs",
                    "#[cfg(test)] const L: &str = include_str!(\"one.lua\");",
                ),
                ("src/a/orphan.rs", ""),
                ("src/one.lua", ""),
                ("src/page.md", ""),
                ("tests/empty.rs", "fn helper() {}"),
                ("tests/lost/case.rs", "#[test] fn t() {}"),
                ("tests/off.rs", "#[test] fn t() {}"),
                ("benches/lost/bench.rs", ""),
                ("examples/off.rs", "#[test] fn t() {}"),
                ("examples/on.rs", "#[test] fn t() {}"),
                ("examples/none.rs", "fn main() {}"),
            ],
            &[
                ("src/lib.rs", "lib", true),
                ("tests/empty.rs", "test", true),
                ("tests/off.rs", "test", false),
                ("examples/off.rs", "example", false),
                ("examples/on.rs", "example", true),
                ("examples/none.rs", "example", false),
            ],
        );
        let found = check(&tree);
        let named = found
            .iter()
            .map(|complaint| complaint.split(':').next().unwrap());
        assert_eq!(
            named.collect::<BTreeSet<_>>(),
            BTreeSet::from([
                "benches/lost/bench.rs",
                "examples/off.rs",
                "src/a/orphan.rs",
                "src/one.lua",
                "src/page.md",
                "tests/empty.rs",
                "tests/lost/case.rs",
                "tests/off.rs",
            ])
        );
    }
}
