//! [`Scope`]: within what an idempotency key means one request, and the lock key that stands for it.

use http::Method;
use http::request::Parts;
use sha2::{Digest as _, Sha256};

use super::authority::Authority;
use super::caller::Caller;
use super::hashing::{feed, hex};
use super::key::IdempotencyKey;
use super::route::asked_for;
use crate::key_error::KeyError;
use crate::lock_key::LockKey;

/// Within what an idempotency key means one request: method, host, route and caller.
///
/// The same key sent to another host or route, by another method or by another caller is another request, and none of
/// them sees what the others came to.
///
/// # The host
///
/// It is the authority of the request's URI, which HTTP/2 and 3 call `:authority`, or else `Host`; it is empty where
/// there is neither. Upper and lower case are one host, and the ports 80 and 443 are as good as none: HTTP/1 does not
/// tell the scheme, so a host is one by `http` and by `https`. A trailing dot makes another.
///
/// Whoever reads the URI and whoever reads `Host` must not take a request for two tenants'. So where there are
/// several that differ, be it the URI's and the header's or two lines of the header, all of them together are a host
/// of their own.
///
/// A client that repeats its request by another name of the same service **runs it again**. Where that happens, because
/// of a second domain, of a proxy that sends a name of its own now and then, or because clients call each replica by
/// its own address, take [`any_host`](Self::any_host). And where a proxy always sends its own name, and says the
/// client's elsewhere (`X-Forwarded-Host`), the host tells nothing apart: if the tenant is in that, make it a part of
/// the [caller](super::caller).
///
/// # Several services
///
/// Services that use the same nodes under the same [namespace](crate::LockManagerBuilder::namespace) share their keys.
/// If a gateway in front of them takes off the prefix that tells them apart, so that the same route on the same host is
/// two services', give each a namespace of its own.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    method: &'a Method,
    authority: Option<Authority<'a>>,
    place: Place<'a>,
    caller: &'a Caller,
}

#[derive(Clone, Copy, Debug)]
enum Place<'a> {
    Route(&'a str),
    Path(&'a str),
    // As it is here and as it came.
    Nested(&'a str, &'a str),
}

impl<'a> Place<'a> {
    /// The place of a request without a route.
    fn of(parts: &'a Parts) -> Self {
        let path = parts.uri.path();
        asked_for(parts).map_or(Self::Path(path), |uri| Self::Nested(path, uri.path()))
    }
}

impl<'a> Scope<'a> {
    /// The scope of a request.
    ///
    /// `route` is the path of the route that matched, such as `/orders/{id}/pay`, if a router found one; else the path
    /// of the request's URI is taken, with what axum's `nest_service` has taken off. Under a route, one key sent to
    /// `/orders/1/pay` and to `/orders/2/pay` is a key that was used twice for different requests, and is refused; by
    /// paths, they are two keys.
    #[must_use]
    pub fn new(parts: &'a Parts, route: Option<&'a str>, caller: &'a Caller) -> Self {
        Self {
            method: &parts.method,
            authority: Some(Authority::of(parts)),
            place: route.map_or_else(|| Place::of(parts), Place::Route),
            caller,
        }
    }

    /// The same on every host. As [`IdempotencyLayer::any_host`](crate::IdempotencyLayer::any_host) has it.
    #[must_use]
    pub fn any_host(self) -> Self {
        Self {
            authority: None,
            ..self
        }
    }

    /// The lock key that stands for `key` in this scope: `idempotency:` and a SHA-256 in lower-case hexadecimal.
    ///
    /// What is hashed is unambiguous: no two different scopes and keys are written alike. Neither the caller nor the
    /// client's key can be read off it.
    ///
    /// # Errors
    ///
    /// None at present; the type is that of every key that is made.
    pub fn lock_key(&self, key: &IdempotencyKey) -> Result<LockKey, KeyError> {
        let mut hash = Sha256::new();
        hash.update(VERSION);
        feed(&mut hash, self.method.as_str().as_bytes());
        match self.authority {
            None => hash.update([0]),
            Some(authority) => {
                hash.update([1]);
                authority.feed(&mut hash);
            }
        }
        match self.place {
            Place::Route(route) => {
                hash.update([0]);
                feed(&mut hash, route.as_bytes());
            }
            Place::Path(path) => {
                hash.update([1]);
                feed(&mut hash, path.as_bytes());
            }
            Place::Nested(path, original) => {
                hash.update([2]);
                feed(&mut hash, path.as_bytes());
                feed(&mut hash, original.as_bytes());
            }
        }
        match self.caller.identity() {
            None => hash.update([0]),
            Some(identity) => {
                hash.update([1]);
                feed(&mut hash, identity);
            }
        }
        feed(&mut hash, key.as_str().as_bytes());
        let digest: [u8; 32] = hash.finalize().into();
        // A part of its own in front keeps it from the keys of other layers, whatever clients send.
        LockKey::join(["idempotency", &hex(&digest)])
    }
}

/// Changes with what is hashed: the keys of two versions never meet.
const VERSION: &[u8] = b"tower-redlock idempotency scope 2\n";

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
        let route = routed.then_some(&**place);
        Scope::new(&parts, route, &caller).lock_key(&key).unwrap()
    }

    #[test]
    fn a_host_has_keys_of_its_own_unless_none_has() {
        let of = |uri: &str, any_host: bool| {
            let (parts, ()) = Request::post(uri).body(()).unwrap().into_parts();
            let caller = Caller::nobody();
            let scope = Scope::new(&parts, Some("/orders"), &caller);
            let scope = if any_host { scope.any_host() } else { scope };
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
    }
}
