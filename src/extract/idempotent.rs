//! [`Idempotent`] as an extractor.

use std::error::Error;
use std::fmt;

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::request::Parts;

use crate::http::route;
use crate::idempotency::Idempotent;

impl<S: Send + Sync> FromRequestParts<S> for Idempotent {
    type Rejection = IdempotentRejection;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Self::Rejection> {
        Self::of(&parts.extensions).ok_or_else(|| {
            let rejection = IdempotentRejection(());
            route::misconfigured(parts, &rejection);
            rejection
        })
    }
}

/// `None` for a request without a key, where the layer lets those in, and where there is no layer.
impl<S: Send + Sync> OptionalFromRequestParts<S> for Idempotent {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(
        parts: &mut Parts,
        _state: &S,
    ) -> Result<Option<Self>, Self::Rejection> {
        Ok(Self::of(&parts.extensions))
    }
}

/// The request of a handler with an [`Idempotent`] runs without an idempotency key. The response is plain text with
/// status 500: the handler and the layers around it do not fit together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdempotentRejection(());

impl fmt::Display for IdempotentRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the handler needs an idempotency key and its request runs without one; put an `IdempotencyLayer` around its route, not told `optional()` and not for other methods, or take an `Option<Idempotent>`",
        )
    }
}

impl Error for IdempotentRejection {}

impl IntoResponse for IdempotentRejection {
    fn into_response(self) -> Response {
        (StatusCode::INTERNAL_SERVER_ERROR, self.to_string()).into_response()
    }
}
