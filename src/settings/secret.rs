//! Texts that may hold a password or a key, and show none of it.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _};

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

/// The URL of a server. `Debug` shows the part that certainly holds no password.
#[cfg(feature = "redis")]
#[derive(Clone, PartialEq, Eq, serde::Deserialize)]
#[serde(transparent)]
pub(crate) struct Url(pub(crate) String);

#[cfg(feature = "redis")]
impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&harmless(&self.0))
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

const HIDDEN: &str = "..";

/// The part of a URL that certainly holds no password. A malformed URL may have one anywhere.
#[cfg(feature = "redis")]
fn harmless(url: &str) -> String {
    let shown = || {
        let (scheme, rest) = url.split_once("://")?;
        let is_path = matches!(scheme, "unix" | "redis+unix" | "valkey+unix");
        if !(is_path || matches!(scheme, "redis" | "rediss" | "valkey" | "valkeys")) {
            return None;
        }
        let (place, query) = match rest.find(['?', '#']) {
            Some(end) => (rest.get(..end)?, "?.."),
            None => (rest, ""),
        };
        let (hidden, address) = match rest.rsplit_once('@') {
            // Any of these characters may be a part of a password.
            Some(_) if is_path || !query.is_empty() => return None,
            Some((_, address)) => ("..@", address),
            None => ("", place),
        };
        let fits = if is_path {
            address.starts_with('/')
        } else {
            is_address(address)
        };
        fits.then(|| format!("{scheme}://{hidden}{address}{query}"))
    };
    shown().unwrap_or_else(|| HIDDEN.to_owned())
}

/// Whether it reads `host[:port][/database]`.
#[cfg(feature = "redis")]
fn is_address(text: &str) -> bool {
    let (place, database) = text.split_once('/').unwrap_or((text, ""));
    let (host, port) = match place.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port),
        _ => (place, ""),
    };
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    !host.is_empty()
        && (host.starts_with('[') || !host.contains(':'))
        && digits(port)
        && digits(database)
}

#[cfg(all(test, feature = "redis"))]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_what_may_be_a_password() {
        for (url, shown) in [
            ("redis://h", "redis://h"),
            ("redis://h:1/2", "redis://h:1/2"),
            ("rediss://u:s3cret@h:1/2", "rediss://..@h:1/2"),
            ("valkey://:s3@cret@[::1]:7", "valkey://..@[::1]:7"),
            (
                "unix:///run/r.sock?pass=s3cret&db=2",
                "unix:///run/r.sock?..",
            ),
            ("redis+unix:///run/r.sock", "redis+unix:///run/r.sock"),
            ("redis://:s3/cret@h", "redis://..@h"),
            ("redis://:s3cret", ".."),
            ("redis://u:s3cret", ".."),
            ("redis://u:s3cret/h", ".."),
            ("redis://h?pass=s3@cret", ".."),
            ("redis://h?pass=s3cret", "redis://h?.."),
            ("redis://:s3?cret@h", ".."),
            ("unix://s3cret", ".."),
            ("unix://:s3cret@/run", ".."),
            ("s3cret", ".."),
            ("s3cret://h", ".."),
            ("", ".."),
        ] {
            assert_eq!(harmless(url), shown, "{url}");
        }
    }
}
