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
    // Every request needs it, so it is put together by hand: the formatting machinery costs ten times as much.
    let mut text = String::with_capacity(2 * bytes.len());
    let nibbles = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xF]);
    text.extend(nibbles.filter_map(|nibble| char::from_digit(nibble.into(), 16)));
    text
}
