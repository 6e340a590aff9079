//! [`Fingerprint`]: tells whether a repeat is the same request; and the unambiguous encoding of lists of values for a
//! hash.

use std::fmt;
use std::sync::Arc;

use http::Uri;
use http::header::{CONTENT_TYPE, HeaderName};
use http::request::Parts;
use sha2::{Digest as _, Sha256};

use crate::http::state::original_uri;

/// The SHA-256 of method, path and query, chosen headers, and the body of a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Fingerprint(pub(super) [u8; 32]);

// The first bytes tell two fingerprints apart in a log. The whole hash would let a reader test guesses at a short body.
impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second, third, fourth, ..] = self.0;
        let start = hex(&[first, second, third, fourth]);
        write!(f, "Fingerprint({start}..)")
    }
}

impl Fingerprint {
    /// Hashes a request. Where a nested router has changed the URI, its path and query and the original ones both
    /// count.
    pub(super) fn new(parts: &Parts, headers: &FingerprintHeaders, body: &[u8]) -> Self {
        let mut hash = Sha256::new();
        hash.update(VERSION);
        feed(&mut hash, parts.method.as_str().as_bytes());
        feed_uri(&mut hash, &parts.uri);
        if let Some(original) = original_uri(parts) {
            // No length begins like this.
            hash.update([0xFF]);
            feed_uri(&mut hash, original);
        }
        feed_len(&mut hash, headers.names.len());
        for name in &*headers.names {
            feed(&mut hash, name.as_str().as_bytes());
            let values = parts.headers.get_all(name);
            feed_len(&mut hash, values.iter().count());
            for value in values {
                feed(&mut hash, value.as_bytes());
            }
        }
        // Everything before it has its own length, so the body needs none.
        hash.update(body);
        Self(hash.finalize().into())
    }
}

fn feed_uri(hash: &mut Sha256, uri: &Uri) {
    feed(hash, uri.path().as_bytes());
    feed_optional(hash, uri.query().map(str::as_bytes));
}

/// Feeds the length of `bytes`, then the bytes.
pub(super) fn feed(hash: &mut Sha256, bytes: &[u8]) {
    feed_len(hash, bytes.len());
    hash.update(bytes);
}

/// Feeds whether there are bytes, and these.
pub(super) fn feed_optional(hash: &mut Sha256, bytes: Option<&[u8]>) {
    hash.update([u8::from(bytes.is_some())]);
    if let Some(bytes) = bytes {
        feed(hash, bytes);
    }
}

pub(super) fn feed_len(hash: &mut Sha256, len: usize) {
    hash.update(u64::try_from(len).unwrap_or(u64::MAX).to_be_bytes());
}

/// Lower-case hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    crate::token::hex(bytes).map(char::from).collect()
}

/// Which request headers distinguish one request from another. Default: `content-type` alone.
///
/// The layer stores a hash of method, path and query, these headers and the body. A key with another hash is refused
/// with 422. Leave out headers that differ in a repeat: times, trace ids, renewed credentials, headers of proxies. The
/// order of several values of one header counts. A `multipart/form-data` body with a new boundary is another request.
///
/// # Examples
///
/// ```
/// use http::header::{ACCEPT_LANGUAGE, CONTENT_TYPE};
/// use tower_redlock::idempotency::FingerprintHeaders;
///
/// let headers = FingerprintHeaders::only([CONTENT_TYPE, ACCEPT_LANGUAGE]);
/// assert_eq!(headers, FingerprintHeaders::default().also(ACCEPT_LANGUAGE));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "it does nothing until it is given to a layer"]
pub struct FingerprintHeaders {
    // Sorted and without repetition: the order of the list does not matter.
    names: Arc<[HeaderName]>,
}

