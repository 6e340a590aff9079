//! Whose types are in our interface. The manifest has the list of crates that may be there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::compiler::{Compiler, list, scratch, text};

/// Each crate whose types or traits stand in what is documented, with the places.
fn foreign(documentation: &Value) -> BTreeMap<String, BTreeSet<String>> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let items = documentation.pointer("/index").and_then(Value::as_object);
    for item in items.into_iter().flatten().map(|(_, item)| item) {
        let Some(inner) = item.get("inner") else {
            continue;
        };
        // What holds for all types, and what the compiler finds out by itself, nobody has written.
        let given = |place| inner.pointer(place).is_some_and(|it| !it.is_null());
        let synthetic = inner.pointer("/impl/is_synthetic") == Some(&Value::Bool(true));
        let ours = item.get("crate_id").and_then(Value::as_u64) == Some(0);
        if !ours || synthetic || given("/impl/blanket_impl") {
            continue;
        }
        let mut ids = Vec::new();
        collect(inner, &mut ids);
        for id in ids {
            if let Some(name) = crate_of(documentation, &id) {
                found.entry(name).or_default().insert(place(item));
            }
        }
    }
    found
}

/// The ids of all that `value` names.
fn collect(value: &Value, ids: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            if let Some(id) = members.get("id").filter(|id| !id.is_null()) {
                ids.push(id.as_str().map_or(id.to_string(), str::to_owned));
            }
            members.values().for_each(|value| collect(value, ids));
        }
        Value::Array(values) => values.iter().for_each(|value| collect(value, ids)),
        _ => {}
    }
}

/// The name of the crate that a thing is from, if it is neither ours nor the language's.
fn crate_of(documentation: &Value, id: &str) -> Option<String> {
    let number = documentation.pointer(&format!("/paths/{id}/crate_id"))?;
    let name = text(documentation, &format!("/external_crates/{number}/name"));
    let known = ["", "core", "alloc", "std"].contains(&name);
    // `pin_project!` writes such things into a where clause; nobody can name them.
    let private = list(documentation, &format!("/paths/{id}/path")).any(|part| part == "__private");
    (!known && !private).then(|| name.to_owned())
}

fn place(item: &Value) -> String {
    let (file, name) = (text(item, "/span/filename"), text(item, "/name"));
    let line = item.pointer("/span/begin/0").and_then(Value::as_u64);
    format!("{file}:{} {name}", line.unwrap_or_default())
}

#[test]
fn only_types_of_allowed_crates_are_in_the_interface() {
    let compiler = Compiler::find();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs");
    let found = foreign(&compiler.documents(&root, "interface"));
    let allowed = compiler.allowed();
    for (name, places) in &found {
        assert!(allowed.contains(name), "`{name}` is in {places:#?}");
    }
    // A list that allows more than there is would let it in.
    assert_eq!(found.into_keys().collect::<BTreeSet<_>>(), allowed);
}

#[test]
fn types_of_others_are_seen_wherever_they_stand() {
    let code = "
        //! Not a line of this is in the library.
        pub struct Ours;
        struct Hidden;
        pub fn returns() -> Result<(), redis::RedisError> { Ok(()) }
        pub use sha1_smol::Sha1;
        impl From<http::Method> for Ours { fn from(_: http::Method) -> Self { Self } }
        impl From<getrandom::Error> for Hidden { fn from(_: getrandom::Error) -> Self { Self } }
        pub struct Field { pub field: Vec<bytes::Bytes>, hidden: tokio::sync::Notify }
        pub trait Bound: tower_service::Service<()> {}
        pub fn bound(_: impl tower_layer::Layer<()>) {}
    ";
    let root = scratch("seen").join("lib.rs");
    fs::write(&root, code).expect("a file can be written");
    let compiler = Compiler::find();
    let found = foreign(&compiler.documents(&root, "seen"));
    let names: Vec<&str> = found.keys().map(|name| &**name).collect();
    assert_eq!(
        names,
        [
            "bytes",
            "http",
            "redis",
            "sha1_smol",
            "tower_layer",
            "tower_service"
        ],
    );
}
