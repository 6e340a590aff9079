//! The guide's list of errors against the code. Every sentence of the code that a user may come to read, every kind of
//! error and every error type must stand in the list, and nothing that the code does not have.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::Visit;

use crate::facts::{is_punct, is_test_attribute, is_test_cfg, item_length};

/// The page with the list.
pub(crate) const LIST: &str = "src/docs/operations.md";

const URN: &str = "urn:tower-redlock:problem:";

/// Sentences that nobody is told: what servers say, what is hashed, and pieces of scripts.
const UNTOLD: [&str; 6] = [
    "The user executing the script can't",
    "max number of clients",
    "the settings of a LockConfig",
    "tower-redlock idempotency fingerprint 1",
    "tower-redlock idempotency scope 2",
    "with args beginning",
];

/// An error type that stays inside: users get its text in a `ConfigError` or in the error of their format.
const INTERNAL: &str = "Refusal";

fn is_untold(text: &str) -> bool {
    text.starts_with("local ") || UNTOLD.contains(&text)
}

/// What users may meet, as the code has it.
#[derive(Default)]
struct Code {
    /// Every text, as [`normal`] makes it, with the file and line of one place.
    texts: BTreeMap<String, String>,
    /// Types that are errors.
    errors: BTreeSet<String>,
    /// Public enums with their variants.
    enums: BTreeMap<String, Vec<String>>,
}

/// Where the page `list` and the files disagree.
pub(crate) fn check<'a>(
    list: &str,
    files: impl Iterator<Item = (&'a String, &'a String)>,
) -> Vec<String> {
    let mut code = Code::default();
    for (path, text) in files {
        code.read(path, text);
    }
    let told: Vec<String> = spans(list).map(normal).collect();
    let mut complaints = code.untold(&told);
    complaints.extend(code.unlisted(list));
    complaints.extend(code.stale(list, &told));
    complaints
}

impl Code {
    fn read(&mut self, path: &str, text: &str) {
        let tokens: TokenStream = text.parse().unwrap_or_else(|error| {
            panic!("{path} is not Rust: {error}");
        });
        self.scan(path, tokens);
        let file = syn::parse_file(text).unwrap_or_else(|error| {
            panic!("{path} is not Rust: {error}");
        });
        self.visit_file(&file);
    }

    /// Notes every text outside of attributes, which docs are too, and tests.
    fn scan(&mut self, path: &str, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            at += 1;
            match token {
                TokenTree::Punct(punct) if is_test_attribute(punct, tokens.get(at)) => {
                    at += item_length(&tokens[at - 1..]) - 1;
                }
                TokenTree::Punct(punct) if punct.as_char() == '#' => {
                    let inner = tokens.get(at).is_some_and(|next| is_punct(next, '!'));
                    at += if inner { 2 } else { 1 };
                }
                TokenTree::Group(group) => self.scan(path, group.stream()),
                TokenTree::Literal(literal) => {
                    if let Ok(text) = syn::parse_str::<syn::LitStr>(&literal.to_string()) {
                        let place = format!("{path}:{}", literal.span().start().line);
                        self.texts.insert(normal(&text.value()), place);
                    }
                }
                _ => {}
            }
        }
    }

    /// Sentences that are not in the list.
    fn untold(&self, told: &[String]) -> Vec<String> {
        let is_sentence = |text: &str| text.matches(' ').count() >= 2;
        let texts = self.texts.iter();
        let missing = texts.filter(|(text, _)| is_sentence(text) && !is_untold(text));
        missing
            .filter(|(text, _)| !told.contains(text))
            .map(|(text, place)| format!("{place}: {LIST} does not tell of ``{text}``"))
            .collect()
    }

    /// Error types, kinds and problems that are not in the list.
    fn unlisted(&self, list: &str) -> Vec<String> {
        let types = self.errors.iter().map(|name| format!("`{name}"));
        let kinds = self
            .kinds()
            .map(|(name, variant)| format!("`{name}::{variant}`"));
        let urns = self.texts.keys().filter_map(|text| text.strip_prefix(URN));
        let problems = urns.filter(|word| !word.is_empty());
        let problems = problems.map(|word| format!("| `{word}` ("));
        let missing = types.chain(kinds).chain(problems);
        let missing = missing.filter(|wanted| !list.contains(wanted));
        missing
            .map(|wanted| format!("{LIST}: does not list {wanted}"))
            .collect()
    }

    /// Variants of public enums that are errors or say of what kind one is.
    fn kinds(&self) -> impl Iterator<Item = (&String, &String)> {
        let enums = self.enums.iter().filter(|(name, _)| {
            self.errors.contains(*name) || name.ends_with("Kind") || name.ends_with("Reason")
        });
        enums.flat_map(|(name, variants)| variants.iter().map(move |variant| (name, variant)))
    }

    /// What the list tells of and the code does not have.
    fn stale(&self, list: &str, told: &[String]) -> Vec<String> {
        let texts = told.iter().filter(|text| !self.texts.contains_key(*text));
        let texts = texts.map(|text| format!("{LIST}: nothing says ``{text}``"));
        let named = list.split('`').filter_map(|span| span.split_once("::"));
        let gone = named.filter(|(name, variant)| {
            let variants = self.enums.get(*name);
            variants.is_some_and(|variants| !variants.iter().any(|known| known == variant))
        });
        let gone = gone
            .map(|(name, variant)| format!("{LIST}: there is no `{name}::{variant}` (any more)"));
        texts.chain(gone).collect()
    }
}

