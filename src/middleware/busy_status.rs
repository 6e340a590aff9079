//! [`BusyStatus`]: the status of the response when another request holds the lock.

use std::fmt;

use http::StatusCode;

/// The status of the response when another request holds the lock: a client or server error, `409 Conflict` by
/// default.
///
/// # Examples
///
/// ```
/// use http::StatusCode;
/// use tower_redlock::middleware::BusyStatus;
///
/// assert_eq!(BusyStatus::default(), BusyStatus::CONFLICT);
/// assert_eq!(BusyStatus::LOCKED.as_status(), StatusCode::LOCKED);
/// // Any other 4xx or 5xx is accepted, and nothing else.
/// assert!(BusyStatus::try_from(StatusCode::TOO_EARLY).is_ok());
/// assert!(BusyStatus::try_from(StatusCode::OK).is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BusyStatus(StatusCode);

impl BusyStatus {
    /// `409 Conflict`, the default.
    pub const CONFLICT: Self = Self(StatusCode::CONFLICT);
    /// `423 Locked`.
    pub const LOCKED: Self = Self(StatusCode::LOCKED);
    /// `429 Too Many Requests`.
    pub const TOO_MANY_REQUESTS: Self = Self(StatusCode::TOO_MANY_REQUESTS);
    /// `503 Service Unavailable`.
    pub const SERVICE_UNAVAILABLE: Self = Self(StatusCode::SERVICE_UNAVAILABLE);

    /// The status code.
    #[must_use]
    pub const fn as_status(self) -> StatusCode {
        self.0
    }
}

impl Default for BusyStatus {
    fn default() -> Self {
        Self::CONFLICT
    }
}

impl TryFrom<StatusCode> for BusyStatus {
    type Error = InvalidBusyStatus;

    fn try_from(status: StatusCode) -> Result<Self, InvalidBusyStatus> {
        if status.is_client_error() || status.is_server_error() {
            Ok(Self(status))
        } else {
            Err(InvalidBusyStatus(status))
        }
    }
}

/// The status is not a client or server error, so it cannot refuse a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidBusyStatus(StatusCode);

impl fmt::Display for InvalidBusyStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the status {} is not a client or server error, so it cannot refuse a request",
            self.0.as_u16()
        )
    }
}

impl std::error::Error for InvalidBusyStatus {}
