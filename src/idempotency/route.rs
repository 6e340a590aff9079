//! Where a router took a request from: the route that it found, and the path that the client asked for.

use http::Uri;
use http::request::Parts;

/// The path of the route that matched, such as `/orders/{id}`, where axum's router says so.
#[cfg(feature = "axum")]
pub(super) fn route_of(parts: &Parts) -> Option<&str> {
    let matched = parts.extensions.get::<axum::extract::MatchedPath>();
    matched.map(axum::extract::MatchedPath::as_str)
}

/// There is no router to ask.
#[cfg(not(feature = "axum"))]
pub(super) const fn route_of(_parts: &Parts) -> Option<&str> {
    None
}

/// The URI as it came, where a router has changed it since: one that nests takes its prefix off, which may say on what
/// the request is to act.
#[cfg(feature = "axum")]
pub(super) fn asked_for(parts: &Parts) -> Option<&Uri> {
    let original = parts.extensions.get::<axum::extract::OriginalUri>();
    let original = original.map(|original| &original.0)?;
    let differs = original.path_and_query() != parts.uri.path_and_query();
    differs.then_some(original)
}

/// There is no router that could have changed it.
#[cfg(not(feature = "axum"))]
pub(super) const fn asked_for(_parts: &Parts) -> Option<&Uri> {
    None
}
