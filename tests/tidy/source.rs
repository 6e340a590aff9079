//! The files of the project, and what their code uses.
//!
//! Rust is read as tokens, and these as text, as rustfmt lays it out.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Where this project keeps files of its own, so that what tools leave beside them is not judged.
const PLACES: [&str; 14] = [
    ".ci",
    "benches",
    "examples",
    "src",
    "tests",
    "ARCHITECTURE.md",
    "BENCHMARKS.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.toml",
    "Makefile",
    "README.md",
    "RELEASING.md",
    "clippy.toml",
];

/// All texts of the project by their path from its root.
pub(crate) type Files = BTreeMap<String, String>;

pub(crate) fn files() -> Files {
    let mut files = Files::new();
    for place in PLACES {
        read_into(&mut files, place);
    }
    files
}

fn read_into(files: &mut Files, place: &str) {
    let path = Path::new(ROOT).join(place);
    if path.is_dir() {
        for entry in fs::read_dir(&path).unwrap() {
            let name = entry.unwrap().file_name();
            read_into(files, &format!("{place}/{}", name.to_string_lossy()));
        }
    } else if let Ok(text) = fs::read_to_string(&path) {
        // What is not text (a certificate in DER form) has no style.
        files.insert(place.to_owned(), text);
    }
}

/// What cargo says of the package.
pub(crate) fn package() -> serde_json::Value {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut metadata = Command::new(cargo);
    metadata.args(["metadata", "--no-deps", "--offline", "--format-version=1"]);
    let output = metadata.current_dir(ROOT).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo metadata failed: {error}");
    let mut said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = said["packages"].as_array_mut().unwrap();
    let own = |package: &serde_json::Value| package["name"] == env!("CARGO_PKG_NAME");
    let own = packages.iter().position(own).unwrap();
    packages.swap_remove(own)
}

/// The names by which dependencies appear in paths.
pub(crate) fn crates(package: &serde_json::Value) -> BTreeSet<String> {
    let dependencies = package["dependencies"].as_array().unwrap().iter();
    let names = dependencies.map(|it| it["rename"].as_str().or(it["name"].as_str()));
    names.map(|name| name.unwrap().replace('-', "_")).collect()
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// The lines of the code, blank where comments, quotations and what only tests see stand.
pub(crate) fn code(text: &str) -> String {
    let mut lines = vec![String::new(); text.lines().count()];
    let tokens: TokenStream = text.parse().unwrap();
    lay(tokens.into_iter().collect(), &mut lines);
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// Lays tokens where they stand.
fn lay(mut tokens: VecDeque<TokenTree>, lines: &mut [String]) {
    while let Some(token) = tokens.pop_front() {
        if let TokenTree::Punct(mark) = &token
            && mark.as_char() == '#'
            && let Some(attribute) = attribute(&tokens)
        {
            // `#![..]`
            if matches!(tokens[0], TokenTree::Punct(_)) {
                tokens.pop_front();
            }
            if attribute.starts_with("doc=") {
                tokens.pop_front();
                continue;
            }
            if ["cfg(test)", "cfg(all(test"]
                .iter()
                .any(|it| attribute.starts_with(it))
            {
                skip_item(&mut tokens);
                continue;
            }
        }
        match token {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                put(open, group.span_open(), lines);
                lay(group.stream().into_iter().collect(), lines);
                put(close, group.span_close(), lines);
            }
            TokenTree::Literal(literal) if !literal.to_string().starts_with(char::is_numeric) => {}
            token => put(&token.to_string(), token.span(), lines),
        }
    }
}

/// The text of the attribute of which these are the tokens after the `#`, without blanks.
fn attribute(tokens: &VecDeque<TokenTree>) -> Option<String> {
    let group = tokens.iter().take(2).find_map(|token| match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket => Some(group),
        _ => None,
    });
    Some(group?.stream().to_string().replace(' ', ""))
}

