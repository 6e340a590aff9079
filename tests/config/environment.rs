//! The environment: its lists, its numbers, and the variables that are none of ours.

use std::process::Command;

use proptest::prelude::*;
use tower_redlock::Settings;

use super::{of_variables, refused_variables, told};

/// A service that `redlock run` starts may read the variables with this prefix.
#[test]
fn variables_of_the_program_are_no_settings() {
    let variables = [
        ("REDLOCK_CONFIG", "locks.toml"),
        ("REDLOCK_KEY", "order:42"),
        ("REDLOCK_FENCE", "1843200000000000000"),
    ];
    let settings = of_variables("REDLOCK", variables).unwrap();
    assert_eq!(told(&settings), told(&Settings::default()));
}

#[cfg(feature = "redis")]
#[test]
fn nodes_are_a_list_or_numbered() {
    use tower_redlock::node::RedisNode;

    let listed = of_variables("A", [("A_NODES", "redis://a, redis://b")]).unwrap();
    let numbered = [
        ("A_NODES_1_URL", "redis://b"),
        ("A_NODES_0", "redis://a"),
        ("B_TTL", "nonsense"),
        ("ATTL", "nonsense"),
        ("A", "nonsense"),
    ];
    let numbered = of_variables("A", numbered).unwrap();
    assert_eq!(told(&numbered), told(&listed));
    let built = Settings::default().redis(["redis://a", "redis://b"]);
    assert_eq!(told(&listed), told(&built));
    let one = of_variables("A", [("A_NODES", "redis://a")]).unwrap();
    assert_eq!(told(&one), told(&Settings::default().redis("redis://a")));
    // Ten come after nine.
    let urls: Vec<_> = (0..11).map(|index| format!("redis://h{index}")).collect();
    let many = urls.iter().enumerate();
    let many = many.map(|(index, url)| (format!("A_NODES_{index}"), url));
    let many = of_variables("A", many).unwrap();
    assert_eq!(told(&many), told(&Settings::default().redis(&urls)));

    let watched = RedisNode::sentinel(["redis://s", "redis://t"], "m").require(1);
    #[cfg(feature = "tls")]
    let watched = watched.root_certificate("ca.pem");
    let variables = [
        ("A_NODES_0_SENTINELS", "redis://s,redis://t"),
        ("A_NODES_0_MASTER", "m"),
        ("A_NODES_0_REQUIRE", "1"),
        #[cfg(feature = "tls")]
        ("A_NODES_0_TLS_ROOT_CERTIFICATE", "ca.pem"),
    ];
    let settings = of_variables("A", variables).unwrap();
    let built = Settings::default().redis_nodes([watched]);
    assert_eq!(told(&settings), told(&built));
    let settings = of_variables("A", [("A_TLS_CLIENT_CERTIFICATE", "c.pem")]).unwrap();
    assert!(told(&settings).contains("client_certificate: Some(c.pem)"));
}

#[test]
fn an_empty_namespace_means_something_and_other_empty_variables_do_not() {
    let settings = of_variables("A", [("A_NAMESPACE", "")]).unwrap();
    let built = Settings::default().namespace("");
    assert_eq!(told(&settings), told(&built));
    assert_eq!(
        refused_variables(&[("TTL", "")]).to_string(),
        "ttl: is empty; unset the variable for the default (environment variable APP_TTL)"
    );
}

type Variables = &'static [(&'static str, &'static str)];

/// Variables without their prefix, the field that is wrong, and a part of the reason.
#[rustfmt::skip]
const REFUSED: &[(Variables, &str, &str)] = &[
    (&[("TTLS", "1s")], "ttls", "there is no such setting; there are: nodes, memory,"),
    (&[("ttl", "1s")], "ttl", "upper case"),
    (&[("HAND_OFF", "off")], "hand_off", "must be true or false ("),
    (&[("MEMORY", "five")], "memory", "must be a whole number from 0, as in 5 ("),
    (&[("MEMORY", "+5")], "memory", "must be a whole number from 0"),
    (&[("MEMORY", "-1")], "memory", "must be a whole number from 0"),
    (&[("MEMORY", "99999999999999999999999999999999999999999")], "memory", "is too large a number"),
    (&[("BOOTSTRAP", "yes")], "bootstrap", "must be true or false ("),
    (&[("MAX_WAIT", "2")], "max_wait", "must be a duration with units, as in \"10s\""),
    (&[("MAX_WAIT", "18446744073709551615s1000ms")], "max_wait", "must be a duration with units, as in \"10s\""),
    (&[("NODES_0_URL", "x"), ("NODES_0_CONFIRM_WITHIN", "1")], "nodes[0].confirm_within", "must be a duration with units"),
    (&[("NODES_0", "x"), ("NODES_0_CONFIRM_WITHIN", "18446744073709551615s1000ms")], "nodes[0].confirm_within", "must be a duration"),
    (&[("NODES", "redis://a,")], "nodes", "has an empty entry; is there a comma too many? ("),
    (&[("NODES_1", "x")], "nodes[0]", "is missing, though there is nodes[1]"),
    (&[("NODES_0", "x"), ("NODES_00", "y")], "nodes[0].url", "given twice"),
    (&[("NODES_0", "x"), ("NODES_0_URL", "y")], "nodes[0].url", "given twice"),
    (&[("NODES", "x"), ("NODES_0_URL", "y")], "nodes", "given twice"),
    (&[("EXPECT_REPLICAS", "true")], "expect_replicas", "into its variables, which begin with `NODES_0_`"),
    (&[("PASSWORD_FILE", "")], "password_file", "is empty"),
    (&[("PASSWORDS", "x")], "passwords", "there is no such setting; there are: nodes, memory, user, password,"),
    (&[("NODES_X_URL", "x")], "nodes_x_url", "no such setting"),
    (&[("NODES_0_TLS_CERT", "x")], "nodes[0].tls.cert", "there are: root_certificate"),
];

