//! The header `Idempotency-Key`.

use http::{HeaderMap, HeaderName, HeaderValue};
use tower_redlock::idempotency::{IdempotencyKey, IdempotencyKeyError};

use super::assert_short;

pub fn run(bytes: &[u8]) -> bool {
    // Lines are headers.
    let mut headers = HeaderMap::new();
    for line in bytes.split(|byte| *byte == b'\n').take(4) {
        if let Ok(value) = HeaderValue::from_bytes(line) {
            headers.append("idempotency-key", value);
        }
    }
    let values: Vec<_> = headers.get_all("idempotency-key").iter().collect();
    match (IdempotencyKey::from_headers(&headers), values.as_slice()) {
        (Ok(None), values) => assert!(values.is_empty()),
        (Ok(Some(key)), [value]) => {
            assert_eq!(read(value.as_bytes()), Some(Ok(key)));
        }
        (Ok(Some(key)), values) => panic!("{key} of {values:?}"),
        (Err(error), _) => assert_harmless(&error.to_string(), bytes),
    }
    one(bytes)
}

/// Reads the value of one header; `None` if no header can have this value.
fn read(value: &[u8]) -> Option<Result<IdempotencyKey, IdempotencyKeyError>> {
    let value = HeaderValue::from_bytes(value).ok()?;
    let headers = HeaderMap::from_iter([(HeaderName::from_static("idempotency-key"), value)]);
    IdempotencyKey::from_headers(&headers).transpose()
}

fn one(value: &[u8]) -> bool {
    let key = match read(value) {
        None => return false,
        Some(Ok(key)) => key,
        Some(Err(error)) => {
            assert_harmless(&error.to_string(), value);
            assert_harmless(&format!("{error:?}"), value);
            return false;
        }
    };
    let text = key.as_str();
    assert!((1..=255).contains(&text.len()));
    assert!(text.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
    assert!(text.bytes().any(|byte| byte != b' '));
    // Bare or in quotes, it is what was sent: nothing was cut off, and nothing was left out.
    let quoted = format!("\"{}\"", text.replace('\\', r"\\").replace('"', "\\\""));
    let value = trim(value);
    assert!(
        value == text.as_bytes() || value == quoted.as_bytes(),
        "{text:?}"
    );
    // Each spelling is one key.
    assert_eq!(read(quoted.as_bytes()), Some(Ok(key.clone())));
    let padded = [b" \t", value, b"\t "].concat();
    assert_eq!(read(&padded), Some(Ok(key)));
    true
}

fn trim(value: &[u8]) -> &[u8] {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let from = value.iter().position(|byte| !is_blank(byte));
    let to = value.iter().rposition(|byte| !is_blank(byte));
    match (from, to) {
        (Some(from), Some(to)) => &value[from..=to],
        _ => &[],
    }
}

/// It says what to do, and repeats nothing of the client's that could be anybody's secret.
fn assert_harmless(text: &str, sent: &[u8]) {
    assert_short(text, 200);
    let sent = String::from_utf8_lossy(sent);
    let words = sent.split(|letter: char| !letter.is_ascii_alphanumeric());
    // A fuzzer that reads comparisons sends the names of our types, too.
    let is_ours = |word: &str| "IdempotencyKeyError".contains(word);
    for word in words.filter(|word| word.len() > 15 && !is_ours(word)) {
        assert!(!text.contains(word), "{text}: {word}");
    }
}
