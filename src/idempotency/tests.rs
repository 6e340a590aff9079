//! A million random requests and records: each parser is compared with a second one that is written in another way, and
//! no two different values may be taken for one.
//!
//! All of it follows from a seed, which a failure prints: `IDEMPOTENCY_SEED=7 cargo test --lib --all-features
//! idempotency::tests`.

// What helpers stumble over fails the test, which is what it is for, and then the seed is printed.
#![allow(clippy::indexing_slicing, clippy::print_stderr, clippy::unwrap_used)]

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use sha2::{Digest, Sha256};

use super::fingerprint::{Fingerprint, lock_key};
use super::key::IdempotencyKey;
use super::stored_response::{Replay, StoredResponse};

const KEYS: usize = 400_000;
const RECORDS: usize = 250_000;
const FINGERPRINTS: usize = 250_000;
const SCOPES: usize = 100_000;

#[test]
fn keys_are_read_as_the_grammar_says() {
    let mut dice = Dice::seeded();
    let mut read = 0;
    for _ in 0..KEYS {
        let value = dice.header_value();
        let found = IdempotencyKey::from_value(&value);
        let expected = key_by_the_grammar(&value);
        let shown = value.escape_ascii();
        match found {
            Ok(key) => {
                read += 1;
                assert_eq!(expected.as_deref(), Some(key.as_str()), "{shown}");
                let quoted = key.as_str().replace('\\', r"\\").replace('"', "\\\"");
                let again = IdempotencyKey::from_value(format!("\"{quoted}\"").as_bytes());
                assert_eq!(again, Ok(key), "{shown}");
            }
            Err(error) => assert_eq!(expected, None, "{shown}: {error}"),
        }
    }
    assert!(
        (KEYS / 20..KEYS).contains(&read),
        "{read} keys were any good"
    );
}

#[test]
fn records_are_read_as_they_were_written_or_not_at_all() {
    let mut dice = Dice::seeded();
    let mut deep = 0;
    for round in 0..RECORDS {
        let stored = dice.stored();
        let encoded = stored.encode();
        assert_eq!(StoredResponse::decode(&encoded), Ok(stored));
        let changed = dice.damaged(&encoded);
        if changed != *encoded {
            let read = StoredResponse::decode(&Bytes::from(changed.clone()));
            assert!(read.is_err(), "{} was read", changed.escape_ascii());
        }
        // Behind a check sum that is right, the damage reaches the reader itself.
        let content = match round % 4 {
            0 => [&[2][..], &dice.bytes(80, 0..=255)].concat(),
            _ => changed[..changed.len().saturating_sub(8)].to_vec(),
        };
        if let Ok(read) = StoredResponse::decode(&summed(content.clone())) {
            deep += 1;
            let kept = StoredResponse::decode(&read.encode()).unwrap();
            assert_eq!(kept, read, "{}", content.escape_ascii());
        }
    }
    assert!(
        deep > RECORDS / 100,
        "{deep} damaged records got past the check sum"
    );
}

#[test]
fn no_two_requests_have_one_fingerprint() {
    let mut dice = Dice::seeded();
    let mut seen = Seen(HashMap::new(), HashMap::new());
    for _ in 0..FINGERPRINTS {
        let payload = dice.payload();
        let parts = payload.parts(&mut dice);
        let fingerprint = Fingerprint::new(&parts, &payload.body);
        seen.note(&fingerprint.0, &payload);
    }
    seen.judge(FINGERPRINTS);
}

#[test]
fn no_two_scopes_have_one_lock_key() {
    let mut dice = Dice::seeded();
    let mut seen = Seen(HashMap::new(), HashMap::new());
    for _ in 0..SCOPES {
        let method = dice.text("AB", 1..3);
        let path = format!("/{}", dice.text("ab", 0..3));
        let route = dice
            .chance(2)
            .then(|| format!("/{}", dice.text("ab{", 0..3)));
        let caller = dice.text("\0\u{1}\u{2}", 0..3);
        let key = dice.text("ab", 1..4);
        let request = Request::builder()
            .method(&*method)
            .uri(&path)
            .body(())
            .unwrap();
        let (parts, ()) = request.into_parts();
        let sent = IdempotencyKey::from_value(key.as_bytes()).unwrap();
        let lock_key = lock_key(&parts, route.as_deref(), &caller, &sent);
        // Under a route, the path does not matter.
        let place = route.ok_or(path);
        seen.note(&lock_key.unwrap(), &(method, place, caller, key));
    }
    seen.judge(SCOPES);
}

