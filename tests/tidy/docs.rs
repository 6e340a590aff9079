//! What the docs owe the reader: cancel safety of every async method, and the truth about the manifest.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::Visit;

use crate::facts::is_test_cfg;
use crate::tree::Package;

/// Every public async function that does not say what becomes of it when it is dropped half-way.
pub(crate) fn cancel_safety(path: &str, text: &str) -> Vec<String> {
    let file = match syn::parse_file(text) {
        Ok(file) => file,
        Err(error) => return vec![format!("{path}: is not Rust: {error}")],
    };
    let mut functions = AsyncFunctions(Vec::new());
    functions.visit_file(&file);
    let name = |(line, name)| format!("{path}:{line}: `{name}` has no section `# Cancel safety`");
    functions.0.into_iter().map(name).collect()
}

/// Line and name of what lacks the section.
struct AsyncFunctions(Vec<(usize, String)>);

impl AsyncFunctions {
    fn judge(&mut self, attributes: &[syn::Attribute], public: bool, signature: &syn::Signature) {
        let documented = attributes.iter().any(|attribute| match &attribute.meta {
            syn::Meta::NameValue(pair) if pair.path.is_ident("doc") => is_heading(&pair.value),
            _ => false,
        });
        if public && signature.asyncness.is_some() && !documented {
            let name = &signature.ident;
            self.0.push((name.span().start().line, name.to_string()));
        }
    }
}

fn is_heading(doc: &syn::Expr) -> bool {
    let syn::Expr::Lit(syn::ExprLit {
        lit: syn::Lit::Str(text),
        ..
    }) = doc
    else {
        return false;
    };
    text.value()
        .lines()
        .any(|line| line.trim() == "# Cancel safety")
}

fn is_public(visibility: &syn::Visibility) -> bool {
    matches!(visibility, syn::Visibility::Public(_))
}

impl<'ast> Visit<'ast> for AsyncFunctions {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !module
            .attrs
            .iter()
            .any(|attribute| is_test_cfg(&attribute.meta))
        {
            syn::visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.judge(&function.attrs, is_public(&function.vis), &function.sig);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.judge(&function.attrs, is_public(&function.vis), &function.sig);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        for member in &item.items {
            if let syn::TraitItem::Fn(function) = member {
                self.judge(&function.attrs, is_public(&item.vis), &function.sig);
            }
        }
    }
}

/// Where `text` (Markdown) and the manifest disagree. The text must have both an install snippet and a table.
pub(crate) fn manifest(path: &str, text: &str, package: &Package) -> Vec<String> {
    let mut complaints = versions(path, text, package);
    if !text.lines().any(|line| snippet_version(line).is_some()) {
        complaints.push(format!(
            "{path}: no line `tower-redlock = \"..\"` says how to install it"
        ));
    }
    match feature_table(text) {
        Some(table) => complaints.extend(features(path, &table, package)),
        None => complaints.push(format!(
            "{path}: no feature table under a heading with `features`"
        )),
    }
    complaints
}

/// As [`manifest`], for the docs of the crate itself, which may leave either out.
pub(crate) fn crate_docs(text: &str, package: &Package) -> Vec<String> {
    let docs = text.lines().filter_map(|line| line.strip_prefix("//!"));
    let docs: Vec<&str> = docs
        .map(|line| line.strip_prefix(' ').unwrap_or(line))
        .collect();
    let docs = docs.join("\n");
    let mut complaints = versions("src/lib.rs", &docs, package);
    if let Some(table) = feature_table(&docs) {
        complaints.extend(features("src/lib.rs", &table, package));
    }
    complaints
}

fn versions(path: &str, text: &str, package: &Package) -> Vec<String> {
    let minor = package
        .version
        .rsplit_once('.')
        .map_or("", |(minor, _)| minor);
    let told = text.lines().filter_map(snippet_version);
    told.filter(|told| *told != package.version && *told != minor)
        .map(|told| {
            format!(
                "{path}: installs version {told}; this is {}",
                package.version
            )
        })
        .collect()
}

/// The version in a line such as `tower-redlock = "0.1"` or `tower-redlock = { version = "0.1", .. }`.
fn snippet_version(line: &str) -> Option<&str> {
    let value = line
        .trim_start()
        .strip_prefix("tower-redlock")?
        .trim_start()
        .strip_prefix('=')?;
    let value = match value.split_once("version") {
        Some((_, version)) => version,
        None => value,
    };
    value.split('"').nth(1)
}

