//! The docs against the code and the manifest.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{Files, Unit};

/// Every public async function that does not say what becomes of it when it is dropped half-way.
pub(crate) fn cancel_safety(path: &str, text: &str, unit: &Unit) -> Vec<String> {
    let texts: Vec<&str> = text.lines().collect();
    let mut complaints = Vec::new();
    for (index, line) in unit.code.lines().enumerate() {
        if line.trim_start().starts_with("pub async fn ") {
            let docs = texts[..index].iter().rev().map(|line| line.trim());
            let mut docs = docs.take_while(|line| line.starts_with("///") || line.starts_with('#'));
            if !docs.any(|line| line == "/// # Cancel safety") {
                let line = index + 1;
                complaints.push(format!("{path}:{line}: no section `# Cancel safety`"));
            }
        }
    }
    complaints
}

/// Where the README and the docs of the crate disagree with the manifest: versions, features, the oldest compiler.
pub(crate) fn manifest(files: &Files, package: &serde_json::Value) -> Vec<String> {
    let text = |field: &str| package[field].as_str().unwrap();
    let oldest = text("rust_version").trim_end_matches(".0");
    let (minor, _) = text("version").rsplit_once('.').unwrap();
    let mut features = package["features"].as_object().unwrap().clone();
    let defaults = features.remove("default").unwrap();
    let rows = features.keys().map(|name| {
        let is_default = defaults.as_array().unwrap().contains(&name.as_str().into());
        let default = if is_default { "yes" } else { "no" };
        ("README.md", format!("| `{name}` | {default} |"))
    });
    let wanted = [
        ("README.md", format!("Rust {oldest}")),
        ("README.md", format!("tower-redlock = \"{minor}\"")),
    ];
    let wanted = wanted.into_iter().chain(rows);
    let missing = wanted.filter(|(path, wanted)| !files[*path].contains(wanted.as_str()));
    let missing = missing.map(|(path, wanted)| format!("{path}: lacks `{wanted}`"));
    let others = doc_lines(files).filter_map(|(path, line)| {
        let value = line.strip_prefix("tower-redlock = ")?;
        let (_, value) = value.rsplit_once("version = ").unwrap_or(("", value));
        let is_other = value.split('"').nth(1)? != minor;
        is_other.then(|| format!("{path}: installs another version than {minor}: {line}"))
    });
    missing.chain(others).collect()
}

/// The lines of what people read, with the path of their file.
fn doc_lines(files: &Files) -> impl Iterator<Item = (&str, &str)> {
    let docs = files
        .iter()
        .filter(|(path, _)| path.ends_with(".md") || path.starts_with("src/"));
    docs.flat_map(|(path, text)| {
        let lines = text
            .lines()
            .map(|line| line.trim_start_matches(['/', '!', ' ']));
        lines.map(move |line| (path.as_str(), line))
    })
}

/// The only page with the rule for a server's user, and the test that tries that rule on servers.
const ACL_RULE: (&str, &str) = ("src/docs/several_servers.md", "tests/redis_node/rights.rs");

/// Where the rule for a server's user is missing, stands again, or is not the one that is tried. Other places link.
pub(crate) fn one_acl_rule(files: &Files) -> Vec<String> {
    let (page, test) = ACL_RULE;
    let rules = doc_lines(files).filter(|(_, line)| line.starts_with("ACL SETUSER "));
    let places: Vec<&str> = rules.map(|(path, _)| path).collect();
    let mut complaints = Vec::new();
    if places != [page] {
        complaints.push(format!(
            "the rule for the server's user is in {places:?}, and not once in {page}"
        ));
    }
    if !files[test].contains("several_servers.md\")") {
        complaints.push(format!("{test}: does not try the rule that {page} has"));
    }
    complaints
}

/// The page that says what to do about each error.
pub(crate) const ERRORS: &str = "src/docs/errors.md";

/// What users may meet, as the code has it.
#[derive(Default)]
struct Declared<'a> {
    /// Types that are errors.
    errors: BTreeSet<&'a str>,
    /// Public types.
    public: BTreeSet<&'a str>,
    /// Public enums with their variants, and what these carry.
    enums: BTreeMap<&'a str, Vec<&'a str>>,
}

