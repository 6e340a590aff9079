//! What the compiler says to those who get a trait wrong, in the words of `#[diagnostic::on_unimplemented]`.
//!
//! Only our own words are looked for. All else belongs to the compiler, which changes it as it likes.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::cases::{CASES, PRELUDE, RIGHT, THEIRS};
use crate::compiler::Compiler;

/// Whether `line` has `words`, with anything in the place of `{Self}`.
fn has(line: &str, words: &str) -> bool {
    let mut rest = Some(line);
    for piece in words.split("{Self}") {
        rest = rest.and_then(|rest| rest.split_once(piece).map(|(_, rest)| rest));
    }
    rest.is_some()
}

/// What is missing in the refusal of `code`.
fn misses(compiler: &Compiler, code: &str, words: &[&str]) -> Vec<String> {
    let Some(said) = compiler.refuses(&format!("{PRELUDE}{code}")) else {
        return vec![format!("is accepted: {code}")];
    };
    // More than that was a mistake in the case, or hides what we have to say.
    if said
        .lines()
        .filter(|line| line.starts_with("error["))
        .count()
        != 1
    {
        return vec![format!("is refused for several reasons: {code}\n{said}")];
    }
    let missing = words
        .iter()
        .filter(|words| !said.lines().any(|line| has(line, words)));
    missing
        .map(|words| format!("nobody is told {words:?} of {code}\n{said}"))
        .collect()
}

#[test]
fn who_gets_a_trait_wrong_is_told_what_to_do() {
    let compiler = Compiler::find();
    assert_eq!(compiler.refuses(&format!("{PRELUDE}{RIGHT}")), None);
    let ours = CASES.iter().map(|case| (case.code, case.says));
    let cases = ours.chain(THEIRS.iter().copied());
    let complaints: Vec<_> = cases
        .flat_map(|(code, words)| misses(&compiler, code, words))
        .collect();
    assert!(complaints.is_empty(), "{}", complaints.join("\n\n"));
}

/// The public traits, each with its own words for those who get it wrong.
fn traits(directory: &Path, found: &mut Vec<(String, Vec<String>)>) {
    for entry in fs::read_dir(directory).expect("a directory of the project can be listed") {
        let path = entry.expect("an entry can be read").path();
        if path.is_dir() {
            traits(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
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
    }
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
fn every_public_trait_has_its_words_and_a_case_for_them() {
    let mut found = Vec::new();
    traits(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
        &mut found,
    );
    // What a trait says and what its cases expect, in one order.
    let said: BTreeSet<(&str, BTreeSet<&str>)> = found
        .iter()
        .map(|(name, words)| (&**name, words.iter().map(|words| &**words).collect()))
        .collect();
    let expected: BTreeSet<(&str, BTreeSet<&str>)> = CASES
        .iter()
        .map(|case| (case.of, case.says.iter().copied().collect()))
        .collect();
    assert_eq!(said, expected);
    // A message says what is wrong; only a note says what to do.
    for (name, words) in said {
        assert!(words.len() > 1, "`{name}` does not say what to do");
    }
}

#[test]
fn words_are_found_around_the_type() {
    let words = "`{Self}` is not the name of a lock";
    assert!(has(
        "error[E0277]: `OrderId` is not the name of a lock",
        words
    ));
    assert!(!has("error[E0277]: `OrderId` is no lock", words));
    assert!(!has("is not the name of a lock: `OrderId`", words));
}
