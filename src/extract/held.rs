//! [`Held`] as an extractor, and a [`Rejection`] as a response.

use axum::body::Body;
use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::request::Parts;

use crate::http::route;
use crate::instruments;
use crate::layer::{Held, Rejection, RejectionKind, UnlockedReason};

impl<S: Send + Sync> FromRequestParts<S> for Held {
    type Rejection = UnlockedReason;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, UnlockedReason> {
        Self::of(&parts.extensions).inspect_err(|reason| log(parts, *reason))
    }
}

impl<S: Send + Sync> OptionalFromRequestParts<S> for Held {
    type Rejection = UnlockedReason;

    async fn from_request_parts(
        parts: &mut Parts,
        _state: &S,
    ) -> Result<Option<Self>, UnlockedReason> {
        match Self::of(&parts.extensions) {
            Ok(held) => Ok(Some(held)),
            Err(reason @ UnlockedReason::NoLayer) => {
                log(parts, reason);
                Err(reason)
            }
            Err(_) => Ok(None),
        }
    }
}

fn log(parts: &Parts, reason: UnlockedReason) {
    if reason != UnlockedReason::NoQuorum {
        instruments::rejected(RejectionKind::Misconfigured.as_str());
        route::misconfigured(parts, &reason);
    }
}

impl IntoResponse for UnlockedReason {
    fn into_response(self) -> Response {
        let status = match self {
            Self::NoQuorum => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (status, self.to_string()).into_response()
    }
}

/// The [default response](Rejection::to_response).
impl IntoResponse for Rejection {
    fn into_response(self) -> Response {
        self.to_response().map(Body::from)
    }
}
