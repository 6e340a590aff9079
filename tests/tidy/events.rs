//! The guide's list of events and spans against the code: level, text and fields of each, and nothing that is not told;
//! and the target of each, which must be a module that users know, for their filters name it.

use std::collections::BTreeSet;

use proc_macro2::{TokenStream, TokenTree};

use crate::facts::is_punct;

/// The page with the list.
pub(crate) const LIST: &str = "src/docs/observing.md";
/// The one file that tells anything.
pub(crate) const CODE: &str = "src/trace.rs";

/// Of events and of spans.
const LEVELS: [&str; 7] = [
    "error",
    "warn",
    "info",
    "debug",
    "trace",
    "info span",
    "debug span",
];

/// The modules that users know of those which tell something.
const TARGETS: [&str; 4] = [
    "tower_redlock::idempotency",
    "tower_redlock::lock",
    "tower_redlock::layer",
    "tower_redlock::node",
];

/// Level, text and fields.
type Event = (String, String, BTreeSet<String>);

/// Where the page `list` and the file `code` disagree.
pub(crate) fn check(list: &str, code: &str) -> Vec<String> {
    let mut told = BTreeSet::new();
    let tokens: TokenStream = match code.parse() {
        Ok(tokens) => tokens,
        Err(error) => return vec![format!("{CODE}: is not Rust: {error}")],
    };
    let mut untargeted = BTreeSet::new();
    scan(tokens, &mut told, &mut untargeted);
    let listed: BTreeSet<Event> = list.lines().filter_map(row).collect();
    let missing = told.difference(&listed);
    let missing = missing.map(|event| format!("{LIST}: does not list {event:?}"));
    let stale = listed.difference(&told);
    let stale = stale.map(|event| format!("{LIST}: lists {event:?}, which {CODE} does not tell"));
    let untargeted = untargeted.into_iter().map(|(text, target)| {
        format!("{CODE}: {text:?} has the target {target:?}, which is none of {TARGETS:?}")
    });
    missing.chain(stale).chain(untargeted).collect()
}

/// Events that are told elsewhere, where nobody looks for them.
pub(crate) fn elsewhere(path: &str, text: &str) -> Vec<String> {
    let mut told = BTreeSet::new();
    if let (true, Ok(tokens)) = (path != CODE, text.parse()) {
        scan(tokens, &mut told, &mut BTreeSet::new());
    }
    let complain = |event| format!("{path}: tells {event:?}; {CODE} is the place for that");
    told.into_iter().map(complain).collect()
}

/// Every `tracing::level!(..)`, and of those with a target that nobody knows the text and the target.
fn scan(
    tokens: TokenStream,
    told: &mut BTreeSet<Event>,
    untargeted: &mut BTreeSet<(String, String)>,
) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (at, token) in tokens.iter().enumerate() {
        let TokenTree::Group(group) = token else {
            continue;
        };
        let before = |back: usize| at.checked_sub(back).and_then(|at| tokens.get(at));
        let called = before(1).is_some_and(|bang| is_punct(bang, '!'));
        let level = before(2).map(ToString::to_string).unwrap_or_default();
        let level = level.replace('_', " ");
        let of_tracing = before(5).is_some_and(|name| name.to_string() == "tracing");
        if called && of_tracing && LEVELS.contains(&level.as_str()) {
            let (target, event) = event(level, group.stream());
            if !TARGETS.contains(&target.as_str()) {
                untargeted.insert((event.1.clone(), target));
            }
            told.insert(event);
        } else {
            scan(group.stream(), told, untargeted);
        }
    }
}

/// The target and the event of its arguments: fields, with or without `?` or `%`, and the text.
fn event(level: String, arguments: TokenStream) -> (String, Event) {
    let (mut text, mut fields) = (String::new(), BTreeSet::new());
    let mut target = String::new();
    let mut begins = true;
    let mut tokens = arguments.into_iter().peekable();
    while let Some(token) = tokens.next() {
        let colon = tokens.peek().is_some_and(|next| is_punct(next, ':'));
        match &token {
            TokenTree::Ident(name) if begins && colon && *name == "target" => {
                let value = tokens.nth(1).map(|value| value.to_string());
                target = value.unwrap_or_default().trim_matches('"').to_owned();
                begins = false;
            }
            TokenTree::Ident(name) if begins => {
                fields.insert(name.to_string());
                begins = false;
            }
            TokenTree::Literal(literal) if begins => {
                text = literal.to_string().trim_matches('"').to_owned();
            }
            token if is_punct(token, ',') => begins = true,
            _ => {}
        }
    }
    (target, (level, text, fields))
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

    const CODE: &str = r#"
        fn paid(order: &str, sum: u64) {
            #[cfg(feature = "tracing")]
            if sum > 9 { tracing::warn!(target: "tower_redlock::lock", order, ?sum, "order paid"); }
            else { tracing::info!(target: "tower_redlock::node", order, "small, and paid") }
        }
        fn hears() -> bool { tracing::enabled!(tracing::Level::DEBUG) }
    "#;
    const LIST: &str = "| level | event | fields |\n|---|---|---|\n| warn | ``order paid`` | `order`, `sum` | always |\n\
        | info | ``small, and paid`` | `order` | `sum` is small |";

    #[test]
    fn a_list_that_agrees_is_accepted() {
        assert_eq!(check(LIST, CODE), [""; 0]);
        assert_eq!(
            elsewhere("src/x.rs", "fn f() { trace::paid(\"warn!\") }"),
            [""; 0]
        );
    }

    #[test]
    fn each_disagreement_is_named() {
        for (from, to, count) in [
            ("warn", "error", 2),
            ("order paid", "order is paid", 2),
            ("?sum, ", "", 2),
            ("?sum, ", "?sum, %reason, ", 2),
            (
                "fn hears",
                "fn more() { tracing::debug!(target: \"tower_redlock::lock\", \"more\") } fn hears",
                1,
            ),
            ("redlock::lock", "redlock::trace", 1),
            ("target: \"tower_redlock::node\", ", "", 1),
        ] {
            let code = CODE.replace(from, to);
            assert_ne!(code, CODE);
            assert_eq!(check(LIST, &code).len(), count, "{from} -> {to}");
        }
        assert_eq!(check(LIST.split_once("| info").unwrap().0, CODE).len(), 1);
        assert_eq!(elsewhere("src/x.rs", CODE).len(), 2);
    }
}
