//! Nodes that cannot be: the refusal names the node, and what of it is wrong.

use super::{refusal, refused_variables};

/// The second of two nodes, as the inside of a table; the field that is wrong, and a part of the reason.
#[rustfmt::skip]
const REFUSED: &[(&str, &str, &str)] = &[
    ("", "nodes[1].url", "is missing; give a URL"),
    ("url = \"\"", "nodes[1].url", "a node URL starts with"),
    ("url = \"10.0.0.1\"", "nodes[1].url", "a node URL starts with"),
    ("url = \"redis://h:port\"", "nodes[1].url", "malformed"),
    ("url = \"unix://tmp/s\"", "nodes[1].url", "malformed"),
    ("url = \"redis://H:6379\"", "nodes[1]", "the server h:6379 is listed twice"),
    ("url = \"redis://h/7\"", "nodes[1]", "the server h:6379 is listed twice"),
    ("url = \"redis://i\", name = \"h:6379\"", "nodes[1].name", "two nodes are called h:6379"),
    ("url = \"redis://i\", name = \"\"", "nodes[1].name", "is empty"),
    ("url = \"redis://i\", name = 1", "nodes[1].name", "must be a text"),
    ("url = \"redis://i\", user = 1", "nodes[1].user", "must be a text"),
    ("url = \"redis://i\", password = 1", "nodes[1].password", "must be a text"),
    ("url = \"redis://i\", password = \"p\", password_file = \"f\"", "nodes[1].password_file", "leave out one of them"),
    ("url = \"redis://i\", password_file = \"/nowhere/at/all\"", "nodes[1].password_file", "cannot be read"),
    ("url = \"redis://i\", password_file = \"/dev/null\"", "nodes[1].password_file", "is empty"),
    ("url = \"redis://i\", password = \"\"", "nodes[1].password", "is empty; leave it out"),
    ("url = \"redis://i\", database = -1", "nodes[1].database", "must be a whole number from 0 to"),
    ("url = \"redis://i\", require = 0", "nodes[1].require", "must be at least 1"),
    ("url = \"redis://i\", require = \"1\"", "nodes[1].require", "without quotes"),
    ("url = \"redis://i\", expect_replicas = \"no\"", "nodes[1].expect_replicas", "true or false"),
    ("url = \"redis://i\", durable = \"no\"", "nodes[1].durable", "true or false"),
    ("url = \"redis://i\", master = \"m\"", "nodes[1].master", "leave out one"),
    ("url = \"redis://i\", sentinels = [\"redis://s\"]", "nodes[1].sentinels", "leave out one"),
    ("url = \"redis://i\", replicas = 1", "nodes[1].replicas", "no such setting; there are: url,"),
    ("sentinels = [\"redis://s\"]", "nodes[1].master", "is missing"),
    ("master = \"m\"", "nodes[1].sentinels", "at least one Sentinel"),
    ("master = \"\", sentinels = [\"redis://s\"]", "nodes[1].master", ""),
    ("master = \"m\", sentinels = 7", "nodes[1].sentinels", "must be a list"),
    ("master = \"m\", sentinels = [\"redis://s\", 1]", "nodes[1].sentinels[1]", "must be a text"),
    ("master = \"m\", sentinels = [\"redis://s\", \"s\"]", "nodes[1].sentinels[1]", "starts with"),
    ("master = \"m\", sentinels = [\"unix:///s\"]", "nodes[1].sentinels[0]", ""),
    ("master = \"m\", sentinels = [\"redis://s\", \"redis://s/1\"]", "nodes[1].sentinels[1]", "no databases"),
    ("master = \"m\", sentinels = [\"redis://s\", \"redis://S:6379\"]", "nodes[1].sentinels[1]", "listed twice"),
    ("master = \"m\", sentinels = [\"redis://s\"], confirm_within = \"99ms\"", "nodes[1].confirm_within", "from 100 ms"),
    ("master = \"m\", sentinels = [\"redis://s\"], confirm_within = 3", "nodes[1].confirm_within", "say \"3s\""),
    ("url = \"redis://i\", confirm_within = \"3s\"", "nodes[1].confirm_within", "found through Sentinels"),
    ("url = \"redis://i\", tls = \"ca.pem\"", "nodes[1].tls", "must be a table"),
    ("url = \"redis://i\", tls = { ca = \"ca.pem\" }", "nodes[1].tls.ca", "no such setting"),
];

