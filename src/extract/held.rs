//! [`Held`] as an extractor, and a [`Rejection`] as a response.

use axum::body::Body;
use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::request::Parts;

use crate::http::route;
use crate::instruments;
use crate::layer::{Held, HeldRejection, Rejection, RejectionKind, UnlockedReason};

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

fn note(parts: &Parts, rejection: &HeldRejection) {
    if status(rejection) == StatusCode::INTERNAL_SERVER_ERROR {
        instruments::rejected(RejectionKind::Misconfigured.as_str());
        route::misconfigured(parts, rejection);
    }
}

const fn status(rejection: &HeldRejection) -> StatusCode {
    match rejection.unlocked_reason() {
        Some(UnlockedReason::NoQuorum) => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl IntoResponse for HeldRejection {
    fn into_response(self) -> Response {
        (status(&self), self.to_string()).into_response()
    }
}

/// The [default response](Rejection::to_response).
impl IntoResponse for Rejection {
    fn into_response(self) -> Response {
        self.to_response().map(Body::from)
    }
}
