//! The same settings from every source, and the same manager from them.

use std::time::Duration;

use tower_redlock::{LockManager, Settings};

use super::of_variables;

/// Everything that can be said beside the nodes, all of it unlike what is usual.
const TOML: &str = r#"
memory = 8
namespace = "shop"
instance = "till-3"
ttl = "1m30s"
max_ttl = "3m"
node_timeout = "150ms"
connect_timeout = "7s"
groups = 2
mask_losses = 1
max_hold = "2h"
max_wait = "1s500ms"
max_waiters_per_key = 7
max_waiters = 70
bootstrap = true
redact_keys = true
hand_off = false
fencing = false
restart_guard = false
"#;

const JSON: &str = r#"{
    "memory": 8, "namespace": "shop", "instance": "till-3", "ttl": "1m30s", "max_ttl": "180s",
    "node_timeout": "150ms", "connect_timeout": "7s",
    "groups": 2, "mask_losses": 1, "max_hold": "2h", "max_wait": "1s500ms", "max_waiters_per_key": 7,
    "max_waiters": 70, "bootstrap": true,
    "redact_keys": true, "hand_off": false, "fencing": false, "restart_guard": false
}"#;

const VARIABLES: [(&str, &str); 19] = [
    ("REDLOCK_MEMORY", "8"),
    ("REDLOCK_NAMESPACE", "shop"),
    ("REDLOCK_INSTANCE", "till-3"),
    ("REDLOCK_TTL", "1m30s"),
    ("REDLOCK_MAX_TTL", "3m"),
    ("REDLOCK_NODE_TIMEOUT", "150ms"),
    ("REDLOCK_CONNECT_TIMEOUT", "7s"),
    ("REDLOCK_GROUPS", "2"),
    ("REDLOCK_MASK_LOSSES", "1"),
    ("REDLOCK_MAX_HOLD", "2h"),
    ("REDLOCK_MAX_WAIT", "1s500ms"),
    ("REDLOCK_MAX_WAITERS_PER_KEY", "7"),
    ("REDLOCK_MAX_WAITERS", "70"),
    ("REDLOCK_BOOTSTRAP", "true"),
    ("REDLOCK_REDACT_KEYS", "true"),
    ("REDLOCK_HAND_OFF", "false"),
    ("REDLOCK_FENCING", "false"),
    ("REDLOCK_RESTART_GUARD", "false"),
    ("REDLOCKS_OF_ANOTHER", "kind"),
];

fn of_toml(text: &str) -> Settings {
    toml::from_str(text).unwrap()
}

/// All that was said, but passwords.
fn told(settings: &Settings) -> String {
    format!("{settings:?}")
}

#[test]
fn all_sources_say_the_same() {
    let settings = told(&of_toml(TOML));
    assert_eq!(told(&serde_json::from_str(JSON).unwrap()), settings);
    assert_eq!(told(&of_variables("REDLOCK", VARIABLES).unwrap()), settings);
}

#[test]
fn a_configuration_tells_a_builder_what_its_setters_do() {
    let builder = LockManager::builder()
        .memory(8)
        .namespace("shop")
        .instance("till-3")
        .ttl(Duration::from_secs(90))
        .max_ttl(Duration::from_secs(180))
        .node_timeout(Duration::from_millis(150))
        .connect_timeout(Duration::from_secs(7))
        .groups(2)
        .mask_losses(1)
        .max_hold(Duration::from_secs(7_200))
        .max_wait(Duration::from_millis(1_500))
        .max_waiters_per_key(7)
        .max_waiters(70)
        .bootstrap(true)
        .redact_keys(true)
        .hand_off(false)
        .without_fencing()
        .without_restart_guard();
    assert_eq!(told(&of_toml(TOML)), format!("{builder:?}"));
}