/// Takes all off up to the end of what has the attributes that these begin with: an item, a field, an arm.
fn skip_item(tokens: &mut VecDeque<TokenTree>) {
    const ITEMS: [&str; 9] = [
        "fn", "impl", "struct", "enum", "trait", "mod", "use", "type", "let",
    ];
    let mut is_item = false;
    while let Some(token) = tokens.pop_front() {
        match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => return,
            TokenTree::Punct(mark) if mark.as_char() == ';' => return,
            TokenTree::Punct(mark) if mark.as_char() == ',' && !is_item => return,
            TokenTree::Ident(word) => is_item |= ITEMS.contains(&word.to_string().as_str()),
            _ => {}
        }
    }
}

fn put(token: &str, span: Span, lines: &mut [String]) {
    let start = span.start();
    let line = &mut lines[start.line - 1];
    let gap = start.column.saturating_sub(line.chars().count());
    *line += &format!("{}{token}", " ".repeat(gap));
}

/// A path of the code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Used {
    pub(crate) line: usize,
    /// As written.
    pub(crate) path: Vec<String>,
    /// The name that an import gives it here; `*` for a glob.
    pub(crate) binds: Option<String>,
    /// Whether it is a `pub use` of any kind.
    pub(crate) passed_on: bool,
}

/// Words, `::` and single characters, each with its line.
fn tokens(code: &str) -> Vec<(usize, &str)> {
    let mut tokens = Vec::new();
    for (index, line) in code.lines().enumerate() {
        let mut rest = line.trim_start();
        while let Some(first) = rest.chars().next() {
            let length = match rest.find(|it| !is_word(it)) {
                Some(0) if rest.starts_with("::") => 2,
                Some(0) => first.len_utf8(),
                end => end.unwrap_or(rest.len()),
            };
            let (token, left) = rest.split_at(length);
            tokens.push((index + 1, token));
            rest = left.trim_start();
        }
    }
    tokens
}

/// All imports, and all other paths of two words or more.
pub(crate) fn paths(code: &str) -> Vec<Used> {
    let tokens = tokens(code);
    let is_name = |at: usize| {
        tokens
            .get(at)
            .is_some_and(|(_, it)| it.starts_with(is_word))
    };
    let is = |at: usize, wanted: &str| tokens.get(at).is_some_and(|(_, it)| *it == wanted);
    // What stands before `::`, if it is not the root of all crates.
    let has_parent = |at: usize| at > 1 && (is_name(at - 2) || is(at - 2, ">"));
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let before = at.checked_sub(1).map_or("", |before| tokens[before].1);
        if is(at, "use") && !is(at + 1, "<") {
            let passed_on = ["pub", ")"].contains(&before);
            at += 1;
            branch(&tokens, &mut at, &[], passed_on, &mut found);
        } else if is_name(at) && before != "." && !(before == "::" && has_parent(at)) {
            let (line, first) = tokens[at];
            let mut path = vec![first.to_owned()];
            while is(at + 1, "::") && is_name(at + 2) {
                path.push(tokens[at + 2].1.to_owned());
                at += 2;
            }
            if path.len() > 1 {
                found.push(Used {
                    line,
                    path,
                    binds: None,
                    passed_on: false,
                });
            }
            at += 1;
        } else {
            at += 1;
        }
    }
    found
}

/// Reads a part of an import.
fn branch(
    tokens: &[(usize, &str)],
    at: &mut usize,
    before: &[String],
    passed_on: bool,
    found: &mut Vec<Used>,
) {
    let is = |at: usize, wanted: &str| tokens.get(at).is_some_and(|(_, it)| *it == wanted);
    if is(*at, "::") {
        *at += 1;
    }
    if is(*at, "{") {
        *at += 1;
        while *at < tokens.len() && !is(*at, "}") {
            branch(tokens, at, before, passed_on, found);
            *at += usize::from(is(*at, ","));
        }
        *at += 1;
        return;
    }
    let Some((line, name)) = tokens.get(*at) else {
        return;
    };
    let mut path = before.to_vec();
    if *name != "self" || before.is_empty() {
        path.push((*name).to_owned());
    }
    *at += 1;
    if is(*at, "::") {
        return branch(tokens, at, &path, passed_on, found);
    }
    let mut binds = path.last().cloned();
    if is(*at, "as") {
        binds = tokens.get(*at + 1).map(|(_, name)| (*name).to_owned());
        *at += 2;
    }
    found.push(Used {
        line: *line,
        path,
        binds,
        passed_on,
    });
}

