//! [`ConfigError`]: an invalid setting.

use std::fmt;

/// An invalid setting. The text says which, and what to do.
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

    /// An error in the setting `field`.
    pub(crate) fn of(field: impl Into<String>, text: impl Into<String>) -> Self {
        Self::new(text).moved(field)
    }

    /// Which setting it is, by its place in a [`LockConfig`](crate::LockConfig): `ttl`, `hand_off.max_time`,
    /// `nodes[1].url`. `None` if the error concerns no single setting.
    #[must_use]
    pub fn field(&self) -> Option<&str> {
        self.field.as_deref()
    }

    /// The same for readers of a configuration file: the text begins with the field.
    pub(crate) fn named(mut self) -> Self {
        if let Some(field) = &self.field {
            // Many texts of the builder begin so anyway: "ttl is 0ns".
            let rest = self.text.strip_prefix(field.as_str());
            if !rest.is_some_and(|rest| rest.starts_with([' ', ':'])) {
                self.text = format!("{field}: {}", self.text);
            }
        }
        self
    }

    /// The same error, in another field.
    pub(crate) fn moved(self, field: impl Into<String>) -> Self {
        Self {
            field: Some(field.into()),
            ..self
        }
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