/// One number for most services: who sets the ttl alone needs no other setting, from whatever source it comes.
#[tokio::test]
async fn the_longest_ttl_follows_the_ttl_unless_it_is_set() {
    let seconds = Duration::from_secs;
    let of_ttl = |ttl: &str| {
        [
            of_toml(&format!("memory = 1\nttl = '{ttl}'")),
            of_variables("A", [("A_MEMORY", "1"), ("A_TTL", ttl)]).unwrap(),
        ]
    };
    for (ttl, longest) in [("30s", 30), ("2s", 10)] {
        for settings in of_ttl(ttl) {
            let locks = settings.connect_lazy().unwrap();
            assert_eq!(locks.max_ttl(), seconds(longest), "{ttl}");
            let error = locks.with_ttl(seconds(longest + 1)).unwrap_err();
            assert!(error.to_string().contains("or a longer max_ttl"), "{error}");
        }
    }
    let set = LockManager::builder()
        .memory(1)
        .ttl(seconds(2))
        .max_ttl(seconds(5));
    assert_eq!(set.connect_lazy().unwrap().max_ttl(), seconds(5));
}

/// All that can be said of nodes, and of all of them.
const NODES: &str = r#"
user = "locks"
password = "all"
tls = { root_certificate = "all.pem" }

[[nodes]]
url = "rediss://10.0.0.1"
name = "first"
user = "one"
password = "secret"
database = 3
require = 2
expect_replicas = true
durable = true
tls = { root_certificate = "ca.pem", client_certificate = "client.pem", client_key = "client.key" }

[[nodes]]
sentinels = ["redis://10.0.0.3", "redis://10.0.0.4"]
master = "mymaster"
confirm_within = "3s"

[[nodes]]
cluster = ["redis://10.0.0.5", "redis://10.0.0.6"]
slots = 1
password_file = "/run/secrets/redis"
"#;

const OF_NODES: [(&str, &str); 20] = [
    ("REDLOCK_USER", "locks"),
    ("REDLOCK_PASSWORD", "all"),
    ("REDLOCK_TLS_ROOT_CERTIFICATE", "all.pem"),
    ("REDLOCK_NODES_0_URL", "rediss://10.0.0.1"),
    ("REDLOCK_NODES_0_NAME", "first"),
    ("REDLOCK_NODES_0_USER", "one"),
    ("REDLOCK_NODES_0_PASSWORD", "secret"),
    ("REDLOCK_NODES_0_DATABASE", "3"),
    ("REDLOCK_NODES_0_REQUIRE", "2"),
    ("REDLOCK_NODES_0_EXPECT_REPLICAS", "true"),
    ("REDLOCK_NODES_0_DURABLE", "true"),
    ("REDLOCK_NODES_0_TLS_ROOT_CERTIFICATE", "ca.pem"),
    ("REDLOCK_NODES_0_TLS_CLIENT_CERTIFICATE", "client.pem"),
    ("REDLOCK_NODES_0_TLS_CLIENT_KEY", "client.key"),
    (
        "REDLOCK_NODES_1_SENTINELS",
        "redis://10.0.0.3,redis://10.0.0.4",
    ),
    ("REDLOCK_NODES_1_MASTER", "mymaster"),
    ("REDLOCK_NODES_1_CONFIRM_WITHIN", "3s"),
    (
        "REDLOCK_NODES_2_CLUSTER",
        "redis://10.0.0.5, redis://10.0.0.6",
    ),
    ("REDLOCK_NODES_2_SLOTS", "1"),
    ("REDLOCK_NODES_2_PASSWORD_FILE", "/run/secrets/redis"),
];

#[test]
fn nodes_are_the_same_from_variables_and_from_a_file() {
    let from_file = told(&of_toml(NODES));
    assert_eq!(told(&of_variables("REDLOCK", OF_NODES).unwrap()), from_file);
}

/// The fields that an unknown one is told to choose from.
fn fields(text: &str) -> Vec<String> {
    let error = toml::from_str::<Settings>(text).unwrap_err();
    let known = error.message().split_once("there are: ").unwrap().1;
    known
        .split(", ")
        .map(|name| name.trim().to_owned())
        .collect()
}