/// The module path of a file: `src/node/redis/mod.rs` is `node`, `redis`.
pub(crate) fn module_of(path: &str) -> Vec<String> {
    let inside = path.trim_start_matches("src/").trim_end_matches(".rs");
    let inside = inside.trim_end_matches("lib").trim_end_matches("/mod");
    let parts = inside.split('/').filter(|part| !part.is_empty());
    parts.map(str::to_owned).collect()
}

/// Where a path leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A path from the root of this crate.
    Ours(Vec<String>),
    /// The name of another crate, and what follows.
    Theirs(Vec<String>),
}

/// A file of the product, read.
pub(crate) struct Unit {
    pub(crate) code: String,
    pub(crate) used: Vec<Used>,
    module: Vec<String>,
    // Modules and macros.
    children: BTreeSet<String>,
}

impl Unit {
    pub(crate) fn read(path: &str, text: &str) -> Self {
        let code = code(text);
        let children = code
            .lines()
            .filter_map(|line| line.trim().split_once("mod "));
        let children =
            children.filter_map(|(_, name)| name.strip_suffix(';').or(name.strip_suffix(" {")));
        let macros = code.lines().filter_map(|line| {
            line.trim()
                .strip_prefix("macro_rules! ")?
                .strip_suffix(" {")
        });
        Self {
            used: paths(&code),
            module: module_of(path),
            children: children.chain(macros).map(str::to_owned).collect(),
            code,
        }
    }

    /// Where a path leads, if it leads to a module or a crate.
    pub(crate) fn place(&self, used: &Used, crates: &BTreeSet<String>) -> Option<Place> {
        let mut path = used.path.clone();
        if used.binds.is_none()
            && let Some(import) = self
                .used
                .iter()
                .find(|it| it.binds.as_ref() == path.first())
        {
            let rest = path.split_off(1);
            path = import.path.iter().cloned().chain(rest).collect();
        }
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => Some(Place::Ours(rest.to_vec())),
            "self" => Some(Place::Ours([&self.module, rest].concat())),
            "super" => {
                let ups = path.iter().take_while(|part| *part == "super").count();
                let left = self.module.len().saturating_sub(ups);
                Some(Place::Ours([&self.module[..left], &path[ups..]].concat()))
            }
            name if self.children.contains(name) => {
                Some(Place::Ours([&self.module[..], &path].concat()))
            }
            "std" | "core" | "alloc" => Some(Place::Theirs(path)),
            name if crates.contains(name) => Some(Place::Theirs(path)),
            // An import from a name in lower case that is no module of ours: a crate that cargo did not list.
            name if used.binds.is_some() && name.starts_with(char::is_lowercase) => {
                Some(Place::Theirs(path))
            }
            _ => None,
        }
    }

    /// Whether `used` is a re-export of what the file itself does not use.
    fn only_passes_on(&self, used: &Used) -> bool {
        let Some(name) = used.binds.as_deref().filter(|_| used.passed_on) else {
            return false;
        };
        let named = tokens(&self.code)
            .into_iter()
            .filter(|(_, token)| *token == name);
        named.count() < 2
    }
}

/// The files of the product, as far as they are Rust.
pub(crate) fn product(files: &Files) -> BTreeMap<String, Unit> {
    // Modules for tests alone are in files and folders of this name.
    let is_tests = |path: &str| path.ends_with("/tests.rs") || path.contains("/tests/");
    let rust = files
        .iter()
        .filter(|(path, _)| path.starts_with("src/") && path.ends_with(".rs") && !is_tests(path));
    rust.map(|(path, text)| (path.clone(), Unit::read(path, text)))
        .collect()
}

/// One file's use of another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Edge {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) line: usize,
    /// The path from the root of the crate.
    pub(crate) path: String,
}

