//! What is fed to a hash, so that no two different lists of values are fed alike.

use sha2::{Digest as _, Sha256};

/// Feeds the length of `bytes`, and then them.
pub(super) fn feed(hash: &mut Sha256, bytes: &[u8]) {
    feed_len(hash, bytes.len());
    hash.update(bytes);
}

/// Feeds a length in as many bytes on every machine.
pub(super) fn feed_len(hash: &mut Sha256, len: usize) {
    hash.update(u64::try_from(len).unwrap_or(u64::MAX).to_be_bytes());
}

/// Lower-case hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    crate::token::hex(bytes).map(char::from).collect()
}
