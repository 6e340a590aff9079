//! [`Held`] as an extractor.

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::request::Parts;

use crate::instruments;
use crate::middleware::{Held, HeldRejection, RejectionKind, mistake};

impl<S: Send + Sync> FromRequestParts<S> for Held {
    type Rejection = HeldRejection;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, HeldRejection> {
        Self::of(&parts.extensions).inspect_err(|rejection| note(parts, rejection))
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
            Err(rejection) => {
                note(parts, &rejection);
                Err(rejection)
            }
        }
    }
}

/// Counts and logs a request whose handler and layers do not fit together.
fn note(parts: &Parts, rejection: &HeldRejection) {
    if rejection.status() == StatusCode::INTERNAL_SERVER_ERROR {
        instruments::rejected(RejectionKind::Misconfigured.as_str());
        mistake::tell(parts, rejection);
    }
}

impl IntoResponse for HeldRejection {
    fn into_response(self) -> Response {
        (self.status(), self.to_string()).into_response()
    }
}
