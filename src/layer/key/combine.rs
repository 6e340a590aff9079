//! [`Key`]: a key that is made of a list of parts; and [`Also`], several of them.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;
use std::sync::Arc;

use http::request::Parts;

use super::extractor::KeyExtractor;
use super::take::Take;
use crate::key_error::KeyError;
use crate::lock_key::KeyParts;
use crate::lock_key::LockKeys;

/// A key that is made of a list of parts. Made by the functions of [`key`](crate::key).
///
/// `V` is [`Value`] for the value of one header, query or path parameter, which [`parse`](Key::parse) can read.
#[must_use = "a key does nothing until it is given to a layer"]
pub struct Key<V = ()> {
    steps: Vec<Step>,
    kind: PhantomData<fn() -> V>,
}

/// Says of a [`Key`] that it is one value that a client sent.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_enums, reason = "it is a name in a type")]
pub enum Value {}

/// One step of making a key.
#[derive(Clone, Debug)]
struct Step {
    take: Take,
    /// Whether the request needs no lock if what the step needs is missing.
    optional: bool,
}

impl<V> Key<V> {
    const fn of(steps: Vec<Step>) -> Self {
        let kind = PhantomData;
        Self { steps, kind }
    }

    pub(super) fn from_take(take: Take) -> Self {
        let optional = false;
        Self::of(vec![Step { take, optional }])
    }

    /// Puts `prefix` in front, as a part of its own: the kind of resource that the key names.
    pub fn prefix(self, prefix: impl Into<Cow<'static, str>>) -> Key {
        self.behind(Take::Text(prefix.into()))
    }

    /// Runs a request without a lock if a value that the key needs is missing. By default it is refused with 400, as is
    /// a value that cannot be used.
    pub fn optional(self) -> Key {
        let mut steps = self.steps;
        for step in &mut steps {
            step.optional = true;
        }
        Key::of(steps)
    }

    /// Adds the parts of `other` behind these. If either source needs no lock, none is acquired.
    pub fn and<W>(self, other: Key<W>) -> Key {
        let mut steps = self.steps;
        steps.extend(other.steps);
        Key::of(steps)
    }

    /// Locks the keys of `other` as well, all keys or none. If one of the two needs no lock, only the keys of the other
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

    /// Locks only the requests for which `condition` holds; the others run without a lock, and their key is not
    /// extracted.
    pub fn when(self, condition: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Key {
        self.behind(Take::When(Arc::new(condition)))
    }

    /// Takes a step before all others.
    fn behind(self, take: Take) -> Key {
        Key::<()>::from_take(take).and(self)
    }
}

impl Key<Value> {
    /// Parses the value as a `T` and locks the text that `T` prints, so that all spellings of one value are one key:
    /// `7`, `07` and `+7` are one `u64`. A value that is not a `T` is refused with 400.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_redlock::key;
    ///
    /// let order = key::header("x-order").parse::<u64>().prefix("order");
    /// # let _ = order;
    /// ```
    pub fn parse<T: FromStr + fmt::Display>(self) -> Key {
        let mut steps = self.steps;
        for step in &mut steps {
            if let Take::Value(_, read) = &mut step.take {
                *read = Some(|text| Some(text.parse::<T>().ok()?.to_string()));
            }
        }
        Key::of(steps)
    }
}

impl<V: 'static> KeyExtractor for Key<V> {
    async fn extract(&self, parts: &mut Parts) -> Result<Option<LockKeys>, KeyError> {
        let mut key = KeyParts::default();
        for step in &self.steps {
            match step.take.take(parts, &mut key).await {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                Err(error) if step.optional && error.is_missing() => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        Ok(Some(key.finish()?.into()))
    }
}

impl<V> Clone for Key<V> {
    fn clone(&self) -> Self {
        Self::of(self.steps.clone())
    }
}

impl<V> fmt::Debug for Key<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps = self.steps.iter().map(|step| &step.take);
        f.write_str("Key ")?;
        f.debug_list().entries(steps).finish()
    }
}

/// All keys of two extractors. Made by [`Key::also`].
#[derive(Clone, Debug)]
#[must_use = "keys do nothing until they are given to a layer"]
pub struct Also<A, B> {
    first: A,
    second: B,
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
