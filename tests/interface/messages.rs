//! How the compiler explains mistakes with our traits, in the words of `#[diagnostic::on_unimplemented]`.
//!
//! Each of `cases` has one mistake. Of what the compiler says of it, only our own words are looked for: the rest belongs to
//! the compiler, which changes it as it likes. To read all of it: `cargo test --all-features --test interface messages --
//! --nocapture`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::compiler::Compiler;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All files in a directory and in those below.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("a directory of the project can be listed");
    let paths = entries.map(|entry| entry.expect("an entry can be read").path());
    let inside = |path: PathBuf| {
        if path.is_dir() {
            files(&path)
        } else {
            vec![path]
        }
    };
    paths.flat_map(inside).collect()
}

/// Whether `line` has `words`, with anything in the place of `{Self}`.
fn has(line: &str, words: &str) -> bool {
    let mut rest = Some(line);
    for piece in words.split("{Self}") {
        rest = rest.and_then(|rest| rest.split_once(piece).map(|(_, rest)| rest));
    }
    rest.is_some()
}

/// Whether what the compiler says has all of a trait's words.
fn tells(said: &str, words: &[String]) -> bool {
    words
        .iter()
        .all(|words| said.lines().any(|line| has(line, words)))
}

/// No user meets the clock, nor the port of the nodes.
const UNMET: [&str; 3] = ["src/clock.rs", "src/node/port.rs", "src/node/notifier.rs"];

/// The public traits, each with its own words for those who get it wrong.
fn traits() -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    let is_met = |path: &PathBuf| {
        path.extension().is_some_and(|it| it == "rs") && !UNMET.iter().any(|it| path.ends_with(it))
    };
    for path in files(&root().join("src")).into_iter().filter(is_met) {
        let text = fs::read_to_string(&path).expect("a file of the project can be read");
        let file = syn::parse_file(&text).expect("a file of the project is Rust");
        for item in file.items {
            if let syn::Item::Trait(item) = item
                && matches!(item.vis, syn::Visibility::Public(_))
            {
                found.push((item.ident.to_string(), words(&item.attrs)));
            }
        }
    }
    found
}

fn words(attributes: &[syn::Attribute]) -> Vec<String> {
    let mut words = Vec::new();
    let ours = |path: &syn::Path| {
        let last = path.segments.last();
        last.is_some_and(|last| last.ident == "on_unimplemented")
    };
    for attribute in attributes.iter().filter(|of| ours(of.path())) {
        let each = attribute.parse_nested_meta(|meta| {
            words.push(meta.value()?.parse::<syn::LitStr>()?.value());
            Ok(())
        });
        each.expect("message, label and notes");
    }
    words
}

#[test]
fn the_compiler_explains_each_mistake_in_the_words_of_the_trait() {
    let compiler = Compiler::get();
    let cases = files(&root().join("tests/interface/cases")).into_iter();
    let told: BTreeMap<_, _> = cases
        .map(|case| (case.clone(), compiler.refuses(&case)))
        .collect();
    for (case, said) in &told {
        println!("{}: {said}", case.display());
        // More than that was a mistake in the case, or hides what we have to say.
        let reasons = said.lines().filter(|line| line.starts_with("error["));
        assert_eq!(reasons.count(), 1, "{}: {said}", case.display());
    }
    let found = traits();
    assert!(!found.is_empty());
    for (name, words) in found {
        // A message says what is wrong; only a note says what to do.
        assert!(words.len() > 1, "`{name}` does not say what to do");
        let shown = told.values().any(|said| tells(said, &words));
        assert!(shown, "no case shows all that `{name}` says: {words:#?}");
    }
}

#[test]
fn words_are_found_around_the_type() {
    let words = "`{Self}` is not the name of a lock";
    let line = "error[E0277]: `OrderId` is not the name of a lock";
    assert!(has(line, words));
    assert!(!has("error[E0277]: `OrderId` is no lock", words));
    assert!(!has("is not the name of a lock: `OrderId`", words));
    let notes = [words.to_owned(), "wrap it".to_owned()];
    assert!(tells(&format!("{line}\n  = note: wrap it"), &notes));
    assert!(!tells(line, &notes));
}
