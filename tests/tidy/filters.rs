//! The names in the filters of the runner's configuration. A filter that matches nothing is no error to the runner: the
//! tests that it was for then run beside others, or not at all.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};

use crate::dead::reach;
use crate::tree::Tree;

/// Where the filters are.
pub(crate) const FILE: &str = ".config/nextest.toml";

/// The tests of each suite, by their names with the modules that their files are.
type Suites = BTreeMap<String, BTreeSet<String>>;

/// Each name in a filter of `text` that no suite or no test has.
pub(crate) fn check(text: &str, suites: &Suites) -> Vec<String> {
    let config: toml::Table = text
        .parse()
        .unwrap_or_else(|error| panic!("{FILE} is not TOML: {error}"));
    let mut filters = Vec::new();
    collect(&toml::Value::Table(config), &mut filters);
    if filters.is_empty() {
        return vec![format!("{FILE}: not a single filter is found")];
    }
    let alternatives = filters.iter().flat_map(|filter| filter.split('|'));
    let wrong = alternatives.filter_map(|alternative| wrong(alternative, suites));
    let wrong: BTreeSet<_> = wrong.collect();
    wrong
        .into_iter()
        .map(|wrong| format!("{FILE}: {wrong}"))
        .collect()
}

/// The text of every filter.
fn collect(value: &toml::Value, filters: &mut Vec<String>) {
    match value {
        toml::Value::Table(table) => {
            for (name, value) in table {
                match value {
                    toml::Value::String(text) if name.ends_with("filter") => {
                        filters.push(text.clone());
                    }
                    _ => collect(value, filters),
                }
            }
        }
        toml::Value::Array(values) => values.iter().for_each(|value| collect(value, filters)),
        _ => {}
    }
}

/// What is wrong with `binary(suite)`, `test(part of a name)`, or both with `&` between them.
fn wrong(alternative: &str, suites: &Suites) -> Option<String> {
    let mut matching: Vec<&String> = suites.keys().collect();
    let mut names = Vec::new();
    for term in alternative.split('&') {
        let term = term.trim().trim_start_matches('(');
        let name = |kind| {
            term.strip_prefix(kind)?
                .trim_end_matches(')')
                .strip_prefix('(')
        };
        if let Some(suite) = name("binary") {
            matching.retain(|known| *known == suite);
        } else if let Some(test) = name("test") {
            names.push(test);
        } else {
            return Some(format!("`{term}` is neither `binary(..)` nor `test(..)`"));
        }
    }
    let has = |suite: &&String| {
        let tests = &suites[*suite];
        let has = |name: &&str| tests.iter().any(|test| test.contains(*name));
        names.iter().all(has)
    };
    let alternative = alternative.trim();
    match matching.iter().any(has) {
        true => None,
        false => Some(format!("`{alternative}` matches no test")),
    }
}

/// All tests that cargo runs.
pub(crate) fn suites(tree: &Tree) -> Suites {
    let tested = tree.package.targets.iter().filter(|target| target.tested);
    let suites = tested.map(|target| {
        let files = reach(&target.path, &tree.files).into_keys();
        let root = target.path.rsplit_once('/').map_or("", |(dir, _)| dir);
        let mut tests = BTreeSet::new();
        for file in files {
            let tokens = tree.files[&file].parse();
            let mut names = BTreeSet::new();
            scan(tokens.expect("what was read before is Rust"), &mut names);
            let modules = modules(root, &file);
            tests.extend(names.iter().map(|name| format!("{modules}{name}")));
        }
        (target.name.clone(), tests)
    });
    suites.collect()
}

/// `a::b::` for `root/a/b.rs` and `root/a/b/mod.rs`.
fn modules(root: &str, file: &str) -> String {
    let inside = file.strip_prefix(root).unwrap_or_default();
    let inside = inside.trim_end_matches(".rs").trim_end_matches("/mod");
    let modules = inside.split('/').filter(|module| !module.is_empty());
    modules.map(|module| format!("{module}::")).collect()
}

/// Takes the name of each function behind an attribute that ends in `test`, in macros, too.
fn scan(tokens: TokenStream, tests: &mut BTreeSet<String>) {
    let (mut is_test, mut is_name) = (false, false);
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                is_test |= is_attribute(group.stream());
                scan(group.stream(), tests);
            }
            TokenTree::Ident(word) if is_name => {
                if std::mem::take(&mut is_test) {
                    tests.insert(word.to_string());
                }
                is_name = false;
            }
            TokenTree::Ident(word) => is_name = word == "fn",
            _ => {}
        }
    }
}

/// Whether these are the tokens inside of `#[test]`, `#[tokio::test]` or `#[tokio::test(..)]`.
fn is_attribute(tokens: TokenStream) -> bool {
    let path = tokens
        .into_iter()
        .take_while(|token| !matches!(token, TokenTree::Group(_)));
    let mut last = None;
    for token in path {
        let is_part = match &token {
            TokenTree::Ident(_) => true,
            TokenTree::Punct(punct) => punct.as_char() == ':',
            _ => false,
        };
        if !is_part {
            return false;
        }
        last = Some(token.to_string());
    }
    last.is_some_and(|last| last == "test")
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILTERS: &str = r#"
        [[profile.default.overrides]]
        filter = "binary(queue) | (binary(redis) & test(get_the)) | test(on_busy)"
        threads-required = 4
        [profile.soak]
        default-filter = "binary(redis)"
    "#;

    fn suites() -> Suites {
        let mut suites = Suites::new();
        for (suite, text) in [
            (
                "queue",
                "mod a { #[test] fn turns_pass() {} } fn on_busy() {}",
            ),
            (
                "redis",
                "#[tokio::test(flavor = \"x\")] async fn all_get_the_same() {}",
            ),
            (
                "more",
                "m! { #[test] #[cfg(unix)] fn it_is_fast_on_busy_cores() {} }",
            ),
        ] {
            let mut tests = BTreeSet::new();
            scan(text.parse().unwrap(), &mut tests);
            suites.insert(suite.to_owned(), tests);
        }
        suites
    }

    #[test]
    fn filters_that_match_are_accepted() {
        assert_eq!(check(FILTERS, &suites()), [""; 0]);
    }

    #[test]
    fn files_are_modules() {
        assert_eq!(modules("tests/a", "tests/a/b/mod.rs"), "b::");
        assert_eq!(modules("tests/a", "tests/a/b/c.rs"), "b::c::");
        assert_eq!(modules("tests", "tests/support/x.rs"), "support::x::");
    }

    #[test]
    fn each_filter_that_matches_nothing_is_named() {
        for (from, to) in [
            ("binary(queue)", "binary(queues)"),
            ("get_the", "gets_the"),
            ("(binary(redis) &", "(binary(queue) &"),
            ("on_busy)", "on_busy_ones)"),
            ("\"binary(redis)\"", "\"binary(redi)\""),
            ("test(on_busy)", "package(on_busy)"),
        ] {
            let text = FILTERS.replace(from, to);
            assert_ne!(text, FILTERS);
            assert_eq!(check(&text, &suites()).len(), 1, "{from} -> {to}");
        }
        // A function that is no test.
        let without = suites().into_iter().filter(|(suite, _)| suite != "more");
        assert_eq!(check(FILTERS, &without.collect()).len(), 1);
        assert_eq!(check("[profile.soak]", &suites()).len(), 1);
    }
}
