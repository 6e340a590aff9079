//! Random owner tokens, and random numbers for pauses.

use crate::manager::error::acquire::NoEntropy;
use crate::token::OwnerToken;

/// A fresh owner token.
pub(crate) fn token() -> Result<OwnerToken, NoEntropy> {
    let mut entropy = [0; OwnerToken::ENTROPY_LEN];
    crate::random::fill(&mut entropy).map_err(|error| NoEntropy {
        detail: error.to_string(),
    })?;
    Ok(OwnerToken::from_entropy(entropy))
}

/// A random number for jitter. Without entropy there is no jitter, which is slower but not wrong.
pub(crate) fn random() -> u64 {
    crate::random::u64().unwrap_or(u64::MAX / 2)
}
