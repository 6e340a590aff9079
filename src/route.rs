//! The route that a router matched, and the URI before a nested router changed it.

#[cfg(feature = "idempotency")]
use http::Uri;
use http::request::Parts;

/// The path of the route that matched, such as `/orders/{id}`, where axum's router says so.
#[cfg(feature = "axum")]
pub(crate) fn route_of(parts: &Parts) -> Option<&str> {
    let matched = parts.extensions.get::<axum::extract::MatchedPath>();
    matched.map(axum::extract::MatchedPath::as_str)
}

/// The path under which axum's routers have nested the service or the router that the request is in.
#[cfg(feature = "axum")]
pub(crate) fn nested_path(parts: &Parts) -> Option<&str> {
    let nested = parts.extensions.get::<axum::extract::NestedPath>();
    nested.map(axum::extract::NestedPath::as_str)
}

/// There is no router.
#[cfg(not(feature = "axum"))]
pub(crate) const fn nested_path(_parts: &Parts) -> Option<&str> {
    None
}

/// There is no router.
#[cfg(not(feature = "axum"))]
pub(crate) const fn route_of(_parts: &Parts) -> Option<&str> {
    None
}

/// The URI as the client sent it, where a router has changed it: a nested router removes its prefix, which may name the
/// resource.
#[cfg(all(feature = "axum", feature = "idempotency"))]
pub(crate) fn original_uri(parts: &Parts) -> Option<&Uri> {
    let original = parts.extensions.get::<axum::extract::OriginalUri>();
    let original = original.map(|original| &original.0)?;
    let differs = original.path_and_query() != parts.uri.path_and_query();
    differs.then_some(original)
}

/// There is no router that could have changed it.
#[cfg(all(not(feature = "axum"), feature = "idempotency"))]
pub(crate) const fn original_uri(_parts: &Parts) -> Option<&Uri> {
    None
}