impl<'a> Declared<'a> {
    fn read(&mut self, code: &'a str) {
        let mut open: Option<(&str, usize)> = None;
        for line in code.lines() {
            let (indent, line) = (line.len() - line.trim_start().len(), line.trim());
            let name = |rest: &'static str| line.strip_prefix(rest).map(word);
            if let Some(name) = name("pub enum ") {
                open = Some((name, indent));
                self.enums.entry(name).or_default();
            }
            self.public
                .extend(name("pub struct ").or(name("pub enum ")));
            if let Some((_, of)) = line
                .split_once("Error for ")
                .filter(|_| line.starts_with("impl"))
            {
                self.errors.insert(word(of));
            }
            match open {
                Some((_, level)) if indent <= level && line.starts_with('}') => open = None,
                Some((name, level))
                    if indent == level + 4 && line.starts_with(char::is_uppercase) =>
                {
                    let variant = line.trim_end_matches([',', '{', ' ']);
                    self.enums.entry(name).or_default().push(variant);
                }
                _ => {}
            }
        }
    }

    /// Whether `name` is a public enum that is an error or says of what kind one is.
    fn is_kind(&self, name: &str) -> bool {
        let tells = name.ends_with("Kind") || name.ends_with("Reason");
        self.enums.contains_key(name) && (tells || self.errors.contains(name))
    }

    /// Kinds that no row of a table names before a last cell with what to do.
    fn without_remedy(&self, page: &str) -> Vec<String> {
        let rows = page.lines().filter(|line| line.starts_with('|'));
        let rows = rows.filter_map(|row| row.trim_end_matches(['|', ' ']).rsplit_once(" | "));
        let rows = rows.filter(|(_, remedy)| !remedy.trim().is_empty());
        let rows: Vec<&str> = rows.map(|(told, _)| told).collect();
        let kinds = self.enums.iter().filter(|(name, _)| self.is_kind(name));
        let kinds = kinds.flat_map(|(name, variants)| variants.iter().map(move |it| (*name, *it)));
        let missing = kinds.filter_map(|(name, variant)| {
            let carried = variant.split_once('(');
            let carried = carried.map(|(_, carried)| carried.trim_end_matches(')'));
            let mut wanted = format!("`{name}::{}`", word(variant));
            if name.ends_with("RejectionKind") {
                // A client meets it as the `type` of a problem.
                wanted = format!("`{}` ({wanted})", kebab(word(variant)));
            }
            // What to do about another error is said there.
            let told = match carried.is_some_and(|carried| self.is_kind(carried)) {
                true => page.contains(&wanted),
                false => rows.iter().any(|row| row.contains(&wanted)),
            };
            (!told).then(|| format!("{ERRORS}: no row says what to do about {wanted}"))
        });
        missing.collect()
    }
}

/// Where the page of errors and the code disagree: every kind of error stands in a row with what to do about it, every
/// error type is named, each quoted text (with `…` for what varies) is in the code, and nothing is listed that the code
/// does not have.
pub(crate) fn errors(page: &str, units: &BTreeMap<String, Unit>, files: &Files) -> Vec<String> {
    let mut declared = Declared::default();
    units.values().for_each(|unit| declared.read(&unit.code));
    let mut complaints = declared.without_remedy(page);
    let unnamed = declared.errors.intersection(&declared.public);
    let unnamed = unnamed.filter(|name| !page.contains(&format!("`{name}")));
    complaints.extend(unnamed.map(|name| format!("{ERRORS}: does not name `{name}`")));
    let texts: Vec<String> = units.keys().map(|path| joined(&files[path])).collect();
    let quotes = page.split("``").skip(1).step_by(2);
    for part in quotes.flat_map(|quote| quote.split(['…', '[', ']']).map(str::trim)) {
        if !texts.iter().any(|text| text.contains(part)) {
            complaints.push(format!("{ERRORS}: no text of the code says ``{part}``"));
        }
    }
    for (name, variant) in page.split('`').filter_map(|span| span.split_once("::")) {
        let variants = declared.enums.get(name);
        if variants.is_some_and(|variants| !variants.iter().any(|it| word(it) == variant)) {
            complaints.push(format!(
                "{ERRORS}: there is no `{name}::{variant}` (any more)"
            ));
        }
    }
    complaints
}

/// The kinds of a node's errors whose texts the page lists, and what stands in the code before each such text.
const NODE_ERRORS: [(&str, &[&str]); 3] = [
    (
        "Unavailable",
        &["unavailable(", "down(", "NodeErrorKind::Unavailable,"],
    ),
    ("Interrupted", &["NodeErrorKind::Interrupted,"]),
    ("TimedOut", &["NodeErrorKind::TimedOut,"]),
];