/// Every use of one file by another. A re-export is not a use: code that uses the name that it gives uses the file that
/// defines it. Nor is `mod name;`.
pub(crate) fn edges(units: &BTreeMap<String, Unit>, crates: &BTreeSet<String>) -> Vec<Edge> {
    let mut edges = BTreeSet::new();
    for (from, unit) in units {
        for used in unit.used.iter().filter(|used| !unit.only_passes_on(used)) {
            if let Some(Place::Ours(path)) = unit.place(used, crates)
                && let Some(to) = file_of(&path, units, crates, 0)
                && to != *from
            {
                let path = path.join("::");
                edges.insert(Edge {
                    from: from.clone(),
                    to,
                    line: used.line,
                    path,
                });
            }
        }
    }
    edges.into_iter().collect()
}

/// The file that defines what a path from the crate's root names; none for a module, which is only a place.
fn file_of(
    path: &[String],
    units: &BTreeMap<String, Unit>,
    crates: &BTreeSet<String>,
    depth: usize,
) -> Option<String> {
    let (file, length) = (0..=path.len()).rev().find_map(|length| {
        let module = path[..length].join("/");
        let shapes = match length {
            0 => vec!["src/lib.rs".to_owned()],
            _ => vec![format!("src/{module}.rs"), format!("src/{module}/mod.rs")],
        };
        let file = shapes.into_iter().find(|file| units.contains_key(file))?;
        Some((file, length))
    })?;
    let (name, rest) = path[length..].split_first()?;
    let unit = &units[&file];
    let import = unit
        .used
        .iter()
        .find(|used| used.binds.as_ref() == Some(name));
    // Re-exports of re-exports of re-exports; nobody writes more.
    match import.and_then(|import| unit.place(import, crates)) {
        Some(Place::Ours(target)) if depth < 8 => {
            file_of(&[&target, rest].concat(), units, crates, depth + 1)
        }
        Some(_) => None,
        None => Some(file),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_quotations_and_tests_are_no_code() {
        let text = "use a::b; // c::d\nconst T: &str = r#\"e::f \"#; /* g::h\n*/ fn i(q: char) { m::n('\"', \"o::p\\\"\") }\n\
            #[cfg(test)]\nmod tests {\n    use x::y;\n}\n#[cfg(test)]\nfn f(\n    a: A,\n) -> x::y {\n    x::y()\n}\nfn g() { j::k() }\n";
        let found = paths(&code(text))
            .into_iter()
            .map(|used| (used.line, used.path.join("::")));
        let found: Vec<_> = found.collect();
        let wanted = [(1, "a::b"), (3, "m::n"), (14, "j::k")];
        assert_eq!(found, wanted.map(|(line, path)| (line, path.to_owned())));
    }

    #[test]
    fn paths_are_followed_through_imports_parents_and_re_exports() {
        let text = |path: &str, text: &str| (path.to_owned(), text.to_owned());
        let files = Files::from([
            text("src/lib.rs", "mod a;\nmod b;\npub use a::X;"),
            text("src/a/mod.rs", "mod x;\npub(crate) use x::{X, Y as Z};\n"),
            text(
                "src/a/x.rs",
                "use crate::b::{self, c};\nfn f() { b::g(); c::h() }",
            ),
            text(
                "src/b.rs",
                "use super::a;\nuse tokio::time;\nfn g() { a::Z::new(); m!(crate::X) }",
            ),
        ]);
        let units = product(&files);
        let edges = edges(&units, &BTreeSet::from(["tokio".to_owned()]));
        let edges = edges
            .iter()
            .map(|it| format!("{}:{} {}", it.from, it.line, it.to));
        let wanted = [
            "src/a/x.rs:1 src/b.rs",
            "src/a/x.rs:2 src/b.rs",
            "src/a/x.rs:2 src/b.rs",
            "src/b.rs:3 src/a/x.rs",
            "src/b.rs:3 src/a/x.rs",
        ];
        assert_eq!(edges.collect::<Vec<_>>(), wanted);
    }
}
