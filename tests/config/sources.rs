//! The same settings from every source, and the same manager from them.

use std::time::Duration;

use tower_redlock::{LockManager, Settings};

use super::{json, of_variables, told};

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

/// The same as variables with this prefix. A list of texts is one variable, and one of tables has numbers.
fn variables(prefix: &str, toml: &str) -> Vec<(String, String)> {
    use toml::Value;

    fn add(to: &mut Vec<(String, String)>, name: &str, value: &Value) {
        let value = match value {
            Value::Table(table) => {
                for (key, value) in table {
                    add(to, &format!("{name}_{}", key.to_uppercase()), value);
                }
                return;
            }
            Value::Array(nodes) if nodes.iter().any(Value::is_table) => {
                for (number, node) in nodes.iter().enumerate() {
                    add(to, &format!("{name}_{number}"), node);
                }
                return;
            }
            Value::Array(urls) => {
                let urls: Vec<&str> = urls.iter().filter_map(Value::as_str).collect();
                urls.join(", ")
            }
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        to.push((name.to_owned(), value));
    }
    let mut variables = vec![(format!("{prefix}S_OF_ANOTHER"), "kind".to_owned())];
    add(&mut variables, prefix, &toml::from_str(toml).unwrap());
    variables
}

/// The settings that all sources have alike.
fn of_each_source(toml: &str) -> [Settings; 3] {
    let of_variables = of_variables("REDLOCK", variables("REDLOCK", toml)).unwrap();
    let of_json = serde_json::from_str(&json(toml)).unwrap();
    let all = [of_toml(toml), of_json, of_variables];
    for settings in &all {
        assert_eq!(told(settings), told(&all[0]));
    }
    all
}

fn of_toml(text: &str) -> Settings {
    toml::from_str(text).unwrap()
}

#[test]
fn every_source_tells_a_builder_what_its_setters_do() {
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
    let [settings, ..] = of_each_source(TOML);
    assert_eq!(told(&settings), told(&builder));
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

#[test]
fn nodes_are_the_same_from_variables_and_from_a_file() {
    let [settings, ..] = of_each_source(NODES);
    assert!(told(&settings).contains("mymaster"), "{settings:?}");
    let names = variables("A", NODES).into_iter().map(|(name, _)| name);
    let names: Vec<_> = names
        .filter(|name| name.starts_with("A_NODES_1_"))
        .collect();
    let expected = ["CONFIRM_WITHIN", "MASTER", "SENTINELS"];
    assert_eq!(names, expected.map(|name| format!("A_NODES_1_{name}")));
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
    let tried = [variables("A", TOML), variables("A", NODES)].concat();
    let is_tried = |field: &&String| {
        let end = format!("_{}", field.to_uppercase());
        // A table is tried by its fields.
        let is_it = |name: &str| name.ends_with(&end) || name.contains(&(end.clone() + "_"));
        tried.iter().any(|(name, _)| is_it(name))
    };
    let all = [of_node, fields("nonsense = 1")].concat();
    let missing: Vec<_> = all.iter().filter(|field| !is_tried(field)).collect();
    assert!(missing.is_empty(), "{missing:?}");
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
    let wanted = "memory: nodes in memory cannot be combined with other nodes";
    assert!(error.starts_with(wanted), "{error}");
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
    let text = none.to_string();
    assert!(text.contains("give the URLs of servers"), "{text}");
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

#[cfg(feature = "redis")]
mod servers {
    use super::*;
    use crate::support::server::{Kind, Server};

    /// The same three nodes from every source, and two of them as a list.
    fn configurations(a: u16, b: u16, c: u16) -> Vec<Settings> {
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
        let urls = [a, c].map(|port| format!("redis://:p%2Cw%3A1@127.0.0.1:{port}"));
        let list = [
            ("R_NODES", urls.join(", ")),
            // The nodes are called otherwise here, and would be refused beside the others.
            ("R_NAMESPACE", "listed".to_owned()),
            ("R_BOOTSTRAP", "true".to_owned()),
        ];
        let mut all = Vec::from(of_each_source(&toml));
        all.push(of_variables("R", list).unwrap());
        all
    }

    #[tokio::test]
    async fn a_file_lists_the_nodes_and_the_environment_adds_the_password() {
        let passwords = ["for-all", "of-the-url", "of-the-file", "of-the-table"];
        let servers = passwords.map(|password| {
            let password = format!(">{password}");
            let user = ["--user", "locks", "on", &password, "~*", "&*", "+@all"];
            let args = [&["--requirepass", "another"][..], &user].concat();
            Server::start(Kind::Redis, &args)
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
            let locks = config.connect().await.unwrap();
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
            let locks = config.connect().await.unwrap();
            let nodes = locks.snapshot().nodes;
            let names: Vec<_> = nodes.iter().map(|node| node.name.as_str()).collect();
            let [first, second, last] = [
                format!("127.0.0.1:{a}"),
                format!("127.0.0.1:{b}/2"),
                format!("127.0.0.1:{c}"),
            ];
            match names.len() {
                3 => assert_eq!(names, [&first, &second, "third"]),
                _ => assert_eq!(names, [first, last]),
            }
            let guard = locks.acquire("order:1").await.unwrap();
            locks.try_acquire("order:1").await.unwrap_err();
            guard.release().await.unwrap();
            locks.shutdown(Duration::from_secs(5)).await;
        }
    }
}