/// Where the rows of a node's errors and the code disagree: each text of a kind is quoted, in a row of that kind, and
/// nothing else is quoted there.
pub(crate) fn node_errors(
    page: &str,
    units: &BTreeMap<String, Unit>,
    files: &Files,
) -> Vec<String> {
    let mut complaints = Vec::new();
    let texts: Vec<String> = units
        .iter()
        .map(|(path, unit)| code_with_texts(&unit.code, &files[path]))
        .collect();
    for (kind, marks) in NODE_ERRORS {
        let told = texts.iter().flat_map(|text| told_behind(marks, text));
        let told: BTreeSet<&str> = told.collect();
        let listed = quoted_in_rows(page, kind);
        let is_listed = |text: &&&str| listed.iter().any(|quote| text.contains(quote));
        let missing = told.iter().filter(|text| !is_listed(text));
        complaints.extend(missing.map(|text| format!("{ERRORS}: `{kind}` lacks {text:?}")));
        let stale = listed
            .iter()
            .filter(|quote| !told.iter().any(|text| text.contains(**quote)));
        complaints.extend(stale.map(|quote| format!("{ERRORS}: no `{kind}` says ``{quote}``")));
    }
    complaints
}

/// What the rows of `kind` quote. A row without a kind belongs to the one above.
fn quoted_in_rows<'a>(page: &'a str, kind: &str) -> Vec<&'a str> {
    let mut current = "";
    let mut quoted = Vec::new();
    for line in page.lines() {
        let Some((first, rest)) = line.strip_prefix('|').and_then(|row| row.split_once(" | "))
        else {
            current = "";
            continue;
        };
        if let Some((_, named)) = first.split_once("NodeErrorKind::") {
            current = word(named);
        }
        if current == kind {
            quoted.extend(rest.split("``").skip(1).step_by(2));
        }
    }
    quoted
}

/// The texts that follow the marks in `code`, themselves or by the name of a constant; other values have none.
fn told_behind<'a>(marks: &[&str], code: &'a str) -> Vec<&'a str> {
    let text_of = |rest: &'a str| {
        let literal = rest
            .trim_start()
            .trim_start_matches("format!(")
            .trim_start();
        match literal.strip_prefix('"') {
            Some(literal) => literal.split('"').next(),
            None => {
                let (_, set) = code.split_once(&format!("const {}: &str = \"", word(literal)))?;
                set.split('"').next()
            }
        }
    };
    let places = marks.iter().flat_map(|mark| {
        let of_word =
            |at: &usize| !code[..*at].ends_with(|it: char| it.is_alphanumeric() || it == '_');
        let found = code.match_indices(mark).map(|(at, _)| at).filter(of_word);
        found.map(|at| at + mark.len()).collect::<Vec<_>>()
    });
    places.filter_map(|at| text_of(&code[at..])).collect()
}

/// The lines of `text` that have code, without the breaks within strings.
fn code_with_texts(code: &str, text: &str) -> String {
    let lines = code.lines().zip(text.lines());
    // A string of its own line is blank in `code`; a comment is, too.
    let kept =
        lines.filter(|(bare, line)| !bare.trim().is_empty() || line.trim_start().starts_with('"'));
    kept.map(|(_, line)| format!("{line}\n")).collect()
}

/// `text` without the breaks that a `\` makes within a string.
fn joined(text: &str) -> String {
    let mut lines = text.split("\\\n");
    let first = lines.next().unwrap_or_default().to_owned();
    lines.fold(first, |joined, line| joined + line.trim_start())
}

/// The word that a text begins with.
fn word(text: &str) -> &str {
    text.split(|it: char| !it.is_alphanumeric() && it != '_')
        .next()
        .unwrap_or_default()
}

/// `InvalidKey` as clients read it: `invalid-key`.
fn kebab(variant: &str) -> String {
    let mut kebab = String::new();
    for letter in variant.chars() {
        if letter.is_uppercase() && !kebab.is_empty() {
            kebab.push('-');
        }
        kebab.extend(letter.to_lowercase());
    }
    kebab
}

/// The page with all events and spans, and the one file that tells them.
pub(crate) const EVENTS: (&str, &str) = ("src/docs/operating.md", "src/trace.rs");

