//! The table of known defects: each has a place in the code, and a test that finds it.
//!
//! In a build with `--cfg tower_redlock_simulation` (`make mutants`) each defect is switched on, and its test must
//! fail.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a panic is how a test fails, in its helpers too; what finds what is shown"
)]

#[cfg(tower_redlock_simulation)]
mod programs;
#[cfg(tower_redlock_simulation)]
mod runs;
mod table;

use std::fs;
use std::path::{Path, PathBuf};

use table::{Defect, Killer, Row};

/// A file of this repository.
fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// All Rust files below `folder`, with their texts.
fn sources(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|end| end == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            found.push((path, text));
        }
    }
    found
}

#[test]
fn the_table_has_every_defect_with_its_sentence() {
    let rows = Row::all().into_iter().map(|row| row.defect);
    assert_eq!(Defect::all(), rows.collect::<Vec<_>>());
    assert!(Defect::all().len() >= 30);
}

#[test]
fn every_defect_has_a_place_in_the_code() {
    let code = sources(&file("src"));
    let code = code
        .iter()
        .filter(|(path, _)| !path.ends_with("src/mutant.rs"));
    let code: String = code.map(|(_, text)| text.as_str()).collect();
    for Defect { name, .. } in Defect::all() {
        let place = format!("Mutant::{name}");
        let mut places = code.split(&place).skip(1);
        let has_place = places.any(|rest| !rest.starts_with(char::is_alphanumeric));
        assert!(has_place, "nothing asks for {name}");
    }
}

#[test]
fn every_test_of_the_table_exists() {
    for Killer { suite, test } in Row::all().iter().flat_map(Row::killers) {
        let folder = match suite.as_str() {
            "lib" => file("src"),
            suite => file("tests").join(suite),
        };
        let name = test.rsplit("::").next().unwrap();
        // The second, where tests are made by a macro.
        let declared = [format!("fn {name}("), format!("    {name},")];
        let is_there = |(_, text): &(PathBuf, String)| declared.iter().any(|it| text.contains(it));
        let is_there = sources(&folder).iter().any(is_there);
        assert!(is_there, "{suite} has no {test}");
    }
}

#[test]
fn every_model_of_the_table_has_the_rule() {
    for Killer { suite, test } in Row::all().into_iter().filter_map(|row| row.model) {
        let model = fs::read_to_string(file(&format!("tests/models/{suite}.rs"))).unwrap();
        let has_it = model.contains(&format!("Mutant::{test}"));
        assert!(has_it, "{suite} knows nothing of {test}");
    }
}

#[test]
fn where_the_simulator_does_not_find_a_defect_the_table_says_why() {
    for row in Row::all() {
        let (name, simulator) = (row.defect.name, row.simulator);
        assert!(simulator.len() > 3, "{name}: `{simulator}`");
    }
}
