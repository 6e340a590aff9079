//! [`Scope`]: the owner of an idempotency key, and its lock key.

use http::header::HOST;
use http::request::Parts;
use sha2::{Digest as _, Sha256};

use super::caller::Caller;
use super::fingerprint::{feed, feed_len, feed_optional, hex};
use super::key::IdempotencyKey;
use crate::http::state::original_uri;
use crate::key_error::KeyError;
use crate::lock_key::LockKey;

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
        hash.update(VERSION);
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

/// Changes with the content of the hash, so that the keys of two versions differ.
const VERSION: &[u8] = b"tower-redlock idempotency scope 2\n";

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
mod tests {
    use super::*;
    use http::Request;
    use proptest::prelude::*;

    type Tuple = (String, String, bool, Option<Vec<u8>>, String);

    fn key_of((method, place, routed, caller, key): &Tuple) -> LockKey {
        let path = if *routed { "/elsewhere" } else { place };
        let request = Request::builder().method(&**method).uri(path).body(());
        let (parts, ()) = request.unwrap().into_parts();
        let caller = caller.as_ref().map(|caller| Caller::new(caller).unwrap());
        let caller = caller.unwrap_or(Caller::nobody());
        let key = IdempotencyKey::from_value(key.as_bytes()).unwrap();
        let scope = Scope {
            parts: &parts,
            route: routed.then_some(&**place),
            caller: &caller,
            any_host: false,
        };
        scope.lock_key(&key).unwrap()
    }

    #[test]
    fn a_host_has_keys_of_its_own_unless_none_has() {
        let of = |uri: &str, any_host: bool| {
            let (parts, ()) = Request::post(uri).body(()).unwrap().into_parts();
            let caller = Caller::nobody();
            let scope = Scope {
                parts: &parts,
                route: Some("/orders"),
                caller: &caller,
                any_host,
            };
            let key = IdempotencyKey::from_value(b"k1").unwrap();
            scope.lock_key(&key).unwrap()
        };
        let (acme, nowhere) = ("http://acme.example/orders", "/orders");
        assert_ne!(of(acme, false), of(nowhere, false));
        assert_eq!(of(acme, true), of(nowhere, true));
        assert_ne!(of(nowhere, false), of(nowhere, true));
    }

    #[test]
    fn the_key_is_a_hash_and_stays_what_it_is() {
        let order = ("POST", "/orders", true, Some(b"acme".to_vec()), "k1");
        let order = (
            order.0.into(),
            order.1.into(),
            order.2,
            order.3,
            order.4.into(),
        );
        // A change of this breaks every key in use: raise the version, and say so in the changelog.
        let expected =
            "idempotency:2383a8405985d3d50a26ac2c4584e0b6478433070952c4a4a9675b466f84edc1";
        assert_eq!(key_of(&order).as_str(), expected);
    }

    #[test]
    fn everything_counts() {
        let base: Tuple = ("POST".into(), "/a".into(), true, None, "k".into());
        let keys = [
            key_of(&base),
            key_of(&("PUT".into(), "/a".into(), true, None, "k".into())),
            key_of(&("POST".into(), "/b".into(), true, None, "k".into())),
            key_of(&("POST".into(), "/a".into(), false, None, "k".into())),
            key_of(&(
                "POST".into(),
                "/a".into(),
                true,
                Some(b"k".to_vec()),
                "k".into(),
            )),
            key_of(&("POST".into(), "/a".into(), true, None, "l".into())),
        ];
        let distinct: std::collections::BTreeSet<_> = keys.iter().collect();
        assert_eq!(distinct.len(), keys.len());
    }

    fn hashed(uri: &str, hosts: &[&str]) -> Vec<u8> {
        let mut request = Request::post(uri);
        for host in hosts {
            request = request.header(HOST, *host);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let mut hash = Sha256::new();
        feed_host(&mut hash, &parts);
        hash.finalize().to_vec()
    }

    #[test]
    fn one_host_is_one_however_it_is_written() {
        let acme = hashed("/", &["acme.example"]);
        for (uri, hosts) in [
            ("/", &["ACME.Example"] as &[_]),
            ("/", &["acme.example:443"]),
            ("/", &["acme.example:80"]),
            ("/", &["acme.example:"]),
            ("/", &["acme.example", "acme.example:80"]),
            ("https://acme.example/", &[]),
            ("http://ACME.example:80/", &[]),
            ("https://acme.example:443/", &["acme.example"]),
            // HTTP/1 would not tell this from the one above.
            ("https://acme.example:80/", &[]),
        ] {
            assert_eq!(hashed(uri, hosts), acme, "{uri} {hosts:?}");
        }
        assert_eq!(hashed("/", &["[::1]:80"]), hashed("http://[::1]/", &[]));
        assert_eq!(hashed("/", &[]), hashed("/", &[""]));
    }

    #[test]
    fn whatever_else_differs_is_another() {
        let all = [
            hashed("/", &[]),
            hashed("/", &["acme.example"]),
            hashed("/", &["acme.example."]),
            hashed("/", &["umbrella.example"]),
            hashed("/", &["acme.example:8443"]),
            hashed("/", &["acme.example:0443"]),
            hashed("/", &["acme.example:443:443"]),
            hashed("/", &["acme.example:80:443"]),
            hashed("/", &["alice@acme.example"]),
            hashed("/", &["Alice@acme.example"]),
            hashed("/", &["alice@acme.example:443"]),
            hashed("/", &["acme.example,umbrella.example"]),
            hashed("/", &["acme.example", "umbrella.example"]),
            hashed("/", &["umbrella.example", "acme.example"]),
            hashed("/", &["acme.example", ""]),
            hashed("https://acme.example/", &[""]),
            hashed(
                "https://umbrella.example/",
                &["acme.example", "acme.example"],
            ),
            hashed("/", &["::1"]),
            hashed("/", &["[::1]"]),
            hashed("/", &["::1:80"]),
        ];
        for (index, one) in all.iter().enumerate() {
            let same: Vec<_> = (0..index).filter(|other| all[*other] == *one).collect();
            assert!(same.is_empty(), "{index} is {same:?}");
        }
    }

    fn tuple() -> impl Strategy<Value = Tuple> {
        let caller = prop::option::of(prop::collection::vec(0_u8..3, 1..4));
        (
            "[AB]{1,3}",
            "/[ab]{0,3}",
            any::<bool>(),
            caller,
            "[ab]{1,3}",
        )
    }

    proptest! {
        #[test]
        fn different_tuples_never_meet(left in tuple(), right in tuple()) {
            prop_assert_eq!(left == right, key_of(&left) == key_of(&right));
        }

        /// What is taken off is the case, and a port at most once.
        #[test]
        fn only_case_and_port_are_taken_off(name in "[a:48@\\[\\]A]{0,6}(:443|:80|:)?") {
            let found = canonical(name.as_bytes());
            let found = str::from_utf8(&found).unwrap();
            let lower = name.to_ascii_lowercase();
            let rest = if found == name { "" } else { lower.strip_prefix(found).unwrap() };
            prop_assert!(["", ":", ":80", ":443"].contains(&rest), "{found} of {name}");
        }
    }
}