const LEVELS: [&str; 7] = [
    "error",
    "warn",
    "info",
    "debug",
    "trace",
    "info span",
    "debug span",
];

/// The modules that users know of those which tell something: their filters name them.
const TARGETS: [&str; 4] = [
    "tower_redlock::idempotency",
    "tower_redlock::lock",
    "tower_redlock::layer",
    "tower_redlock::node",
];

/// Level, text and fields.
type Event = (String, String, BTreeSet<String>);

/// Where the page of events and the code disagree: level, text and fields of each.
pub(crate) fn events(page: &str, code: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut told = BTreeSet::new();
    for (level, arguments) in calls(code) {
        let (target, event) = event(level, arguments);
        if !TARGETS.contains(&target) {
            complaints.push(format!(
                "{}: {event:?} has the target {target:?}, none of {TARGETS:?}",
                EVENTS.1
            ));
        }
        told.insert(event);
    }
    let listed: BTreeSet<Event> = page.lines().filter_map(row).collect();
    let missing = told.difference(&listed);
    complaints.extend(missing.map(|event| format!("{}: does not list {event:?}", EVENTS.0)));
    let stale = listed.difference(&told);
    complaints
        .extend(stale.map(|event| format!("{}: lists {event:?}, which nothing tells", EVENTS.0)));
    complaints
}

/// Level and arguments of each `tracing::level!(..)`.
pub(crate) fn calls(code: &str) -> Vec<(String, &str)> {
    let mark = "tracing::";
    let calls = code.match_indices(mark).filter_map(|(at, _)| {
        let rest = &code[at + mark.len()..];
        let (level, rest) = rest.split_once("!(")?;
        let level = level.replace('_', " ");
        if !LEVELS.contains(&level.as_str()) {
            return None;
        }
        let (mut depth, mut quoted) = (1, false);
        let end = rest.find(|it| {
            quoted ^= it == '"';
            depth += match it {
                '(' if !quoted => 1,
                ')' if !quoted => -1,
                _ => 0,
            };
            depth == 0
        })?;
        Some((level, &rest[..end]))
    });
    calls.collect()
}

/// The target and the event of its arguments: fields, with or without `?` or `%`, and the text.
fn event(level: String, arguments: &str) -> (&str, Event) {
    let (mut target, mut text, mut fields) = ("", "", BTreeSet::new());
    let mut quoted = false;
    let arguments = arguments.split(|it| {
        quoted ^= it == '"';
        it == ',' && !quoted
    });
    for argument in arguments.map(str::trim) {
        if let Some(name) = argument.strip_prefix("target: ") {
            target = name.trim_matches('"');
        } else if argument.starts_with('"') {
            text = argument.trim_matches('"');
        } else if !argument.is_empty() {
            fields.insert(word(argument.trim_start_matches(['?', '%'])).to_owned());
        }
    }
    (target, (level, text.to_owned(), fields))
}

