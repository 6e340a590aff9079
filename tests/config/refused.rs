//! Every field with values that make no sense: the refusal begins with the field and says why.

use tower_redlock::Settings;

use super::refusal;

/// Lines beside `memory = 5`, the field that is wrong, and a part of the reason.
#[rustfmt::skip]
const REFUSED: &[(&str, &str, &str)] = &[
    ("namespace = 5", "namespace", "is a whole number; it must be a text"),
    ("namespace = \"a b\"", "namespace", "has at most 64 bytes"),
    ("ttl = 10", "ttl", "say \"10s\" or \"10ms\""),
    ("ttl = -10", "ttl", "is a whole number; it must be a duration with units, as in \"10s\""),
    ("ttl = 1.5", "ttl", "is a number with a fraction; it must be a duration"),
    ("ttl = true", "ttl", "is true or false; it must be a duration"),
    ("ttl = 2020-01-01", "ttl", "is a table; it must be a duration"),
    ("ttl = \"\"", "ttl", "must be a duration with units, as in \"10s\""),
    ("ttl = \"1m30\"", "ttl", "must be a duration with units"),
    ("ttl = \"-1s\"", "ttl", "must be a duration with units"),
    // More than there can be, as a sum of two that there can be.
    ("ttl = \"18446744073709551615s1000ms\"", "ttl", "must be a duration with units"),
    ("ttl = \"5ms\"", "ttl", "must be at least 10ms"),
    ("ttl = \"1us\"", "ttl", "ttl is 1µs; it must be at least 10ms"),
    ("max_ttl = \"9999us\"", "max_ttl", "max_ttl is 9.999ms; it must be at least 10ms"),
    ("ttl = \"2d\"", "ttl", "must be at most 86400s"),
    ("max_ttl = 60", "max_ttl", "say \"60s\""),
    ("max_ttl = \"25h\"", "max_ttl", "must be at most 86400s"),
    ("max_ttl = \"5s\"", "ttl", "ttl is 10s, and max_ttl, the longest that any process uses with these nodes, is 5s; use a shorter ttl, or a longer max_ttl; to raise max_ttl while the nodes are in use, follow `Moving` in docs::operating"),
    ("node_timeout = 1", "node_timeout", "say \"1s\" or \"1ms\""),
    ("connect_timeout = []", "connect_timeout", "is a list; it must be a duration"),
    ("connect_timeout = \"25h\"", "connect_timeout", "at most 86400s"),
    ("groups = 0", "groups", "must be from 1 to 64"),
    ("groups = 65", "groups", "must be from 1 to 64"),
    ("groups = 4", "groups", "5 nodes cannot be divided into 4 groups of equal size; give each group the same number of nodes"),
    ("mask_losses = \"1\"", "mask_losses", "must be a whole number from 0 without quotes"),
    ("mask_losses = -1", "mask_losses", "must be a whole number from 0"),
    ("max_hold = 60", "max_hold", "say \"60s\""),
    ("max_hold = \"10M\"", "max_hold", "must be a duration with units"),
    ("user = \"lock\"", "memory", "have neither credentials nor certificates"),
    ("password = \"s3cret\"", "memory", "have neither credentials nor certificates"),
    ("password_file = \"/run/p\"", "memory", "have neither credentials nor certificates"),
    ("tls = { root_certificate = \"ca.pem\" }", "memory", "have neither credentials nor certificates"),
    ("max_wait = 5", "max_wait", "say \"5s\""),
    ("max_wait = \"forever\"", "max_wait", "must be a duration with units"),
    ("max_waiters_per_key = 1.0", "max_waiters_per_key", "must be a whole number"),
    ("max_waiters_per_key = 0", "max_waiters_per_key", "must be at least 1"),
    ("max_waiters = -3", "max_waiters", "must be a whole number from 0"),
    ("hand_off = \"off\"", "hand_off", "must be true or false, without quotes"),
    ("fencing = { keep = \"5m\" }", "fencing", "is a table; it must be true or false"),
    ("restart_guard = 0", "restart_guard", "must be true or false"),
    ("bootstrap = 1", "bootstrap", "must be true or false"),
    ("redact_keys = 1", "redact_keys", "must be true or false"),
    ("bootstrap = \"true\"", "bootstrap", "without quotes"),
    ("tls = \"ca.pem\"", "tls", "must be a table"),
    ("tls = { root_certificate = 1 }", "tls.root_certificate", "must be a text"),
    ("tls = { client_certificate = 1 }", "tls.client_certificate", "must be a text"),
    ("tls = { client_key = 1 }", "tls.client_key", "must be a text"),
    ("tls = { ca = \"x\" }", "tls.ca", "there are: root_certificate"),
    ("user = 1", "user", "must be a text"),
    ("instance = 1", "instance", "must be a text"),
    ("instance = \"till 3\"", "instance", "holds only ASCII letters"),
    ("password = 1234", "password", "must be a text, in quotes"),
    ("password_file = 1", "password_file", "must be a text"),
    ("expect_replicas = true", "expect_replicas", "put it into the table of each node"),
    ("sentinels = []", "sentinels", "put it into the table of each node"),
    ("nodes = [\"redis://h\"]", "memory", "cannot be combined with other nodes"),
    ("ttls = \"1s\"", "ttls", "there is no such setting; there are: nodes, memory, user, password, password_file, namespace, instance, ttl,"),
];

