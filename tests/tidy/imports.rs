//! Which file uses which: every path of the code, followed through re-exports to the file that defines what it names.

use std::collections::{BTreeMap, BTreeSet};

use crate::facts::{Facts, Place, is_test_cfg, module_of};

/// One file's use of another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Edge {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) line: usize,
    /// The path from the root of the crate, as it is written in `from`.
    pub(crate) path: String,
}

/// A module, of a file or inline.
#[derive(Default)]
struct Module {
    file: String,
    /// Names that it defines.
    items: BTreeSet<String>,
    /// Names that it imports, with the paths from the crate's root; none for what is another crate's.
    imports: BTreeMap<String, Vec<Option<Vec<String>>>>,
    /// Modules of which it imports everything.
    globs: Vec<Vec<String>>,
}

/// All modules of the crate.
#[derive(Default)]
struct Modules(BTreeMap<Vec<String>, Module>);

/// Every use of one file by another, once for each line.
///
/// A re-export is not a use: code that uses the name that it gives uses the file that defines it. Nor is `mod name;`.
pub(crate) fn edges<'a>(
    files: impl Iterator<Item = (&'a String, &'a String)>,
    crates: &BTreeSet<String>,
) -> Vec<Edge> {
    let mut modules = Modules::default();
    let mut all = Vec::new();
    for (path, text) in files {
        modules.define(path, text);
        let facts = Facts::of(path, text);
        modules.import(&facts, &module_of(path), crates);
        all.push((path, facts));
    }
    let mut edges = BTreeSet::new();
    for (from, facts) in &all {
        let module = module_of(from);
        for used in facts
            .paths
            .iter()
            .filter(|used| !facts.only_passes_on(used))
        {
            let Some(Place::Ours(path)) = facts.place(used, &module, crates) else {
                continue;
            };
            let targets = modules.files_of(&path, 0).into_iter();
            edges.extend(targets.filter(|to| to != *from).map(|to| Edge {
                from: (*from).clone(),
                to,
                line: used.line,
                path: path.join("::"),
            }));
        }
    }
    edges.extend(modules.own_calls(&all));
    edges.into_iter().collect()
}

impl Modules {
    /// Notes the items that a file defines.
    fn define(&mut self, path: &str, text: &str) {
        let file = syn::parse_file(text).unwrap_or_else(|error| {
            panic!("{path} is not Rust: {error}");
        });
        self.define_module(path, module_of(path), &file.items);
    }

    fn define_module(&mut self, path: &str, name: Vec<String>, items: &[syn::Item]) {
        let mut module = Module {
            file: path.to_owned(),
            ..Module::default()
        };
        for item in items {
            if let syn::Item::Mod(inner) = item {
                let is_test = inner
                    .attrs
                    .iter()
                    .any(|attribute| is_test_cfg(&attribute.meta));
                if let (false, Some((_, items))) = (is_test, &inner.content) {
                    let name = name.iter().cloned().chain([inner.ident.to_string()]);
                    self.define_module(path, name.collect(), items);
                }
            } else if let Some(name) = name_of(item) {
                module.items.insert(name.to_string());
            }
        }
        self.0.insert(name, module);
    }

    /// Notes the names that a file imports.
    fn import(&mut self, facts: &Facts, file: &[String], crates: &BTreeSet<String>) {
        for used in facts.paths.iter().filter(|used| used.import) {
            let name = file.iter().chain(&used.module).cloned().collect::<Vec<_>>();
            let Some(module) = self.0.get_mut(&name) else {
                continue;
            };
            let target = match facts.place(used, file, crates) {
                Some(Place::Ours(target)) => Some(target),
                _ => None,
            };
            match (&used.binds, target) {
                (Some(name), target) => {
                    module.imports.entry(name.clone()).or_default().push(target);
                }
                (None, Some(mut target)) => {
                    target.pop();
                    module.globs.push(target);
                }
                (None, None) => {}
            }
        }
    }