/// A row ``| level | ``text`` | `field`, `field` | .. |``.
fn row(line: &str) -> Option<Event> {
    let mut cells = line.strip_prefix('|')?.split(" | ").map(str::trim);
    let level = cells.next().filter(|level| LEVELS.contains(level))?;
    let text = cells.next()?.strip_prefix("``")?.strip_suffix("``")?;
    let fields = cells.next()?.split('`').skip(1).step_by(2);
    let fields = fields.map(str::to_owned).collect();
    Some((level.to_owned(), text.to_owned(), fields))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn async_functions_without_the_section_are_named() {
        let of = |text: &str| cancel_safety("x.rs", text, &Unit::read("src/x.rs", text)).len();
        assert_eq!(of("/// Text.\n#[must_use]\npub async fn f() {}"), 1);
        assert_eq!(
            of("/// # Cancel safety\n///\n/// Text.\n#[must_use]\npub async fn f() {}"),
            0
        );
    }

    #[test]
    fn each_error_is_to_have_a_row() {
        let code = "pub enum OrderError {\n    Gone,\n    Late(u8),\n}\nimpl std::error::Error for OrderError {}\n\
            pub struct LostError;\nimpl<T> Error for LostError<T> {}\npub enum OrderRejectionKind {\n    InTransit,\n}\n\
            pub enum RunError {\n    Order(OrderError),\n}\nimpl Error for RunError {}\n\
            const TEXT: &str = \"a sum of {x}, \\\n    as promised\";";
        let page = "`LostError`, `RunError::Order`\n| e | do |\n|---|---|\n| `OrderError::Gone` ``a sum of …, as promised`` | wait |\n\
            | `OrderError::Late` | hurry |\n| `in-transit` (`OrderRejectionKind::InTransit`) | ask |\n";
        let of = |page: &str, code: &str| {
            let files = Files::from([("src/x.rs".to_owned(), code.to_owned())]);
            let units = BTreeMap::from([("src/x.rs".to_owned(), Unit::read("src/x.rs", code))]);
            errors(page, &units, &files).len()
        };
        assert_eq!(of(page, code), 0);
        for (from, to) in [
            ("| wait |", "|  |"),
            ("`LostError`", ""),
            ("in-transit", "transit"),
            ("as promised", "promised"),
            ("hurry |\n", "hurry |\n`OrderError::Old`\n"),
        ] {
            assert_eq!(of(&page.replace(from, to), code), 1, "{from} -> {to}");
        }
        assert_eq!(
            of(page, &code.replace("    Gone,", "    Gone,\n    New,")),
            1
        );
    }

    #[test]
    fn each_text_of_a_node_is_to_have_a_row() {
        let code = "fn f() {\n    unavailable(\"it is gone\");\n    down(format!(\n        \"no road: {x}\"\n    ));\n    down(LOST);\n\
            \u{20}   NodeError::new(NodeErrorKind::TimedOut, \"no answer within\");\n    breakdown(\"x\");\n}\n\
            const LOST: &str = \"it was lost\";\n#[cfg(test)]\nmod tests {\n    fn g() {\n        down(\"y\");\n    }\n}\n";
        let page = "| k | says | do |\n|---|---|---|\n| `NodeErrorKind::Unavailable` | ``is gone``, ``no road`` | a |\n\
            | | ``was lost`` | b |\n| `NodeErrorKind::Interrupted` | | c |\n| `NodeErrorKind::TimedOut` | ``no answer`` | d |";
        let of = |page: &str| {
            let files = Files::from([("src/x.rs".to_owned(), code.to_owned())]);
            let units = BTreeMap::from([("src/x.rs".to_owned(), Unit::read("src/x.rs", code))]);
            node_errors(page, &units, &files)
        };
        assert_eq!(of(page), [""; 0]);
        for (from, to, count) in [
            ("is gone", "is away", 2),
            (", ``no road``", "", 1),
            ("| | ``was lost`` | b |\n", "", 1),
            ("``no answer``", "", 1),
            ("Interrupted` | |", "Interrupted` | ``no answer`` |", 1),
        ] {
            assert_eq!(of(&page.replace(from, to)).len(), count, "{from} -> {to}");
        }
    }

    #[test]
    fn each_event_is_to_have_a_row() {
        let code = r#"tracing::warn!(target: "tower_redlock::lock", order, ?sum, a = f(x, y), "paid, late");
            tracing::enabled!(tracing::Level::DEBUG)"#.replace("f(x, y)", "&*x");
        let page = "| level | event | fields |\n|---|---|---|\n| warn | ``paid, late`` | `order`, `sum`, `a` | always |";
        assert_eq!(events(page, &code), [""; 0]);
        for (from, to, count) in [
            ("warn", "error", 2),
            ("?sum, ", "", 2),
            ("paid,", "Paid,", 2),
            ("redlock::lock", "redlock::x", 1),
        ] {
            assert_eq!(
                events(page, &code.replace(from, to)).len(),
                count,
                "{from} -> {to}"
            );
        }
        assert_eq!(events("", &code).len(), 1);
    }

    #[test]
    fn texts_that_disagree_with_the_manifest_are_named() {
        let package = serde_json::json!({
            "version": "0.3.1", "rust_version": "1.88.0", "features": { "default": ["a"], "a": [], "b": [] },
        });
        let readme = "Rust 1.88\ntower-redlock = \"0.3\"\n| `a` | yes | x |\n| `b` | no | y |";
        let of = |readme: &str| {
            let files = [("README.md".to_owned(), readme.to_owned())].into();
            manifest(&files, &package).len()
        };
        assert_eq!(of(readme), 0);
        for (from, to, count) in [
            ("0.3", "0.2", 2),
            ("1.88", "1.80", 1),
            ("| yes", "| no", 1),
            ("`b`", "`c`", 1),
        ] {
            assert_eq!(of(&readme.replace(from, to)), count, "{from} -> {to}");
        }
    }
}