/// The same without `memory = 5`.
#[rustfmt::skip]
const REFUSED_NODES: &[(&str, &str, &str)] = &[
    ("", "nodes", "there is no node: give the URLs of servers, or `memory` with a number for nodes inside this process"),
    ("nodes = []", "nodes", "there is no node"),
    ("nodes = \"10.0.0.1\"", "nodes[0].url", "starts with `redis://`"),
    ("nodes = \"redis://a,redis://b\"", "nodes[0].url", "malformed"),
    ("nodes = {}", "nodes", "it must be a list"),
    ("nodes = [5]", "nodes[0]", "it must be a URL in quotes or a table"),
    ("nodes = [\"redis://h\", {host = \"i\"}]", "nodes[1].host", "no such setting; there are: url,"),
    ("nodes = [{url = 5}]", "nodes[0].url", "must be a text"),
    ("memory = \"5\"", "memory", "must be a whole number from 0 without quotes"),
    ("memory = -1", "memory", "must be a whole number from 0"),
    ("memory = 0", "memory", "must be at least 1"),
    ("groups = 2\nnodes = [\"redis://h\", {cluster = [\"redis://i\"]}]", "groups", "a cluster in groups cannot be combined"),
    ("memory = 33", "memory", "there are 33 nodes; at most 32"),
    ("memory = 9223372036854775807", "memory", "at most 32"),
];

#[test]
fn every_value_that_makes_no_sense_is_refused_with_its_field_and_the_reason() {
    for (rows, beside) in [(REFUSED, "memory = 5"), (REFUSED_NODES, "")] {
        for (line, field, reason) in rows {
            let refusal = refusal(&format!("{beside}\n{line}"));
            let named = refusal.strip_prefix(field);
            let is_named = named.is_some_and(|rest| rest.starts_with([':', ' ']));
            assert!(is_named && refusal.contains(reason), "{line}: {refusal}");
        }
    }
}

/// A field that was added without a row above.
#[test]
fn every_field_has_a_row() {
    let known = refusal("x = 1");
    let (_, known) = known.split_once("there are: ").unwrap();
    for field in known.split(", ") {
        let rows = REFUSED.iter().chain(REFUSED_NODES);
        let rows = rows.filter(|(_, name, _)| name.split(['.', '[']).next() == Some(field));
        assert!(rows.count() > 0, "{field}");
    }
    assert_eq!(known.split(", ").count(), 23);
}

#[test]
fn errors_of_json_name_the_field_too() {
    let table = "tls: is a list; it must be a table";
    for (text, part) in [
        (
            r#"{"ttl": 10}"#,
            "ttl: is a number without a unit; say \"10s\" or \"10ms\"",
        ),
        (
            r#"{"ttl": null}"#,
            "ttl: is empty (null); it must be a duration",
        ),
        (r#"{"ttl": "1s", "ttl": "2s"}"#, "ttl: is given twice"),
        (
            r#"{"tls": {"x": 1, "x": 2}}"#,
            "tls.x: there is no such setting",
        ),
        (r#"{"max_waiters": 99999999999999999999}"#, "max_waiters: "),
        // A list is not taken for the fields in their order.
        (r#"{"tls": ["ca.pem"]}"#, table),
        (r#"{"nodes": [{"tls": ["ca.pem"]}]}"#, table),
        ("[]", ""),
        (r#""redis://:s3cret@h""#, ""),
    ] {
        let error = serde_json::from_str::<Settings>(text).unwrap_err();
        assert!(error.to_string().contains(part), "{text}: {error}");
    }
}

#[tokio::test]
async fn a_manager_is_not_made_of_nonsense() {
    use tower_redlock::error::ConnectError;

    let settings: Settings = toml::from_str("memory = 5\nttl = \"1ms\"").unwrap();
    let error = settings.connect().await.unwrap_err();
    assert_eq!(error.to_string(), "ttl is 1ms; it must be at least 10ms");
    let ConnectError::Config(error) = error else {
        panic!("{error:?}");
    };
    assert_eq!(error.field(), Some("ttl"));
}

#[cfg(not(feature = "redis"))]
#[test]
fn servers_need_the_feature() {
    let refusal = refusal("nodes = [\"redis://:s3cret@h\"]");
    assert!(
        refusal.starts_with("nodes[0]: servers need the feature `redis`"),
        "{refusal}"
    );
}

#[cfg(feature = "redis")]
#[test]
fn servers_that_are_no_cluster_can_be_in_groups() {
    let nodes = [
        "redis://a",
        "redis://b",
        "redis://c",
        "redis://d",
        "redis://e",
        "redis://f",
    ];
    let settings = Settings::default().redis(nodes).groups(2);
    settings.check().unwrap();
}

#[cfg(feature = "redis")]
#[test]
fn memory_needs_no_credentials() {
    let never = || async { Err::<tower_redlock::node::Credentials, _>("no vault") };
    let settings = Settings::default().memory(1).credentials(never);
    let error = settings.check().unwrap_err().to_string();
    assert!(error.contains("have neither credentials"), "{error}");
}
