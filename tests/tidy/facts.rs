//! What a file uses: its paths, method calls and macro calls outside tests.
//!
//! Works on tokens rather than on the syntax tree, because most of an async crate stands inside macros, where a
//! syntax tree sees nothing.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, Ident, Punct, TokenStream, TokenTree};

/// Everything of note in one file, in order of appearance.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub(crate) paths: Vec<UsedPath>,
    /// Names of methods that are called.
    pub(crate) methods: Vec<(String, usize)>,
    /// Names of macros that are called, with their first token.
    pub(crate) macros: Vec<(String, String, usize)>,
    modules: BTreeSet<String>,
    /// The implementations of each type.
    pub(crate) implementations: Vec<Implementation>,
    /// Words outside of imports and behind no dot.
    words: BTreeSet<String>,
    imports: BTreeMap<String, UsedPath>,
}

/// A path with two segments or more, as it is written.
#[derive(Clone, Debug)]
pub(crate) struct UsedPath {
    pub(crate) segments: Vec<String>,
    pub(crate) line: usize,
    /// The inline modules around it.
    pub(crate) module: Vec<String>,
    /// Whether it begins with `::`.
    global: bool,
    pub(crate) import: bool,
    /// The name that an import gives it here; a glob gives none.
    pub(crate) binds: Option<String>,
    /// Whether others see that name: `pub use`, or `pub(crate) use`.
    passed_on: bool,
}

/// What stands in one `impl` block.
#[derive(Clone, Debug)]
pub(crate) struct Implementation {
    /// The name of the type.
    pub(crate) of: String,
    /// The inline modules around it.
    pub(crate) module: Vec<String>,
    pub(crate) defines: BTreeSet<String>,
    /// Its own methods and functions that are called, by `self.name` or `Self::name`.
    pub(crate) calls: Vec<(String, usize)>,
}

/// Where a path leads.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A path from the root of this crate.
    Ours(Vec<String>),
    /// A path that begins with the name of another crate.
    Theirs(Vec<String>),
}

impl Facts {
    pub(crate) fn of(path: &str, text: &str) -> Self {
        let mut facts = Self::default();
        match text.parse::<TokenStream>() {
            Ok(tokens) => facts.scan(tokens, &[]),
            Err(error) => panic!("{path} is not Rust: {error}"),
        }
        facts
    }

