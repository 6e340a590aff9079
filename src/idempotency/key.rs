//! [`IdempotencyKey`]: the value of the header `Idempotency-Key`.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use http::HeaderMap;
use http::header::HeaderName;

pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The key that a client chooses for an operation, and sends with the first request and with each repeat.
///
/// It has 1 to 255 characters of visible ASCII, with quotes (a String of RFC 8941) or without. Both spellings are the
/// same key. A key with a space, comma, quote or semicolon needs quotes.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct IdempotencyKey(pub(super) Arc<str>);

impl IdempotencyKey {
    /// Reads the key from the headers of a request. `None` if there is no `Idempotency-Key`.
    ///
    /// # Errors
    ///
    /// [`IdempotencyKeyError`] if the header is repeated or cannot be used as a key.
    pub fn from_headers(headers: &HeaderMap) -> Result<Option<Self>, IdempotencyKeyError> {
        let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
        let Some(value) = values.next() else {
            return Ok(None);
        };
        if values.next().is_some() {
            return Err(IdempotencyKeyError(Fault::Repeated));
        }
        Self::from_value(value.as_bytes()).map(Some)
    }

    pub(crate) fn from_value(value: &[u8]) -> Result<Self, IdempotencyKeyError> {
        let value = trim(value);
        let key = match value.split_first() {
            None => return Err(IdempotencyKeyError(Fault::Empty)),
            Some((b'"', quoted)) => unquote(quoted)?,
            Some(_) => bare(value)?,
        };
        if key.bytes().all(|byte| byte == b' ') {
            return Err(IdempotencyKeyError(Fault::Empty));
        }
        Ok(Self(Arc::from(key)))
    }

    /// The key without quotes and escapes.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("IdempotencyKey")
            .field(&self.as_str())
            .finish()
    }
}

impl fmt::Display for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a header cannot be used as an [`IdempotencyKey`], and what to send instead. The text never contains text from
/// the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdempotencyKeyError(Fault);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Repeated,
    Empty,
    TooLong,
    NotVisible,
    Delimiter,
    Unclosed,
    Escape,
    Parameters,
    Trailing,
}

impl fmt::Display for IdempotencyKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Fault::Repeated => f.write_str("the header `Idempotency-Key` is repeated; send it once"),
            Fault::Empty => f.write_str("the idempotency key is empty; send a new UUID for each operation"),
            Fault::TooLong => write!(
                f,
                "the idempotency key is too long; send at most {MAX_LEN} characters"
            ),
            Fault::NotVisible => f.write_str(
                "the idempotency key has a character that is not visible ASCII; send letters, digits and dashes",
            ),
            Fault::Delimiter => f.write_str(
                "the idempotency key has a quote or a comma and is not in quotes; put it between double quotes",
            ),
            Fault::Unclosed => f.write_str("the closing quote of the idempotency key is missing; add it"),
            Fault::Escape => f.write_str(
                "the idempotency key has a backslash that escapes neither a quote nor a backslash; double it",
            ),
            Fault::Parameters => f.write_str(
                "the idempotency key has parameters, which are not supported; leave out the semicolon and the text after \
                 it, or put the whole key between double quotes",
            ),
            Fault::Trailing => f.write_str(
                "there is text after the closing quote of the idempotency key; send one key and nothing else",
            ),
        }
    }
}

impl Error for IdempotencyKeyError {}

/// Reads a key after its opening quote. Nothing may follow the closing quote.
fn unquote(quoted: &[u8]) -> Result<String, IdempotencyKeyError> {
    let mut key = String::new();
    let mut bytes = quoted.iter();
    loop {
        let byte = match bytes.next() {
            None => return Err(IdempotencyKeyError(Fault::Unclosed)),
            Some(b'"') => break,
            Some(b'\\') => match bytes.next() {
                Some(escaped @ (b'"' | b'\\')) => escaped,
                _ => return Err(IdempotencyKeyError(Fault::Escape)),
            },
            Some(byte @ (b' ' | b'!'..=b'~')) => byte,
            Some(_) => return Err(IdempotencyKeyError(Fault::NotVisible)),
        };
        push(&mut key, *byte)?;
    }
    match trim(bytes.as_slice()).first() {
        None => Ok(key),
        Some(b';') => Err(IdempotencyKeyError(Fault::Parameters)),
        Some(_) => Err(IdempotencyKeyError(Fault::Trailing)),
    }
}

/// Refuses commas, so that two header lines that a proxy has joined do not become one key.
fn bare(value: &[u8]) -> Result<String, IdempotencyKeyError> {
    let mut key = String::new();
    for byte in value {
        match byte {
            b';' => return Err(IdempotencyKeyError(Fault::Parameters)),
            b'"' | b',' => return Err(IdempotencyKeyError(Fault::Delimiter)),
            b'!'..=b'~' => push(&mut key, *byte)?,
            _ => return Err(IdempotencyKeyError(Fault::NotVisible)),
        }
    }
    Ok(key)
}

const MAX_LEN: usize = 255;

fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

