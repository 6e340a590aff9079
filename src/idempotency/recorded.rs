//! Which responses are stored, and what of them: [`RecordPolicy`] and [`RecordedHeaders`].

use http::header::{self, HeaderName};
use http::response::Parts;
use http::{HeaderMap, StatusCode};

/// The response header of a replayed response: `idempotent-replayed`, with the value `true`.
pub(crate) const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// The response header of a response that too few nodes have stored: `idempotent-unrecorded`, with the value `true`.
/// See [`OnUnrecorded::Respond`] and [`OnNoQuorum::RunUnlocked`](crate::layer::OnNoQuorum::RunUnlocked).
pub(crate) const IDEMPOTENT_UNRECORDED: HeaderName =
    HeaderName::from_static("idempotent-unrecorded");

/// What happens to a response that too few nodes have stored, so that a repeat may or may not get it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnUnrecorded {
    /// The client gets `503 outcome-unknown`. The response to its repeat is then the only one that any client gets.
    #[default]
    Refuse,
    /// The client gets the response, with the header `idempotent-unrecorded`. A repeat
    /// may run again and get another one.
    Respond,
}

/// Which headers of a response, and which trailers, are stored and sent with each replay. Default: all except those
/// that belong to one exchange and not to the response.
///
/// | header | by default | if it is [chosen](Self::also) |
/// |---|---|---|
/// | of one exchange: `set-cookie`, `date`, `age`, `alt-svc`, `server-timing`, `request-id`, `x-request-id`, `x-amzn-requestid`, `x-correlation-id`, `ratelimit`, `ratelimit-policy` | not stored | stored |
/// | of authentication: `www-authenticate`, `authentication-info`, `proxy-authenticate`, `proxy-authentication-info`, `dpop-nonce`, `replay-nonce` | not stored | stored |
/// | of tracing: `traceparent`, `tracestate`, `traceresponse`, `baggage`, `b3`, `x-b3-traceid`, `x-b3-spanid`, `x-b3-parentspanid`, `x-b3-sampled`, `x-b3-flags`, `uber-trace-id`, `sentry-trace`, `x-amzn-trace-id`, `x-cloud-trace-context`, `x-datadog-trace-id`, `x-datadog-parent-id` | not stored | stored |
/// | `connection` and the headers that it names, `keep-alive`, `proxy-connection`, `te`, `trailer`, `transfer-encoding`, `upgrade`, `content-length`, `idempotent-replayed` | not stored | not stored |
/// | all others | stored | stored |
///
/// # Examples
///
/// ```
/// use http::header::{CONTENT_TYPE, LOCATION, SET_COOKIE};
/// use tower_redlock::idempotency::RecordedHeaders;
///
/// // Everything that is stored by default, and cookies.
/// let with_cookies = RecordedHeaders::default().also(SET_COOKIE);
/// // Two headers and no others.
/// let two = RecordedHeaders::only([CONTENT_TYPE, LOCATION]);
/// # let _ = (with_cookies, two);
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "it does nothing until it is given to a layer"]
pub struct RecordedHeaders {
    chosen: Vec<HeaderName>,
    left_out: Vec<HeaderName>,
    // Whether headers that were not named are dropped.
    only_chosen: bool,
}

impl RecordedHeaders {
    /// These headers and no others; none at all if the list is empty.
    pub fn only(names: impl IntoIterator<Item = HeaderName>) -> Self {
        Self {
            chosen: names.into_iter().collect(),
            only_chosen: true,
            ..Self::default()
        }
    }

    /// These headers and `name`, unless it belongs to a connection: see the table above.
    pub fn also(mut self, name: HeaderName) -> Self {
        self.left_out.retain(|other| *other != name);
        self.chosen.push(name);
        self
    }

    /// These headers without `name`.
    pub fn except(mut self, name: HeaderName) -> Self {
        self.chosen.retain(|other| *other != name);
        self.left_out.push(name);
        self
    }

    /// The headers to store, in their order.
    pub(super) fn keep(&self, headers: &HeaderMap) -> HeaderMap {
        let mut kept = HeaderMap::new();
        let kept_names = headers
            .keys()
            .filter(|name| self.keeps(name) && !is_named_by_connection(headers, name));
        for name in kept_names {
            for value in headers.get_all(name) {
                kept.append(name, value.clone());
            }
        }
        kept
    }

    fn keeps(&self, name: &HeaderName) -> bool {
        if NEVER.contains(&name.as_str()) || self.left_out.contains(name) {
            return false;
        }
        let by_default = !self.only_chosen && !UNLESS_CHOSEN.contains(&name.as_str());
        by_default || self.chosen.contains(name)
    }
}

/// Whether `connection` names the header, which is then for the next hop alone.
fn is_named_by_connection(headers: &HeaderMap, name: &HeaderName) -> bool {
    let lists = headers.get_all(header::CONNECTION).iter();
    lists
        .flat_map(|list| list.as_bytes().split(|byte| *byte == b','))
        .any(|item| {
            item.trim_ascii()
                .eq_ignore_ascii_case(name.as_str().as_bytes())
        })
}

