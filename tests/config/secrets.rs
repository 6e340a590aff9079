//! Passwords and keys are in no text that is made of a configuration.

use tower_redlock::Settings;

use super::{json, refused_variables};

const SECRET: &str = "s3cret";

#[track_caller]
fn assert_hidden(text: &str) {
    assert!(!text.contains(SECRET) && !text.contains("cret@"), "{text}");
}

/// Settings as a part of others.
#[derive(Debug, serde::Deserialize)]
struct Larger {
    #[expect(dead_code, reason = "only its errors are looked at")]
    locks: Settings,
}

#[test]
fn debug_shows_the_settings_and_no_secret() {
    let toml = r#"
        ttl = "20s"
        password = "s3cret"
        [tls]
        root_certificate = "ca.pem"
        client_certificate = "-----BEGIN CERTIFICATE----- s3cret"
        client_key = "s3cret.key"
        [[nodes]]
        url = "rediss://me:s3cret@10.0.0.1:7/2"
        [[nodes]]
        url = "unix:///run/r.sock?pass=s3cret"
        password = "s3cret"
        tls = { client_key = "-----BEGIN PRIVATE KEY----- s3cret" }
        [[nodes]]
        sentinels = ["redis://:s3cret@10.0.0.2:26379"]
        master = "mymaster"
        [[nodes]]
        url = "redis://:s3/cret@h"
        [[nodes]]
        url = "s3cret"
    "#;
    let config: Settings = toml::from_str(toml).unwrap();
    for text in [format!("{config:?}"), format!("{config:#?}")] {
        assert_hidden(&text);
        for shown in [
            "20s",
            "ca.pem",
            "rediss://..@10.0.0.1:7/2",
            "/run/r.sock",
            "10.0.0.2:26379",
        ] {
            assert!(text.contains(shown), "{shown}: {text}");
        }
    }
}

#[test]
fn errors_show_no_secret_wherever_it_was_put() {
    for text in [
        "nodes = [\"redis://:s3cret@h:port\"]",
        "nodes = [\"redis://:s3/cret@h\"]",
        "nodes = [\"http://:s3cret@h\"]",
        "nodes = [{ url = \"redis://h\", sentinels = [\"redis://:s3cret@s\"] }]",
        "nodes = [{ master = \"m\", sentinels = [\"redis://:s3cret@s/1\"] }]",
        "nodes = [\"redis://:s3cret@h\", \"redis://:s3cret@h\"]",
        "nodes = [{ url = \"redis://h\", password = \"s3cret\", require = 0 }]",
        "nodes = \"redis://:s3cret@h:port\"",
        "password = [\"s3cret\"]",
        "password = \"s3cret\"\nnodes = [\"10.0.0.1\"]",
        "password = \"s3cret\"\npassword_file = \"f\"\nnodes = [\"redis://h\"]",
        "max_ttl = \"10s3cret\"",
        "nodes = { \"redis://:s3cret@h\" = 1 }",
        "nodes = [{ \"redis://:s3cret@h\" = 1 }]",
        "\"redis://:s3cret@h\" = 1",
        "ttl = \"s3cret\"",
        "memory = \"s3cret\"",
        "bootstrap = \"s3cret\"",
        "hand_off = \"s3cret\"",
        "namespace = \"redis://:s3cret@h\"",
        "tls = { client_key = \"-----BEGIN s3cret\" }\nnodes = [\"rediss://h\"]",
    ] {
        // As part of a larger one, too. With what toml shows of the text, and without.
        let part = format!("[locks]\n{text}");
        if let Err(error) = toml::from_str::<Larger>(&part) {
            assert_hidden(&format!("{error} {}", error.message()));
        }
        // A table within a line is shown with the line, as the docs say.
        let inline = format!("locks = {{ {} }}", text.replace('\n', ", "));
        if let Err(error) = toml::from_str::<Larger>(&inline) {
            assert_hidden(error.message());
        }
        if let Err(error) = serde_json::from_str::<Settings>(&json(text)) {
            assert_hidden(&format!("{error} {error:?}"));
        }
        match toml::from_str::<Settings>(text) {
            Ok(config) => {
                let error = config.check().expect_err(text);
                assert_hidden(&format!("{error} {error:?}"));
            }
            Err(error) => assert_hidden(&format!("{error} {}", error.message())),
        }
    }
}

#[test]
fn a_configuration_that_is_no_table_is_not_quoted() {
    // Somebody gives the URL of a server where its settings belong.
    let refused = |value: &str| {
        let toml = toml::from_str::<Larger>(&format!("locks = {value}")).unwrap_err();
        let json = serde_json::from_str::<Larger>(&format!("{{\"locks\": {value}}}")).unwrap_err();
        for text in [toml.message(), &json.to_string()] {
            assert_hidden(text);
            assert!(text.starts_with("the configuration is a "), "{text}");
            assert!(text.contains("; it must be a table"), "{text}");
        }
    };
    refused("\"redis://:s3cret@h\"");
    refused("[\"redis://:s3cret@h\"]");
    refused("5");
}

/// Nor a password of digits that was written without quotes. (Of `toml`, the message: it shows lines of the text.)
#[test]
fn a_number_for_a_password_is_not_repeated() {
    let node = "nodes = [{ url = \"redis://h\", password = 7305 }]";
    for text in ["password = 7305", node] {
        let error = toml::from_str::<Settings>(text).unwrap_err();
        let of_json = serde_json::from_str::<Settings>(&json(text)).unwrap_err();
        for text in [error.message(), &of_json.to_string()] {
            assert!(!text.contains("7305"), "{text}");
            assert!(text.contains("must be a text, in quotes"), "{text}");
        }
    }
}

#[test]
fn errors_of_variables_show_no_value() {
    for variable in [
        "TTL",
        "NODES",
        "NODES_0",
        "NODES_0_URL",
        "NODES_0_CONFIRM_WITHIN",
        "NODES_0_DATABASE",
        "MEMORY",
        "BOOTSTRAP",
        "DRIFT_FACTOR",
        "HAND_OFF",
        "TLS",
        "PASSWORD",
        "PASSWORD_FILE",
        "EXPECT_REPLICAS",
    ] {
        let error = refused_variables(&[(variable, "http://:s3cret@h")]);
        assert_hidden(&format!("{error} {error:?}"));
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_does_not_give_the_password_away() {
    let port = crate::support::server::free_port();
    let text =
        format!("connect_timeout = \"50ms\"\nnodes = [\"redis://:s3cret@127.0.0.1:{port}\"]");
    let config: Settings = toml::from_str(&text).unwrap();
    let error = config.clone().connect().await.unwrap_err();
    assert!(error.to_string().contains("no quorum"), "{error}");
    assert_hidden(&format!("{error} {error:?}"));
    assert_hidden(&format!("{config:?}"));
}
