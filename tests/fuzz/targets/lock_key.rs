//! Lock keys, and what is kept on a node for them: no two things ever have one name, whatever clients, tenants and
//! namespaces are called.

use tower_redlock::LockKey;
use tower_redlock::error::KeyError;
use tower_redlock::key::LockKeys;
use tower_redlock::node::{Namespace, OwnerToken};

use super::assert_short;
use super::input::Input;

type Parts = Vec<Vec<u8>>;

pub fn run(bytes: &[u8]) -> bool {
    let mut input = Input::new(bytes);
    let [left, right] = [(); 2].map(|()| place(&mut input));
    let plain = plain(&String::from_utf8_lossy(input.rest()));
    let [a, b] = [&left, &right].map(|(_, parts)| join(parts));
    if let (Ok(a), Ok(b)) = (&a, &b) {
        assert_eq!(left.1 == right.1, a == b, "{left:?} {right:?}");
        apart(&(&left.0, a), &(&right.0, b));
    }
    a.is_ok() || plain
}

/// A namespace and the parts of a key: a tenant, say, and what it calls its order.
fn place(input: &mut Input<'_>) -> (Namespace, Parts) {
    let name = match input.below(5) {
        0 => String::new(),
        1 => "lk".to_owned(),
        2 => "lk!idem".to_owned(),
        _ => input.text(8),
    };
    let namespace = Namespace::new(&name).unwrap_or_else(|error| {
        assert_short(error, 120);
        Namespace::default()
    });
    let count = input.below(4);
    let parts = (0..count).map(|_| input.bytes(12).to_vec());
    (namespace, parts.collect())
}

/// A key of parts is a key, is bounded, and its parts can be told apart.
fn join(parts: &[Vec<u8>]) -> Result<LockKey, KeyError> {
    let joined = LockKey::join(parts);
    match &joined {
        Ok(key) => {
            assert_eq!(LockKey::new(key.as_str()).as_ref(), Ok(key));
            // What a cluster or a pattern would read something into.
            assert!(!key.as_str().contains(['{', '}']), "{key}");
            assert_eq!(key.as_str().split(':').count(), parts.len());
            let (first, rest) = parts.split_first().unwrap();
            if let (Ok(first), Ok(rest)) = (LockKey::join([first]), LockKey::join(rest)) {
                assert_eq!([first.as_str(), rest.as_str()].join(":"), key.as_str());
            }
        }
        Err(error) => assert_short(&error.to_string(), 120),
    }
    joined
}

/// A text that the program makes up is taken as it is, or not at all.
fn plain(text: &str) -> bool {
    match LockKey::new(text) {
        Ok(key) => {
            assert_eq!(key.as_str(), text);
            assert!((1..=512).contains(&text.len()));
            assert_short(text, 512);
            let redacted = key.redacted();
            assert!(redacted.len() == 17 && redacted.starts_with('#'));
            true
        }
        Err(error) => {
            let text = error.to_string();
            assert_short(&text, 120);
            false
        }
    }
}

/// All that is kept, or announced, for the two has a name of its own.
fn apart(left: &(&Namespace, &LockKey), right: &(&Namespace, &LockKey)) {
    let [ours, theirs] = [left, right].map(|(namespace, key)| names(namespace, key));
    for (what, name) in &ours {
        for (other, other_name) in &theirs {
            // Documented: a lock of the empty namespace may be called like one of another.
            let is_bare = left.0.as_str().is_empty() != right.0.as_str().is_empty();
            if name != other_name || is_bare {
                continue;
            }
            // One name is one thing: of the same kind, in the same namespace, and, unless it is the marker, of one key.
            assert_eq!(what, other, "{name}");
            assert_eq!(left.0.root(), right.0.root(), "{name}");
            let is_shared = matches!(*what, "marker" | "tombstone");
            assert!(left.1 == right.1 || is_shared, "{name}: {left:?} {right:?}");
        }
    }
}

fn names(root: &Namespace, key: &LockKey) -> Vec<(&'static str, String)> {
    let owner = OwnerToken::from_entropy([7; OwnerToken::ENTROPY_LEN]);
    let requests = root.idempotency();
    let mut names = vec![
        ("marker", root.marker().concat()),
        ("tombstone", root.tombstone(&owner).concat()),
    ];
    assert_eq!(requests.tombstone(&owner), root.tombstone(&owner));
    let keys = LockKeys::from(key.clone());
    // Refused in the empty namespace if it is called like what is kept beside the locks.
    if let Ok(placed) = root.node_keys(&keys) {
        let placed = placed.first();
        names.extend([
            ("lock", placed.as_str().to_owned()),
            ("channel", placed.channel().concat()),
            ("counter", placed.counter().concat()),
            ("writer", placed.writer().as_str().to_owned()),
            ("counter of a writer", placed.writer().counter().concat()),
            ("takeover of readers", placed.taken().concat()),
            ("takeover of writers", placed.writer().taken().concat()),
        ]);
    }
    if let Ok(placed) = root.permits().node_keys(&keys) {
        let placed = placed.first();
        names.extend([
            ("channel of permits", placed.channel().concat()),
            ("counter of permits", placed.counter().concat()),
        ]);
    }
    if let Ok(placed) = requests.node_keys(&keys) {
        let placed = placed.first();
        names.extend([
            ("lock of a request", placed.as_str().to_owned()),
            ("channel of a request", placed.channel().concat()),
            ("counter of a request", placed.counter().concat()),
            ("record", placed.record().concat()),
        ]);
    }
    names
}