#[test]
fn every_setting_is_tried_from_every_source() {
    let of_node = fields("nodes = [{ nonsense = 1 }]");
    assert!(of_node.len() > 12, "{of_node:?}");
    let is_tried = |field: &&String| {
        let end = format!("_{}", field.to_uppercase());
        let tried = OF_NODES.iter().chain(&VARIABLES);
        // A table is tried by its fields.
        tried
            .into_iter()
            .any(|(name, _)| name.ends_with(&end) || name.contains(&(end.clone() + "_")))
    };
    let all = [of_node, fields("nonsense = 1")].concat();
    let missing: Vec<_> = all.iter().filter(|field| !is_tried(field)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[tokio::test]
async fn fencing_is_off_from_a_file_and_by_its_setter() {
    let off = of_toml("fencing = false");
    for settings in [off, Settings::default().without_fencing()] {
        let locks = settings.memory(1).bootstrap(true).connect().await.unwrap();
        let guard = locks.try_acquire("order:1").await.unwrap();
        assert_eq!(guard.fence(), None);
    }
}

#[test]
fn variables_replace_what_a_file_says_and_nothing_else() {
    let file = of_toml("ttl = \"20s\"\npassword_file = \"old\"");
    let with = |variables: &[(&str, &str)]| {
        let variables = variables.iter().copied();
        told(&file.clone().with_vars("A", variables).unwrap())
    };
    assert_eq!(with(&[]), told(&file));
    let wanted = of_toml("ttl = \"30s\"\npassword_file = \"new\"");
    assert_eq!(
        with(&[("A_PASSWORD_FILE", "new"), ("A_TTL", "30s")]),
        told(&wanted)
    );
    // Two ways to say one thing.
    let password = with(&[("A_PASSWORD", "new")]);
    assert!(password.contains("password_file: None"), "{password}");
    let by_file = of_toml("password = \"old\"").with_vars("A", [("A_PASSWORD_FILE", "f")]);
    let of_file = of_toml("password_file = \"f\"");
    assert_eq!(told(&by_file.unwrap()), told(&of_file));
}

#[cfg(feature = "redis")]
#[test]
fn listed_nodes_replace_those_in_memory_and_never_the_reverse() {
    let memory = of_toml("memory = 5");
    let listed = memory.with_vars("A", [("A_NODES", "redis://c")]).unwrap();
    let built = Settings::default().redis(["redis://c"]);
    assert_eq!(told(&listed), told(&built));
    // A process that locks in its own memory in place of the servers excludes nobody.
    let both = listed.with_vars("A", [("A_MEMORY", "5")]).unwrap();
    let error = both.connect_lazy().unwrap_err().to_string();
    assert!(
        error.starts_with("memory: nodes in memory cannot be combined with other nodes"),
        "{error}"
    );
}

#[cfg(feature = "redis")]
#[test]
fn one_server_needs_no_list_and_a_name_stands_before_its_url() {
    use tower_redlock::node::RedisNode;

    let url = "redis://a".to_owned();
    let one = told(&Settings::default().redis(["redis://a"]));
    let named = RedisNode::new("redis://a").name("main");
    let named = told(&Settings::default().redis_nodes([named]));
    for (settings, wanted) in [
        (of_toml("nodes = \"redis://a\""), &one),
        (
            serde_json::from_str(r#"{"nodes": "redis://a"}"#).unwrap(),
            &one,
        ),
        (Settings::default().redis("redis://a"), &one),
        (Settings::default().redis(&url), &one),
        (Settings::default().redis(vec![url]), &one),
        (
            of_toml("nodes = [{ name = \"main\", url = \"redis://a\" }]"),
            &named,
        ),
        (Settings::default().redis(("main", "redis://a")), &named),
        (Settings::default().redis([("main", "redis://a")]), &named),
    ] {
        assert_eq!(told(&settings), *wanted);
    }
    let none = Settings::default().redis([""; 0]).check().unwrap_err();
    assert_eq!(none.field(), Some("nodes"));
    assert!(
        none.to_string().contains("give the URLs of servers"),
        "{none}"
    );
}

#[test]
fn a_configuration_can_be_part_of_a_larger_one() {
    #[derive(serde::Deserialize)]
    struct Nested {
        port: u16,
        locks: Settings,
    }
    let nested: Nested = toml::from_str("port = 80\n[locks]\nmemory = 5").unwrap();
    assert_eq!(nested.port, 80);
    assert_eq!(told(&nested.locks), told(&Settings::default().memory(5)));

    #[derive(serde::Deserialize)]
    struct Flat {
        port: u16,
        #[serde(flatten)]
        locks: Settings,
    }
    let flat: Flat = toml::from_str("port = 80\nmemory = 5\nttl = \"20s\"").unwrap();
    assert_eq!(flat.port, 80);
    let built = Settings::default().memory(5).ttl(Duration::from_secs(20));
    assert_eq!(told(&flat.locks), told(&built));
    let error = toml::from_str::<Flat>("port = 80\nttll = \"20s\"")
        .err()
        .unwrap();
    assert!(error.message().starts_with("ttll: "), "{error}");
}

#[tokio::test]
async fn a_manager_is_made_of_every_source() {
    let of_variables = of_variables("REDLOCK", VARIABLES).unwrap();
    for config in [
        of_toml(TOML),
        serde_json::from_str(JSON).unwrap(),
        of_variables,
    ] {
        let locks = config.clone().connect().await.unwrap();
        // Two groups of four nodes that mask a loss.
        assert_eq!(locks.snapshot().nodes.len(), 8);
        assert!(locks.snapshot().verdict.contains("3 needed"));
        let guard = locks.try_acquire("order:1").await.unwrap();
        locks.try_acquire("order:1").await.unwrap_err();
        guard.release().await.unwrap();
    }
}

#[cfg(feature = "redis")]
mod servers {
    use super::*;
    use crate::support::server::{Kind, Server};

    /// The same three nodes from every source, and two of them as a list.
    fn configurations(a: u16, b: u16, c: u16) -> [Settings; 4] {
        let toml = format!(
            r#"
            bootstrap = true
            node_timeout = "2s"
            [[nodes]]
            url = "redis://:p%2Cw%3A1@127.0.0.1:{a}"
            [[nodes]]
            url = "redis://127.0.0.1:{b}"
            password = "p,w:1"
            database = 2
            expect_replicas = true
            durable = true
            [[nodes]]
            url = "redis://:wrong@127.0.0.1:{c}"
            user = "locks"
            password = "p,w:2"
            name = "third"
            "#
        );
        let json = format!(
            r#"{{"bootstrap": true, "node_timeout": "2s", "nodes": ["redis://:p%2Cw%3A1@127.0.0.1:{a}",
            {{"url": "redis://127.0.0.1:{b}", "password": "p,w:1", "database": 2,
            "expect_replicas": true, "durable": true}},
            {{"url": "redis://:wrong@127.0.0.1:{c}", "user": "locks", "password": "p,w:2",
            "name": "third"}}]}}"#
        );
        let variables = [
            ("R_BOOTSTRAP", "true".to_owned()),
            ("R_NODE_TIMEOUT", "2s".to_owned()),
            ("R_NODES_0", format!("redis://:p%2Cw%3A1@127.0.0.1:{a}")),
            ("R_NODES_1_URL", format!("redis://127.0.0.1:{b}")),
            ("R_NODES_1_PASSWORD", "p,w:1".to_owned()),
            ("R_NODES_1_DATABASE", "2".to_owned()),
            ("R_NODES_1_EXPECT_REPLICAS", "true".to_owned()),
            ("R_NODES_1_DURABLE", "true".to_owned()),
            ("R_NODES_2_URL", format!("redis://:wrong@127.0.0.1:{c}")),
            ("R_NODES_2_USER", "locks".to_owned()),
            ("R_NODES_2_PASSWORD", "p,w:2".to_owned()),
            ("R_NODES_2_NAME", "third".to_owned()),
        ];
        let config = of_toml(&toml);
        let of_json: Settings = serde_json::from_str(&json).unwrap();
        assert_eq!(told(&of_json), told(&config));
        let by_variables = of_variables("R", variables).unwrap();
        assert_eq!(told(&by_variables), told(&config));
        let urls = [a, c].map(|port| format!("redis://:p%2Cw%3A1@127.0.0.1:{port}"));
        let list = [
            ("R_NODES", urls.join(", ")),
            // The nodes are called otherwise here, and would be refused beside the others.
            ("R_NAMESPACE", "listed".to_owned()),
            ("R_BOOTSTRAP", "true".to_owned()),
        ];
        let of_list = of_variables("R", list).unwrap();
        [config, of_json, by_variables, of_list]
    }

    #[tokio::test]
    async fn a_file_lists_the_nodes_and_the_environment_adds_the_password() {
        let passwords = ["for-all", "of-the-url", "of-the-file", "of-the-table"];
        let servers = passwords.map(|password| {
            let user = [
                "--user",
                "locks",
                "on",
                &format!(">{password}"),
                "~*",
                "&*",
                "+@all",
            ]
            .map(str::to_owned);
            let args = ["--requirepass", "another"]
                .map(str::to_owned)
                .into_iter()
                .chain(user);
            let args: Vec<_> = args.collect();
            Server::start(
                Kind::Redis,
                &args.iter().map(String::as_str).collect::<Vec<_>>(),
            )
        });
        let [a, b, c, d] = servers.each_ref().map(Server::port);
        let dir = crate::support::server::new_dir();
        let path = dir.join("password");
        std::fs::write(&path, "of-the-file\n").unwrap();
        let path = path.display();
        // One at a time, for each is to serve.
        for node in [
            format!("\"redis://127.0.0.1:{a}\""),
            format!("\"redis://locks:of-the-url@127.0.0.1:{b}\""),
            format!(
                "{{ url = \"redis://nobody:no@127.0.0.1:{c}\", user = \"locks\", password_file = \"{path}\" }}"
            ),
            format!("{{ url = \"redis://127.0.0.1:{d}\", password = \"of-the-table\" }}"),
        ] {
            let file = of_toml(&format!(
                "bootstrap = true\nnode_timeout = \"2s\"\nuser = \"locks\"\nnodes = [{node}]"
            ));
            let config = file.with_vars("R", [("R_PASSWORD", "for-all")]).unwrap();
            let locks = config.clone().connect().await.unwrap();
            let guard = locks.acquire("order:1").await.unwrap();
            guard.release().await.unwrap();
            locks.shutdown(Duration::from_secs(5)).await;
        }
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[tokio::test]
    async fn real_servers_are_nodes_from_every_source() {
        // What the settings are for: without them, the third would not serve.
        let plain = ["--requirepass", "p,w:1"];
        let with_user = ["--user", "locks", "on", ">p,w:2", "~*", "&*", "+@all"];
        let servers = [&[][..], &[], &with_user].map(|more| {
            let args = [&plain, more].concat();
            Server::start(Kind::Redis, &args)
        });
        let [a, b, c] = servers.each_ref().map(Server::port);
        for config in configurations(a, b, c) {
            let locks = config.clone().connect().await.unwrap();
            let names: Vec<String> = locks
                .snapshot()
                .nodes
                .into_iter()
                .map(|node| node.name)
                .collect();
            let first = format!("127.0.0.1:{a}");
            if names.len() == 3 {
                assert_eq!(
                    names,
                    [first, format!("127.0.0.1:{b}/2"), "third".to_owned()]
                );
            } else {
                assert_eq!(names, [first, format!("127.0.0.1:{c}")]);
            }
            let guard = locks.acquire("order:1").await.unwrap();
            locks.try_acquire("order:1").await.unwrap_err();
            guard.release().await.unwrap();
            locks.shutdown(Duration::from_secs(5)).await;
        }
    }
}
