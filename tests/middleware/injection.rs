//! No client can make its request share a lock with a request for something else, or use what the crate itself keeps on
//! the nodes. Real requests go through a router, a layer and nodes, and what is compared are the names that the nodes
//! hold meanwhile with the parts that the test knows it has sent: two requests share a lock if, and only if, all of
//! their parts are the same. Spelling does not count, for whoever reads a request decodes it.
//!
//! The second request of a case is the first with a trick played on it: a piece moved over to another part, or taken
//! for one that looks alike once it is escaped, or is not. Two requests at random hardly ever meet, whatever is broken.

use std::collections::BTreeSet;

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::routing::post;
use http::{HeaderValue, Request};
use http_body_util::BodyExt as _;
use proptest::prelude::*;
use tower::ServiceExt as _;
use tower_redlock::{Held, key};

use super::{Nodes, keyed};

/// The parts of one key.
type Tuple = Vec<Vec<u8>>;

/// What a client sends, and to which of the routes in [`SHAPES`].
#[derive(Clone, Debug)]
struct Sent {
    shape: usize,
    path: [Vec<u8>; 2],
    /// Header lines of one name.
    header: Vec<Vec<u8>>,
    /// Pairs of the query, by names that are, or look like, the one that is asked for.
    query: Vec<(&'static str, Vec<u8>)>,
    /// How its bytes are written.
    spelling: u64,
}

/// The program's side of it: what is the same for both requests of a case.
#[derive(Clone, Debug)]
struct Program {
    prefix: String,
    bare: bool,
}

/// Every way to make keys, by the name of its route.
const SHAPES: [&str; 9] = [
    "both", "header", "query", "all", "inner", "only", "set", "typed", "closure",
];

fn app(nodes: &Nodes, program: &Program) -> Router {
    let namespace = if program.bare { "" } else { "lk" };
    let locks = nodes.builder().namespace(namespace).connect_lazy().unwrap();
    let prefix = || program.prefix.clone();
    let (a, b) = (|| key::path("a"), || key::path("b"));
    let (header, query) = (|| key::header("h"), || key::query("q"));
    let app = Router::new();
    let app = locked(app, nodes, "both", keyed(&locks, a().and(b())));
    let app = locked(app, nodes, "header", keyed(&locks, a().and(header())));
    let app = locked(app, nodes, "query", keyed(&locks, query().and(b())));
    let all = a().and(b()).and(header()).and(query()).prefix(prefix());
    let app = locked(app, nodes, "all", keyed(&locks, all));
    let inner = a().and(b().prefix(prefix())).and(key::method());
    let app = locked(app, nodes, "inner", keyed(&locks, inner));
    let only = header().and(query()).prefix(prefix());
    let app = locked(app, nodes, "only", keyed(&locks, only));
    let set = a().and(b()).also(header().and(query()).prefix(prefix()));
    let app = locked(app, nodes, "set", keyed(&locks, set));
    let typed = key::from_extractor::<Path<(String, String)>>(|Path((a, _))| a).and(b());
    let app = locked(app, nodes, "typed", keyed(&locks, typed));
    let closure = key::from_fn(|parts| parts.headers.get("h").map(|h| h.as_bytes().to_vec()));
    let closure = closure.and(key::matched_path()).and(query());
    locked(app, nodes, "closure", keyed(&locks, closure))
}

/// A route whose handler answers with all that the nodes hold while it runs.
fn locked(app: Router, nodes: &Nodes, shape: &str, layer: tower_redlock::RedlockLayer) -> Router {
    let nodes = nodes.clone();
    let held = async move |_: Held| {
        let names: BTreeSet<_> = nodes.0.iter().map(super::MemoryNode::keys).collect();
        assert_eq!(names.len(), 1, "every node has the same: {names:?}");
        names.first().unwrap().join("\n")
    };
    let route = format!("/{shape}/{{a}}/{{b}}");
    app.route(&route, post(held).route_layer(layer))
}

impl Sent {
    /// The keys that it must be given, or the status of its refusal.
    fn expected(&self, program: &Program) -> Result<BTreeSet<Tuple>, u16> {
        let [a, b] = &self.path;
        // The router takes nothing for a parameter, unless it is the last.
        if b.is_empty() {
            return Err(404);
        }
        let text = |bytes: &Vec<u8>| str::from_utf8(bytes).is_ok().then_some(()).ok_or(400_u16);
        let full = |value: &Vec<u8>| (!value.is_empty()).then(|| value.clone()).ok_or(400_u16);
        let decoded = || text(a).and(text(b));
        let (path_a, path_b) = (|| decoded().and(full(a)), || decoded().and(full(b)));
        let header = || match &self.header[..] {
            [value] => full(value),
            _ => Err(400),
        };
        let mut pairs = self.query.iter().filter(|(name, _)| *name == "q");
        let query = match (pairs.next(), pairs.next()) {
            (Some((_, value)), None) => text(value).and(full(value)),
            _ => Err(400),
        };
        let prefix = program.prefix.clone().into_bytes();
        let one = |tuple: Tuple| BTreeSet::from([tuple]);
        let found = match SHAPES[self.shape] {
            "both" => one(vec![path_a()?, path_b()?]),
            "header" => one(vec![path_a()?, header()?]),
            "query" => one(vec![query?, path_b()?]),
            "all" => one(vec![prefix, path_a()?, path_b()?, header()?, query?]),
            "inner" => one(vec![path_a()?, prefix, path_b()?, b"POST".to_vec()]),
            "only" => one(vec![prefix, header()?, query?]),
            "set" => {
                let second = vec![prefix, header()?, query?];
                BTreeSet::from([vec![path_a()?, path_b()?], second])
            }
            // What makes text of an extractor may make none.
            "typed" => decoded().map(|()| one(vec![a.clone(), b.clone()]))?,
            // A closure decides for itself what is missing; here nothing is locked, and the handler refuses to run.
            "closure" => match self.header.first() {
                None => return Err(500),
                Some(first) => one(vec![first.clone(), b"/closure/{a}/{b}".to_vec(), query?]),
            },
            shape => unreachable!("{shape}"),
        };
        // Without a namespace this is how the crate's own names begin.
        let reserved = |tuple: &Tuple| tuple.first().is_some_and(|part| part.starts_with(b"!"));
        if program.bare && found.iter().any(reserved) {
            return Err(400);
        }
        Ok(found)
    }

