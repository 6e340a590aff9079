//! The guide's list of errors against the code: every kind of error stands in it with what to do about it, every error
//! type is named, each quoted text is in the code, and nothing is listed that the code does not have.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::Visit;

use crate::facts::is_test_cfg;

/// The page with the list.
pub(crate) const LIST: &str = "src/docs/operations.md";

/// Enums of the answers of layers; a client meets their kinds as the `type` of a problem.
const ANSWERS: &str = "RejectionKind";

/// What users may meet, as the code has it.
#[derive(Default)]
struct Code {
    /// Types that are errors.
    errors: BTreeSet<String>,
    /// Public structs.
    structs: BTreeSet<String>,
    /// Public enums with their variants, and the type that a variant carries if it is one.
    enums: BTreeMap<String, Vec<(String, Option<String>)>>,
    /// The files, with strings of several lines in one.
    text: String,
}

/// Where the page `list` and the files disagree.
pub(crate) fn check<'a>(
    list: &str,
    files: impl Iterator<Item = (&'a String, &'a String)>,
) -> Vec<String> {
    let mut code = Code::default();
    for (path, text) in files {
        let file = syn::parse_file(text).unwrap_or_else(|error| {
            panic!("{path} is not Rust: {error}");
        });
        code.visit_file(&file);
        code.text += &joined(text);
    }
    let mut complaints = code.without_remedy(list);
    complaints.extend(code.unnamed(list));
    complaints.extend(code.stale(list));
    complaints.extend(code.misquoted(list));
    complaints
}

/// `text` without the breaks that a `\` makes within a string.
fn joined(text: &str) -> String {
    let mut lines = text.split("\\\n");
    let first = lines.next().unwrap_or_default().to_owned();
    lines.fold(first, |joined, line| joined + line.trim_start())
}

impl Code {
    /// Whether `name` is a public enum that is an error or says of what kind one is.
    fn is_kind(&self, name: &str) -> bool {
        let tells = name.ends_with("Kind") || name.ends_with("Reason");
        self.enums.contains_key(name) && (tells || self.errors.contains(name))
    }

    /// Kinds that no row of a table names before a last cell with what to do.
    fn without_remedy(&self, list: &str) -> Vec<String> {
        let rows = list.lines().filter_map(|line| {
            let (told, remedy) = line
                .strip_prefix('|')?
                .trim_end_matches(['|', ' '])
                .rsplit_once(" | ")?;
            (!remedy.trim().is_empty()).then_some(told)
        });
        let rows: Vec<&str> = rows.collect();
        let kinds = self.enums.iter().filter(|(name, _)| self.is_kind(name));
        let kinds = kinds.flat_map(|(name, variants)| variants.iter().map(move |it| (name, it)));
        let missing = kinds.filter_map(|(name, (variant, carried))| {
            let mut wanted = format!("`{name}::{variant}`");
            if name.ends_with(ANSWERS) {
                wanted = format!("`{}` ({wanted})", word(variant));
            }
            // What to do about another error is said there.
            let told = match carried {
                Some(carried) if self.is_kind(carried) => list.contains(&wanted),
                _ => rows.iter().any(|row| row.contains(&wanted)),
            };
            (!told).then_some(wanted)
        });
        missing
            .map(|wanted| format!("{LIST}: no row says what to do about {wanted}"))
            .collect()
    }

    /// Public error types that are not in the list.
    fn unnamed(&self, list: &str) -> Vec<String> {
        let is_public =
            |name: &&String| self.structs.contains(*name) || self.enums.contains_key(*name);
        let names = self.errors.iter().filter(is_public);
        let names = names.map(|name| format!("`{name}"));
        let missing = names.filter(|name| !list.contains(name));
        missing
            .map(|name| format!("{LIST}: does not name {name}`"))
            .collect()
    }

    /// What the list tells of and the code does not have.
    fn stale(&self, list: &str) -> Vec<String> {
        let named = list.split('`').filter_map(|span| span.split_once("::"));
        let gone = named.filter(|(name, variant)| {
            let variants = self.enums.get(*name);
            variants.is_some_and(|variants| !variants.iter().any(|(known, _)| known == variant))
        });
        let complain =
            |(name, variant)| format!("{LIST}: there is no `{name}::{variant}` (any more)");
        gone.map(complain).collect()
    }

    /// Quoted texts, with `…` for what varies, that the code does not have.
    fn misquoted(&self, list: &str) -> Vec<String> {
        let quotes = list.split("``").skip(1).step_by(2);
        let parts = quotes.flat_map(|quote| quote.split(['…', '[', ']']).map(str::trim));
        let gone = parts.filter(|part| !self.text.contains(part));
        gone.map(|part| format!("{LIST}: no text of the code says ``{part}``"))
            .collect()
    }
}

