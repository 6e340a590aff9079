//! Texts that may hold a password or a key, and show none of it.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _};

/// The certificates of TLS connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(
    default,
    deny_unknown_fields,
    expecting = "a table with root_certificate"
)]
pub(crate) struct TlsSettings {
    pub(crate) root_certificate: Option<Pem>,
    pub(crate) client_certificate: Option<Pem>,
    pub(crate) client_key: Option<Secret>,
}

impl TlsSettings {
    /// Whether there are no certificates.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A password or a private key. `Debug` does not show it, and no error repeats it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(pub(crate) String);

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

/// The path of a PEM file, or its text, which may have a key beside the certificate.
#[derive(Clone, PartialEq, Eq, serde::Deserialize)]
#[serde(transparent)]
pub(crate) struct Pem(pub(crate) String);

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if is_pem(&self.0) { HIDDEN } else { &self.0 })
    }
}

pub(crate) fn is_pem(text: &str) -> bool {
    text.contains("-----BEGIN")
}

pub(super) const HIDDEN: &str = "..";
