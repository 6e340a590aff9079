//! [`Secret`]: a text that is never shown.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _};

/// A password or a private key in a [`LockConfig`](crate::LockConfig).
///
/// `Debug` does not show it, no error repeats it, and it cannot be displayed or serialised. It is not wiped from
/// memory: the client that sends it keeps copies of its own.
///
/// # Examples
///
/// ```
/// use tower_redlock::config::Secret;
///
/// let password = Secret::from("hunter2");
/// assert_eq!(format!("{password:?}"), "Secret(..)");
/// assert_eq!(password.expose(), "hunter2");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The text itself, which is no longer hidden.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // The format's own error would quote a password that was given as a number.
        let text = String::deserialize(deserializer);
        text.map(Self)
            .map_err(|_| D::Error::custom("must be a text, in quotes"))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}
