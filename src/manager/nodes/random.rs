//! Random numbers for pauses.

/// A random number for jitter. Without entropy there is no jitter, which is slower but not wrong.
pub(crate) fn random() -> u64 {
    crate::random::u64().unwrap_or(u64::MAX / 2)
}
