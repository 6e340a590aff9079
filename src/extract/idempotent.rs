//! [`Idempotent`] as an extractor.

use std::convert::Infallible;

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use http::StatusCode;
use http::request::Parts;

use crate::http::state;
use crate::idempotency::Idempotent;

/// Plain text with status 500 for a request without an idempotency key: the handler and the layers around it do not fit
/// together.
impl<S: Send + Sync> FromRequestParts<S> for Idempotent {
    type Rejection = (StatusCode, &'static str);

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Self::Rejection> {
        Self::of(&parts.extensions).ok_or_else(|| {
            state::misconfigured(parts, &NO_KEY);
            (StatusCode::INTERNAL_SERVER_ERROR, NO_KEY)
        })
    }
}

/// `None` for a request without a key, where the layer lets those in, and where there is no layer.
impl<S: Send + Sync> OptionalFromRequestParts<S> for Idempotent {
    type Rejection = Infallible;

    async fn from_request_parts(
        parts: &mut Parts,
        _state: &S,
    ) -> Result<Option<Self>, Self::Rejection> {
        Ok(Self::of(&parts.extensions))
    }
}

const NO_KEY: &str = "the handler needs an idempotency key and its request runs without one; put an `IdempotencyLayer` around its route, not told `optional()` and not for other methods, or take an `Option<Idempotent>`";
