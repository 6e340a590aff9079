//! Every public item with its signature, as a user sees it: `public.txt` lists them, and a change of it is a change of
//! the interface. `UPDATE=1 cargo test --all-features --test interface public` writes it anew.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use public_api::{Builder, PublicItem};
use serde_json::Value;

use crate::compiler::{Compiler, scratch};

const LIST: &str = "tests/interface/public.txt";

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

#[test]
fn the_public_interface_is_the_one_that_is_listed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let documents = Compiler::find().documents(&root.join("src/lib.rs"), "public");
    let json = scratch("public").join("public.json");
    fs::write(&json, documents.to_string()).expect("a file can be written");
    let api = Builder::from_rustdoc_json(&json)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build()
        .unwrap_or_else(|error| {
            panic!(
                "{error}: the crate `public-api` reads the documentation of one format; take the version of it that \
                 fits this compiler"
            )
        });
    let of_traits = of_traits(&documents);
    let is_own = |item: &&PublicItem| !of_traits.contains(&u64::from(item.id().0));
    // Of an item with several paths, the shortest one.
    let mut shortest: BTreeMap<u32, String> = BTreeMap::new();
    for item in api.items().filter(is_own) {
        let line = item.to_string();
        let known = shortest.entry(item.id().0).or_insert_with(|| line.clone());
        if line.len() < known.len() {
            *known = line;
        }
    }
    let mut found: Vec<String> = shortest.into_values().collect();
    found.retain(|line| !line.starts_with("impl"));
    found.sort_by_key(|line| line.replace("#[non_exhaustive] ", ""));
    let text = found.join("\n") + "\n";
    let list = root.join(LIST);
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&list, &text).expect("the list can be written");
    }
    let listed = fs::read_to_string(&list).unwrap_or_default();
    let gone = listed.lines().filter(|line| !text.contains(line));
    let new = text.lines().filter(|line| !listed.contains(line));
    assert!(
        listed == text,
        "{LIST} lists another interface; gone: {:#?}, new: {:#?}; if that is meant, run \
         `UPDATE=1 cargo test --all-features --test interface public`, and read what it changes",
        gone.collect::<Vec<_>>(),
        new.collect::<Vec<_>>(),
    );
    println!("{} public items, at most {MOST}", found.len());
    assert!(found.len() <= MOST, "{} public items", found.len());
}
