//! Known defects, each with the test that finds it: `README.md` beside this folder says how to use it.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a panic is how it fails; what finds what is shown"
)]

mod copy;
mod insert;
mod listed;
mod programs;
mod runs;
#[cfg_attr(
    not(test),
    expect(
        dead_code,
        reason = "the tests compare the rest of a row with the tree"
    )
)]
mod table;

use std::path::{Path, PathBuf};

use table::Table;

/// The tree that this package is in.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap().to_owned()
}

/// What stands in an environment variable, as long as that is something.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Where cargo builds for the tree.
fn target() -> PathBuf {
    root().join(variable("CARGO_TARGET_DIR").unwrap_or_else(|| "target".to_owned()))
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let table = Table::read(&root());
    match words[..] {
        ["copy"] => println!("{}", table.copy().display()),
        ["copy", name] => {
            table.chosen(name);
            println!("{}", table.copy().display());
        }
        ["run"] => runs::run(&table, ""),
        ["run", names] => runs::run(&table, names),
        ["listed", files, suites, found] => {
            let files: Vec<&str> = files.split_whitespace().collect();
            let suites: Vec<&str> = suites.split_whitespace().collect();
            listed::run(&files, &suites, Path::new(found));
        }
        _ => panic!(
            "usage: mutants copy [NAME] | mutants run [all | NAME,NAME..] | mutants listed FILES SUITES FOUND, not {words:?}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use super::*;
    use crate::table::Killer;

    #[test]
    fn every_right_text_is_in_its_file_once() {
        let table = Table::read(&root());
        let wrong: Vec<String> = table
            .changes()
            .filter_map(|change| change.complaint(&root()))
            .collect();
        assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
        // And no change takes the place of another.
        for change in table.changes() {
            let text = fs::read_to_string(root().join(&change.file)).unwrap();
            table.apply(&change.file, text);
        }
    }

    #[test]
    fn every_defect_has_a_sentence_a_name_of_its_own_and_a_change() {
        let table = Table::read(&root());
        let mut names = BTreeSet::new();
        for defect in &table.defects {
            let name = &defect.name;
            assert!(names.insert(name), "{name} is there twice");
            assert!(defect.what.ends_with('.'), "{name}: `{}`", defect.what);
            assert!(!defect.changes.is_empty(), "{name} changes nothing");
        }
        assert!(names.len() >= 30);
    }

    #[test]
    fn every_test_of_the_table_exists() {
        let table = Table::read(&root());
        for Killer { suite, test } in table.defects.iter().flat_map(|defect| defect.killers()) {
            let folder = match suite.as_str() {
                "lib" => root().join("src"),
                suite => root().join("tests").join(suite),
            };
            let name = test.rsplit("::").next().unwrap();
            // The second, where tests are made by a macro.
            let declared = [format!("fn {name}("), format!("    {name},")];
            let files = copy::files(&folder);
            let is_there = files.iter().any(|file| {
                let text = fs::read_to_string(file).unwrap_or_default();
                declared.iter().any(|it| text.contains(it))
            });
            assert!(is_there, "{suite} has no {test}");
        }
    }

    #[test]
    fn every_model_of_the_table_has_the_rule() {
        for Killer { suite, test } in Table::read(&root())
            .defects
            .iter()
            .filter_map(|it| it.model())
        {
            let model = root().join(format!("tests/models/{suite}.rs"));
            let model = fs::read_to_string(model).unwrap();
            assert!(
                model.contains(&format!("Mutant::{test}")),
                "{suite} knows nothing of {test}"
            );
        }
    }
}