impl<'ast> Visit<'ast> for Code {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        let mut attributes = module.attrs.iter();
        if !attributes.any(|attribute| is_test_cfg(&attribute.meta)) {
            syn::visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let implemented = item
            .trait_
            .as_ref()
            .and_then(|(_, path, _)| path.segments.last());
        if implemented.is_some_and(|name| name.ident == "Error")
            && let syn::Type::Path(path) = &*item.self_ty
            && let Some(name) = path.path.segments.last()
            && name.ident != INTERNAL
        {
            self.errors.insert(name.ident.to_string());
        }
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        if matches!(item.vis, syn::Visibility::Public(_)) {
            let variants = item.variants.iter();
            let variants = variants.map(|variant| variant.ident.to_string());
            self.enums
                .insert(item.ident.to_string(), variants.collect());
        }
    }
}

/// A text with `…` for what is put in, and single spaces.
fn normal(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('{') {
        out.push_str(before);
        rest = match behind.split_once('}') {
            Some((_, after)) => {
                out.push('…');
                after
            }
            None => behind,
        };
    }
    out.push_str(rest);
    out.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What stands between double back-ticks.
fn spans(list: &str) -> impl Iterator<Item = &str> {
    list.split("``").skip(1).step_by(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = r##"
        /// Docs of no interest here.
        #[expect(dead_code, reason = "a reason of no interest")]
        pub enum OrderError { Gone, Late(u8) }
        impl std::error::Error for OrderError {}
        impl fmt::Display for OrderError {
            fn fmt(&self, f: &mut F) { write!(f, "the order {id} is \
                gone") }
        }
        pub enum OrderKind { Plain }
        enum PrivateKind { Secret }
        const U: &str = "urn:tower-redlock:problem:order-gone";
        #[cfg(test)] mod tests { fn f() { g("what a test says") } }
    "##;
    const GOOD: &str = "| `order-gone` (`OrderKind::Plain`) | `OrderError::Gone`, `OrderError::Late` \
        | ``the order … is gone`` |";

    fn complaints(list: &str, code: &str) -> Vec<String> {
        let files = BTreeMap::from([("src/x.rs".to_owned(), code.to_owned())]);
        check(list, files.iter())
    }

    #[test]
    fn a_list_that_agrees_is_accepted() {
        assert_eq!(complaints(GOOD, CODE), [""; 0]);
    }

    #[test]
    fn what_is_new_in_the_code_is_named() {
        for (from, to) in [
            ("Gone, ", "Gone, New, "),
            ("{ Plain }", "{ Plain, New }"),
            ("{id} is", "{id} was"),
            ("problem:order-gone", "problem:order-late"),
            (
                "pub enum OrderKind",
                "fn f() { g(\"a new {thing} happened\") } pub enum OrderKind",
            ),
            ("const U", "impl Error for NewError {} const U"),
        ] {
            let code = CODE.replace(from, to);
            assert_ne!(code, CODE);
            assert!(!complaints(GOOD, &code).is_empty(), "{from} -> {to}");
        }
    }

    #[test]
    fn what_has_gone_from_the_code_is_named() {
        for (from, to) in [
            (", Late(u8)", ""),
            ("{ Plain }", "{ }"),
            ("the order {id} is", "so"),
        ] {
            let code = CODE.replace(from, to);
            assert_ne!(code, CODE);
            assert!(!complaints(GOOD, &code).is_empty(), "{from} -> {to}");
        }
    }

    #[test]
    fn texts_are_compared_without_what_is_put_in() {
        assert_eq!(normal("a {b:?}  c{}.{d}\n e "), "a … c….… e");
        assert_eq!(
            spans("``a `b` `` c `d` ``e``").collect::<Vec<_>>(),
            ["a `b` ", "e"]
        );
    }
}
