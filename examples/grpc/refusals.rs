//! Refusals as gRPC statuses. A gRPC client sees nothing of problem+json: the HTTP status of every response is 200.

use bytes::Bytes;
use http::Response;
use tonic::metadata::MetadataValue;
use tonic::{Code, Status};
use tower_redlock::layer::{Rejection, RejectionKind};

/// The response of the layer to a refused call.
pub(crate) fn to_response(rejection: &Rejection) -> Response<Bytes> {
    to_status(rejection).into_http()
}

/// The status of a refusal, with the time after which clients may try again where that helps.
pub(crate) fn to_status(rejection: &Rejection) -> Status {
    let mut status = Status::new(code(rejection.kind()), rejection.detail());
    if let Some(pause) = rejection.retry_after() {
        // Clients with a retry policy wait for so long (gRPC proposal A6).
        let pause = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
        let metadata = status.metadata_mut();
        metadata.insert("grpc-retry-pushback-ms", MetadataValue::from(pause));
    }
    status
}

const fn code(kind: RejectionKind) -> Code {
    match kind {
        RejectionKind::InvalidKey => Code::InvalidArgument,
        RejectionKind::Contended | RejectionKind::WaitTimeout => Code::Aborted,
        RejectionKind::QueueFull => Code::ResourceExhausted,
        // Nothing was done: clients may try again by themselves.
        RejectionKind::NoQuorum | RejectionKind::NodesFull | RejectionKind::ShuttingDown => {
            Code::Unavailable
        }
        // Something may have been done, so they must not.
        RejectionKind::LockLost => Code::Unknown,
        _ => Code::Internal,
    }
}
