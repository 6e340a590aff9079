//! The route that a router matched, the URI before a nested router changed it, and the log of routes whose layers and
//! handlers do not fit together.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Mutex, PoisonError};

#[cfg(feature = "idempotency")]
use http::Uri;
use http::request::Parts;

use crate::trace;

/// The path of the route that matched, such as `/orders/{id}`, where axum's router says so.
pub(crate) fn route_of(parts: &Parts) -> Option<&str> {
    #[cfg(feature = "axum")]
    return Some(
        parts
            .extensions
            .get::<axum::extract::MatchedPath>()?
            .as_str(),
    );
    #[cfg(not(feature = "axum"))]
    {
        let _ = parts;
        None
    }
}

/// The URI as the client sent it, where a router has changed it.
#[cfg(feature = "idempotency")]
pub(crate) fn original_uri(parts: &Parts) -> Option<&Uri> {
    #[cfg(feature = "axum")]
    return parts
        .extensions
        .get::<axum::extract::OriginalUri>()
        .map(|original| &original.0)
        .filter(|original| original.path_and_query() != parts.uri.path_and_query());
    #[cfg(not(feature = "axum"))]
    {
        let _ = parts;
        None
    }
}

/// Logs that requests for the route of `parts` fail by a mistake of the program, once for each route and reason.
pub(crate) fn misconfigured(parts: &Parts, reason: &dyn fmt::Display) {
    // Not the path of the request, which is the client's text.
    let route = route_of(parts).or_else(|| nested_path(parts));
    let mistake = (route.unwrap_or(NO_ROUTE).to_owned(), reason.to_string());
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    if told.len() < MOST && !told.contains(&mistake) {
        trace::misconfigured(&mistake.0, &mistake.1);
        told.insert(mistake);
    }
}

/// The path under which axum's routers have nested the service or the router that the request is in.
fn nested_path(parts: &Parts) -> Option<&str> {
    #[cfg(feature = "axum")]
    return Some(
        parts
            .extensions
            .get::<axum::extract::NestedPath>()?
            .as_str(),
    );
    #[cfg(not(feature = "axum"))]
    {
        let _ = parts;
        None
    }
}

const NO_ROUTE: &str = "none: no router has matched one";
const MOST: usize = 1_000;

static TOLD: Mutex<BTreeSet<(String, String)>> = Mutex::new(BTreeSet::new());
