//! The hashes by which a repeat is known: [`Scope`], the owner of an idempotency key, gives its lock key; [`Fingerprint`]
//! tells whether it is the same request. And the unambiguous encoding of lists of values for a hash.

use std::fmt;
use std::sync::Arc;

use http::Uri;
use http::header::{CONTENT_TYPE, HOST, HeaderName};
use http::request::Parts;
use sha2::{Digest as _, Sha256};

use super::caller::Caller;
use super::key::IdempotencyKey;
use crate::http::state::original_uri;
use crate::key_error::KeyError;
use crate::lock_key::LockKey;

/// The SHA-256 of method, path and query, chosen headers, and the body of a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Fingerprint(pub(super) [u8; 32]);

// The first bytes tell two fingerprints apart in a log. The whole hash would let a reader test guesses at a short body.
impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({:.8}..)", hex(&self.0))
    }
}

impl Fingerprint {
    /// Hashes a request. Where a nested router has changed the URI, its path and query and the original ones both
    /// count.
    pub(super) fn new(parts: &Parts, headers: &FingerprintHeaders, body: &[u8]) -> Self {
        let mut hash = Sha256::new();
        hash.update(FINGERPRINT_VERSION);
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
fn feed(hash: &mut Sha256, bytes: &[u8]) {
    feed_len(hash, bytes.len());
    hash.update(bytes);
}

/// Feeds whether there are bytes, and these.
fn feed_optional(hash: &mut Sha256, bytes: Option<&[u8]>) {
    hash.update([u8::from(bytes.is_some())]);
    if let Some(bytes) = bytes {
        feed(hash, bytes);
    }
}

fn feed_len(hash: &mut Sha256, len: usize) {
    hash.update(u64::try_from(len).unwrap_or(u64::MAX).to_be_bytes());
}

/// Lower-case hexadecimal.
fn hex(hash: &[u8; 32]) -> String {
    String::from_utf8_lossy(&crate::token::hex::<64>(hash)).into_owned()
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

/// Changes with the content of the hash, so that a record of another version never matches by accident. Users keep it in
/// their databases, by `Idempotent::encode`: a change breaks them.
const FINGERPRINT_VERSION: &[u8] = b"tower-redlock idempotency fingerprint 1\n";

/// Method, host, route and caller. One key in another scope is another request.
#[derive(Clone, Copy)]
pub(super) struct Scope<'a> {
    pub(super) parts: &'a Parts,
    /// The path of the route that matched, if a router found one; else the path of the request's URI counts. Under a
    /// route, one key sent to `/orders/1/pay` and to `/orders/2/pay` is one key of two requests, and is refused; by
    /// paths, these are two keys.
    pub(super) route: Option<&'a str>,
    pub(super) caller: &'a Caller,
    pub(super) any_host: bool,
}

impl Scope<'_> {
    /// The lock key for `key` in this scope: `idempotency:` and a SHA-256. No two scopes and keys are encoded alike,
    /// and none can be read from the hash.
    pub(super) fn lock_key(&self, key: &IdempotencyKey) -> Result<LockKey, KeyError> {
        let mut hash = Sha256::new();
        hash.update(SCOPE_VERSION);
        feed(&mut hash, self.parts.method.as_str().as_bytes());
        hash.update([u8::from(!self.any_host)]);
        if !self.any_host {
            feed_host(&mut hash, self.parts);
        }
        let path = self.parts.uri.path().as_bytes();
        match (self.route, original_uri(self.parts)) {
            (Some(route), _) => {
                hash.update([0]);
                feed(&mut hash, route.as_bytes());
            }
            (None, None) => {
                hash.update([1]);
                feed(&mut hash, path);
            }
            // As the nested router left it, and as the client sent it.
            (None, Some(original)) => {
                hash.update([2]);
                feed(&mut hash, path);
                feed(&mut hash, original.path().as_bytes());
            }
        }
        feed_optional(&mut hash, self.caller.identity());
        feed(&mut hash, key.as_str().as_bytes());
        let digest: [u8; 32] = hash.finalize().into();
        // The part in front separates it from the keys of other layers, whatever clients send.
        LockKey::join(["idempotency", &hex(&digest)])
    }
}

/// Changes with the content of the hash, so that the keys of two versions differ. Users keep it in their databases, by
/// `Idempotent::id`: a change breaks them.
const SCOPE_VERSION: &[u8] = b"tower-redlock idempotency scope 2\n";

/// Feeds the host of a request: the authority of its URI, and `Host`. If all names are equal, one is fed, or else all
/// of them and their places: two readers could take such a request for two tenants', so it is a host of its own.
/// Without any name, an empty one.
fn feed_host(hash: &mut Sha256, parts: &Parts) {
    let authority = parts.uri.authority();
    let from_uri = authority.map(|authority| authority.as_str().as_bytes());
    let hosts = parts.headers.get_all(HOST).iter();
    let hosts = hosts.map(http::HeaderValue::as_bytes);
    let mut names = from_uri.into_iter().chain(hosts).map(canonical);
    let first = names.next().unwrap_or_default();
    let mut all: Vec<_> = std::iter::once(first).chain(names).collect();
    if all.iter().all(|name| Some(name) == all.first()) {
        all.truncate(1);
    }
    feed_len(hash, all.len());
    if all.len() > 1 {
        hash.update([u8::from(authority.is_some())]);
    }
    for name in all {
        feed(hash, &name);
    }
}

/// A host in lower case, without the default ports of both schemes: a request of HTTP/1 has no scheme. Other text stays
/// unchanged.
fn canonical(name: &[u8]) -> Vec<u8> {
    let host = PORTS.iter().find_map(|port| name.strip_suffix(*port));
    let host = host.unwrap_or(name);
    // User information does not belong here, and may be case-sensitive.
    if host.contains(&b'@') || !is_without_port(host) && host.len() < name.len() {
        return name.to_vec();
    }
    host.to_ascii_lowercase()
}

fn is_without_port(host: &[u8]) -> bool {
    match host {
        [b'[', .., b']'] => true,
        host => !host.contains(&b':'),
    }
}

const PORTS: [&[u8]; 3] = [b":443", b":80", b":"];

#[cfg(test)]
mod tests;
