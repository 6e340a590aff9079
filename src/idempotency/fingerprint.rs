//! The two hashes that identify a repeat: [`lock_key`] gives the lock key of an idempotency key, and [`Fingerprint`] tells
//! whether a request with the same key is the same request.

use std::fmt;

use http::Uri;
use http::header::{CONTENT_TYPE, HOST};
use http::request::Parts;
use sha2::{Digest as _, Sha256};

use super::key::IdempotencyKey;
use crate::http::state::original_uri;
use crate::key_error::KeyError;
use crate::lock_key::LockKey;

/// The SHA-256 of method, path, query, `content-type` and body of a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Fingerprint(pub(super) [u8; 32]);

// With the whole hash, a reader of the log could test guesses at a short body.
impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({:.8}..)", hex(&self.0))
    }
}

impl Fingerprint {
    /// If a nested router has changed the URI, both the changed and the original path and query are hashed.
    pub(super) fn new(parts: &Parts, body: &[u8]) -> Self {
        let mut hash = Sha256::new();
        hash.update(FINGERPRINT_VERSION);
        feed(&mut hash, parts.method.as_str().as_bytes());
        feed_uri(&mut hash, &parts.uri);
        if let Some(original) = original_uri(parts) {
            // No length begins like this.
            hash.update([0xFF]);
            feed_uri(&mut hash, original);
        }
        let types = parts.headers.get_all(CONTENT_TYPE);
        feed_len(&mut hash, types.iter().count());
        for value in types {
            feed(&mut hash, value.as_bytes());
        }
        // Each part before the body has its own length, so the body needs none.
        hash.update(body);
        Self(hash.finalize().into())
    }
}

fn feed_uri(hash: &mut Sha256, uri: &Uri) {
    feed(hash, uri.path().as_bytes());
    hash.update([u8::from(uri.query().is_some())]);
    feed(hash, uri.query().unwrap_or_default().as_bytes());
}

/// Feeds the length of `bytes`, then the bytes, so that no two lists of values are encoded alike.
fn feed(hash: &mut Sha256, bytes: &[u8]) {
    feed_len(hash, bytes.len());
    hash.update(bytes);
}

fn feed_len(hash: &mut Sha256, len: usize) {
    hash.update(u64::try_from(len).unwrap_or(u64::MAX).to_be_bytes());
}

/// Lower-case hexadecimal.
fn hex(hash: &[u8; 32]) -> String {
    String::from_utf8_lossy(&crate::token::hex::<64>(hash)).into_owned()
}

/// Raise it when the hashed content changes, so that a record of another version never matches. Users store the hash in
/// their databases (`Idempotent::encode`), so a change breaks their rows.
const FINGERPRINT_VERSION: &[u8] = b"tower-redlock idempotency fingerprint 2\n";

/// The lock key of an idempotency key: `idempotency:` and a SHA-256 of method, host, route, caller and key. The same key
/// of another owner is another request.
///
/// `route` is the path of the route that a router has matched. Without it, the path of the URI counts.
pub(super) fn lock_key(
    parts: &Parts,
    route: Option<&str>,
    caller: &str,
    key: &IdempotencyKey,
) -> Result<LockKey, KeyError> {
    let mut hash = Sha256::new();
    hash.update(SCOPE_VERSION);
    feed(&mut hash, parts.method.as_str().as_bytes());
    feed_host(&mut hash, parts);
    let path = parts.uri.path().as_bytes();
    match (route, original_uri(parts)) {
        (Some(route), _) => {
            hash.update([0]);
            feed(&mut hash, route.as_bytes());
        }
        (None, None) => {
            hash.update([1]);
            feed(&mut hash, path);
        }
        // The path that the nested router left, and the path that the client sent.
        (None, Some(original)) => {
            hash.update([2]);
            feed(&mut hash, path);
            feed(&mut hash, original.path().as_bytes());
        }
    }
    feed(&mut hash, caller.as_bytes());
    feed(&mut hash, key.as_str().as_bytes());
    let digest: [u8; 32] = hash.finalize().into();
    // The prefix separates it from the keys of other layers, whatever clients send.
    LockKey::join(["idempotency", &hex(&digest)])
}

/// Raise it when the hashed content changes, so that the keys of two versions differ. Users store the hash in their
/// databases (`Idempotent::id`), so a change breaks their rows.
const SCOPE_VERSION: &[u8] = b"tower-redlock idempotency scope 3\n";

/// Feeds the host of a request: the authority of its URI, and `Host`. If the names differ, all of them are fed, because two
/// readers could take such a request for the requests of two tenants. Without any name, an empty one is fed.
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

/// A host in lower case, without the default ports of both schemes, because a request of HTTP/1 has no scheme. Other text
/// stays unchanged.
fn canonical(name: &[u8]) -> Vec<u8> {
    let host = PORTS.iter().find_map(|port| name.strip_suffix(*port));
    let host = host.unwrap_or(name);
    // User information may be case-sensitive.
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
