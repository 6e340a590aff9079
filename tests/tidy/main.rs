//! What the compiler and its lints do not see: floors and circles of imports, files that nobody compiles, and docs that
//! say something else than the code.
//!
//! A check returns its complaints, and is tried on small bad texts, too: a check that cannot fail proves nothing.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a check that trips over its own feet fails, which is what it is for"
)]

mod circles;
mod dead;
mod docs;
mod floors;
mod links;
mod source;
mod style;

/// One complaint per line, and no test that passes with a complaint.
#[track_caller]
fn assert_clean(complaints: impl IntoIterator<Item = String>) {
    let complaints: Vec<String> = complaints.into_iter().collect();
    let count = complaints.len();
    assert!(
        complaints.is_empty(),
        "{count} complaint(s):\n{}",
        complaints.join("\n")
    );
}

#[test]
fn files_import_only_from_floors_below_their_own_and_in_no_circle() {
    let files = source::files();
    let units = source::product(&files);
    let crates = source::crates(&source::package());
    let edges = source::edges(&units, &crates);
    assert_clean(floors::unplaced_or_stale(&files, &units));
    assert_clean(floors::uses(&units, &edges, &crates));
    assert_clean(circles::check(&edges));
    let count = edges.len();
    assert!(count > 300, "{count} uses are too few to be all");
}

#[test]
fn every_file_is_compiled_and_every_test_runs() {
    let files = source::files();
    assert_clean(dead::check(&files, &source::package()));
    let rust = files.iter().filter(|(path, _)| path.ends_with(".rs"));
    assert_clean(rust.flat_map(|(path, text)| style::tests(path, text)));
}

#[test]
fn banned_calls_are_not_made_and_files_are_of_readable_size() {
    let units = source::product(&source::files());
    assert_clean(
        units
            .iter()
            .flat_map(|(path, unit)| style::product(path, unit)),
    );
}

#[test]
fn the_docs_say_what_the_code_does() {
    let files = source::files();
    let units = source::product(&files);
    assert_clean(
        units
            .iter()
            .flat_map(|(path, unit)| docs::cancel_safety(path, &files[path], unit)),
    );
    assert_clean(docs::errors(&files[docs::ERRORS], &units, &files));
    assert_clean(docs::node_errors(&files[docs::ERRORS], &units, &files));
    let (page, code) = docs::EVENTS;
    assert_clean(docs::events(&files[page], &files[code]));
    let elsewhere = units
        .iter()
        .filter(|(path, unit)| *path != code && !docs::calls(&unit.code).is_empty());
    assert_clean(
        elsewhere.map(|(path, _)| format!("{path}: tells an event; {code} is the place for that")),
    );
    assert_clean(docs::manifest(&files, &source::package()));
    assert_clean(docs::one_acl_rule(&files));
}

#[test]
fn markdown_names_files_and_headings_that_there_are() {
    assert_clean(links::check(&source::files()));
}

/// How many lines a first page may have.
const FIRST_PAGE: usize = 150;

#[test]
fn the_readme_is_a_first_page() {
    let lines = source::files()["README.md"].lines().count();
    assert!(
        lines <= FIRST_PAGE,
        "{lines} lines, at most {FIRST_PAGE}; the guide has room for more"
    );
}
