//! [`Rejection`] as a response of a handler.

use axum::body::Body;
use axum::response::{IntoResponse, Response};

use crate::middleware::Rejection;

/// The [default response](Rejection::to_response).
impl IntoResponse for Rejection {
    fn into_response(self) -> Response {
        self.to_response().map(Body::from)
    }
}