    fn request(&self) -> Request<Body> {
        let [a, b] = &self.path;
        let shape = SHAPES[self.shape];
        let (a, b) = (self.spelt(a, b"+&="), self.spelt(b, b"+&="));
        let pairs = self.query.iter().map(|(name, value)| {
            let (name, value) = (self.spelt(name.as_bytes(), b""), self.spelt(value, b"=?/"));
            format!("{name}={value}")
        });
        let query = pairs.collect::<Vec<_>>().join("&");
        let mut request = Request::post(format!("/{shape}/{a}/{b}?{query}"));
        for value in &self.header {
            request = request.header("h", HeaderValue::from_bytes(value).unwrap());
        }
        request.body(Body::empty()).unwrap()
    }

    /// `bytes` for a URI: each as it is, where that is allowed, or in upper or lower case hexadecimal.
    fn spelt(&self, bytes: &[u8], also: &[u8]) -> String {
        let mut spelling = self.spelling;
        let spell = |byte: &u8| {
            spelling = spelling.rotate_left(7).wrapping_mul(3);
            let plain = byte.is_ascii_alphanumeric() || b":!{}'".contains(byte);
            match spelling % 3 {
                0 if plain || also.contains(byte) => char::from(*byte).to_string(),
                0 | 1 => format!("%{byte:02x}"),
                _ => format!("%{byte:02X}"),
            }
        };
        bytes.iter().map(spell).collect()
    }
}

/// Sends it; what the nodes held, or the status of the refusal.
async fn answer(sent: &Sent, program: &Program) -> Result<BTreeSet<String>, u16> {
    let nodes = Nodes::five();
    let response = app(&nodes, program).oneshot(sent.request()).await.unwrap();
    if !response.status().is_success() {
        nodes.assert_free();
        return Err(response.status().as_u16());
    }
    let names = response.into_body().collect().await.unwrap().to_bytes();
    let names = str::from_utf8(&names).unwrap();
    Ok(names.split('\n').map(str::to_owned).collect())
}

/// Pieces of values. Those of a line are taken for one another where something is not escaped, escaped twice, decoded
/// twice or replaced.
const LOOK_ALIKE: [&[&[u8]]; 8] = [
    &[b":", b"%3A", b"%3a", b"%253A"],
    &[b"\xFF", b"\xFE", b"\xEF\xBF\xBD", b"%FF"],
    &[b"\t", b"%09", b" ", b"+", b"%20"],
    &[b"\xC3\xA9", b"e\xCC\x81", b"%C3%A9", b"\xC3"],
    &[b"{", b"%7B", b"}", b"%7D"],
    &[b"!", b"%21", b"!idem", b"!fence:", b"lk:"],
    &[b"/", b"%2F", b"?q=", b"&", b"="],
    &[b"a", b"A", b"aa", b""],
];

/// A line, and which of it.
type Piece = (usize, usize);

/// The two of the path, the header and the query.
type Values = [Vec<Piece>; 4];

fn piece() -> impl Strategy<Value = Piece> {
    (0..LOOK_ALIKE.len(), 0..5_usize)
}

fn values() -> impl Strategy<Value = Values> {
    prop::array::uniform4(prop_oneof![
        9 => prop::collection::vec(piece(), 1..4),
        1 => Just(Vec::new()),
    ])
}

/// What a client with another resource in mind tries, to come by the key of the first.
#[derive(Clone, Debug)]
enum Trick {
    /// Another spelling alone: it is the same resource.
    Respell,
    /// The last piece of one value goes to the front of another.
    Shift(usize, usize),
    /// A piece of a value is taken for one that looks alike.
    LookAlike(usize, usize),
    /// One value in another's place.
    Copy(usize, usize),
    /// All values are others.
    Anything(Values),
}

fn trick() -> impl Strategy<Value = Trick> {
    let two = || (0..4_usize, 0..4_usize);
    prop_oneof![
        1 => Just(Trick::Respell),
        3 => two().prop_map(|(from, to)| Trick::Shift(from, to)),
        3 => two().prop_map(|(value, pick)| Trick::LookAlike(value, pick)),
        1 => two().prop_map(|(from, to)| Trick::Copy(from, to)),
        1 => values().prop_map(Trick::Anything),
    ]
}

impl Trick {
    fn play(&self, values: &Values) -> Values {
        let mut values = values.clone();
        match self {
            Self::Respell => {}
            Self::Shift(from, to) => {
                if let Some(last) = values[*from].pop() {
                    values[*to].insert(0, last);
                }
            }
            Self::LookAlike(value, pick) => {
                if let Some((_, picked)) = values[*value].last_mut() {
                    *picked += 1 + pick;
                }
            }
            Self::Copy(from, to) => values[*to] = values[*from].clone(),
            Self::Anything(others) => values = others.clone(),
        }
        values
    }
}

/// Names of query parameters; all but `q` are others.
const NAMES: [&[&str]; 6] = [
    &["q"],
    &["Q", "q"],
    &["q", "qq", "q[]"],
    &["%71", "q", " q"],
    &["q", "q"],
    &["q2"],
];

/// The rest of a request: route, header lines, query and spelling.
type Form = (usize, usize, &'static [&'static str], u64);

