//! URLs of nodes and Sentinels.

use tower_redlock::error::ConfigError;
use tower_redlock::node::Node as _;
use tower_redlock::node::{LiveNode, RedisNode};

use super::assert_short;
use super::input::Input;

const SECRET: &str = "pa55w0rd";

pub fn run(bytes: &[u8]) -> bool {
    let raw = any(&String::from_utf8_lossy(bytes));
    let mut input = Input::new(bytes);
    encoded(&mut input);
    let composed = composed(&mut input);
    raw || composed
}

/// Any text: what is read has a name that is read as the same node.
fn any(url: &str) -> bool {
    let Some(name) = judged(RedisNode::new(url).build()) else {
        return false;
    };
    if !name.starts_with('/') {
        let again = judged(RedisNode::new(&format!("redis://{name}")).build());
        assert_eq!(again.as_ref(), Some(&name), "{url}");
        let shouted =
            judged(RedisNode::new(&format!("valkey://{}", name.to_ascii_uppercase())).build());
        assert_eq!(shouted.as_ref(), Some(&name), "{url}");
    }
    let _ = judged(RedisNode::sentinel([url, "redis://another:26379"], "mymaster").build());
    true
}

/// The node's name, which with its state is all that it shows; or the error says what to do.
fn judged(built: Result<LiveNode, ConfigError>) -> Option<String> {
    match built {
        Ok(node) => Some(node.name().to_owned()),
        Err(error) => {
            let text = error.to_string();
            assert_short(&text, 400);
            let advises = [
                "use ", "must ", "give ", "start", "list ", "choose ", "enable ",
            ];
            assert!(advises.iter().any(|word| text.contains(word)), "{text}");
            None
        }
    }
}

/// Whatever user and password are, percent-encoded they do no harm.
fn encoded(input: &mut Input<'_>) {
    let (user, password) = (input.text(16), input.text(16));
    let (port, database) = (input.number() % 65_535 + 1, input.byte());
    let (user, password) = (percent(&user), percent(&password));
    let url = format!("redis://{user}:{SECRET}{password}@Host.example:{port}/{database}");
    let node = RedisNode::new(&url)
        .build()
        .unwrap_or_else(|error| panic!("{url}: {error}"));
    let suffix = match database {
        0 => String::new(),
        database => format!("/{database}"),
    };
    assert_eq!(node.name(), format!("host.example:{port}{suffix}"));
    assert!(!format!("{node:?}").contains(SECRET));
}

fn percent(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

/// A URL of parts that may be wrong: its password is in no text.
fn composed(input: &mut Input<'_>) -> bool {
    let scheme = input.choose(&[
        "redis",
        "rediss",
        "valkey",
        "valkeys",
        "unix",
        "redis+unix",
        "http",
        "",
    ]);
    let separator = input.choose(&["://", "://", "://", "://", "://", ":///", ":", ":/"]);
    let end = input.choose(&["@", "@", "@", "@", "@", "", "@@", ":@"]);
    let (user, password) = (input.text(8), input.text(8));
    let place = input.choose(&[
        "h",
        "[::1]",
        "h:1",
        "h:port",
        "0.0.0.0",
        "",
        "run/r.sock",
        "h/-1",
    ]);
    let tail = input.choose(&[
        "",
        "/3",
        "?db=1",
        "?pass=pa55w0rd",
        "#insecure",
        "#pa55w0rd",
        "/?protocol=resp3",
        "/pa55w0rd",
    ]);
    let url = format!("{scheme}{separator}{user}:{SECRET}{password}{end}{place}{tail}");
    let builder = RedisNode::new(&url).name("node");
    let built = builder.build();
    // The name is left out here: where the `@` is missing, the password is the host.
    let shown = match &built {
        Ok(node) => format!("{node:?} {}", node.name()),
        Err(error) => format!("{error:?} {error}"),
    };
    assert!(!shown.contains(SECRET), "{url}: {shown}");
    judged(built).is_some()
}
