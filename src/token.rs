//! [`OwnerToken`]: the secret that proves who holds a lock.

use std::fmt;

/// The secret value that a lock key holds on the nodes while we own it.
///
/// It is 160 random bits as 40 hexadecimal digits and fresh for every attempt to acquire. Whoever knows it can
/// release the lock, so `Debug` does not show it and it has no `Display`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct OwnerToken([u8; Self::TEXT_LEN]);

impl OwnerToken {
    /// How many random bytes make a token.
    pub const ENTROPY_LEN: usize = 20;

    const TEXT_LEN: usize = 2 * Self::ENTROPY_LEN;

    /// Makes a token of bytes that must come from the operating system's random source.
    #[must_use]
    pub fn from_entropy(entropy: [u8; Self::ENTROPY_LEN]) -> Self {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0; Self::TEXT_LEN];
        for (pair, byte) in text.chunks_exact_mut(2).zip(entropy) {
            for (digit, nibble) in pair.iter_mut().zip([byte >> 4, byte & 0xF]) {
                *digit = DIGITS.get(usize::from(nibble)).copied().unwrap_or(b'0');
            }
        }
        Self(text)
    }

    /// The value as it stands on the nodes. Secret: for the adapters only, never for logs or answers.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for OwnerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnerToken(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_is_hexadecimal_and_debug_hides_it() {
        let mut entropy = [0; OwnerToken::ENTROPY_LEN];
        entropy[0] = 0xAB;
        entropy[19] = 0x0F;
        let token = OwnerToken::from_entropy(entropy);
        assert_eq!(token.expose(), b"ab0000000000000000000000000000000000000f");
        assert_eq!(format!("{token:?}"), "OwnerToken(secret)");
    }
}