const NEVER: [&str; 9] = [
    "connection",
    "content-length",
    "idempotent-replayed",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

const UNLESS_CHOSEN: [&str; 33] = [
    "age",
    "alt-svc",
    "authentication-info",
    "b3",
    "baggage",
    "date",
    "dpop-nonce",
    "proxy-authenticate",
    "proxy-authentication-info",
    "ratelimit",
    "ratelimit-policy",
    "replay-nonce",
    "request-id",
    "sentry-trace",
    "server-timing",
    "set-cookie",
    "traceparent",
    "traceresponse",
    "tracestate",
    "uber-trace-id",
    "www-authenticate",
    "x-amzn-requestid",
    "x-amzn-trace-id",
    "x-b3-flags",
    "x-b3-parentspanid",
    "x-b3-sampled",
    "x-b3-spanid",
    "x-b3-traceid",
    "x-cloud-trace-context",
    "x-correlation-id",
    "x-datadog-parent-id",
    "x-datadog-trace-id",
    "x-request-id",
];

/// Decides which responses are stored. A response that is not stored frees the key: the next request with it runs.
///
/// A closure `Fn(&http::response::Parts) -> bool` is one. It gets the head of the response before its body is read.
///
/// A stored response is final until its retention ends: a client that repeats a request which failed for a temporary
/// reason gets the failure again. Do not store a response only if the request had no effect.
///
/// A response that is marked as one of a run that did nothing is never stored, whatever the policy is
/// (`docs::one_effect`, "Refusals").
///
/// # Examples
///
/// ```
/// use http::response::Parts;
/// use tower_redlock::idempotency::RecordPolicy;
///
/// fn takes_a_policy(_: impl RecordPolicy) {}
/// // Failures are kept as well, once the handler has begun.
/// takes_a_policy(|response: &Parts| response.status.as_u16() != 503);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not decide which responses are stored",
    label = "must be a `RecordPolicy`",
    note = "a closure or function `Fn(&http::response::Parts) -> bool` is one; annotate its argument: `|response: &Parts| ..`"
)]
pub trait RecordPolicy: Send + Sync + 'static {
    /// Whether the response with this head is stored.
    fn records(&self, response: &Parts) -> bool;
}

impl<F> RecordPolicy for F
where
    F: Fn(&Parts) -> bool + Send + Sync + 'static,
{
    fn records(&self, response: &Parts) -> bool {
        self(response)
    }
}

/// The default: stores every response below 500 except 408, 425 and 429, which ask the client to retry.
#[derive(Debug)]
pub(super) struct DefaultRecordPolicy;

impl RecordPolicy for DefaultRecordPolicy {
    fn records(&self, response: &Parts) -> bool {
        let again = [
            StatusCode::REQUEST_TIMEOUT,
            StatusCode::TOO_EARLY,
            StatusCode::TOO_MANY_REQUESTS,
        ];
        response.status.as_u16() < 500 && !again.contains(&response.status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::header::{CONNECTION, CONTENT_LENGTH, DATE, ETAG, LOCATION, SET_COOKIE};
    use http::{HeaderValue, Response};

    fn response() -> HeaderMap {
        let mut headers = HeaderMap::new();
        for name in NEVER.into_iter().chain(UNLESS_CHOSEN) {
            headers.append(name, HeaderValue::from_static("x"));
        }
        for (name, value) in [
            ("location", "/1"),
            ("link", "a"),
            ("etag", "e"),
            ("link", "b"),
        ] {
            headers.append(name, HeaderValue::from_static(value));
        }
        headers
    }

    fn kept(headers: &RecordedHeaders, response: &HeaderMap) -> Vec<String> {
        let kept = headers.keep(response);
        let kept = kept.iter();
        kept.map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect()
    }

    #[test]
    fn by_default_all_is_kept_that_belongs_to_the_response() {
        let kept = kept(&RecordedHeaders::default(), &response());
        assert_eq!(kept, ["location: /1", "link: a", "link: b", "etag: e"]);
    }

    #[test]
    fn what_is_chosen_is_kept_unless_it_belongs_to_a_connection() {
        let chosen = RecordedHeaders::default()
            .also(SET_COOKIE)
            .also(CONTENT_LENGTH)
            .except(ETAG)
            .except(LOCATION)
            .also(LOCATION);
        let expected = ["set-cookie: x", "location: /1", "link: a", "link: b"];
        assert_eq!(kept(&chosen, &response()), expected);
        let only = RecordedHeaders::only([DATE, ETAG, CONNECTION]).except(ETAG);
        assert_eq!(kept(&only, &response()), ["date: x"]);
        assert!(kept(&RecordedHeaders::only([]), &response()).is_empty());
    }

    #[test]
    fn what_connection_names_is_for_the_next_hop_alone() {
        let mut headers = response();
        headers.insert(CONNECTION, HeaderValue::from_static("close, LINK"));
        headers.append(CONNECTION, HeaderValue::from_static("etag ,"));
        let all = RecordedHeaders::default();
        assert_eq!(kept(&all, &headers), ["location: /1"]);
        assert_eq!(kept(&all.also(ETAG), &headers), ["location: /1"]);
    }

    #[test]
    fn the_table_has_every_header_that_is_not_kept() {
        let docs = include_str!("recorded.rs").lines();
        let table: String = docs.filter(|line| line.starts_with("/// | ")).collect();
        for name in NEVER.into_iter().chain(UNLESS_CHOSEN) {
            assert!(table.contains(&format!("`{name}`")), "{name}");
        }
    }

    #[test]
    fn the_marker_is_the_header_that_is_never_kept() {
        assert!(NEVER.contains(&IDEMPOTENT_REPLAYED.as_str()));
    }

    #[test]
    fn responses_that_ask_for_a_retry_are_not_stored() {
        let stored = |policy: &dyn RecordPolicy, status: u16| {
            let response = Response::builder().status(status).body(());
            policy.records(&response.unwrap().into_parts().0)
        };
        for status in 100..1000 {
            let expected = status < 500 && ![408, 425, 429].contains(&status);
            assert_eq!(stored(&DefaultRecordPolicy, status), expected, "{status}");
        }
        let teapots = |response: &Parts| response.status == StatusCode::IM_A_TEAPOT;
        assert!(stored(&teapots, 418) && !stored(&teapots, 200));
    }
}
