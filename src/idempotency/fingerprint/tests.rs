use http::header::{AUTHORIZATION, HeaderName};
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
    let found = Fingerprint::new(&parts, b"{}");
    // A change of this makes every record in use another request's: raise the version, and say so.
    assert_eq!(
        hex(&found.0),
        "c7e92711bb3f3c1be4acc08b88d1973b4b7977d994ab861b5808df2beb6e2bfc"
    );
    assert_eq!(format!("{found:?}"), "Fingerprint(c7e92711..)");
}

#[test]
fn every_part_of_a_request_counts() {
    let json = (CONTENT_TYPE, "application/json");
    let of = |method, uri, given: &[_], body: &str| {
        Fingerprint::new(&parts(method, uri, given), body.as_bytes())
    };
    let all = [
        of("POST", "/a", &[], ""),
        of("PUT", "/a", &[], ""),
        of("POST", "/b", &[], ""),
        of("POST", "/a?", &[], ""),
        of("POST", "/a?b", &[], ""),
        of("POST", "/a", std::slice::from_ref(&json), ""),
        of("POST", "/a", &[json.clone(), json], ""),
        of("POST", "/a", &[(CONTENT_TYPE, "")], ""),
        of("POST", "/a", &[], "b"),
    ];
    for (index, one) in all.iter().enumerate() {
        assert!(!all[..index].contains(one), "{index}");
    }
}

#[test]
fn other_headers_do_not_count() {
    let of = |given: &[_]| Fingerprint::new(&parts("POST", "/", given), b"");
    assert_eq!(of(&[]), of(&[(AUTHORIZATION, "Bearer renewed")]));
}

type Tuple = (String, String, bool, String, String);

fn key_of((method, place, routed, caller, key): &Tuple) -> LockKey {
    let path = if *routed { "/elsewhere" } else { place };
    let request = Request::builder().method(&**method).uri(path).body(());
    let (parts, ()) = request.unwrap().into_parts();
    let key = IdempotencyKey::from_value(key.as_bytes()).unwrap();
    lock_key(&parts, routed.then_some(&**place), caller, &key).unwrap()
}

fn tuple_of(method: &str, place: &str, routed: bool, caller: &str, key: &str) -> Tuple {
    let [method, place, caller, key] = [method, place, caller, key].map(str::to_owned);
    (method, place, routed, caller, key)
}

#[test]
fn the_key_is_a_hash_and_stays_what_it_is() {
    let order = tuple_of("POST", "/orders", true, "acme", "k1");
    // A change of this breaks every key in use: raise the version, and say so in the changelog.
    let expected = "idempotency:eb6bfd9d6e987f4bff2ef2e6a9a074c74786d04cb15737ea1480e0c828af9953";
    assert_eq!(key_of(&order).as_str(), expected);
}

#[test]
fn everything_counts() {
    let keys = [
        tuple_of("POST", "/a", true, "", "k"),
        tuple_of("PUT", "/a", true, "", "k"),
        tuple_of("POST", "/b", true, "", "k"),
        tuple_of("POST", "/a", false, "", "k"),
        tuple_of("POST", "/a", true, "k", "k"),
        tuple_of("POST", "/a", true, "", "l"),
    ];
    let keys = keys.map(|tuple| key_of(&tuple));
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
    let other_port = hashed("/", &["acme.example:8443"]);
    assert_eq!(hashed("/", &["ACME.example:8443"]), other_port);
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
    let (method, place, caller, key) =
        ("[AB]{1,3}", "/[ab]{0,3}", "[\\x00-\\x02]{1,3}", "[ab]{1,3}");
    (method, place, any::<bool>(), caller, key)
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
