//! For axum: the extractors [`Held`] and [`Locked`], and keys from the route.
//!
//! The keys are in [`key`](crate::key): [`path`](crate::key::path), [`matched_path`](crate::key::matched_path) and the
//! condition [`routed`](crate::key::routed).

#[cfg(feature = "idempotency")]
mod idempotent;
mod locked;

use axum::body::Body;
use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::request::Parts;

use crate::http::state;
use crate::instruments;
pub use crate::layer::Held;
use crate::layer::{Rejection, RejectionKind, UnlockedReason};
pub use locked::{AsLockKeys, Locked, LockedRejection};

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
        state::misconfigured(parts, &reason);
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
