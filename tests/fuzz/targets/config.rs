//! Configurations: as TOML, as JSON and as environment variables.

use std::fmt::Write as _;
use std::time::Duration;

use toml::{Table, Value};
use tower_redlock::Settings;

use super::assert_short;
use super::input::Input;

const SECRET: &str = "s3cret";

pub fn run(bytes: &[u8]) -> bool {
    let mut input = Input::new(bytes);
    let kind = input.below(4);
    if kind == 3 {
        return three_forms(&mut input);
    }
    let text = String::from_utf8_lossy(input.rest());
    let accepted = match kind {
        // What is no TOML is quoted by TOML's own errors.
        0 => read(toml::from_str(&text), toml::from_str(&text), |error| {
            error.message().to_owned()
        }),
        1 => read(
            serde_json::from_str(&text),
            serde_json::from_str(&text),
            ToString::to_string,
        ),
        _ => variables(&text),
    };
    if let Some((settings, is_public)) = &accepted {
        usable(settings, *is_public);
    }
    accepted.is_some()
}

/// Settings, and whether the secret is in a place that is shown.
type Read = (Settings, bool);

/// What was read of a text, as it stands there and as settings.
fn read<E>(
    value: Result<serde_json::Value, E>,
    settings: Result<Settings, E>,
    tell: impl Fn(&E) -> String,
) -> Option<Read> {
    match settings {
        Ok(settings) => Some((settings, value.is_ok_and(|value| is_public("", &value)))),
        Err(error) => {
            if value.is_ok_and(|value| !is_named(&value)) {
                assert_harmless(&tell(&error));
            }
            None
        }
    }
}

/// Whether the secret is in the text of a field that is shown.
fn is_public(field: &str, value: &serde_json::Value) -> bool {
    match value {
        serde_json::Value::Object(fields) => {
            fields.iter().any(|(field, value)| is_public(field, value))
        }
        serde_json::Value::Array(values) => values.iter().any(|value| is_public(field, value)),
        serde_json::Value::String(text) => match field {
            "password" | "client_key" => false,
            "url" | "nodes" | "sentinels" => is_beside(text),
            _ => text.contains(SECRET),
        },
        _ => false,
    }
}

/// Whether the secret is a part of a name; names are told.
fn is_named(value: &serde_json::Value) -> bool {
    match value {
        serde_json::Value::Object(fields) => fields
            .iter()
            .any(|(name, value)| name.contains(SECRET) || is_named(value)),
        serde_json::Value::Array(values) => values.iter().any(is_named),
        _ => false,
    }
}

/// Lines of `NAME=value`.
fn variables(text: &str) -> Option<Read> {
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    let pairs: Vec<_> = pairs.collect();
    match Settings::default().with_vars("R", pairs.iter().copied()) {
        Ok(settings) => {
            let hides = |name: &str| name.ends_with("_PASSWORD") || name.ends_with("_CLIENT_KEY");
            let has_urls = |name: &str| name.contains("_NODES") && !name.ends_with("_NAME");
            let is_public = pairs.iter().any(|(name, text)| match () {
                () if hides(name) => false,
                () if has_urls(name) => text.split(',').any(|url| is_beside(url.trim())),
                () => text.contains(SECRET),
            });
            Some((settings, is_public))
        }
        Err(error) => {
            // Names are told, in small letters where they stand for fields.
            let tells = |name: &str| name.to_lowercase().contains(SECRET);
            let names = pairs.iter().any(|(name, _)| tells(name));
            if !names {
                assert_harmless(&format!("{error}"));
            }
            None
        }
    }
}

/// No secret, in one line.
fn assert_harmless(text: &str) {
    assert_short(text, 900);
    assert!(!text.contains(SECRET), "{text}");
}

/// What was read is a manager's, or an error that names the field and shows no secret.
fn usable(settings: &Settings, is_public: bool) {
    let shown = format!("{settings:?}");
    let files = [
        "password_file: Some",
        "_certificate: Some",
        "client_key: Some",
    ];
    if is_public || files.iter().any(|file| shown.contains(file)) {
        return;
    }
    assert!(!shown.contains(SECRET), "{shown}");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let _inside = runtime.enter();
    match settings.clone().connect_lazy() {
        Ok(locks) => {
            // What was accepted is within the bounds that the docs state.
            assert!(locks.ttl() >= Duration::from_millis(10), "{shown}");
            assert!(locks.ttl() <= Duration::from_secs(24 * 3_600), "{shown}");
            assert!((1..=32).contains(&locks.snapshot().nodes.len()), "{shown}");
            assert!(!format!("{locks:?}").contains(SECRET), "{shown}");
        }
        Err(error) => {
            let text = error.to_string();
            assert!(!text.contains(SECRET), "{text}");
            assert!(text.chars().count() < 2_000, "{text}");
            let field = error.field().unwrap_or_default();
            assert!(text.starts_with(field), "{text}: {field}");
        }
    }
}

/// Whether the secret is in the URL but is not its password: a host, say.
fn is_beside(url: &str) -> bool {
    // A host is shown in small letters, however it was written.
    match url.to_ascii_lowercase().split_once(SECRET) {
        Some((before, after)) => {
            !(before.ends_with(':') && after.contains('@')) || after.contains(SECRET)
        }
        None => false,
    }
}