impl FingerprintHeaders {
    /// These headers and no others; none at all if the list is empty.
    pub fn only(names: impl IntoIterator<Item = HeaderName>) -> Self {
        let mut names: Vec<HeaderName> = names.into_iter().collect();
        names.sort_by(|one, other| one.as_str().cmp(other.as_str()));
        names.dedup();
        Self {
            names: names.into(),
        }
    }

    /// These headers and `name`.
    pub fn also(self, name: HeaderName) -> Self {
        Self::only(self.names.iter().cloned().chain([name]))
    }
}

impl Default for FingerprintHeaders {
    fn default() -> Self {
        Self::only([CONTENT_TYPE])
    }
}

/// Changes with the content of the hash, so that a record of another version never matches by accident.
const VERSION: &[u8] = b"tower-redlock idempotency fingerprint 1\n";

#[cfg(test)]
mod tests {
    use super::*;
    use http::header::{ACCEPT, AUTHORIZATION};
    use http::{HeaderValue, Request};

    fn parts(method: &str, uri: &str, headers: &[(HeaderName, &'static str)]) -> Parts {
        let request = Request::builder().method(method).uri(uri).body(());
        let mut request = request.unwrap();
        for (name, value) in headers {
            let value = HeaderValue::from_static(value);
            request.headers_mut().append(name, value);
        }
        request.into_parts().0
    }

    #[test]
    fn it_stays_what_it_is() {
        let json = [(CONTENT_TYPE, "application/json")];
        let parts = parts("POST", "/orders?a=1", &json);
        let found = Fingerprint::new(&parts, &FingerprintHeaders::default(), b"{}");
        // A change of this makes every record in use another request's: raise the version, and say so.
        assert_eq!(
            hex(&found.0),
            "43a157a0d7c8153f0ebf320821265f7606a8f07b5a2a416bb038f2da96d23bf1"
        );
        let start = hex(&found.0[..4]);
        assert_eq!(format!("{found:?}"), format!("Fingerprint({start}..)"));
    }

    #[test]
    fn every_part_of_a_request_counts() {
        let json = (CONTENT_TYPE, "application/json");
        let headers = FingerprintHeaders::default().also(ACCEPT);
        let of = |method, uri, given: &[_], body: &str| {
            Fingerprint::new(&parts(method, uri, given), &headers, body.as_bytes())
        };
        let all = [
            of("POST", "/a", &[], ""),
            of("PUT", "/a", &[], ""),
            of("POST", "/b", &[], ""),
            of("POST", "/a?", &[], ""),
            of("POST", "/a?b", &[], ""),
            of("POST", "/a", std::slice::from_ref(&json), ""),
            of("POST", "/a", &[json.clone(), json], ""),
            of("POST", "/a", &[(ACCEPT, "application/json")], ""),
            of("POST", "/a", &[(CONTENT_TYPE, "")], ""),
            of("POST", "/a", &[], "b"),
        ];
        for (index, one) in all.iter().enumerate() {
            assert!(!all[..index].contains(one), "{index}");
        }
    }

    #[test]
    fn the_order_of_headers_does_not_count_and_that_of_values_does() {
        let headers = FingerprintHeaders::only([ACCEPT, CONTENT_TYPE, ACCEPT]);
        let a = (ACCEPT, "a");
        let b = (ACCEPT, "b");
        let json = (CONTENT_TYPE, "json");
        let of = |given: &[_]| Fingerprint::new(&parts("POST", "/", given), &headers, b"");
        let first = of(&[a.clone(), b.clone(), json.clone()]);
        assert_eq!(first, of(&[json.clone(), a.clone(), b.clone()]));
        assert_ne!(first, of(&[b, a, json]));
    }

    #[test]
    fn headers_that_were_not_chosen_do_not_count() {
        let of = |given: &[_]| {
            Fingerprint::new(
                &parts("POST", "/", given),
                &FingerprintHeaders::default(),
                b"",
            )
        };
        assert_eq!(of(&[]), of(&[(AUTHORIZATION, "Bearer renewed")]));
    }
}
