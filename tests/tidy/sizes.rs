//! How much a reader must hold at once: lines of a file, lines of a function, columns of a line.

use syn::spanned::Spanned;
use syn::visit::Visit;

use crate::facts::is_test_cfg;

const FILE: usize = 400;
const FUNCTION: usize = 70;
const COLUMNS: usize = 120;

/// Everything in `text` that is too long.
pub(crate) fn check(path: &str, text: &str) -> Vec<String> {
    let file = match syn::parse_file(text) {
        Ok(file) => file,
        Err(error) => return vec![format!("{path}: is not Rust: {error}")],
    };
    let mut complaints = Vec::new();
    let lines = text.lines().count() - test_lines(&file);
    if lines > FILE {
        complaints.push(format!(
            "{path}: {lines} lines without its tests, at most {FILE}"
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

/// The lines of the modules that only tests see.
fn test_lines(file: &syn::File) -> usize {
    let modules = file.items.iter().filter_map(|item| match item {
        syn::Item::Mod(module) => Some(module),
        _ => None,
    });
    modules
        .filter(|module| {
            module
                .attrs
                .iter()
                .any(|attribute| is_test_cfg(&attribute.meta))
        })
        .map(|module| module.span())
        .map(|span| span.end().line - span.start().line + 1)
        .sum()
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
    fn a_file_is_measured_without_its_tests() {
        let lines = |count: usize| "// line\n".repeat(count);
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", lines(500));
        assert_eq!(complaints(&lines(FILE)), 0);
        assert_eq!(complaints(&lines(FILE + 1)), 1);
        assert_eq!(complaints(&(lines(FILE) + &tests)), 0);
        assert_eq!(complaints(&(lines(FILE + 1) + &tests)), 1);
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