/// The same settings in three forms are one configuration.
fn three_forms(input: &mut Input<'_>) -> bool {
    let table = settings(input);
    let toml = table.to_string();
    let toml = toml::from_str::<Settings>(&toml).map_err(|error| error.message().to_owned());
    let json = serde_json::to_string(&table).unwrap();
    let json = serde_json::from_str::<Settings>(&json).map_err(|error| error.to_string());
    match (&toml, &json) {
        (Ok(toml), Ok(json)) => assert_eq!(format!("{toml:?}"), format!("{json:?}"), "{table}"),
        // Not the same texts: TOML has tables at its end, and the first mistake is told.
        (Err(toml), Err(json)) => [toml, json]
            .into_iter()
            .for_each(|text| assert_harmless(text)),
        _ => panic!("{table}\n{toml:?}\n{json:?}"),
    }
    let Ok(settings) = toml else {
        return false;
    };
    let value = serde_json::to_value(&table).unwrap();
    usable(&settings, is_public("", &value));
    if let Some(variables) = environment(&table) {
        let read = Settings::default()
            .with_vars("R", variables.clone())
            .unwrap();
        assert_eq!(
            format!("{read:?}"),
            format!("{settings:?}"),
            "{variables:?}"
        );
    }
    true
}

type Make = fn(&mut Input<'_>) -> Value;

/// The settings, each with what makes a value of its type.
const FIELDS: [(&str, Make); 21] = [
    ("ttl", duration),
    ("max_ttl", duration),
    ("node_timeout", duration),
    ("connect_timeout", duration),
    ("max_hold", duration),
    ("max_wait", duration),
    ("memory", integer),
    ("mask_losses", integer),
    ("max_waiters", integer),
    ("max_waiters_per_key", integer),
    ("bootstrap", flag),
    ("redact_keys", flag),
    ("hand_off", flag),
    ("user", text),
    ("password", text),
    ("namespace", text),
    ("nodes", nodes),
    ("fencing", flag),
    ("restart_guard", flag),
    ("instance", text),
    ("groups", integer),
];

/// The settings of one node.
const FIELDS_OF_NODE: [(&str, Make); 7] = [
    ("user", text),
    ("password", text),
    ("name", text),
    ("require", integer),
    ("database", integer),
    ("within", duration),
    ("connections", integer),
];

/// Some settings, most of them of the right types.
fn settings(input: &mut Input<'_>) -> Table {
    let mut table = Table::new();
    while !input.is_empty() && table.len() < 8 {
        let (name, value) = input.choose(&FIELDS);
        let value = value(input);
        let value = match input.below(16) {
            0 => Value::String(input.text(6)),
            1 => integer(input),
            2 => Value::Array(vec![value]),
            _ => value,
        };
        table.insert(name.to_owned(), value);
    }
    table
}

fn text(input: &mut Input<'_>) -> Value {
    Value::String(input.text(8))
}

fn flag(input: &mut Input<'_>) -> Value {
    Value::Boolean(input.flag())
}

fn nodes(input: &mut Input<'_>) -> Value {
    Value::Array((0..input.below(4)).map(|_| node(input)).collect())
}

fn integer(input: &mut Input<'_>) -> Value {
    Value::Integer(input.number().cast_signed())
}

fn duration(input: &mut Input<'_>) -> Value {
    let mut text = String::new();
    for _ in 0..=input.below(3) {
        let units = [
            "ms", "s", "m", "h", "us", "ns", "d", "min", "y", "M", "w", "",
        ];
        let unit = input.choose(&units);
        let _ = write!(text, "{}{unit}", input.number() >> input.below(64));
    }
    Value::String(text)
}

fn node(input: &mut Input<'_>) -> Value {
    let url = match input.below(4) {
        0 => input.text(12),
        _ => format!("redis://:{SECRET}@10.0.0.{}", input.below(4)),
    };
    if input.flag() {
        return Value::String(url);
    }
    let mut node = Table::new();
    node.insert("url".to_owned(), Value::String(url));
    for _ in 0..input.below(3) {
        let (name, value) = input.choose(&FIELDS_OF_NODE);
        node.insert(name.to_owned(), value(input));
    }
    Value::Table(node)
}

/// The settings as variables; `None` if they have something that variables cannot say.
fn environment(table: &Table) -> Option<Vec<(String, String)>> {
    let mut variables = Vec::new();
    for (name, value) in table {
        match value {
            Value::Array(nodes) if name == "nodes" => {
                // An empty list is none at all, and a plain one needs no numbers.
                for (index, node) in nodes.iter().enumerate() {
                    note(&mut variables, &format!("R_NODES_{index}"), node)?;
                }
                (!nodes.is_empty()).then_some(())?;
            }
            value => note(&mut variables, &format!("R_{}", name.to_uppercase()), value)?,
        }
    }
    Some(variables)
}

fn note(variables: &mut Vec<(String, String)>, name: &str, value: &Value) -> Option<()> {
    let text = match value {
        Value::Table(inner) => {
            for (field, value) in inner {
                note(
                    variables,
                    &format!("{name}_{}", field.to_uppercase()),
                    value,
                )?;
            }
            return (!inner.is_empty()).then_some(());
        }
        Value::String(text) if text.is_empty() && name != "R_NAMESPACE" => return None,
        Value::String(text) => text.clone(),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Boolean(flag) => flag.to_string(),
        Value::Array(_) | Value::Datetime(_) => return None,
    };
    variables.push((name.to_owned(), text));
    Some(())
}
