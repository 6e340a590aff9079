//! [`ConfigError`]: a setting that cannot be used.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

/// A setting that cannot be used. The text begins with its place, and says what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    field: Option<String>,
    text: String,
}

impl ConfigError {
    /// An error that concerns no single setting.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self {
            field: None,
            text: text.into(),
        }
    }

    pub(crate) fn of(field: impl Into<String>, text: impl Into<String>) -> Self {
        let (field, text) = (field.into(), text.into());
        // Some begin so anyway: "ttl is 0ns".
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

    /// Which setting it is, by its place in a file: `ttl`, `hand_off.max_time`, `nodes[1].url`. `None` if the error
    /// concerns no single setting.
    #[must_use]
    pub fn field(&self) -> Option<&str> {
        self.field.as_deref()
    }

    /// The same with more text.
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

/// The error in the setting `field`, unless `holds`.
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
    ensure(value >= least, field, || {
        format!("{field} is {value:?}; it must be at least {least:?}")
    })?;
    ensure(value <= most, field, || {
        format!("{field} is {value:?}; it must be at most {most:?}")
    })
}

#[cfg(feature = "redis")]
pub(crate) fn within(place: &str, field: &str) -> String {
    match place {
        "" => field.to_owned(),
        _ => format!("{place}.{field}"),
    }
}
