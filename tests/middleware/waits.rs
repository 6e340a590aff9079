//! How long a request waits: what the layer says, what the client asks for, and what the manager allows.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request};
use http_body_util::Empty;
use proptest::prelude::*;
use tokio::time::Instant;
use tower::{ServiceBuilder, ServiceExt as _, service_fn};
use tower_redlock::layer::prefer_wait;
use tower_redlock::{RedlockLayer, key};

use super::{KEY, MS, Nodes, keyed, layer, ok, post, request};

const SECOND: Duration = Duration::from_secs(1);

/// What becomes of `request`, and after how long.
async fn sent(layer: RedlockLayer, request: Request<Empty<Bytes>>) -> (String, Duration) {
    let inner = service_fn(async |_: Request<Empty<Bytes>>| Ok::<_, Infallible>(ok("ran")));
    let service = ServiceBuilder::new().layer(layer).service(inner);
    let began = Instant::now();
    let response = service.oneshot(request).await.unwrap();
    let took = began.elapsed();
    let text = super::text(response).await;
    let kind = text
        .split_once("problem:")
        .and_then(|(_, rest)| rest.split_once('"'));
    (kind.map_or(text.clone(), |(kind, _)| kind.to_owned()), took)
}

fn preferring(value: impl TryInto<HeaderValue>) -> Request<Empty<Bytes>> {
    let mut request = post();
    let value = value.try_into().unwrap_or_else(|_| panic!("a header"));
    request.headers_mut().insert("prefer", value);
    request
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_as_long_as_its_client_asks_and_the_manager_allows() {
    let nodes = Nodes::five();
    let locks = nodes.builder().max_wait(5 * SECOND).lazy().unwrap();
    let _held = locks.try_acquire(KEY).await.unwrap();
    let layer = || layer(&locks).max_wait(SECOND).max_wait_with(prefer_wait);
    for (value, kind, waited) in [
        ("wait=2", "wait-timeout", 2),
        ("wait=0", "contended", 0),
        // As the layer says.
        ("respond-async", "wait-timeout", 1),
        ("wait=soon", "wait-timeout", 1),
        ("wait=-1", "wait-timeout", 1),
        ("wait=18446744073709551616", "wait-timeout", 1),
        // As the manager allows.
        ("wait=6", "wait-timeout", 5),
        ("wait=18446744073709551615", "wait-timeout", 5),
    ] {
        let (got, took) = sent(layer(), preferring(value)).await;
        assert_eq!((got.as_str(), took), (kind, waited * SECOND), "{value}");
    }
    let (got, took) = sent(layer(), post()).await;
    assert_eq!((got.as_str(), took), ("wait-timeout", SECOND), "no header");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_asks_for_enough_gets_its_turn() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    let held = locks.try_acquire(KEY).await.unwrap();
    let layer = || layer(&locks).max_wait_with(prefer_wait);
    let patient = tokio::spawn(sent(layer(), preferring("wait=2")));
    let hasty = tokio::spawn(sent(layer(), preferring("wait=1")));
    tokio::time::sleep(1_500 * MS).await;
    held.release().await.unwrap();
    assert_eq!(patient.await.unwrap(), ("ran".to_owned(), 1_500 * MS));
    assert_eq!(hasty.await.unwrap(), ("wait-timeout".to_owned(), SECOND));
    nodes.assert_free();
}

/// A bound that is applied in silence would be overlooked. What clients may ask for is bounded all the same.
#[tokio::test(start_paused = true)]
async fn a_layer_waits_as_long_as_it_was_told_and_what_clients_ask_for_is_bounded() {
    let nodes = Nodes::five();
    let by_default = nodes.manager();
    assert_eq!(by_default.max_wait(), 5 * SECOND);
    let holder = by_default.with_max_hold(3_600 * SECOND).unwrap();
    let _held = holder.try_acquire(KEY).await.unwrap();
    let told = nodes.builder().max_wait(20 * SECOND).lazy().unwrap();
    let none = nodes.builder().max_wait(Duration::ZERO).lazy().unwrap();
    for (locks, kind, bound) in [
        (by_default, "wait-timeout", 5),
        (told, "wait-timeout", 20),
        (none, "contended", 0),
    ] {
        let fixed = || layer(&locks).max_wait(30 * SECOND);
        let by_request = |layer: RedlockLayer| layer.max_wait_with(|_| Some(Duration::MAX));
        let shorter = layer(&locks).max_wait(SECOND);
        for (layer, kind, waited) in [
            (fixed(), "wait-timeout", 30),
            (by_request(layer(&locks)), kind, bound),
            // What the service says of all requests, clients may ask for.
            (by_request(fixed()), "wait-timeout", 30),
            (by_request(shorter), "wait-timeout", bound.max(1)),
        ] {
            let (got, took) = sent(layer, post()).await;
            assert_eq!((got.as_str(), took), (kind, waited * SECOND));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn it_is_asked_once_for_each_request_that_needs_a_lock() {
    let nodes = Nodes::five();
    let asked = Arc::new(AtomicU32::new(0));
    let layer = keyed(&nodes.manager(), key::header("x-id").optional()).max_wait_with({
        let asked = Arc::clone(&asked);
        move |parts| {
            assert_eq!(parts.headers["x-id"], "7");
            asked.fetch_add(1, Ordering::SeqCst);
            None
        }
    });
    let mut with_id = post();
    with_id
        .headers_mut()
        .insert("x-id", HeaderValue::from_static("7"));
    for (request, times) in [(request(Method::GET), 0), (post(), 0), (with_id, 1)] {
        assert_eq!(sent(layer.clone(), request).await.0, "ran");
        assert_eq!(asked.load(Ordering::SeqCst), times);
    }
}

/// What `prefer_wait` reads in these header lines, in seconds.
fn read<V: AsRef<[u8]>>(lines: &[V]) -> Option<u64> {
    let mut parts = Request::new(()).into_parts().0;
    for line in lines {
        let value = HeaderValue::from_bytes(line.as_ref()).unwrap();
        parts
            .headers
            .append(HeaderName::from_static("prefer"), value);
    }
    let wait = prefer_wait(&parts)?;
    assert_eq!(wait.subsec_nanos(), 0);
    Some(wait.as_secs())
}

#[test]
fn preferences_to_wait_are_read_in_all_their_spellings() {
    let cases: &[(&[&str], u64)] = &[
        (&["wait=2"], 2),
        (&["wait=0"], 0),
        (&["Wait=2"], 2),
        (&["WAIT=2"], 2),
        (&["wait=002"], 2),
        (&["wait=\"2\""], 2),
        (&["wait = 2"], 2),
        (&["\twait\t=\t2\t"], 2),
        (&["wait=2;slowly"], 2),
        (&["wait=2 ; a=1; b"], 2),
        (&["wait=2;note=\"x, wait=9; y\""], 2),
        (&["respond-async, wait=2"], 2),
        (&["respond-async,wait=2,return=minimal"], 2),
        (&[", ,, wait=2,"], 2),
        (&["a=\"1, wait=9\", wait=2"], 2),
        (&["a=\"\\\", wait=9\", wait=2"], 2),
        (&["a=\"\\\\\", wait=2"], 2),
        (&["a;wait=9, wait=2"], 2),
        (&["a=wait=9, wait=2"], 2),
        (&["waits=9, wait=2"], 2),
        (&["=9, wait=2"], 2),
        (&["wait=2, wait=9"], 2),
        (&["wait=2, wait=x"], 2),
        (&["return=minimal", "wait=2"], 2),
        (&["wait=2", "wait=9"], 2),
        // An open quote ends with its line.
        (&["a=\"1", "wait=2"], 2),
        (&["wait=18446744073709551615"], u64::MAX),
    ];
    for (lines, seconds) in cases {
        assert_eq!(read(lines), Some(*seconds), "{lines:?}");
    }
}

#[test]
fn what_is_no_preference_to_wait_is_ignored() {
    let cases: &[&[&str]] = &[
        &[],
        &[""],
        &["wait"],
        &["wait="],
        &["wait=;2"],
        &["wait=\"\""],
        &["wait=\""],
        &["wait=\"2"],
        &["wait=2\""],
        &["wait=\"2\"\""],
        &["wait=\" 2\""],
        &["wait='2'"],
        &["wait=2s"],
        &["wait=2 3"],
        &["wait==2"],
        &["wait=+2"],
        &["wait=-2"],
        &["wait=-0"],
        &["wait=2.5"],
        &["wait=2e1"],
        &["wait=0x2"],
        &["wait=18446744073709551616"],
        &["wait=99999999999999999999999999999999999999999"],
        &["wait:2"],
        &["\"wait\"=2"],
        &["wait =2 wait=2"],
        &["max-wait=2"],
        &["a=\"1, wait=2"],
        // The first decides.
        &["wait=x, wait=2"],
        &["wait", "wait=2"],
    ];
    for lines in cases {
        assert_eq!(read(lines), None, "{lines:?}");
    }
    assert_eq!(read(&["wait=\u{0662}"]), None, "a digit, but not of ASCII");
    assert_eq!(read(&[b"wait=2\xff".as_slice()]), None, "no UTF-8");
    assert_eq!(read(&[b"\xff, wait=2".as_slice()]), Some(2), "beside it");
    let long = format!("{}wait=2", "a=\"\\,\", ,".repeat(100_000));
    assert_eq!(read(&[&long]), Some(2), "a megabyte in front");
    assert_eq!(read(&[format!("wait={}", "9".repeat(1_000_000))]), None);
}

proptest! {
    #[test]
    fn it_is_found_among_others_and_they_are_not_taken_for_it(
        before in proptest::collection::vec(other(), 0..5),
        seconds: u64,
        case in any::<[bool; 4]>(),
        quote: bool,
        after in proptest::collection::vec(prop_oneof![other(), Just("wait=9".to_owned())], 0..3),
        breaks in any::<[bool; 8]>(),
    ) {
        let name: String = "wait".chars().zip(case)
            .map(|(letter, upper)| if upper { letter.to_ascii_uppercase() } else { letter })
            .collect();
        let quote = if quote { "\"" } else { "" };
        let own = format!("{name}={quote}{seconds}{quote}");
        prop_assert_eq!(read(&lines(&before, breaks)), None);
        let all: Vec<String> = before.into_iter().chain([own]).chain(after).collect();
        prop_assert_eq!(read(&lines(&all, breaks)), Some(seconds));
    }

    #[test]
    fn no_header_upsets_it(lines in proptest::collection::vec("[ -~\t\u{80}-\u{ff}]{0,40}|[wait=,;\"\\\\0-9 ]{0,20}", 0..4)) {
        if let Some(seconds) = read(&lines) {
            // It never makes a number up.
            let digits = seconds.to_string();
            prop_assert!(lines.iter().any(|line| line.contains(&digits)));
        }
    }
}

/// A preference that is not `wait`, however much it looks like it.
fn other() -> impl Strategy<Value = String> {
    let quoted = "[a-z,;= ]{0,8}|\\\\\"|, wait=9|wait=9, ";
    prop_oneof![
        "[a-v][a-z-]{0,6}",
        "[a-v][a-z]{0,3} ?= ?[a-z0-9]{0,4}",
        ("[a-v]{1,4}", quoted).prop_map(|(name, text)| format!("{name}=\"{text}\"")),
        ("[a-v]{1,4}", quoted).prop_map(|(name, text)| format!("{name};wait=9;x=\"{text}\"")),
        Just(String::new()),
    ]
}

/// A list in one header line or several: a new one begins where `breaks` says.
fn lines(preferences: &[String], breaks: [bool; 8]) -> Vec<String> {
    let mut lines = vec![String::new()];
    for (preference, new) in preferences.iter().zip(breaks) {
        match lines.last_mut() {
            Some(line) if !new => {
                line.push_str(", ");
                line.push_str(preference);
            }
            _ => lines.push(preference.clone()),
        }
    }
    lines
}
