//! [`prefer_wait`]: the time that a client is willing to wait.

use std::time::Duration;

use http::request::Parts;

/// The time that the client is willing to wait, by its header `Prefer: wait=2` (RFC 7240), in whole seconds. For
/// [`RedlockLayer::max_wait_with`](super::RedlockLayer::max_wait_with).
///
/// The first `wait` of several headers and lists counts. `None` if there is none or it is no number of seconds: a
/// preference is a wish, so a malformed one is ignored. `wait=0`: the client does not wait.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use http::Request;
/// use tower_redlock::layer::prefer_wait;
///
/// let request = Request::post("/orders/7/pay").header("prefer", "respond-async, wait=2").body(());
/// let (parts, ()) = request.unwrap().into_parts();
/// assert_eq!(prefer_wait(&parts), Some(Duration::from_secs(2)));
/// ```
#[must_use]
pub fn prefer_wait(parts: &Parts) -> Option<Duration> {
    // Lazily and without a copy, so that a hostile header is read once or twice at most; the server bounds its length.
    let lists = parts.headers.get_all("prefer").iter();
    let mut preferences = lists.flat_map(|list| list.as_bytes().split(outside_quotes(b',')));
    // The first decides even if it is malformed, or a proxy and this layer might read two different ones.
    let first = preferences.find_map(wait)?;
    seconds(first).map(Duration::from_secs)
}

/// The value of a preference if it is `wait`; empty if it has none.
fn wait(preference: &[u8]) -> Option<&[u8]> {
    let without_parameters = preference.split(outside_quotes(b';')).next()?;
    let mut pair = without_parameters.splitn(2, |byte| *byte == b'=');
    let name = pair.next()?.trim_ascii();
    let value = pair.next().unwrap_or_default().trim_ascii();
    name.eq_ignore_ascii_case(b"wait").then_some(value)
}

/// Digits and nothing else, in quotes or not: no sign, no fraction, no more than fits.
fn seconds(value: &[u8]) -> Option<u64> {
    let unquoted = value
        .strip_prefix(b"\"")
        .and_then(|rest| rest.strip_suffix(b"\""));
    let digits = str::from_utf8(unquoted.unwrap_or(value)).ok()?;
    // `parse` would take a sign.
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

/// Finds the separators of a list, but not those inside a quoted string.
fn outside_quotes(separator: u8) -> impl FnMut(&u8) -> bool {
    let (mut quoted, mut escaped) = (false, false);
    move |byte| {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            byte => return !quoted && *byte == separator,
        }
        false
    }
}
