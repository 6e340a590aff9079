//! [`LockKeys`]: several keys that are locked together.

use std::fmt;

use smallvec::{SmallVec, smallvec};

use crate::key_error::KeyError;
use crate::lock_key::LockKey;

/// One or several keys that are locked together: each once, sorted. The order in which they are given does not matter.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct LockKeys(SmallVec<[LockKey; 1]>);

impl LockKeys {
    /// The most keys that can be locked together.
    const MAX: usize = 64;

    /// These keys, sorted, each once.
    ///
    /// # Errors
    ///
    /// [`KeyError`] if a key is invalid, or if there is no key or more than 64.
    pub fn new<I>(keys: I) -> Result<Self, KeyError>
    where
        I: IntoIterator,
        I::Item: TryInto<LockKey>,
        <I::Item as TryInto<LockKey>>::Error: Into<KeyError>,
    {
        let mut list: Vec<LockKey> = Vec::new();
        for key in keys {
            let key = key.try_into().map_err(Into::into)?;
            // Sorted while it is read, so that an endless list is refused early.
            if let Err(place) = list.binary_search(&key) {
                if list.len() == Self::MAX {
                    return Err(KeyError::too_many(Self::MAX));
                }
                list.insert(place, key);
            }
        }
        if list.is_empty() {
            return Err(KeyError::no_key());
        }
        Ok(Self(list.into_iter().collect()))
    }

    /// The keys, sorted.
    #[must_use]
    pub fn as_slice(&self) -> &[LockKey] {
        self.0.as_slice()
    }

    /// The first of them.
    #[must_use]
    #[expect(clippy::indexing_slicing, reason = "never empty")]
    pub(crate) fn first(&self) -> &LockKey {
        &self.0[0]
    }

    /// These keys, which are sorted, each once, and one at least.
    pub(crate) fn of(keys: impl Iterator<Item = LockKey>) -> Self {
        Self(keys.collect())
    }
}

impl From<LockKey> for LockKeys {
    fn from(key: LockKey) -> Self {
        Self(smallvec![key])
    }
}

macro_rules! one {
    ($($key:ty),*) => {
        $(impl TryFrom<$key> for LockKeys {
            type Error = KeyError;

            fn try_from(key: $key) -> Result<Self, KeyError> {
                LockKey::new(key).map(Self::from)
            }
        })*
    };
}

one!(&str, String, &String);

macro_rules! several {
    ($($list:ty $(, $len:ident)?;)*) => {
        $(impl<K $(, const $len: usize)?> TryFrom<$list> for LockKeys
        where
            K: TryInto<LockKey, Error: Into<KeyError>>,
        {
            type Error = KeyError;

            fn try_from(keys: $list) -> Result<Self, KeyError> {
                Self::new(keys)
            }
        })*
    };
}

several! { [K; N], N; Vec<K>; }

impl<K> TryFrom<&[K]> for LockKeys
where
    K: Clone + TryInto<LockKey, Error: Into<KeyError>>,
{
    type Error = KeyError;

    fn try_from(keys: &[K]) -> Result<Self, KeyError> {
        Self::new(keys.iter().cloned())
    }
}

impl From<&LockKey> for LockKeys {
    fn from(key: &LockKey) -> Self {
        key.clone().into()
    }
}

impl fmt::Debug for LockKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_sorted_and_each_is_there_once() {
        let keys = LockKeys::new(["b", "a", "b", "c", "a"]).unwrap();
        let texts: Vec<&str> = keys.as_slice().iter().map(LockKey::as_str).collect();
        assert_eq!(texts, ["a", "b", "c"]);
        assert_eq!(keys.first().as_str(), "a");
        let one = LockKeys::new(["a", "a"]).unwrap();
        assert_eq!(one, LockKeys::from(LockKey::new("a").unwrap()));
    }

    #[test]
    fn there_is_at_least_one_key_and_there_are_not_too_many() {
        assert!(LockKeys::new([""; 0]).is_err());
        assert!(LockKeys::new(["a", ""]).is_err());
        let many = |count: usize| LockKeys::new((0..count).map(|n| n.to_string()));
        assert_eq!(many(64).unwrap().as_slice().len(), 64);
        let error = many(65).unwrap_err().to_string();
        assert!(error.contains("at most 64"), "{error}");
        // An endless list ends.
        assert!(LockKeys::new((0_u64..).map(|n| n.to_string())).is_err());
    }
}
