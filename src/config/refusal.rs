//! [`Refusal`]: why a value cannot be read, in words for whoever wrote the configuration, and without the value.

use std::fmt;

use serde::de::{self, Expected, Unexpected};
use serde_path_to_error::Path;

use crate::manager::ConfigError;

/// What is wrong with a value or table, to stand behind its name. Never its content, which may be a password in the
/// wrong place.
#[derive(Debug)]
pub(super) struct Refusal {
    reason: String,
    about: About,
}

/// What a refusal is about: something at, or beside, the place where the reader was.
#[derive(Debug)]
enum About {
    Value,
    Field(&'static str),
    UnknownField(&'static [&'static str]),
    /// A field whose name is not to be repeated either.
    UnnamableField,
}

impl Refusal {
    const fn of(about: About, reason: String) -> Self {
        Self { reason, about }
    }

    /// The fields that there are, if it is about one that there is not.
    pub(super) const fn known(&self) -> Option<&'static [&'static str]> {
        match self.about {
            About::UnknownField(known) => Some(known),
            _ => None,
        }
    }

    /// The same with the field's name, which stands at `path`.
    pub(super) fn at(self, path: &Path) -> ConfigError {
        let mut field = String::new();
        let last = path.iter().len().saturating_sub(1);
        for (index, segment) in path.iter().enumerate() {
            if index < last || !matches!(self.about, About::UnnamableField) {
                join(&mut field, &segment.to_string());
            }
        }
        if let About::Field(name) = self.about {
            join(&mut field, name);
        }
        match field.as_str() {
            "" => ConfigError::new(format!("the configuration {}", self.reason)),
            _ => ConfigError::of(field, self.reason).named(),
        }
    }
}

fn join(path: &mut String, step: &str) {
    if !path.is_empty() && !step.starts_with('[') {
        path.push('.');
    }
    path.push_str(step);
}

impl de::Error for Refusal {
    fn custom<T: fmt::Display>(reason: T) -> Self {
        Self::of(About::Value, reason.to_string())
    }

    fn invalid_type(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let expected = expected.to_string();
        let kind = match unexpected {
            Unexpected::Unsigned(number) if expected == "a duration" => {
                return Self::custom(format_args!(
                    "is a number without a unit; say \"{number}s\" or \"{number}ms\""
                ));
            }
            Unexpected::Bool(_) => "true or false",
            Unexpected::Unsigned(_) | Unexpected::Signed(_) => "a whole number",
            Unexpected::Float(number) if number.abs() > 1e18 => "too large a number",
            Unexpected::Float(_) => "a number with a fraction",
            Unexpected::Str(_) => "a text",
            Unexpected::Unit => "empty (null)",
            Unexpected::Seq => "a list",
            _ => "a table",
        };
        Self::custom(format_args!("is {kind}; it must be {}", plain(&expected)))
    }

    fn invalid_value(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::custom(format_args!("must be {}", plain(&expected.to_string())))
    }

    fn unknown_field(field: &str, known: &'static [&'static str]) -> Self {
        let all = known.join(", ");
        // What does not look like a name is something in the wrong place, perhaps a URL with its password.
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if field.len() <= LONGEST_NAME && field.bytes().all(plain) {
            let reason = format!("there is no such setting; there are: {all}");
            return Self::of(About::UnknownField(known), reason);
        }
        let reason = format!("holds something that is no name of a setting; there are: {all}");
        Self::of(About::UnnamableField, reason)
    }

    fn duplicate_field(field: &'static str) -> Self {
        let reason = "is given twice; which one is meant?".to_owned();
        Self::of(About::Field(field), reason)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for Refusal {}

/// What `serde` expects, in words for people who do not write Rust.
fn plain(expected: &str) -> &str {
    match expected {
        "a boolean" => "true or false, without quotes",
        "a duration" => "a duration with units, as in \"10s\", \"250ms\" or \"1m30s\"",
        "a sequence" => "a list",
        "a string" | "path string" => "a text, in quotes",
        "f64" => "a number without quotes, as in 0.01",
        "u32" => "a whole number from 0 to 4294967295 without quotes, as in 5",
        "usize" => "a whole number from 0 without quotes, as in 5",
        other => other,
    }
}

/// Names of settings are shorter.
const LONGEST_NAME: usize = 40;