    /// The calls of a type to methods of its own that stand in another file, where no import tells of them.
    fn own_calls(&self, all: &[(&String, Facts)]) -> Vec<Edge> {
        let own = all.iter().flat_map(|(path, facts)| {
            facts.implementations.iter().map(move |own| {
                let module = module_of(path)
                    .into_iter()
                    .chain(own.module.iter().cloned());
                let name: Vec<String> = module.chain([own.of.clone()]).collect();
                // Types of one name in different files are different types.
                ((self.files_of(&name, 0), &own.of), *path, own)
            })
        });
        let own: Vec<_> = own.collect();
        let mut defined: BTreeMap<_, BTreeSet<&String>> = BTreeMap::new();
        for (of, path, own) in &own {
            for method in &own.defines {
                defined.entry((of, method)).or_default().insert(path);
            }
        }
        let mut edges = Vec::new();
        for (of, from, own) in &own {
            for (method, line) in &own.calls {
                let files = defined
                    .get(&(of, method))
                    .filter(|files| !files.contains(from));
                edges.extend(files.into_iter().flatten().map(|to| Edge {
                    from: (*from).clone(),
                    to: (*to).clone(),
                    line: *line,
                    path: format!("{}::{method}", of.1),
                }));
            }
        }
        edges
    }

    /// The files that define what `path` names; none for a module or for what is another crate's.
    fn files_of(&self, path: &[String], depth: usize) -> BTreeSet<String> {
        let mut at = Vec::new();
        for (index, name) in path.iter().enumerate() {
            let Some(here) = self.0.get(&at) else {
                return BTreeSet::new();
            };
            let is_item = here.items.contains(name);
            at.push(name.clone());
            let is_module = self.0.contains_key(&at);
            if is_module && index + 1 < path.len() {
                continue;
            }
            // Re-exports of re-exports of re-exports; nobody writes more, and there are circles of globs.
            if !is_item
                && depth < 8
                && let Some(found) = self.imported(here, &path[index..], depth + 1)
            {
                return found;
            }
            // Its own, or made by a macro. A module by itself is only a place; it may have the name of a function.
            if is_module && !is_item {
                break;
            }
            return BTreeSet::from([here.file.clone()]);
        }
        BTreeSet::new()
    }

    /// The same for a path that begins with a name that `here` may import.
    fn imported(&self, here: &Module, path: &[String], depth: usize) -> Option<BTreeSet<String>> {
        let (name, rest) = path.split_first()?;
        if let Some(targets) = here.imports.get(name) {
            let ours = targets.iter().flatten();
            let files = ours.flat_map(|target| self.files_of(&[target, rest].concat(), depth));
            return Some(files.collect());
        }
        let mut globs = here.globs.iter();
        let glob = globs.find(|glob| self.0.get(*glob).is_some_and(|module| module.knows(name)))?;
        Some(self.files_of(&[glob, path].concat(), depth))
    }
}

impl Module {
    fn knows(&self, name: &str) -> bool {
        self.items.contains(name) || self.imports.contains_key(name)
    }
}