/// The key that a value is, by the grammar rather than by a parser; `None` if it is none.
fn key_by_the_grammar(value: &[u8]) -> Option<String> {
    let text = str::from_utf8(value).ok().filter(|text| text.is_ascii())?;
    let text = text.trim_matches([' ', '\t']);
    let key = match text.strip_prefix('"') {
        None if text.contains(['"', ',', ';', ' ']) => return None,
        None => text.to_owned(),
        Some(quoted) => {
            // What is escaped is put out of the way, so that what is left must not hold a quote or backslash.
            let hidden = quoted.replace(r"\\", "\u{1}").replace("\\\"", "\u{2}");
            let inner = hidden.strip_suffix('"')?;
            if inner.contains(['"', '\\']) || quoted.contains(['\u{1}', '\u{2}']) {
                return None;
            }
            inner.replace('\u{1}', "\\").replace('\u{2}', "\"")
        }
    };
    let visible = key.bytes().all(|byte| (0x20..0x7F).contains(&byte));
    let some = !key.trim().is_empty() && key.len() <= 255;
    (visible && some).then_some(key)
}

/// What makes a request this request.
#[derive(Debug)]
struct Payload {
    method: String,
    path: String,
    query: Option<String>,
    content_type: Vec<String>,
    body: Vec<u8>,
}

impl Payload {
    /// The request's head; the order of its headers, and what it has beside, are left to chance.
    fn parts(&self, dice: &mut Dice) -> Parts {
        let query = self.query.as_ref().map(|query| format!("?{query}"));
        let uri = format!("{}{}", self.path, query.unwrap_or_default());
        let request = Request::builder().method(&*self.method).uri(uri).body(());
        let mut request = request.unwrap();
        let headers = request.headers_mut();
        for value in &self.content_type {
            headers.append(CONTENT_TYPE, HeaderValue::from_str(value).unwrap());
            if dice.chance(2) {
                headers.append("x-request-id", HeaderValue::from_static("a"));
            }
        }
        request.into_parts().0
    }
}

/// Which hashes stand for what, written down unambiguously.
struct Seen<H>(HashMap<H, String>, HashMap<String, H>);

impl<H: Clone + Eq + std::hash::Hash + fmt::Debug> Seen<H> {
    fn note(&mut self, hash: &H, subject: &impl fmt::Debug) {
        let subject = format!("{subject:?}");
        match self.0.entry(hash.clone()) {
            Entry::Occupied(before) => assert_eq!(*before.get(), subject, "two for {hash:?}"),
            Entry::Vacant(free) => _ = free.insert(subject.clone()),
        }
        let before = self.1.entry(subject).or_insert(hash.clone());
        assert_eq!(before, hash, "one thing has two hashes");
    }

    /// Both sameness and difference must have been tried often.
    fn judge(&self, notes: usize) {
        let subjects = self.1.len();
        assert!(
            (notes / 20..notes * 19 / 20).contains(&subjects),
            "{subjects} of {notes}"
        );
    }
}

fn summed(mut content: Vec<u8>) -> Bytes {
    let sum = Sha256::digest(&content);
    content.extend(&sum[..8]);
    content.into()
}

/// Numbers that look random and follow from a seed, which is printed if a test fails.
struct Dice {
    seed: u64,
    rng: fastrand::Rng,
}

impl Dice {
    fn seeded() -> Self {
        let told = std::env::var("IDEMPOTENCY_SEED").ok();
        let seed = told.map_or_else(|| getrandom::u64().unwrap(), |seed| seed.parse().unwrap());
        let rng = fastrand::Rng::with_seed(seed);
        Self { seed, rng }
    }

    /// A number from 0 to one less than `count`.
    fn below(&mut self, count: usize) -> usize {
        self.rng.usize(..count)
    }

    /// True once in `of` times.
    fn chance(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }

