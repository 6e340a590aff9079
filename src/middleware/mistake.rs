//! Mistakes of the program that come to light with a request: layers and handlers of a route that do not fit together.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use http::request::Parts;

use crate::route::{nested_path, route_of};
use crate::trace;

/// Logs that requests for the route of `parts` fail by a mistake of the program: once for each route and reason, for
/// nothing changes until the program does.
pub(crate) fn tell(parts: &Parts, reason: &dyn fmt::Display) {
    // Not the path of the request, which is the client's text.
    let route = route_of(parts)
        .or_else(|| nested_path(parts))
        .unwrap_or(NO_ROUTE)
        .to_owned();
    let mistake = (route, reason.to_string());
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    if told.len() < MOST && !told.contains(&mistake) {
        trace::misconfigured(&mistake.0, &mistake.1);
        told.insert(mistake);
    }
}

const NO_ROUTE: &str = "none: no router has matched one";
/// Both are texts of the program, so there are few; this is for one that makes routes as it runs.
const MOST: usize = 1_000;

/// By all layers and extractors of the process: a handler without a layer has no better place.
static TOLD: Mutex<BTreeSet<(String, String)>> = Mutex::new(BTreeSet::new());
