//! The style of the project as tests.
//!
//! Each module holds one family of checks. A check is a plain function over a path and a text that returns its
//! complaints, so it is also tried on small bad texts: a check that cannot fail proves nothing.

// A check that trips over its own feet fails the test, which is what it is for.
#![allow(clippy::indexing_slicing)]

mod banned;
mod circles;
mod dead;
mod docs;
mod errors;
mod events;
mod facts;
mod filters;
mod floors;
mod imports;
mod links;
mod sizes;
mod tree;

use tree::Tree;

/// One complaint per line, and no test that passes with a complaint.
fn assert_clean(complaints: &[String]) {
    assert!(
        complaints.is_empty(),
        "{} complaint(s):\n{}",
        complaints.len(),
        complaints.join("\n")
    );
}

#[test]
fn every_file_imports_only_from_floors_below_its_own() {
    let tree = Tree::read();
    let mut complaints = Vec::new();
    for (path, text) in tree.product() {
        complaints.extend(floors::check(path, text, &tree.package.crates));
    }
    assert_clean(&complaints);
}

#[test]
fn the_manager_imports_only_from_its_own_floors_below() {
    let tree = Tree::read();
    let mut complaints =
        floors::inside_manager(&imports::edges(tree.product(), &tree.package.crates));
    complaints.extend(floors::unplaced_or_stale(&tree.files));
    assert_clean(&complaints);
}

#[test]
fn no_files_use_each_other_in_a_circle() {
    let tree = Tree::read();
    assert_clean(&circles::check(&imports::edges(
        tree.product(),
        &tree.package.crates,
    )));
}

#[test]
fn files_functions_and_lines_are_of_readable_size() {
    let tree = Tree::read();
    assert_clean(&tree.each_rust_file(sizes::check));
}

#[test]
fn every_file_is_compiled_and_every_test_runs() {
    let tree = Tree::read();
    assert_clean(&dead::check(&tree));
}

#[test]
fn banned_calls_are_not_made() {
    let tree = Tree::read();
    let mut complaints = Vec::new();
    for (path, text) in tree.product() {
        complaints.extend(banned::calls(path, text));
    }
    complaints.extend(tree.each_rust_file(banned::tests));
    assert_clean(&complaints);
}

#[test]
fn async_methods_say_what_cancelling_them_does() {
    let tree = Tree::read();
    let mut complaints = Vec::new();
    for (path, text) in tree.product() {
        complaints.extend(docs::cancel_safety(path, text));
    }
    assert_clean(&complaints);
}

#[test]
fn the_guide_says_what_to_do_about_every_error() {
    let tree = Tree::read();
    assert_clean(&errors::check(&tree.files[errors::LIST], tree.product()));
}

#[test]
fn the_guide_lists_every_event_with_its_fields() {
    let tree = Tree::read();
    let mut complaints = events::check(&tree.files[events::LIST], &tree.files[events::CODE]);
    for (path, text) in tree.product() {
        complaints.extend(events::elsewhere(path, text));
    }
    assert_clean(&complaints);
}

#[test]
fn markdown_names_files_and_headings_that_there_are() {
    assert_clean(&links::check(&Tree::read().files));
}

#[test]
fn the_runners_filters_name_tests_that_there_are() {
    let tree = Tree::read();
    let suites = filters::suites(&tree);
    assert_clean(&filters::check(&tree.files[filters::FILE], &suites));
}

#[test]
fn the_docs_agree_with_the_manifest() {
    let tree = Tree::read();
    let mut complaints = docs::manifest("README.md", &tree.files["README.md"], &tree.package);
    complaints.extend(docs::crate_docs(&tree.files["src/lib.rs"], &tree.package));
    complaints.extend(docs::msrv(&tree.files, &tree.package));
    assert_clean(&complaints);
}

#[test]
fn the_rule_for_the_servers_user_stands_once() {
    assert_clean(&docs::one_acl_rule(&Tree::read().files));
}

#[test]
fn the_readme_is_a_first_page() {
    assert_clean(&docs::first_page(
        "README.md",
        &Tree::read().files["README.md"],
    ));
}
