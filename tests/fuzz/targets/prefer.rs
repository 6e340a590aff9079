//! The header `Prefer`, beside a second reader of it.

use std::time::Duration;

use http::{HeaderValue, Request};
use tower_redlock::layer::prefer_wait;

pub fn run(bytes: &[u8]) -> bool {
    let lines = bytes.split(|byte| *byte == b'\n');
    let lines = lines.filter_map(|line| HeaderValue::from_bytes(line).ok());
    let lines: Vec<_> = lines.take(4).collect();
    let mut request = Request::new(());
    for line in &lines {
        request.headers_mut().append("prefer", line.clone());
    }
    let (parts, ()) = request.into_parts();
    let wait = prefer_wait(&parts);
    let read = lines.iter().find_map(|line| first_wait(line.as_bytes()));
    let read = read.and_then(|value| whole_seconds(&value));
    assert_eq!(wait, read.map(Duration::from_secs), "{lines:?}");
    wait.is_some()
}

/// The value of the first preference called `wait` in a list: what is read so far is kept letter by letter.
fn first_wait(list: &[u8]) -> Option<Vec<u8>> {
    let (mut item, mut items) = (Vec::new(), Vec::new());
    let (mut quoted, mut escaped, mut parameters) = (false, false, false);
    for byte in list {
        let is_plain = !quoted;
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ => {}
        }
        match byte {
            b',' if is_plain => {
                items.push(std::mem::take(&mut item));
                parameters = false;
            }
            b';' if is_plain => parameters = true,
            byte if !parameters => item.push(*byte),
            _ => {}
        }
    }
    items.push(item);
    let pairs = items.iter().map(|item| {
        let equals = item.iter().position(|byte| *byte == b'=');
        let (name, value) = item.split_at(equals.unwrap_or(item.len()));
        (name, value.get(1..).unwrap_or_default())
    });
    let mut waits = pairs.filter(|(name, _)| name.trim_ascii().eq_ignore_ascii_case(b"wait"));
    waits.next().map(|(_, value)| value.trim_ascii().to_vec())
}

fn whole_seconds(value: &[u8]) -> Option<u64> {
    let quoted = value
        .strip_prefix(b"\"")
        .and_then(|rest| rest.strip_suffix(b"\""));
    let digits = quoted.unwrap_or(value);
    let mut seconds: Option<u64> = None;
    for digit in digits {
        let digit = char::from(*digit).to_digit(10)?;
        let so_far = seconds.unwrap_or(0).checked_mul(10)?;
        seconds = Some(so_far.checked_add(u64::from(digit))?);
    }
    seconds
}