fn push(key: &mut String, byte: u8) -> Result<(), IdempotencyKeyError> {
    if key.len() == MAX_LEN {
        return Err(IdempotencyKeyError(Fault::TooLong));
    }
    key.push(char::from(byte));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use proptest::prelude::*;

    fn text(value: &str) -> String {
        IdempotencyKey::from_value(value.as_bytes()).map_or_else(
            |error| format!("{:?}", error.0),
            |key| format!("={}", key.as_str()),
        )
    }

    fn quoted(key: &str) -> String {
        format!("\"{}\"", key.replace('\\', r"\\").replace('"', "\\\""))
    }

    #[test]
    fn both_spellings_are_one_key() {
        for (value, found) in [
            ("abc", "=abc"),
            ("\"abc\"", "=abc"),
            (" \t\"abc\"  ", "=abc"),
            (r#""a\"b\\c""#, r#"=a"b\c"#),
            (r"a\b", r"=a\b"),
            ("\"a b\"", "=a b"),
            ("\"a;b,c\"", "=a;b,c"),
            ("!~", "=!~"),
            ("YWJj/+==", "=YWJj/+=="),
        ] {
            assert_eq!(text(value), found, "{value}");
        }
    }

    #[test]
    fn what_is_no_key_is_refused_and_told_apart() {
        for (value, fault) in [
            ("", "Empty"),
            ("  ", "Empty"),
            ("\"\"", "Empty"),
            ("\"  \"", "Empty"),
            ("\"abc", "Unclosed"),
            ("\"", "Unclosed"),
            ("\"abc\\\"", "Unclosed"),
            ("\"abc\\", "Escape"),
            (r#""a\bc""#, "Escape"),
            ("\"abc\";v=1", "Parameters"),
            ("\"abc\" ; v=1", "Parameters"),
            ("abc;v=1", "Parameters"),
            ("\"abc\", \"def\"", "Trailing"),
            ("\"abc\"def", "Trailing"),
            ("abc,def", "Delimiter"),
            ("abc\"", "Delimiter"),
            ("a b", "NotVisible"),
            ("abc\n", "NotVisible"),
            ("a\tb", "NotVisible"),
            ("\"a\tb\"", "NotVisible"),
            ("caf\u{e9}", "NotVisible"),
            ("\"a\u{7f}\"", "NotVisible"),
        ] {
            assert_eq!(text(value), fault, "{value}");
        }
    }

    #[test]
    fn the_length_is_that_of_the_key_and_not_of_its_spelling() {
        let escaped = |count: usize| format!("\"{}\"", "\\\\".repeat(count));
        assert_eq!(text(&"x".repeat(255)), format!("={}", "x".repeat(255)));
        assert_eq!(text(&"x".repeat(256)), "TooLong");
        assert_eq!(text(&escaped(255)), format!("={}", "\\".repeat(255)));
        assert_eq!(text(&escaped(256)), "TooLong");
    }

    #[test]
    fn one_header_line_is_one_key() {
        let mut headers = HeaderMap::new();
        assert_eq!(IdempotencyKey::from_headers(&headers), Ok(None));
        headers.append(IDEMPOTENCY_KEY, HeaderValue::from_static("abc"));
        let key = IdempotencyKey::from_headers(&headers).unwrap();
        assert_eq!(key.unwrap().as_str(), "abc");
        headers.append(IDEMPOTENCY_KEY, HeaderValue::from_static("abc"));
        let repeated = IdempotencyKeyError(Fault::Repeated);
        assert_eq!(IdempotencyKey::from_headers(&headers), Err(repeated));
    }

    #[test]
    fn errors_never_repeat_the_client() {
        for value in ["SECRET;a", "\"SECRET", "SECRET SECRET", "\"SECRET\"x"] {
            let error = IdempotencyKey::from_value(value.as_bytes()).unwrap_err();
            assert!(!error.to_string().contains("SECRET"), "{error}");
            assert!(!format!("{error:?}").contains("SECRET"), "{error:?}");
        }
    }

    proptest! {
        #[test]
        fn a_quoted_key_is_read_back(key in "[ -~]{1,255}") {
            let read = IdempotencyKey::from_value(quoted(&key).as_bytes());
            prop_assert_eq!(read.is_err(), key.trim().is_empty());
            if let Ok(read) = read {
                prop_assert_eq!(read.as_str(), key);
            }
        }

        #[test]
        fn whatever_is_read_is_what_was_sent_and_errors_repeat_nothing_of_it(
            value in prop_oneof![
                prop::collection::vec(any::<u8>(), 0..300),
                // What is a key, or nearly one.
                "[ \t]?\"?[!-~ ]{0,12}\"?[ \t]?".prop_map(String::into_bytes),
                "\"?[a-z0-9]{16,40}\"?[;, a-z\\\\]{0,3}".prop_map(String::into_bytes),
            ]
        ) {
            let sent = trim(&value);
            match IdempotencyKey::from_value(&value) {
                Ok(key) => {
                    let text = key.as_str();
                    prop_assert!((1..=MAX_LEN).contains(&text.len()));
                    prop_assert!(text.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
                    // Nothing was cut off, and nothing was left out; each spelling is one key.
                    let quoted = quoted(text);
                    prop_assert!([text.as_bytes(), quoted.as_bytes()].contains(&sent), "{}", text);
                    let padded = [b" \t", sent, b"\t "].concat();
                    for spelling in [quoted.as_bytes(), &padded] {
                        prop_assert_eq!(IdempotencyKey::from_value(spelling), Ok(key.clone()));
                    }
                }
                Err(error) => {
                    let text = format!("{error} {error:?}");
                    prop_assert!(!text.contains(char::is_control) && text.len() < 300, "{}", text);
                    let sent = String::from_utf8_lossy(sent).into_owned();
                    let words = sent.split(|letter: char| !letter.is_ascii_alphanumeric());
                    for word in words.filter(|word| word.len() > 15) {
                        prop_assert!(!text.contains(word), "{}: {}", text, word);
                    }
                }
            }
        }
    }
}
