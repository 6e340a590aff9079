//! The host of a request.

use http::header::HOST;
use http::request::Parts;
use sha2::{Digest as _, Sha256};

use super::hashing::{feed, feed_len};

/// Feeds the host of a request, by its head: the authority of its URI, which is `:authority` in HTTP/2 and 3, and
/// `Host`. Only spellings that certainly name one host are equal. The rest is the client's text, and is hashed
/// unchanged.
///
/// If all names are equal, one is fed, or else all of them and their places: two readers could take such a request for
/// two tenants', so it is a host of its own. Without any name, an empty one.
pub(super) fn feed_host(hash: &mut Sha256, parts: &Parts) {
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

/// A host in lower case, without a default port. A request of HTTP/1 has no scheme, so the default ports of both
/// schemes count. Text that is not a host and port stays unchanged.
fn canonical(name: &[u8]) -> Vec<u8> {
    let host = PORTS.iter().find_map(|port| name.strip_suffix(*port));
    let host = host.unwrap_or(name);
    // User information does not belong here, and may be case-sensitive.
    if host.contains(&b'@') || !is_without_port(host) && host.len() < name.len() {
        return name.to_vec();
    }
    host.to_ascii_lowercase()
}

/// Whether the text before a port is a host, in which colons are allowed in brackets only.
fn is_without_port(host: &[u8]) -> bool {
    match host {
        [b'[', .., b']'] => true,
        host => !host.contains(&b':'),
    }
}

/// The default ports of `http` and `https`; a port may be empty, too.
const PORTS: [&[u8]; 3] = [b":443", b":80", b":"];

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;
    use proptest::prelude::*;

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

    proptest! {
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