/// `InvalidKey` as clients read it: `invalid-key`.
fn word(variant: &str) -> String {
    let mut word = String::new();
    for letter in variant.chars() {
        if letter.is_uppercase() && !word.is_empty() {
            word.push('-');
        }
        word.extend(letter.to_lowercase());
    }
    word
}

/// The name of the only type in a variant.
fn carried(variant: &syn::Variant) -> Option<String> {
    let mut fields = variant.fields.iter();
    match (fields.next().map(|field| &field.ty), fields.next()) {
        (Some(syn::Type::Path(path)), None) => Some(path.path.segments.last()?.ident.to_string()),
        _ => None,
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
        {
            self.errors.insert(name.ident.to_string());
        }
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        if matches!(item.vis, syn::Visibility::Public(_)) {
            self.structs.insert(item.ident.to_string());
        }
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        if matches!(item.vis, syn::Visibility::Public(_)) {
            let variants = item.variants.iter();
            let variants = variants.map(|variant| (variant.ident.to_string(), carried(variant)));
            self.enums
                .insert(item.ident.to_string(), variants.collect());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = r#"
        pub enum OrderError { Gone, Late(u8) }
        impl std::error::Error for OrderError {}
        pub struct LostError;
        impl<T> Error for LostError<T> {}
        pub enum OrderRejectionKind { InTransit }
        pub enum GoneReason { Sold }
        pub enum RunError { Order(OrderError), Other(u8) }
        impl Error for RunError {}
        pub enum Colour { Red }
        enum PrivateKind { Secret }
        const TEXT: &str = "a sum of {x}, \
            as promised";
        pub(super) struct PrivateError;
        impl Error for PrivateError {}
        #[cfg(test)] mod tests { pub enum TestKind { One } impl Error for TestError {} }
    "#;
    const GOOD: &str = "It may be a [`LostError`](x), and `RunError::Order` is of the kinds below.\n\n| kind | text | what to do |\n|---|---|---|\n\
        | `in-transit` (`OrderRejectionKind::InTransit`) | ``a sum of …, as promised`` | Wait. |\n\
        | `OrderError::Gone`, `OrderError::Late` | | Look for it. |\n\
        | `RunError::Other` | | Look elsewhere. |\n\
        | [`GoneReason`](y): `GoneReason::Sold` | `Colour::Red` | Buy another. |\n";

    fn complaints(list: &str, code: &str) -> Vec<String> {
        let files = BTreeMap::from([("src/x.rs".to_owned(), code.to_owned())]);
        check(list, files.iter())
    }

    #[test]
    fn a_list_that_agrees_is_accepted() {
        assert_eq!(complaints(GOOD, CODE), [""; 0]);
    }

    #[test]
    fn what_the_list_lacks_is_named() {
        for (from, to) in [
            ("`OrderError::Late`", ""),
            ("`GoneReason::Sold`", "`Sold`"),
            // In the wrong words, without what to do, and outside of any table.
            ("`in-transit`", "`transit`"),
            (" | Look for it. |", " | |"),
            ("| [`GoneReason`]", "- [`GoneReason`]"),
            ("| `RunError::Other`", "- `RunError::Other`"),
            ("`RunError::Order`", "It"),
            ("`LostError`", "that"),
            // What has gone from the code.
            ("`Colour::Red`", "`Colour::Blue`"),
            ("as promised", "as was promised"),
        ] {
            let list = GOOD.replace(from, to);
            assert_ne!(list, GOOD);
            assert!(!complaints(&list, CODE).is_empty(), "{from} -> {to}");
        }
    }

    #[test]
    fn what_is_new_in_the_code_is_named() {
        for (from, to) in [
            ("Gone, ", "Gone, New, "),
            ("{ InTransit }", "{ InTransit, New }"),
            ("{ Sold }", "{ Sold, New }"),
            (
                "pub struct LostError",
                "pub struct NewError; impl Error for NewError {} pub struct LostError",
            ),
        ] {
            let code = CODE.replace(from, to);
            assert_ne!(code, CODE);
            assert_eq!(complaints(GOOD, &code).len(), 1, "{from} -> {to}");
        }
    }

    #[test]
    fn what_has_gone_from_the_code_is_named() {
        for (from, to) in [
            (", Late(u8)", ""),
            ("{ Sold }", "{ }"),
            ("{ Red }", "{ Green }"),
        ] {
            let code = CODE.replace(from, to);
            assert_ne!(code, CODE);
            assert_eq!(complaints(GOOD, &code).len(), 1, "{from} -> {to}");
        }
    }
}
