//! Which responses are stored, and which of their headers.

use http::header::{self, HeaderName};
use http::response::Parts;
use http::{HeaderMap, StatusCode};

/// The header of a replayed response, with the value `true`.
pub(crate) const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// The header of a response that too few nodes have stored, with the value `true`.
pub(crate) const IDEMPOTENT_UNRECORDED: HeaderName =
    HeaderName::from_static("idempotent-unrecorded");

/// What the client gets if too few nodes have stored its response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnUnrecorded {
    /// The client gets `503 outcome-unknown`. A repeat gets the response or runs again.
    #[default]
    Refuse,
    /// The client gets the response, with the header `idempotent-unrecorded: true`. A repeat may run again and get
    /// another response.
    Respond,
}

/// The headers or trailers of a response that are stored, in their order.
pub(super) fn kept(headers: &HeaderMap) -> HeaderMap {
    let is_kept = |name: &HeaderName| {
        !NOT_STORED.contains(&name.as_str()) && !is_named_by_connection(headers, name)
    };
    let kept = headers.iter().filter(|(name, _)| is_kept(name));
    kept.map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// Whether the header `connection` names this header. Then it is only for the next hop.
fn is_named_by_connection(headers: &HeaderMap, name: &HeaderName) -> bool {
    let lists = headers.get_all(header::CONNECTION).iter();
    lists
        .flat_map(|list| list.as_bytes().split(|byte| *byte == b','))
        .any(|item| {
            item.trim_ascii()
                .eq_ignore_ascii_case(name.as_str().as_bytes())
        })
}

/// The documentation of the layer has the same list, and a test compares them.
const NOT_STORED: [&str; 42] = [
    "age",
    "alt-svc",
    "authentication-info",
    "b3",
    "baggage",
    "connection",
    "content-length",
    "date",
    "dpop-nonce",
    "idempotent-replayed",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-connection",
    "ratelimit",
    "ratelimit-policy",
    "replay-nonce",
    "request-id",
    "sentry-trace",
    "server-timing",
    "set-cookie",
    "te",
    "traceparent",
    "traceresponse",
    "tracestate",
    "trailer",
    "transfer-encoding",
    "uber-trace-id",
    "upgrade",
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

/// Whether a response is stored by default. 408, 425 and 429 ask the client to retry.
pub(super) fn by_default(response: &Parts) -> bool {
    let again = [
        StatusCode::REQUEST_TIMEOUT,
        StatusCode::TOO_EARLY,
        StatusCode::TOO_MANY_REQUESTS,
    ];
    response.status.as_u16() < 500 && !again.contains(&response.status)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::header::CONNECTION;
    use http::{HeaderValue, Response};

    fn response() -> HeaderMap {
        let mut headers = HeaderMap::new();
        for name in NOT_STORED {
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

    fn of(response: &HeaderMap) -> Vec<String> {
        let kept = kept(response);
        let kept = kept.iter();
        kept.map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect()
    }

    #[test]
    fn all_is_kept_that_belongs_to_the_response() {
        let kept = of(&response());
        assert_eq!(kept, ["location: /1", "link: a", "link: b", "etag: e"]);
    }

    #[test]
    fn what_connection_names_is_for_the_next_hop_alone() {
        let mut headers = response();
        headers.insert(CONNECTION, HeaderValue::from_static("close, LINK"));
        headers.append(CONNECTION, HeaderValue::from_static("etag ,"));
        assert_eq!(of(&headers), ["location: /1"]);
    }

    #[test]
    fn the_docs_of_the_layer_name_every_header_that_is_not_kept() {
        let docs = include_str!("service.rs").lines();
        let docs: String = docs.filter(|line| line.starts_with("///")).collect();
        for name in NOT_STORED {
            assert!(docs.contains(&format!("`{name}`")), "{name}");
        }
    }

    #[test]
    fn the_marker_is_never_kept() {
        assert!(NOT_STORED.contains(&IDEMPOTENT_REPLAYED.as_str()));
    }

    #[test]
    fn responses_that_ask_for_a_retry_are_not_stored() {
        for status in 100..1000 {
            let response = Response::builder().status(status).body(());
            let stored = by_default(&response.unwrap().into_parts().0);
            let expected = status < 500 && ![408, 425, 429].contains(&status);
            assert_eq!(stored, expected, "{status}");
        }
    }
}