    fn scan(&mut self, tokens: TokenStream, module: &[String]) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            at += match token {
                TokenTree::Punct(punct) if is_test_attribute(punct, tokens.get(at + 1)) => {
                    item_length(&tokens[at..])
                }
                TokenTree::Ident(word) if word == "use" => {
                    let passed_on = is_visible(&tokens[..at]);
                    self.import(&tokens[at..], module, passed_on)
                }
                TokenTree::Ident(word) if word == "mod" => self.declare(&tokens[at..], module),
                TokenTree::Ident(word) if word == "impl" => {
                    self.implementation(&tokens, at, module);
                    1
                }
                TokenTree::Ident(_) => self.path(&tokens, at, module),
                TokenTree::Group(group) => {
                    self.scan(group.stream(), module);
                    1
                }
                _ => 1,
            };
        }
    }

    /// Reads `mod name;` or `mod name { .. }`; returns how many tokens that took.
    fn declare(&mut self, tokens: &[TokenTree], module: &[String]) -> usize {
        let Some(TokenTree::Ident(name)) = tokens.get(1) else {
            return 1;
        };
        self.modules.insert(name.to_string());
        let Some(TokenTree::Group(body)) = tokens.get(2) else {
            return 2;
        };
        let inner: Vec<_> = module.iter().cloned().chain([name.to_string()]).collect();
        self.scan(body.stream(), &inner);
        3
    }

    /// Notes what an `impl` block defines and calls of its own, if that is what begins at `start`.
    fn implementation(&mut self, tokens: &[TokenTree], start: usize, module: &[String]) {
        let begins = match start.checked_sub(1).map(|before| &tokens[before]) {
            None => true,
            Some(TokenTree::Group(group)) => group.delimiter() != Delimiter::Parenthesis,
            Some(before) => is_punct(before, ';'),
        };
        let length = item_length(&tokens[start..]);
        let item = tokens[start..start + length].iter().cloned().collect();
        let Some(item) = begins
            .then(|| syn::parse2::<syn::ItemImpl>(item).ok())
            .flatten()
        else {
            return;
        };
        let syn::Type::Path(path) = &*item.self_ty else {
            return;
        };
        let names = item.items.iter().filter_map(|item| match item {
            syn::ImplItem::Fn(function) => Some(function.sig.ident.to_string()),
            _ => None,
        });
        let mut own = Implementation {
            of: path
                .path
                .segments
                .last()
                .map(|part| part.ident.to_string())
                .unwrap_or_default(),
            module: module.to_vec(),
            defines: names.collect(),
            calls: Vec::new(),
        };
        if let Some(TokenTree::Group(body)) = tokens.get(start + length - 1) {
            own_calls(body.stream(), &mut own.calls);
        }
        self.implementations.push(own);
    }

    /// Reads `use ..;`; returns how many tokens that took.
    fn import(&mut self, tokens: &[TokenTree], module: &[String], passed_on: bool) -> usize {
        let end = tokens.iter().position(|token| is_punct(token, ';'));
        let statement = &tokens[..end.map_or(tokens.len(), |end| end + 1)];
        // `use<'a>` in a return type is no import, and does not parse as one.
        let Ok(item) = syn::parse2::<syn::ItemUse>(statement.iter().cloned().collect()) else {
            return 1;
        };
        let start = UsedPath {
            segments: Vec::new(),
            line: tokens[0].span().start().line,
            module: module.to_vec(),
            global: item.leading_colon.is_some(),
            import: true,
            binds: None,
            passed_on,
        };
        self.branch(&item.tree, start);
        statement.len()
    }

    fn branch(&mut self, tree: &syn::UseTree, mut path: UsedPath) {
        let mut step = |name: &Ident| {
            path.line = name.span().start().line;
            path.segments.push(name.to_string());
        };
        match tree {
            syn::UseTree::Path(part) => {
                step(&part.ident);
                self.branch(&part.tree, path);
            }
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.branch(tree, path.clone());
                }
            }
            syn::UseTree::Glob(_) => {
                path.segments.push("*".to_owned());
                self.paths.push(path);
            }
            syn::UseTree::Name(name) if name.ident == "self" => {
                let bound = path.segments.last().cloned().unwrap_or_default();
                self.bind(bound, path);
            }
            syn::UseTree::Name(name) => {
                step(&name.ident);
                self.bind(name.ident.to_string(), path);
            }
            syn::UseTree::Rename(rename) => {
                if rename.ident != "self" {
                    step(&rename.ident);
                }
                self.bind(rename.rename.to_string(), path);
            }
        }
    }

    fn bind(&mut self, name: String, mut path: UsedPath) {
        path.binds = Some(name.clone());
        self.imports.insert(name, path.clone());
        self.paths.push(path);
    }

    /// Reads a path, a macro call or a method call; returns how many tokens the path took.
    fn path(&mut self, tokens: &[TokenTree], start: usize, module: &[String]) -> usize {
        let mut segments = Vec::new();
        let mut at = start;
        while let Some(TokenTree::Ident(segment)) = tokens.get(at) {
            segments.push(segment.to_string());
            at += 1;
            if !is_path_separator(tokens.get(at), tokens.get(at + 1)) {
                break;
            }
            at += 2;
        }
        let line = tokens[start].span().start().line;
        let before = |steps: usize| start.checked_sub(steps).and_then(|at| tokens.get(at));
        let is_method = before(1).is_some_and(|token| is_punct(token, '.'))
            && !before(2).is_some_and(|token| is_punct(token, '.'));
        let name = segments.last().cloned().unwrap_or_default();
        let is_defined = before(1).is_some_and(|token| is_word(token, "fn"));
        if !is_method && !is_defined {
            self.words.extend(segments.first().cloned());
        }
        if is_method {
            self.methods.push((name, line));
        } else if let (Some(bang), Some(TokenTree::Group(body))) =
            (tokens.get(at), tokens.get(at + 1))
            && is_punct(bang, '!')
        {
            let first = body.stream().into_iter().next();
            let first = first.map(|token| token.to_string()).unwrap_or_default();
            self.macros.push((name, first, line));
        }
        if segments.len() > 1 {
            let global = is_path_separator(before(2), before(1))
                && !before(3).is_some_and(|token| {
                    is_punct(token, '>') || matches!(token, TokenTree::Ident(_))
                });
            self.paths.push(UsedPath {
                segments,
                line,
                module: module.to_vec(),
                global,
                import: false,
                binds: None,
                passed_on: false,
            });
        }
        at - start
    }

    /// Whether `used` is a re-export of what the file itself does not use.
    pub(crate) fn only_passes_on(&self, used: &UsedPath) -> bool {
        let name = used.binds.as_ref();
        used.passed_on && !name.is_some_and(|name| self.words.contains(name))
    }

    /// Where `used` leads, if it leads to a module or a crate. `file` is the file's own module path.
    pub(crate) fn place(
        &self,
        used: &UsedPath,
        file: &[String],
        crates: &BTreeSet<String>,
    ) -> Option<Place> {
        let mut path = used.clone();
        // Imports may lead to imports; three steps are more than anyone writes.
        for _ in 0..3 {
            let first = path.segments.first()?.clone();
            let Some(import) = self.imports.get(&first).filter(|_| !path.global) else {
                break;
            };
            if import.segments.first() == Some(&first) {
                break;
            }
            let rest = path.segments.split_off(1);
            path = import.clone();
            path.segments.extend(rest);
        }
        let first = path.segments.first()?.as_str();
        let mut here: Vec<String> = file.iter().chain(&path.module).cloned().collect();
        match first {
            _ if path.global => Some(Place::Theirs(path.segments)),
            "crate" => Some(Place::Ours(path.segments.split_off(1))),
            "self" | "super" => {
                let ups = path.segments.iter().take_while(|part| *part == "super");
                let ups = ups.count();
                here.truncate(here.len().saturating_sub(ups));
                here.extend(path.segments.split_off(ups.max(1)));
                Some(Place::Ours(here))
            }
            _ if self.modules.contains(first) => {
                here.extend(path.segments);
                Some(Place::Ours(here))
            }
            "std" | "core" | "alloc" => Some(Place::Theirs(path.segments)),
            _ if crates.contains(first) => Some(Place::Theirs(path.segments)),
            // An import from a name in lower case that is no module of ours: a crate that cargo did not list.
            _ if path.import && first.starts_with(char::is_lowercase) => {
                Some(Place::Theirs(path.segments))
            }
            _ => None,
        }
    }
}

