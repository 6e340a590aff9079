//! [`Held`] as an extractor.

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::response::{IntoResponse, Response};
use http::request::Parts;

use crate::middleware::{Held, HeldRejection};

impl<S: Send + Sync> FromRequestParts<S> for Held {
    type Rejection = HeldRejection;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, HeldRejection> {
        Self::of(&parts.extensions)
    }
}

impl<S: Send + Sync> OptionalFromRequestParts<S> for Held {
    type Rejection = HeldRejection;

    async fn from_request_parts(
        parts: &mut Parts,
        _state: &S,
    ) -> Result<Option<Self>, HeldRejection> {
        match Self::of(&parts.extensions) {
            Ok(held) => Ok(Some(held)),
            Err(rejection) if rejection.unlocked_reason().is_some() => Ok(None),
            Err(rejection) => Err(rejection),
        }
    }
}

impl IntoResponse for HeldRejection {
    fn into_response(self) -> Response {
        (self.status(), self.to_string()).into_response()
    }
}
