//! How much a reader must hold at once: lines of a file without its tests and docs, lines of a function, columns of a
//! line.

use std::collections::BTreeSet;

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::Visit;

use crate::facts::is_test_cfg;

const FILE: usize = 600;
const FUNCTION: usize = 70;
const COLUMNS: usize = 120;

/// Everything in `text` that is too long.
pub(crate) fn check(path: &str, text: &str) -> Vec<String> {
    let file = match syn::parse_file(text) {
        Ok(file) => file,
        Err(error) => return vec![format!("{path}: is not Rust: {error}")],
    };
    let mut complaints = Vec::new();
    let lines = text.lines().count() - left_out(&file).len();
    if lines > FILE {
        complaints.push(format!(
            "{path}: {lines} lines without its tests and docs, at most {FILE}"
        ));
    }
    complaints.extend(wide_lines(path, text));
    let mut functions = Functions(Vec::new());
    functions.visit_file(&file);
    for (name, line, length) in functions.0 {
        if length > FUNCTION {
            complaints.push(format!(
                "{path}:{line}: `{name}` has {length} lines, at most {FUNCTION}"
            ));
        }
    }
    complaints
}

/// The lines that are too wide and could be broken.
fn wide_lines(path: &str, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut fenced = false;
    for (index, line) in text.lines().enumerate() {
        let bare = line.trim_start();
        let doc = bare
            .strip_prefix("///")
            .or_else(|| bare.strip_prefix("//!"));
        let doc = doc.map_or("", str::trim_start);
        fenced ^= doc.starts_with("```");
        // A row of a table and a command to copy cannot be broken, and a message is not broken for the sake of the
        // margin: it could no longer be searched for. So a line counts without its longest text.
        let whole = doc.starts_with('|') || fenced;
        let texts = line.split('"').skip(1).step_by(2);
        let longest = texts.map(|text| text.chars().count()).max();
        let columns = line.chars().count();
        if columns - longest.unwrap_or(0) > COLUMNS && !whole {
            let line = index + 1;
            complaints.push(format!(
                "{path}:{line}: {columns} columns, at most {COLUMNS}"
            ));
        }
    }
    complaints
}

/// The lines of docs, and of modules that only tests see.
fn left_out(file: &syn::File) -> BTreeSet<usize> {
    let mut left_out = LeftOut(BTreeSet::new());
    left_out.visit_file(file);
    left_out.0
}

struct LeftOut(BTreeSet<usize>);

impl LeftOut {
    fn add(&mut self, span: Span) {
        self.0.extend(span.start().line..=span.end().line);
    }
}

impl<'ast> Visit<'ast> for LeftOut {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        let mut metas = module.attrs.iter().map(|attribute| &attribute.meta);
        if metas.any(is_test_cfg) {
            self.add(module.span());
        } else {
            syn::visit::visit_item_mod(self, module);
        }
    }

    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        if attribute.path().is_ident("doc") {
            self.add(attribute.span());
        }
    }
}

/// Name, line and length of every function that has a body.
struct Functions(Vec<(String, usize, usize)>);

impl Functions {
    fn note(&mut self, signature: &syn::Signature, body: &syn::Block) {
        let braces = body.brace_token.span;
        let length = braces
            .close()
            .end()
            .line
            .saturating_sub(braces.open().start().line + 1);
        let name = &signature.ident;
        self.0
            .push((name.to_string(), name.span().start().line, length));
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.note(&function.sig, &function.block);
        syn::visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.note(&function.sig, &function.block);
        syn::visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(body) = &function.default {
            self.note(&function.sig, body);
        }
        syn::visit::visit_trait_item_fn(self, function);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(text: &str) -> usize {
        check("x.rs", text).len()
    }

    #[test]
    fn a_file_is_measured_without_its_tests_and_docs() {
        let lines = |count: usize| "// line\n".repeat(count);
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", lines(500));
        let docs = "//! Text.\n".repeat(9);
        let item = format!(
            "mod m {{\n{}/** Text.\nText. */\nfn f() {{}}\n}}\n",
            "/// Text.\n".repeat(9)
        );
        assert_eq!(complaints(&lines(FILE)), 0);
        assert_eq!(complaints(&lines(FILE + 1)), 1);
        for (before, behind, counted) in [("", &*tests, 0), (&*docs, "", 0), ("", &*item, 3)] {
            let text = |count| format!("{before}{}{behind}", lines(count));
            assert_eq!(complaints(&text(FILE - counted)), 0, "{before}{behind}");
            assert_eq!(complaints(&text(FILE + 1 - counted)), 1, "{before}{behind}");
        }
    }

    #[test]
    fn a_function_is_measured_wherever_it_stands() {
        let body = |count: usize| format!("{{\n{}}}", "f();\n".repeat(count));
        for (before, after) in [("", ""), ("impl X { async", "}"), ("trait X {", "}")] {
            let text = |count| format!("{before} fn long() {} {after}", body(count));
            assert_eq!(complaints(&text(FUNCTION)), 0, "{before}");
            assert_eq!(complaints(&text(FUNCTION + 1)), 1, "{before}");
        }
    }

    #[test]
    fn a_line_is_measured_unless_it_cannot_be_broken() {
        let long = "x".repeat(COLUMNS);
        let fenced = format!("//! ```text\n//! {long}\n//! ```\n");
        assert_eq!(complaints(&fenced), 0);
        assert_eq!(complaints(&format!("{fenced}//! {long}")), 1);
        assert_eq!(complaints(&format!("//! | {long} |")), 0);
        assert_eq!(complaints(&format!("//{long}")), 1);
        assert_eq!(complaints(&format!("const X: &str = f(\"{long}\");")), 0);
        assert_eq!(complaints(&format!("// \"a\" {long}")), 1);
    }
}