fn name_of(item: &syn::Item) -> Option<&syn::Ident> {
    Some(match item {
        syn::Item::Const(item) => &item.ident,
        syn::Item::Enum(item) => &item.ident,
        syn::Item::Fn(item) => &item.sig.ident,
        syn::Item::Macro(item) => item.ident.as_ref()?,
        syn::Item::Static(item) => &item.ident,
        syn::Item::Struct(item) => &item.ident,
        syn::Item::Trait(item) => &item.ident,
        syn::Item::TraitAlias(item) => &item.ident,
        syn::Item::Type(item) => &item.ident,
        syn::Item::Union(item) => &item.ident,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::circles;

    fn uses(files: &[(&str, &str)]) -> Vec<String> {
        let edges = edges_of(files);
        let uses = edges
            .iter()
            .map(|edge| format!("{} -> {}", edge.from, edge.to));
        let uses: BTreeSet<String> = uses.collect();
        uses.into_iter().collect()
    }

    fn edges_of(files: &[(&str, &str)]) -> Vec<Edge> {
        let files = files
            .iter()
            .map(|(path, text)| (format!("src/{path}"), (*text).to_owned()));
        let files: BTreeMap<String, String> = files.collect();
        edges(files.iter(), &BTreeSet::from(["tokio".to_owned()]))
    }

    #[test]
    fn a_path_is_followed_to_the_file_that_defines_its_name() {
        let tree = |user: &'static str| {
            [
                ("lib.rs", "mod a; mod b;"),
                (
                    "a/mod.rs",
                    "mod deep; mod both; pub(crate) use self::deep::{X, Y as Z}; pub use both::*; use tokio::Q;",
                ),
                (
                    "a/deep.rs",
                    "pub struct X; pub enum Y { One } pub mod inner { pub fn f() {} }",
                ),
                ("a/both.rs", "pub fn both() {} pub use super::deep::X as W;"),
                ("b.rs", user),
            ]
        };
        let (deep, both) = ("src/b.rs -> src/a/deep.rs", "src/b.rs -> src/a/both.rs");
        for (user, expected) in [
            ("use crate::a::X;", vec![deep]),
            ("fn f(z: crate::a::Z) {}", vec![deep]),
            ("fn f() { crate::a::Z::One; }", vec![deep]),
            ("use super::a; fn f() { a::X::new(); }", vec![deep]),
            ("use crate::a::both;", vec![both]),
            ("use crate::a::W;", vec![deep]),
            ("fn f() { m! { crate::a::deep::inner::f() } }", vec![deep]),
            (
                "use crate::a::made_by_a_macro;",
                vec!["src/b.rs -> src/a/mod.rs"],
            ),
            // A module by itself is only a place; and what is another crate's is nobody's file.
            ("use crate::a;", vec![]),
            ("use crate::a::Q;", vec![]),
            ("#[cfg(test)] mod tests { use crate::a::X; }", vec![]),
            // Passed on, and not used.
            ("pub use crate::a::X;", vec![]),
            ("pub use crate::a::X; fn f(x: X) {}", vec![deep]),
            (
                "pub(crate) use crate::a::both; fn g() { both(); }",
                vec![both],
            ),
            (
                "pub(crate) use crate::a::both; impl T { fn both(&self) { self.both() } }",
                vec![],
            ),
        ] {
            assert_eq!(uses(&tree(user)), expected, "{user}");
        }
    }

    #[test]
    fn calls_of_a_types_own_methods_lead_to_where_they_stand() {
        let tree = |body: &str| {
            let t =
                format!("pub struct T; impl T {{ pub fn a(&self) {{ {body} }} fn d(&self) {{}} }}");
            let more = "use crate::t::T; impl T { pub fn b(&self) {} fn d() {} } impl Clone for T { fn c() {} }";
            uses(&[
                ("lib.rs", "mod t; mod more;"),
                ("t.rs", &t),
                ("more.rs", more),
            ])
        };
        let there = "src/more.rs -> src/t.rs";
        let back = "src/t.rs -> src/more.rs";
        for body in ["self.b()", "Self::b(self)", "m! { self.b() }", "Self::c()"] {
            assert_eq!(tree(body), [there, back], "{body}");
        }
        // A field, a method of its own, and one of another type.
        for body in ["self.b", "self.d()", "other.b()", "self.x()"] {
            assert_eq!(tree(body), [there], "{body}");
        }
    }

    #[test]
    fn a_module_that_only_declares_and_passes_on_makes_no_circle() {
        let child = ("a/x.rs", "use super::Y; pub struct X;");
        let other = ("a/y.rs", "pub struct Y;");
        let declares = "mod x; mod y; pub use x::X; pub(super) use y::Y;";
        let circles = |module: &str| {
            circles::check(&edges_of(&[
                ("lib.rs", "mod a;"),
                ("a/mod.rs", module),
                child,
                other,
            ]))
        };
        assert_eq!(circles(declares), [""; 0]);
        let logic = format!("{declares} pub struct Z(X);");
        assert_eq!(circles(&logic), [""; 0]);
        // Its own type is used by the child that it uses.
        let circle = logic.replace("pub(super) use y::Y;", "pub struct Y;");
        assert_eq!(
            circles(&circle)[0],
            "2 files use each other in a circle: src/a/mod.rs, src/a/x.rs"
        );
    }
}