#[track_caller]
fn assert_refused(text: &str, field: &str, reason: &str) {
    let refusal = refusal(text);
    let is_named = refusal.starts_with(&format!("{field}: "));
    assert!(is_named && refusal.contains(reason), "{text}: {refusal}");
}

#[test]
fn a_node_that_cannot_be_is_refused_with_its_field_and_the_reason() {
    for (node, field, reason) in REFUSED {
        let text = format!("nodes = [\"redis://h\", {{{node}}}]");
        assert_refused(&text, field, reason);
    }
    let many: Vec<_> = (0..33).map(|host| format!("redis://h{host}")).collect();
    assert_refused(&format!("nodes = {many:?}"), "nodes", "at most 32");
}

#[test]
fn credentials_for_all_are_refused_where_they_are_given() {
    for (text, reason) in [
        (
            "password = \"p\"\npassword_file = \"f\"",
            "leave out one of them",
        ),
        ("password_file = \"/nowhere/at/all\"", "cannot be read"),
        ("password_file = \"/dev/null\"", "is empty"),
    ] {
        let text = format!("{text}\nnodes = [\"redis://h\"]");
        assert_refused(&text, "password_file", reason);
    }
}

#[test]
fn nodes_of_variables_are_refused_alike() {
    let error = refused_variables(&[("NODES", "redis://a,,redis://b")]);
    assert_eq!(error.field(), Some("nodes"));
    let error = refused_variables(&[("NODES_0", "redis://a"), ("NODES_1_NAME", "b")]);
    assert_eq!(error.field(), Some("nodes[1].url"));
}

#[cfg(not(feature = "tls"))]
#[test]
fn tls_needs_the_feature() {
    assert_refused("nodes = [\"rediss://h\"]", "nodes[0].url", "feature `tls`");
    let text = "nodes = [\"redis://h\"]\ntls = { root_certificate = \"ca.pem\" }";
    assert_refused(text, "tls", "feature `tls`");
}

#[cfg(feature = "tls")]
mod tls {
    use super::*;

    #[test]
    fn certificates_that_cannot_be_used_are_refused_where_they_are_given() {
        const CERTIFICATE: &str = "client_certificate = \"-----BEGIN CERTIFICATE-----\"";
        let without_key = format!("{CERTIFICATE}, client_key = \"/nowhere/at/all.pem\"");
        for (tls, field, reason) in [
            (
                "root_certificate = \"/nowhere/at/all.pem\"",
                "root_certificate",
                "cannot be read",
            ),
            (
                "root_certificate = \"-----BEGIN LETTER-----\"",
                "root_certificate",
                "not in PEM form",
            ),
            (CERTIFICATE, "client_key", "is missing"),
            (
                "client_key = \"-----BEGIN PRIVATE KEY-----\"",
                "client_certificate",
                "is missing",
            ),
            (&without_key, "client_key", "cannot be read"),
            (
                "client_certificate = \"-----BEGIN X\", client_key = \"-----BEGIN Y\"",
                "client_certificate",
                "not in PEM form",
            ),
        ] {
            let shared = format!("tls = {{ {tls} }}\nnodes = [\"rediss://h\"]");
            assert_refused(&shared, &format!("tls.{field}"), reason);
            let own = format!("nodes = [{{url = \"rediss://h\", tls = {{ {tls} }} }}]");
            assert_refused(&own, &format!("nodes[0].tls.{field}"), reason);
        }
    }

    #[test]
    fn certificates_for_a_server_without_tls_are_refused() {
        let text =
            "nodes = [\"redis://h\"]\ntls = { root_certificate = \"-----BEGIN CERTIFICATE-----\" }";
        assert_refused(text, "nodes[0].url", "use a `rediss://` URL");
    }

    #[test]
    fn a_certificate_is_read_from_its_file() {
        let key = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let dir = crate::support::server::new_dir();
        let path = dir.join("ca.pem");
        std::fs::write(&path, key.cert.pem()).unwrap();
        let path = path.display();
        let text =
            format!("nodes = [\"rediss://localhost\"]\ntls = {{ root_certificate = \"{path}\" }}");
        let settings: tower_redlock::Settings = toml::from_str(&text).unwrap();
        settings.check().unwrap();
        std::fs::remove_dir_all(dir).unwrap();
    }
}