    /// Fewer than `count` bytes of a range.
    fn bytes(&mut self, count: usize, range: std::ops::RangeInclusive<u8>) -> Vec<u8> {
        let width = usize::from(range.end() - range.start()) + 1;
        let byte = |dice: &mut Self| range.start() + u8::try_from(dice.below(width)).unwrap();
        (0..self.below(count)).map(|_| byte(self)).collect()
    }

    fn text(&mut self, alphabet: &str, len: std::ops::Range<usize>) -> String {
        let len = len.start + self.below(len.len());
        let letter = |dice: &mut Self| char::from(alphabet.as_bytes()[dice.below(alphabet.len())]);
        (0..len).map(|_| letter(self)).collect()
    }

    /// Mostly of the bytes that mean something, in the lengths that are on the edge.
    fn header_value(&mut self) -> Vec<u8> {
        let alphabet = b"\"\"\\\\  ;,\taaab=/\x7F\xC3\xA9\n\0~!\x01\x02";
        let mut value: Vec<u8> = match self.below(8) {
            0 => self.bytes(12, 0..=255),
            1 => vec![alphabet[self.below(16)]; 250 + self.below(10)],
            2 => self.text("a\"\\ ;", 0..10).into_bytes(),
            _ => {
                let len = self.below(10);
                (0..len)
                    .map(|_| alphabet[self.below(alphabet.len())])
                    .collect()
            }
        };
        if self.chance(2) {
            value.insert(0, b'"');
            value.push(b'"');
        }
        if self.chance(16) {
            value.insert(0, b' ');
            value.push(b'\t');
        }
        value
    }

    fn payload(&mut self) -> Payload {
        let values = |dice: &mut Self| -> Vec<String> {
            let count = dice.below(3);
            let value = |dice: &mut Self| match dice.chance(8) {
                // Where one list ends and the next begins must not depend on what is in them.
                true => CONTENT_TYPE.to_string(),
                false => dice.text("ab", 0..2),
            };
            (0..count).map(|_| value(dice)).collect()
        };
        Payload {
            method: self.text("AB", 1..2),
            path: format!("/{}", self.text("ab", 0..2)),
            query: self.chance(2).then(|| self.text("ab", 0..2)),
            content_type: values(self),
            body: self.bytes(7, b'a'..=b'b'),
        }
    }

    fn headers(&mut self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for _ in 0..self.below(4) {
            let name = HeaderName::try_from(self.text("ab-", 1..3)).unwrap();
            let len = if self.chance(8) { 300 } else { 4 };
            let value = self.bytes(len, b' '..=b'~');
            let mut value = HeaderValue::try_from(value).unwrap();
            value.set_sensitive(self.chance(4));
            headers.append(name, value);
        }
        headers
    }

    fn stored(&mut self) -> StoredResponse {
        let fingerprint = Fingerprint([u8::try_from(self.below(256)).unwrap(); 32]);
        let status = u16::try_from(100 + self.below(900)).unwrap();
        let status = StatusCode::from_u16(status).unwrap();
        if self.chance(6) {
            return StoredResponse {
                fingerprint,
                replay: None,
            };
        }
        let headers = self.headers();
        let len = if self.chance(8) { 300 } else { 8 };
        let replay = Replay {
            status,
            headers,
            body: Bytes::from(self.bytes(len, 0..=255)),
            trailers: self.chance(3).then(|| self.headers()),
        };
        StoredResponse {
            fingerprint,
            replay: Some(replay),
        }
    }

    /// Something changed, cut off, left out, added or moved.
    fn damaged(&mut self, encoded: &[u8]) -> Vec<u8> {
        let mut changed = encoded.to_vec();
        for _ in 0..=self.below(2) {
            // Behind the fingerprint, where the lengths are, or anywhere.
            let from = if self.chance(4) {
                0
            } else {
                changed.len().min(33)
            };
            let at = from + self.below(changed.len() - from + 1);
            let byte = u8::try_from(self.below(256)).unwrap();
            match self.below(5) {
                0 => changed.truncate(at),
                1 => changed.insert(at, byte),
                2 if at < changed.len() => _ = changed.remove(at),
                3 if at < changed.len() => changed[at] = changed[at].wrapping_add(1),
                _ if at < changed.len() => changed[at] = byte,
                _ => changed.push(byte),
            }
        }
        changed
    }
}

impl Drop for Dice {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("IDEMPOTENCY_SEED={}", self.seed);
        }
    }
}
