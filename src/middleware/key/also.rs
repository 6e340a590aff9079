//! [`Also`]: the keys of two extractors.

use http::request::Parts;

use super::source::{Key, KeySource};
use crate::key_error::KeyError;
use crate::lock_keys::LockKeys;
use crate::middleware::key_extractor::KeyExtractor;

/// All keys of two extractors. Made by [`Key::also`].
#[derive(Clone, Debug)]
#[must_use = "keys do nothing until they are given to a layer"]
pub struct Also<A, B> {
    first: A,
    second: B,
}

impl<S: KeySource> Key<S> {
    /// Locks the keys of `other` as well: all keys or none. If one of the two needs no lock, only the keys of the other
    /// are locked.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_redlock::key;
    ///
    /// let account = |header| key::header(header).parse::<u64>().prefix("account");
    /// let both = account("x-from").also(account("x-to"));
    /// # let _ = both;
    /// ```
    pub const fn also<E: KeyExtractor>(self, other: E) -> Also<Self, E> {
        Also {
            first: self,
            second: other,
        }
    }
}

impl<A: KeyExtractor, B: KeyExtractor> Also<A, B> {
    /// Locks the keys of `other` as well.
    pub const fn also<E: KeyExtractor>(self, other: E) -> Also<Self, E> {
        Also {
            first: self,
            second: other,
        }
    }
}

impl<A: KeyExtractor, B: KeyExtractor> KeyExtractor for Also<A, B> {
    async fn extract(&self, parts: &mut Parts) -> Result<Option<LockKeys>, KeyError> {
        let first = self.first.extract(parts).await?;
        let second = self.second.extract(parts).await?;
        let (Some(first), Some(second)) = (&first, &second) else {
            return Ok(first.or(second));
        };
        let both = first.as_slice().iter().chain(second.as_slice());
        LockKeys::new(both).map(Some)
    }
}
