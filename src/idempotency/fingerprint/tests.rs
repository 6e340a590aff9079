use http::header::{ACCEPT, AUTHORIZATION};
use http::{HeaderValue, Request};
use proptest::prelude::*;

use super::*;

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
    assert_eq!(format!("{found:?}"), "Fingerprint(43a157a0..)");
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
    let expected = "idempotency:2383a8405985d3d50a26ac2c4584e0b6478433070952c4a4a9675b466f84edc1";
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