#[test]
fn a_refusal_names_the_field_and_the_variable() {
    for (variables, field, text) in REFUSED {
        let error = refused_variables(variables);
        assert_eq!(error.field(), Some(*field), "{error}");
        let shown = error.to_string();
        assert!(shown.starts_with(&format!("{field}: ")), "{shown}");
        assert!(shown.contains(text), "{shown}");
        assert!(shown.contains(" (environment variable APP_"), "{shown}");
    }
    // The variable that is to blame, where several are read.
    let error = refused_variables(&[("MEMORY", "5"), ("TTL", "1s"), ("MAX_HOLD", "never")]);
    let end = "(environment variable APP_MAX_HOLD)";
    assert!(error.to_string().ends_with(end), "{error}");
}

#[test]
fn a_name_that_is_none_is_repeated_nowhere() {
    let long = "X".repeat(81);
    for name in ["redis://:s3cret@h", "TTL\u{7}\n", "TTL\u{202e}", &long] {
        let text = refused_variables(&[(name, "1s")]).to_string();
        assert!(text.starts_with("APP_.. is an environment"), "{text}");
        assert!(!text.contains(name) && !text.contains("s3cret"), "{text}");
    }
}

#[test]
fn a_prefix_is_needed() {
    let error = of_variables("", [("_TTL", "1s")]).unwrap_err();
    assert!(error.to_string().contains("as in `REDLOCK`"), "{error}");
    let error = of_variables("APP_", [("APP_TTL", "1s")]).unwrap_err();
    assert!(error.to_string().contains("leave it out"), "{error}");
}

/// Says that this process is the child of the test below, with its environment.
const CHILD: &str = "CONFIG_TEST_CHILD";

/// The environment of a process cannot be changed safely, so a process with another one is started.
#[test]
fn the_variables_of_the_process_are_read() {
    if std::env::var_os(CHILD).is_some() {
        let config = Settings::default().with_env("CONFIG_OWN").unwrap();
        assert_eq!(told(&config), told(&Settings::default().memory(3)));
        let error = Settings::default().with_env("CONFIG_BAD").unwrap_err();
        assert_eq!(error.field(), Some("memori"));
        #[cfg(unix)]
        {
            let error = Settings::default().with_env("CONFIG_ODD").unwrap_err();
            let text = "the environment variable CONFIG_ODD_TTL is not UTF-8";
            assert_eq!(error.to_string(), text);
        }
        return;
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child
        .args([
            "--exact",
            "environment::the_variables_of_the_process_are_read",
        ])
        .env(CHILD, "1")
        .env("CONFIG_OWN_MEMORY", "3")
        .env("CONFIG_BAD_MEMORI", "3");
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStrExt as _;
        child.env("CONFIG_ODD_TTL", std::ffi::OsStr::from_bytes(b"1\xffs"));
    }
    let output = child.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let passed = output.status.success() && text.contains("1 passed");
    assert!(passed, "{text}");
}

proptest! {
    /// Whatever the environment holds, the answer is a configuration or an error.
    #[test]
    fn no_environment_makes_it_panic(
        variables in proptest::collection::vec(
            ("A_(NODES_?|HAND_OFF_?|TLS_?|FENCING_?)?[0-9A-Z_]{0,6}(_URL|_TLS_X|_SENTINELS)?", "\\PC{0,9}"), 0..6,
        )
    ) {
        let _ = of_variables("A", variables);
    }

    #[test]
    fn a_duration_is_read_or_refused_by_name(text in "[0-9dhms. ]{1,9}") {
        match of_variables("A", [("A_MAX_WAIT", &text)]) {
            // A number without a unit is no duration, except `0`, which is the same in all.
            Ok(settings) => {
                let none = Settings::default().max_wait(std::time::Duration::ZERO);
                let is_zero = text == "0" && told(&settings) == told(&none);
                prop_assert!(is_zero || text.trim_end().ends_with(['d', 'h', 'm', 's']));
            }
            Err(error) => prop_assert_eq!(error.field(), Some("max_wait")),
        }
    }
}
