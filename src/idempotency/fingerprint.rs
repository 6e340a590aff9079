//! The two hashes that identify a repeat: [`lock_key`] and [`Fingerprint`].

use std::fmt;

use http::Uri;
use http::header::{CONTENT_TYPE, HOST};
use http::request::Parts;
use sha2::{Digest as _, Sha256};

use super::key::IdempotencyKey;
use crate::http::state::original_uri;
use crate::key_error::KeyError;
use crate::lock_key::LockKey;

/// The SHA-256 of method, path, query, `content-type` and body. A repeat must have the same fingerprint.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Fingerprint(pub(super) [u8; 32]);

// Shows only a part, because a reader of the log could use the whole hash to guess a short body.
impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({:.8}..)", hex(&self.0))
    }
}

impl Fingerprint {
    pub(super) fn new(parts: &Parts, body: &[u8]) -> Self {
        let mut hash = Sha256::new();
        hash.update(FINGERPRINT_VERSION);
        feed(&mut hash, parts.method.as_str().as_bytes());
        feed_uri(&mut hash, &parts.uri);
        if let Some(original) = original_uri(parts) {
            // This byte keeps the encoding unambiguous, because no length begins with it.
            hash.update([0xFF]);
            feed_uri(&mut hash, original);
        }
        let types = parts.headers.get_all(CONTENT_TYPE);
        feed_len(&mut hash, types.iter().count());
        for value in types {
            feed(&mut hash, value.as_bytes());
        }
        // Nothing follows the body, so it needs no length.
        hash.update(body);
        Self(hash.finalize().into())
    }
}

fn feed_uri(hash: &mut Sha256, uri: &Uri) {
    feed(hash, uri.path().as_bytes());
    hash.update([u8::from(uri.query().is_some())]);
    feed(hash, uri.query().unwrap_or_default().as_bytes());
}

/// Hashes the length of `bytes` first, so that two different lists of values never have the same encoding.
fn feed(hash: &mut Sha256, bytes: &[u8]) {
    feed_len(hash, bytes.len());
    hash.update(bytes);
}

fn feed_len(hash: &mut Sha256, len: usize) {
    hash.update(u64::try_from(len).unwrap_or(u64::MAX).to_be_bytes());
}

fn hex(hash: &[u8; 32]) -> String {
    String::from_utf8_lossy(&crate::token::hex::<64>(hash)).into_owned()
}

/// Change this if the hashed content changes, which breaks rows of users (`Idempotent::encode`).
const FINGERPRINT_VERSION: &[u8] = b"tower-redlock idempotency fingerprint 2\n";

/// The lock key of an idempotency key: `idempotency:` and the SHA-256 of method, host, route, caller and key. If no
/// router has matched a `route`, the path of the URI is hashed instead.
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
        // Hash both the path that a nested router has left, and the path that the client sent.
        (None, Some(original)) => {
            hash.update([2]);
            feed(&mut hash, path);
            feed(&mut hash, original.path().as_bytes());
        }
    }
    feed(&mut hash, caller.as_bytes());
    feed(&mut hash, key.as_str().as_bytes());
    let digest: [u8; 32] = hash.finalize().into();
    // The prefix separates this key from the keys of lock layers.
    LockKey::join(["idempotency", &hex(&digest)])
}

/// Change this if the hashed content changes, which breaks rows of users (`Idempotent::id`).
const SCOPE_VERSION: &[u8] = b"tower-redlock idempotency scope 3\n";

/// Hashes the host of a request. If its URI and its `Host` headers have different names, all of them are hashed,
/// because another program could take the request for the request of another tenant.
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

/// A host in lower case and without the default port of either scheme, because an HTTP/1 request does not name its
/// scheme.
fn canonical(name: &[u8]) -> Vec<u8> {
    let host = PORTS.iter().find_map(|port| name.strip_suffix(*port));
    let host = host.unwrap_or(name);
    // Keep a name with user information unchanged, because user information can be case-sensitive.
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