/// Feature name to whether the table calls it a default.
fn feature_table(text: &str) -> Option<BTreeMap<String, bool>> {
    let heading = |line: &&str| line.starts_with('#') && line.to_lowercase().contains("features");
    let section = text.lines().skip_while(|line| !heading(line)).skip(1);
    let rows = section
        .take_while(|line| !line.starts_with('#'))
        .skip_while(|line| !line.starts_with('|'))
        .take_while(|line| line.starts_with('|'));
    let named = rows.filter_map(|row| {
        let mut cells = row.trim_matches('|').split('|').map(str::trim);
        let name = cells.next()?.strip_prefix('`')?.strip_suffix('`')?;
        Some((name.to_owned(), cells.next()? == "yes"))
    });
    let table: BTreeMap<_, _> = named.collect();
    (!table.is_empty()).then_some(table)
}

fn features(path: &str, table: &BTreeMap<String, bool>, package: &Package) -> Vec<String> {
    let no_defaults = Vec::new();
    let defaults = package.features.get("default").unwrap_or(&no_defaults);
    let real = package.features.keys().filter(|name| *name != "default");
    let names: BTreeSet<&String> = real.chain(table.keys()).collect();
    let judge = |name: &String| match (package.features.contains_key(name), table.get(name)) {
        (false, _) => Some("is in the table but not in the manifest"),
        (true, None) => Some("is in the manifest but not in the table"),
        (true, Some(told)) if *told != defaults.contains(name) => {
            Some("is wrongly (not) a default")
        }
        _ => None,
    };
    let complain = |name| Some(format!("{path}: the feature `{name}` {}", judge(name)?));
    names.into_iter().filter_map(complain).collect()
}

/// Texts that do not name the oldest compiler the manifest names.
pub(crate) fn msrv(files: &BTreeMap<String, String>, package: &Package) -> Vec<String> {
    let oldest = package.rust_version.trim_end_matches(".0");
    let places = [
        ("README.md", format!("Rust {oldest}")),
        ("clippy.toml", format!("msrv = \"{oldest}\"")),
    ];
    let missing = places.into_iter().filter(|(path, wanted)| {
        !files
            .get(*path)
            .is_some_and(|text| text.contains(wanted.as_str()))
    });
    missing
        .map(|(path, wanted)| format!("{path}: does not say `{wanted}`"))
        .collect()
}

/// The only page with the rule for a server's user, and the test that tries that rule on servers.
const ACL_RULE: (&str, &str) = ("src/docs/nodes.md", "tests/redis_node/rights.rs");

/// Where the rule for a server's user is missing, stands again, or is not the one that is tried. Other places link.
pub(crate) fn one_acl_rule(files: &BTreeMap<String, String>) -> Vec<String> {
    let (page, test) = ACL_RULE;
    let mut complaints = Vec::new();
    for (path, text) in files {
        let lines = text
            .lines()
            .map(|line| line.trim_start_matches(['/', '!', ' ']));
        let rules = lines
            .filter(|line| line.starts_with("ACL SETUSER "))
            .count();
        let is_doc = path.ends_with(".md") || path.starts_with("src/");
        let wanted = usize::from(path == page);
        if is_doc && rules != wanted {
            complaints.push(format!("{path}: has {rules} rules for the server's user and should have {wanted}; {page} has it"));
        }
    }
    let file = page.rsplit('/').next().unwrap_or(page);
    let includes = format!("{file}\")");
    if !files
        .get(test)
        .is_some_and(|text| text.contains("include_str!(") && text.contains(&includes))
    {
        complaints.push(format!("{test}: does not try the rule that {page} has"));
    }
    complaints
}

/// How many lines a first page may have.
const FIRST_PAGE: usize = 150;

