//! Whose types are in our interface. The manifest has the list of crates that may be there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use public_api::PublicItem;

use crate::compiler::{Compiler, LIBRARY, scratch};
use crate::public::items;

/// Each crate whose types or traits stand in what is documented, with the items that have them.
fn foreign(json: &Path) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in items(json, true).iter().map(PublicItem::to_string) {
        // Of ours, the items themselves are listed.
        if line.starts_with("pub use ") {
            found
                .entry("re-exported".to_owned())
                .or_default()
                .push(line.clone());
        }
        let paths = line.split(|it: char| !it.is_alphanumeric() && !"_:".contains(it));
        for (root, name) in paths.filter_map(|path| path.split_once("::")) {
            // `S::Response` is of no crate; and nobody can name what `pin_project!` writes into a where clause.
            let is_crate = !name.starts_with("__private")
                && root.starts_with(|it: char| it.is_lowercase() || it == '_');
            let known = ["alloc", "core", "i64", "std", "str", "u64", LIBRARY];
            if is_crate && !known.contains(&root) {
                found.entry(root.to_owned()).or_default().push(line.clone());
            }
        }
    }
    found
}

#[test]
fn only_types_of_allowed_crates_are_in_the_interface() {
    let compiler = Compiler::get();
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
    let compiler = Compiler::get();
    let found = foreign(&compiler.documents(&root, "seen"));
    let names: Vec<_> = found.into_keys().collect();
    let there = [
        "bytes",
        "http",
        "re-exported",
        "redis",
        "tower_layer",
        "tower_service",
    ];
    assert_eq!(names, there);
}
