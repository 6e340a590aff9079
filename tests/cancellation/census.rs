//! The census: what is asynchronous in the crate and can be dropped half-way, as its source has it, against what this
//! suite drops.
//!
//! Public functions that are `async` or return a future; futures, services and bodies; and implementations of traits
//! with asynchronous methods. Each is named after the folder or file of `src` in which it stands.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::Visit;

use super::operations;

#[test]
fn every_asynchronous_operation_of_the_crate_is_dropped_by_this_suite() {
    let found = of_the_crate();
    let covered = operations().into_iter().flat_map(|it| it.covers.iter());
    let covered: BTreeSet<String> = covered.map(|name| (*name).to_owned()).collect();
    let missing: Vec<_> = found.difference(&covered).collect();
    assert!(missing.is_empty(), "dropped nowhere: {missing:#?}");
    let stale: Vec<_> = covered.difference(&found).collect();
    assert!(stale.is_empty(), "not in the crate: {stale:#?}");
}

#[test]
fn the_census_finds_what_is_asynchronous_and_nothing_else() {
    let text = "
        pub struct A;
        impl A {
            pub async fn one(&self) {}
            pub fn two(&self) -> impl Future<Output = ()> + Send { ready(()) }
            pub fn three(&self) -> Pin<Box<dyn Future<Output = ()>>> { Box::pin(ready(())) }
            pub fn not(&self) -> u8 { 0 }
            async fn private(&self) {}
            pub(crate) async fn inside(&self) {}
        }
        pub async fn free() {}
        impl<T> Future for Wait<T> { fn poll() {} }
        impl<B: Body> Body for Frames<B> { fn poll_frame() {} }
        impl<S, R> Service<Request<R>> for Layered<S> { fn call() {} }
        impl KeySource for Reader { async fn collect(&self) {} }
        impl KeySource for Plain { fn name(&self) {} }
        macro_rules! bodies { ($body:ident) => { impl<B: Body> Body for $body<B> {} } }
        #[cfg(test)]
        mod tests { impl Future for Fake {} pub async fn helper() {} }
        #[cfg(tower_redlock_tests)]
        mod simulation { impl<S> Stream for S {} }
    ";
    let found = Vec::from_iter(in_file("x", text));
    let expected = [
        "x A::one",
        "x A::three",
        "x A::two",
        "x Body for $body",
        "x Body for Frames",
        "x Future for Wait",
        "x KeySource for Reader",
        "x Service for Layered",
        "x free",
    ];
    assert_eq!(found, expected);
}

/// All that there is in `src`.
fn of_the_crate() -> BTreeSet<String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    files_in(&source, &mut files);
    let mut found = BTreeSet::new();
    for file in files {
        let inside = file.strip_prefix(&source).unwrap();
        let of_tests = inside
            .iter()
            .any(|part| part == "tests" || part == "tests.rs");
        if of_tests {
            continue;
        }
        let first = Path::new(inside.iter().next().unwrap());
        let place = first.file_stem().unwrap().to_str().unwrap();
        found.extend(in_file(place, &fs::read_to_string(&file).unwrap()));
    }
    found
}

fn files_in(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_in(&path, files);
        } else if path.extension().is_some_and(|end| end == "rs") {
            files.push(path);
        }
    }
}

fn in_file(place: &str, text: &str) -> BTreeSet<String> {
    let mut census = Census {
        place,
        found: BTreeSet::new(),
    };
    census.visit_file(&syn::parse_file(text).unwrap());
    census.found
}

struct Census<'a> {
    place: &'a str,
    found: BTreeSet<String>,
}

/// Traits whose implementations are asynchronous though none of their methods says so.
const POLLED: [&str; 4] = ["Future", "Service", "Body", "Stream"];

impl Census<'_> {
    fn add(&mut self, name: &str) {
        self.found.insert(format!("{} {name}", self.place));
    }

    fn note(&mut self, of: &str, visibility: &syn::Visibility, signature: &syn::Signature) {
        if matches!(visibility, syn::Visibility::Public(_)) && is_async(signature) {
            self.add(&format!("{of}{}", signature.ident));
        }
    }
}

impl<'ast> Visit<'ast> for Census<'_> {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        // No user meets what only builds for tests and for the simulator have.
        let is_left_out = |attribute: &syn::Attribute| {
            let words = words(attribute);
            let mut named = ["test", "tower_redlock_tests"].iter();
            attribute.path().is_ident("cfg") && named.any(|name| words.iter().any(|it| it == name))
        };
        if !module.attrs.iter().any(is_left_out) {
            syn::visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.note("", &function.vis, &function.sig);
    }

    fn visit_item_impl(&mut self, block: &'ast syn::ItemImpl) {
        let of = name_of(&block.self_ty);
        let methods = block.items.iter().filter_map(|item| match item {
            syn::ImplItem::Fn(method) => Some(method),
            _ => None,
        });
        match &block.trait_ {
            None => methods.for_each(|it| self.note(&format!("{of}::"), &it.vis, &it.sig)),
            Some((_, path, _)) => {
                let name = path.segments.last().unwrap().ident.to_string();
                let is_polled = POLLED.contains(&name.as_str());
                if is_polled || methods.into_iter().any(|it| is_async(&it.sig)) {
                    self.add(&format!("{name} for {of}"));
                }
            }
        }
    }

    fn visit_item_macro(&mut self, item: &'ast syn::ItemMacro) {
        let words = flat(item.mac.tokens.clone());
        for (index, three) in words.windows(3).enumerate() {
            if POLLED.contains(&three[0].as_str()) && three[1] == "for" {
                let of = match three[2].as_str() {
                    "$" => format!("${}", words[index + 3]),
                    name => name.to_owned(),
                };
                self.add(&format!("{} for {of}", three[0]));
            }
        }
    }
}

/// Whether it is `async`, or returns a future. The futures of a node are not meant: a node is what is waited for.
fn is_async(signature: &syn::Signature) -> bool {
    let mut futures = Futures(false);
    futures.visit_return_type(&signature.output);
    signature.asyncness.is_some() || futures.0
}

/// Whether a type mentions `impl Future` or `dyn Future`.
struct Futures(bool);

impl<'ast> Visit<'ast> for Futures {
    fn visit_trait_bound(&mut self, bound: &'ast syn::TraitBound) {
        let name = bound.path.segments.last();
        self.0 |= name.is_some_and(|name| name.ident == "Future");
    }
}

fn name_of(of: &syn::Type) -> String {
    match of {
        syn::Type::Path(path) => path.path.segments.last().unwrap().ident.to_string(),
        _ => "?".to_owned(),
    }
}

fn words(attribute: &syn::Attribute) -> Vec<String> {
    match &attribute.meta {
        syn::Meta::List(list) => flat(list.tokens.clone()),
        _ => Vec::new(),
    }
}

/// All words and signs, without the groups around them.
fn flat(tokens: TokenStream) -> Vec<String> {
    let mut words = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Group(group) => words.extend(flat(group.stream())),
            other => words.push(other.to_string()),
        }
    }
    words
}
