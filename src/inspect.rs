//! [`InspectService`]: a read-only page of a manager's nodes, held locks and queues (feature `inspect`).
//!
//! **Protect it.** It has no password of its own, and shows lock keys (unless they are redacted), the names of the
//! nodes and the load of the service. It shows no owner token and no password, and loads nothing from elsewhere.
//!
//! | path | response |
//! |---|---|
//! | `/` | the page, which reloads every two seconds |
//! | `/?still` | the page without reloading: to read, to copy from, and for screen readers |
//! | `/snapshot.json`, `/?json` | [`Snapshot`](crate::snapshot::Snapshot) as JSON |
//!
//! The page needs no JavaScript. Other paths are 404, methods other than GET and HEAD are 405. Paths are relative to
//! the place where the service is nested.
//!
//! # Examples
//!
//! ```
//! # #[cfg(feature = "axum")] mod example {
//! use axum::Router;
//! use tower_redlock::LockManager;
//! use tower_redlock::inspect::InspectService;
//!
//! fn operators_only(locks: LockManager) -> Router {
//!     // The page is at `/locks/`.
//!     Router::new().nest_service("/locks", InspectService::new(locks))
//! }
//! # }
//! ```

mod page;

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};

use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use tower_service::Service;

use self::page::page;
use crate::manager::LockManager;

/// Responds with the snapshot of a manager. See the [module](self) for how to protect it.
#[derive(Clone, Debug)]
pub struct InspectService {
    locks: LockManager,
}

impl InspectService {
    /// A page about `locks`.
    #[must_use]
    pub const fn new(locks: LockManager) -> Self {
        Self { locks }
    }

    fn respond(&self, method: &Method, uri: &Uri) -> Response<String> {
        // The page's own links are queries, which work with a slash at the end of its address and without.
        let whole = match (uri.path(), uri.query().unwrap_or_default()) {
            ("/snapshot.json", _) | ("" | "/", "json") => {
                match serde_json::to_string(&self.locks.snapshot()) {
                    Ok(text) => (JSON, text),
                    Err(_) => {
                        return response(StatusCode::INTERNAL_SERVER_ERROR, TEXT, String::new());
                    }
                }
            }
            ("" | "/", query) => (HTML, page(&self.locks.snapshot(), query == "still")),
            _ => return response(StatusCode::NOT_FOUND, TEXT, "not found\n".to_owned()),
        };
        if method != Method::GET && method != Method::HEAD {
            let text = "this page can only be read\n".to_owned();
            let mut refusal = response(StatusCode::METHOD_NOT_ALLOWED, TEXT, text);
            let allowed = HeaderValue::from_static("GET, HEAD");
            refusal.headers_mut().insert(ALLOW, allowed);
            return refusal;
        }
        let (kind, text) = whole;
        // A HEAD has the headers of a GET; the server leaves the body out.
        response(StatusCode::OK, kind, text)
    }
}

impl<B> Service<Request<B>> for InspectService {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        ready(Ok(self.respond(request.method(), request.uri())))
    }
}

fn response(status: StatusCode, kind: &'static str, text: String) -> Response<String> {
    let mut response = Response::new(text);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_TYPE, kind),
        (CACHE_CONTROL, "no-store"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (CROSS_ORIGIN_RESOURCE_POLICY, "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

const HTML: &str = "text/html; charset=utf-8";
const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";
/// Nothing is loaded, run or framed. Only the page's own style is allowed, by its hash. A test checks the hash.
const POLICY: &str = "default-src 'none'; style-src 'sha256-f2LiSlqAz7xHvP5jE2gLBR++oQI4FHFbJU4qzeFIm0E='; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const CROSS_ORIGIN_RESOURCE_POLICY: HeaderName =
    HeaderName::from_static("cross-origin-resource-policy");