/// A first page that is longer than anybody reads.
pub(crate) fn first_page(path: &str, text: &str) -> Vec<String> {
    let lines = text.lines().count();
    let too_long = lines > FIRST_PAGE;
    let complaint =
        format!("{path}: {lines} lines, at most {FIRST_PAGE}; the guide has room for more");
    too_long.then_some(complaint).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package() -> Package {
        let features = [("default", vec!["a"]), ("a", vec![]), ("b", vec!["a"])];
        let own = |needs: Vec<&str>| needs.into_iter().map(str::to_owned).collect();
        Package {
            version: "0.3.1".to_owned(),
            rust_version: "1.88".to_owned(),
            features: features
                .map(|(name, needs)| (name.to_owned(), own(needs)))
                .into(),
            ..Package::default()
        }
    }

    #[test]
    fn async_functions_without_the_section_are_named() {
        for text in [
            "pub async fn f() {}",
            "/// Text.\npub async fn f() {}",
            "impl X { pub async fn f(&self) {} }",
            "pub trait T { async fn f(&self); }",
            "mod m { /** # Panics */ pub async fn f() {} }",
        ] {
            assert_eq!(cancel_safety("x.rs", text).len(), 1, "{text}");
        }
        for text in [
            "async fn f() {}",
            "pub fn f() {}",
            "/// Text.\n///\n/// # Cancel safety\n///\n/// Text.\npub async fn f() {}",
            "#[cfg(test)] mod tests { pub async fn f() {} }",
        ] {
            assert_eq!(cancel_safety("x.rs", text), [""; 0], "{text}");
        }
    }

    const GOOD: &str = "tower-redlock = \"0.3\"\n## Features\n\n| feature | default | adds |\n|---|---|---|\n\
        | `a` | yes | x |\n| `b` | no | y |\n\ntext";

    #[test]
    fn a_text_that_agrees_is_accepted() {
        assert_eq!(manifest("R", GOOD, &package()), [""; 0]);
        let docs: String = GOOD.lines().map(|line| format!("//! {line}\n")).collect();
        assert_eq!(crate_docs(&docs, &package()), [""; 0]);
        assert_eq!(crate_docs("//! A crate.", &package()), [""; 0]);
    }

    #[test]
    fn each_disagreement_is_named() {
        for (from, to) in [
            ("0.3", "0.2"),
            ("\"0.3\"", "{ version = \"0.2\", features = [\"b\"] }"),
            ("tower-redlock", "other"),
            ("## Features", "## Parts"),
            ("| `b` | no | y |\n", ""),
            ("`b`", "`c`"),
            ("| `b` | no", "| `b` | yes"),
            ("| `a` | yes", "| `a` | no"),
        ] {
            let text = GOOD.replace(from, to);
            assert!(
                !manifest("R", &text, &package()).is_empty(),
                "{from} -> {to}"
            );
        }
        let docs = "//! tower-redlock = \"0.2\"\n//! # Features\n//! | `a` | yes |\n";
        assert_eq!(crate_docs(docs, &package()).len(), 2);
    }

    #[test]
    fn the_oldest_compiler_is_named_everywhere() {
        let files = |readme: &str, clippy: &str| {
            BTreeMap::from(
                [("README.md", readme), ("clippy.toml", clippy)]
                    .map(|(path, text)| (path.to_owned(), text.to_owned())),
            )
        };
        let good = files("Rust 1.88", "msrv = \"1.88\"");
        assert_eq!(msrv(&good, &package()), [""; 0]);
        assert_eq!(
            msrv(&files("Rust 1.85", "msrv = \"1.87\""), &package()).len(),
            2
        );
    }

    #[test]
    fn the_rule_for_the_server_stands_once_and_is_tried() {
        const RULE: &str = "```text\nACL SETUSER locks +get\n```";
        const TRIES: &str = "fn f() { include_str!(\"../../src/docs/nodes.md\") }";
        let found = |page: &str, readme: &str, code: &str, test: &str| {
            let texts = [
                (ACL_RULE.0, page),
                ("README.md", readme),
                ("src/x.rs", code),
                (ACL_RULE.1, test),
            ];
            one_acl_rule(
                &texts
                    .map(|(path, text)| (path.to_owned(), text.to_owned()))
                    .into(),
            )
        };
        assert_eq!(found(RULE, "", "", TRIES), [""; 0]);
        for (page, readme, code, test) in [
            ("", "", "", TRIES),
            (&*format!("{RULE}\n{RULE}"), "", "", TRIES),
            (RULE, RULE, "", TRIES),
            (RULE, "", "//! ACL SETUSER locks +get", TRIES),
            (RULE, "", "", "fn f() {}"),
        ] {
            assert_eq!(
                found(page, readme, code, test).len(),
                1,
                "{page} {readme} {code} {test}"
            );
        }
    }

    #[test]
    fn a_first_page_is_short() {
        assert_eq!(first_page("R", &"line\n".repeat(FIRST_PAGE)), [""; 0]);
        assert_eq!(first_page("R", &"line\n".repeat(FIRST_PAGE + 1)).len(), 1);
    }
}
