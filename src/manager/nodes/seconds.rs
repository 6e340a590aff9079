//! Times in seconds, for snapshots.

use std::time::Duration;

use serde::{Serialize, Serializer};

/// A time that may be unknown as seconds, as `Serialize` has it.
#[expect(clippy::ref_option, reason = "what serde asks for")]
pub(crate) fn optional_seconds<S: Serializer>(
    time: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_secs_f64()).serialize(serializer)
}

/// A time as seconds, as `Serialize` has it.
pub(crate) fn seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}
