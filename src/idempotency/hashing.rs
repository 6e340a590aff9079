//! An unambiguous encoding of lists of values for a hash.

use sha2::{Digest as _, Sha256};

/// Feeds the length of `bytes`, then the bytes.
pub(super) fn feed(hash: &mut Sha256, bytes: &[u8]) {
    feed_len(hash, bytes.len());
    hash.update(bytes);
}

/// Feeds whether there are bytes, and these.
pub(super) fn feed_optional(hash: &mut Sha256, bytes: Option<&[u8]>) {
    hash.update([u8::from(bytes.is_some())]);
    if let Some(bytes) = bytes {
        feed(hash, bytes);
    }
}

/// Feeds a length in the same number of bytes on every machine.
pub(super) fn feed_len(hash: &mut Sha256, len: usize) {
    hash.update(u64::try_from(len).unwrap_or(u64::MAX).to_be_bytes());
}

/// Lower-case hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    crate::token::hex(bytes).map(char::from).collect()
}
