//! The route that a router found for a request.

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
