//! Every public item with its signature, as a user sees it: `public.txt` lists them, and a change of it is a change of
//! the interface. So is one of `auto_traits.txt`: nobody writes down that a type is `Send`, and one `Rc` deep inside takes
//! that away. `UPDATE=1 cargo test --all-features --test interface public` writes both anew.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use public_api::{Builder, PublicItem};
use serde_json::Value;

use crate::compiler::Compiler;

/// The most public items that the crate may have, with the fields of variants: an item more has to take the place of
/// another one.
const MOST: usize = 414;

/// The ids of implementations of traits, and of what is in them: traits of others bring those, and ours list them once.
fn of_traits(documents: &Value) -> BTreeSet<u64> {
    let items = documents.pointer("/index").and_then(Value::as_object);
    let items = items.into_iter().flatten().map(|(_, item)| item);
    let implementations = items.filter(|item| {
        let of = item.pointer("/inner/impl/trait");
        of.is_some_and(|of| !of.is_null())
    });
    let ids = implementations.flat_map(|item| {
        let inner = item.pointer("/inner/impl/items").and_then(Value::as_array);
        inner.into_iter().flatten().chain(item.get("id"))
    });
    ids.filter_map(Value::as_u64).collect()
}

/// The public items of the crate that is documented in a file; with those that the compiler and derives make, or without.
pub(crate) fn items(json: &Path, with_made: bool) -> Vec<PublicItem> {
    let api = Builder::from_rustdoc_json(json)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(!with_made)
        .omit_auto_derived_impls(!with_made)
        .build();
    let api = api.unwrap_or_else(|error| {
        panic!(
            "{error}: the crate `public-api` reads the documentation of one format; take the version of it that fits \
             this compiler"
        )
    });
    api.into_items().collect()
}

/// Compares a list with what it should be, or writes it.
#[track_caller]
fn assert_listed(name: &str, text: &str) {
    let list = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/interface")
        .join(name);
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&list, text).expect("the list can be written");
    }
    let listed = fs::read_to_string(&list).unwrap_or_default();
    let gone = listed.lines().filter(|line| !text.contains(line));
    let new = text.lines().filter(|line| !listed.contains(line));
    assert!(
        listed == text,
        "{name} lists another interface; gone: {:#?}, new: {:#?}; if that is meant, run \
         `UPDATE=1 cargo test --all-features --test interface public`, and read what it changes",
        gone.collect::<Vec<_>>(),
        new.collect::<Vec<_>>(),
    );
}

#[test]
fn the_public_interface_is_the_one_that_is_listed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let json = Compiler::get().documents(&root.join("src/lib.rs"), "public");
    let documents = fs::read(&json).expect("rustdoc has written it");
    let documents = serde_json::from_slice(&documents).expect("rustdoc writes JSON");
    let of_traits = of_traits(&documents);
    let is_own = |item: &PublicItem| !of_traits.contains(&u64::from(item.id().0));
    // Of an item with several paths, the shortest one.
    let mut shortest: BTreeMap<u32, String> = BTreeMap::new();
    for item in items(&json, false).into_iter().filter(is_own) {
        let line = item.to_string();
        let known = shortest.entry(item.id().0).or_insert_with(|| line.clone());
        if line.len() < known.len() {
            *known = line;
        }
    }
    let mut found: Vec<String> = shortest.into_values().collect();
    found.retain(|line| !line.starts_with("impl"));
    found.sort_by_key(|line| line.replace("#[non_exhaustive] ", ""));
    assert_listed("public.txt", &(found.join("\n") + "\n"));
    println!("{} public items, at most {MOST}", found.len());
    assert!(found.len() <= MOST, "{} public items", found.len());

    let found = auto_traits(&items(&json, true));
    let lines = found.iter().map(|(subject, traits)| {
        let traits: Vec<&str> = traits.iter().map(String::as_str).collect();
        format!("{subject}: {}\n", traits.join(", "))
    });
    assert_listed("auto_traits.txt", &lines.collect::<String>());
}

/// Of each type the auto traits that it has, or has not, with the condition if there is one.
fn auto_traits(items: &[PublicItem]) -> BTreeMap<String, BTreeSet<String>> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in items.iter().map(PublicItem::to_string) {
        // `impl<S> !core::marker::Send for tower_redlock::A<S> where S: ..`
        let Some((implemented, subject)) = line.split_once(" for ") else {
            continue;
        };
        let name = implemented.rsplit("::").next().unwrap_or_default();
        let names = ["Send", "Sync", "Unpin", "UnwindSafe", "RefUnwindSafe"];
        if implemented.starts_with("impl") && names.contains(&name) {
            let not = if implemented.contains('!') { "!" } else { "" };
            let (subject, condition) = subject.split_once(" where ").unwrap_or((subject, ""));
            let condition = match condition {
                "" => String::new(),
                condition => format!(" (where {condition})"),
            };
            let traits = found.entry(subject.to_owned()).or_default();
            traits.insert(format!("{not}{name}{condition}"));
        }
    }
    found
}