/// Every `self.name` and `Self::name` outside tests.
fn own_calls(tokens: TokenStream, calls: &mut Vec<(String, usize)>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        let name = match &tokens[at..] {
            // Without arguments it is a field.
            [word, dot, name, TokenTree::Group(_), ..]
                if is_word(word, "self") && is_punct(dot, '.') =>
            {
                Some(name)
            }
            [word, one, two, name, ..]
                if is_word(word, "Self") && is_path_separator(Some(one), Some(two)) =>
            {
                Some(name)
            }
            _ => None,
        };
        if let Some(TokenTree::Ident(name)) = name {
            calls.push((name.to_string(), name.span().start().line));
        }
        at += match token {
            TokenTree::Punct(punct) if is_test_attribute(punct, tokens.get(at + 1)) => {
                item_length(&tokens[at..])
            }
            TokenTree::Group(group) => {
                own_calls(group.stream(), calls);
                1
            }
            _ => 1,
        };
    }
}

/// The module path of a file: `src/node/redis/mod.rs` is `node`, `redis`.
pub(crate) fn module_of(path: &str) -> Vec<String> {
    let inside = path.strip_prefix("src/").unwrap_or(path);
    let inside = inside.strip_suffix(".rs").unwrap_or(inside);
    let parts = inside.split('/').map(str::to_owned);
    let mut parts: Vec<String> = parts.collect();
    if matches!(
        parts.last().map(String::as_str),
        Some("mod" | "lib" | "main")
    ) {
        parts.pop();
    }
    parts
}

fn is_word(token: &TokenTree, wanted: &str) -> bool {
    matches!(token, TokenTree::Ident(word) if word == wanted)
}

pub(crate) fn is_punct(token: &TokenTree, wanted: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == wanted)
}

