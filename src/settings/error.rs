//! The errors of settings.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde::de::{self, Expected, Unexpected};
use serde_path_to_error::Path;

/// A setting that cannot be used. The text begins with the setting's place, and says what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    field: Option<String>,
    text: String,
}

impl ConfigError {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self {
            field: None,
            text: text.into(),
        }
    }

    pub(crate) fn of(field: impl Into<String>, text: impl Into<String>) -> Self {
        let (field, text) = (field.into(), text.into());
        // Some texts already begin with the field, for example "ttl is 0ns".
        let rest = text.strip_prefix(field.as_str());
        let is_named = rest.is_some_and(|rest| rest.starts_with(' '));
        Self {
            text: if is_named {
                text
            } else {
                format!("{field}: {text}")
            },
            field: Some(field),
        }
    }

    /// The place of the setting in a file, for example `ttl` or `nodes[1].url`. `None` if the error concerns no single
    /// setting.
    #[must_use]
    pub fn field(&self) -> Option<&str> {
        self.field.as_deref()
    }

    /// Makes this the error of an environment variable, which has no quotes.
    pub(crate) fn of_variable(mut self, variable: &str) -> Self {
        for (of_file, of_variable) in [(", without quotes", ""), (" without quotes", "")] {
            self.text = self.text.replace(of_file, of_variable);
        }
        self.adding(&format!(" (environment variable {variable})"))
    }

    pub(crate) fn adding(mut self, more: &str) -> Self {
        self.text.push_str(more);
        self
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for ConfigError {}

pub(crate) fn ensure<T: Into<String>>(
    holds: bool,
    field: &str,
    text: impl FnOnce() -> T,
) -> Result<(), ConfigError> {
    if holds {
        return Ok(());
    }
    Err(ConfigError::of(field, text()))
}

pub(crate) fn check_range(
    field: &str,
    value: Duration,
    range: RangeInclusive<Duration>,
) -> Result<(), ConfigError> {
    let (least, most) = range.into_inner();
    at_least(field, value, "", least)?;
    at_most(field, value, "", most)
}

/// `whose` names the bound before its value, for example `the ttl, `.
pub(crate) fn at_least(
    field: &str,
    value: Duration,
    whose: &str,
    least: Duration,
) -> Result<(), ConfigError> {
    ensure(value >= least, field, || {
        format!("{field} is {value:?}; it must be at least {whose}{least:?}")
    })
}

pub(crate) fn at_most(
    field: &str,
    value: Duration,
    whose: &str,
    most: Duration,
) -> Result<(), ConfigError> {
    ensure(value <= most, field, || {
        format!("{field} is {value:?}; it must be at most {whose}{most:?}")
    })
}

#[cfg(feature = "redis")]
pub(crate) fn within(place: &str, field: &str) -> String {
    match place {
        "" => field.to_owned(),
        _ => format!("{place}.{field}"),
    }
}

/// What is wrong with a value or table. The text follows its name, and never contains the value, which may be a
/// misplaced password.
#[derive(Debug)]
pub(super) struct Refusal {
    reason: String,
    // The field of the current table in which the fault is.
    field: Option<&'static str>,
}

impl Refusal {
    pub(super) fn is_unknown(&self) -> bool {
        self.reason.starts_with(UNKNOWN)
    }

    pub(super) fn at(self, path: &Path) -> ConfigError {
        let Self { mut reason, field } = self;
        let mut place = String::new();
        let steps = path.iter().map(ToString::to_string);
        for step in steps.chain(field.map(str::to_owned)) {
            // A text that does not look like a name may be a misplaced URL with its password.
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_-[]".contains(&byte);
            if step.len() > LONGEST_NAME || !step.bytes().all(fits) {
                reason = reason.replace(UNKNOWN, UNNAMABLE);
                break;
            }
            if !place.is_empty() && !step.starts_with('[') {
                place.push('.');
            }
            place.push_str(&step);
        }
        match place.as_str() {
            "" => ConfigError::new(format!("the configuration {reason}")),
            _ => ConfigError::of(place, reason),
        }
    }
}

impl de::Error for Refusal {
    fn custom<T: fmt::Display>(reason: T) -> Self {
        Self {
            reason: reason.to_string(),
            field: None,
        }
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

    fn unknown_field(_: &str, known: &'static [&'static str]) -> Self {
        Self::custom(format_args!("{UNKNOWN}; there are: {}", known.join(", ")))
    }

    fn duplicate_field(field: &'static str) -> Self {
        Self {
            reason: "is given twice; remove one of them".to_owned(),
            field: Some(field),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for Refusal {}

/// The type that `serde` expects, in words for people who do not write Rust.
fn plain(expected: &str) -> &str {
    match expected {
        "a boolean" => "true or false, without quotes",
        "a duration" => "a duration with units, as in \"10s\", \"250ms\" or \"1m30s\"",
        "a sequence" => "a list",
        "a string" | "path string" => "a text, in quotes",
        "u32" => "a whole number from 0 to 4294967295 without quotes, as in 5",
        "usize" => "a whole number from 0 without quotes, as in 5",
        other => other,
    }
}

const UNKNOWN: &str = "there is no such setting";
const UNNAMABLE: &str = "contains something that is not the name of a setting";
const LONGEST_NAME: usize = 40;
