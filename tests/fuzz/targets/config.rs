//! Configurations: as TOML, as JSON and as environment variables.

use std::time::Duration;

use tower_redlock::Settings;

use super::assert_short;
use super::input::Input;

const SECRET: &str = "s3cret";

pub fn run(bytes: &[u8]) -> bool {
    let mut input = Input::new(bytes);
    let kind = input.below(3);
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