/// Whether what stands before an item is `pub` or `pub(..)`.
fn is_visible(before: &[TokenTree]) -> bool {
    match before {
        [.., token, TokenTree::Group(group)] => {
            group.delimiter() == Delimiter::Parenthesis && is_word(token, "pub")
        }
        [.., token] => is_word(token, "pub"),
        [] => false,
    }
}

fn is_path_separator(first: Option<&TokenTree>, second: Option<&TokenTree>) -> bool {
    let colon = |token: Option<&TokenTree>| token.is_some_and(|token| is_punct(token, ':'));
    colon(first) && colon(second)
}

pub(crate) fn is_test_attribute(punct: &Punct, next: Option<&TokenTree>) -> bool {
    let Some(TokenTree::Group(group)) = next else {
        return false;
    };
    punct.as_char() == '#'
        && group.delimiter() == Delimiter::Bracket
        && syn::parse2::<syn::Meta>(group.stream()).is_ok_and(|meta| is_test_cfg(&meta))
}

/// Whether a `cfg` attribute leaves its item out of everything but tests.
pub(crate) fn is_test_cfg(meta: &syn::Meta) -> bool {
    use syn::{Meta, Token, punctuated::Punctuated};

    let Meta::List(list) = meta else {
        return meta.path().is_ident("test");
    };
    let inner = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated);
    let inner = inner.unwrap_or_default();
    match list.path.get_ident().map(ToString::to_string).as_deref() {
        Some("cfg" | "all") => inner.iter().any(is_test_cfg),
        Some("any") => !inner.is_empty() && inner.iter().all(is_test_cfg),
        _ => false,
    }
}

/// How many tokens an item takes: up to its body or its semicolon.
pub(crate) fn item_length(tokens: &[TokenTree]) -> usize {
    let ends = |token: &TokenTree| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        other => is_punct(other, ';'),
    };
    tokens
        .iter()
        .position(ends)
        .map_or(tokens.len(), |end| end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(path: &str, text: &str) -> Vec<String> {
        let facts = Facts::of(path, text);
        let crates = BTreeSet::from(["tokio".to_owned(), "redis".to_owned()]);
        let placed = facts.paths.iter().filter_map(|used| {
            Some(match facts.place(used, &module_of(path), &crates)? {
                Place::Ours(path) => format!("ours {}", path.join("::")),
                Place::Theirs(path) => format!("theirs {}", path.join("::")),
            })
        });
        placed.collect()
    }

    #[test]
    fn paths_are_followed_through_imports_parents_and_macros() {
        let text = "mod url; use super::super::key::{self, LockKey as K};
            use url::Target; use std::{time, fmt::Write as _};
            mod inner { use super::super::x; }
            fn f() { time::Instant::now(); select! { _ = tokio::time::sleep(crate::a::B) => {} } }
            fn g() { key::join(); ::redis::cmd(); u64::MAX; Self::new(); }";
        assert_eq!(
            places("src/node/redis/mod.rs", text),
            [
                "ours key",
                "ours key::LockKey",
                "ours node::redis::url::Target",
                "theirs std::time",
                "theirs std::fmt::Write",
                "ours node::x",
                "theirs std::time::Instant::now",
                "theirs tokio::time::sleep",
                "ours a::B",
                "ours key::join",
                "theirs redis::cmd",
            ]
        );
    }

    #[test]
    fn tests_are_left_out_and_the_rest_is_not() {
        let text = "#[cfg(test)] use crate::a; #[cfg(all(test, unix))] mod tests { use crate::b; }
            #[cfg(not(test))] use crate::c; #[cfg(any(test, unix))] use crate::d;
            #[cfg(feature = \"test-util\")] use crate::e;";
        assert_eq!(places("src/x.rs", text), ["ours c", "ours d", "ours e"]);
    }

    #[test]
    fn calls_are_seen_inside_macros() {
        let facts = Facts::of(
            "x.rs",
            "m! { x.unwrap(); tokio::select! { biased; } 0..len }",
        );
        assert_eq!(facts.methods, [("unwrap".to_owned(), 1)]);
        let macros: Vec<_> = facts
            .macros
            .iter()
            .map(|(name, first, _)| (&**name, &**first))
            .collect();
        assert_eq!(macros, [("m", "x"), ("select", "biased")]);
    }
}