fn form() -> impl Strategy<Value = Form> {
    let headers = prop_oneof![8 => Just(1_usize), 1 => Just(0), 1 => Just(2)];
    let names = prop_oneof![8 => 0..4_usize, 1 => 4..6_usize].prop_map(|at| NAMES[at]);
    (0..SHAPES.len(), headers, names, any::<u64>())
}

fn sent(values: &Values, (shape, headers, names, spelling): Form) -> Sent {
    let bytes = |value: &Vec<Piece>| -> Vec<u8> {
        let piece = |(line, pick): &Piece| LOOK_ALIKE[*line][pick % LOOK_ALIKE[*line].len()];
        value.iter().flat_map(piece).copied().collect()
    };
    let [a, b, header, query] = values.each_ref().map(bytes);
    Sent {
        shape,
        path: [a, b],
        header: vec![header; headers],
        query: names.iter().map(|name| (*name, query.clone())).collect(),
        spelling,
    }
}

fn program() -> impl Strategy<Value = Program> {
    let prefix = prop::sample::select(vec!["", "p", ":", "%3A", "{p}", "!idem", "a:\u{e9}"]);
    (prefix, any::<bool>()).prop_map(|(prefix, bare)| Program {
        prefix: prefix.to_owned(),
        bare,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]
    #[test]
    fn requests_share_a_lock_if_and_only_if_all_their_parts_are_the_same(
        values in values(),
        trick in trick(),
        left in form(),
        right in form(),
        same_form in prop::bool::weighted(0.8),
        program in program(),
    ) {
        let right = if same_form { (left.0, left.1, left.2, right.3) } else { right };
        let requests = [sent(&values, left), sent(&trick.play(&values), right)];
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().start_paused(true).build().unwrap();
        let mut seen = Vec::new();
        for request in &requests {
            let expected = request.expected(&program);
            let names = runtime.block_on(answer(request, &program));
            prop_assert_eq!(names.as_ref().err(), expected.as_ref().err(), "{:?}", request);
            let (Ok(names), Ok(expected)) = (names, expected) else { return Ok(()) };
            prop_assert_eq!(names.len(), expected.len(), "a lock for each key: {:?}", names);
            for name in &names {
                let key = if program.bare { Some(name.as_str()) } else { name.strip_prefix("lk:") };
                prop_assert!(key.is_some_and(|key| !key.starts_with('!') || !program.bare), "{}", name);
                // A server with slots, or a proxy before it, would put what shares a tag in one place.
                prop_assert!(!name.contains(['{', '}']), "{}", name);
                prop_assert!(!name.chars().any(char::is_control), "{:?}", name);
            }
            seen.push((names, expected));
        }
        let [(left, left_parts), (right, right_parts)] = &seen[..] else { unreachable!() };
        prop_assert_eq!(left == right, left_parts == right_parts, "{:?} {:?}", left, right);
        // Of several keys, too, they share those that are the same, and no others.
        let shared = left.intersection(right).count();
        prop_assert_eq!(shared, left_parts.intersection(right_parts).count(), "{:?} {:?}", left, right);
    }
}
