//! [`Key`]: a key that is made of a list of parts, and the functions that begin one; and [`Also`], several of them.

use std::any::type_name;
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;
use std::sync::Arc;

#[cfg(feature = "axum")]
use axum::extract::FromRequestParts;
use http::request::Parts;

use super::KeyExtractor;
#[cfg(feature = "axum")]
use super::route;
use super::take::{Source, Take};
use crate::key_error::KeyError;
use crate::lock_key::{KeyParts, LockKeys};

/// The value of the request header `name`, byte for byte. A header that is repeated or empty is refused with 400.
pub fn header(name: &'static str) -> Key<Value> {
    Key::from_take(Take::Value(Source::Header(name), None))
}

/// The value of the parameter `name` in the request's query, decoded as a form is. A parameter that is repeated, empty
/// or not UTF-8 is refused with 400.
pub fn query(name: &'static str) -> Key<Value> {
    Key::from_take(Take::Value(Source::Query(name), None))
}

/// The request's method.
pub fn method() -> Key {
    from_fn(|parts| parts.method.as_str().to_owned())
}

/// One part, made by a function of the request's head that returns text or bytes, or an `Option` (`None`: the request
/// needs no lock) or a `Result` of them.
///
/// # Examples
///
/// ```
/// use tower_redlock::key;
///
/// let host = key::from_fn(|parts| parts.uri.host().map(str::to_owned)).prefix("host");
/// # let _ = host;
/// ```
pub fn from_fn<R: IntoKeyPart>(make: impl Fn(&Parts) -> R + Send + Sync + 'static) -> Key {
    Key::from_take(Take::Made(Arc::new(move |parts| make(parts).into_part())))
}

#[cfg(feature = "axum")]
/// The path parameter `name`, percent-decoded: `42` of `/orders/42/pay` on the route `/orders/{order_id}/pay`. The key
/// is the text and not the parsed value; [`parse`](Key::parse) makes one key of all spellings.
///
/// On a route without the parameter, as when the name is misspelt, every request is refused with 500 `misconfigured`,
/// unless the key is [`optional`](Key::optional). A value that is not UTF-8 is refused with 400.
///
/// The router finds the parameters, so the layer must be inside it: `docs::requests` has a table of the placements. In
/// a `fallback_service` all requests run unlocked. In or around a [nested service](axum::Router::nest_service) the
/// parameters are those of its path.
pub fn path(name: &'static str) -> Key<Value> {
    Key::from_take(Take::Value(Source::Path(name), None))
}

#[cfg(feature = "axum")]
/// The path of the route as the program wrote it, such as `/orders/{order_id}/pay`, with that of the routers around it.
/// It is known where [`path`] is, except below a [`nest_service`](axum::Router::nest_service), where requests run
/// unlocked.
pub fn matched_path() -> Key {
    Key::from_take(Take::MatchedPath)
}

#[cfg(feature = "axum")]
/// A part of the key from an axum extractor, of the same type as in the handler. `make` turns it into text; two values
/// that are one resource must become one text. The extractor must need no state, and gets the request's head alone.
///
/// If it refuses the request, the response is `400 invalid-key`, or `500 misconfigured` where its own response would
/// have been a server error. With `Router::layer`, unmatched paths run unlocked if axum's own `Path` fails on them; for
/// other extractors add `.when(key::routed)`.
///
/// # Examples
///
/// ```
/// use axum::extract::Path;
/// use tower_redlock::key;
///
/// let order = key::from_extractor::<Path<u64>>(|Path(id)| id.to_string()).prefix("order");
/// # let _ = order;
/// ```
pub fn from_extractor<E>(make: impl Fn(E) -> String + Send + Sync + 'static) -> Key
where
    E: FromRequestParts<()> + Send + 'static,
{
    let extractor: route::Extracted<E, _> = route::Extracted::new(make);
    Key::from_take(Take::Extracted(Arc::new(extractor)))
}

/// A type that the closure of [`from_fn`] may return.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a part of a lock key",
    note = "return a `String`, `&'static str` or `Vec<u8>`, or an `Option` or `Result<_, KeyError>` of one"
)]
pub trait IntoKeyPart: Send {
    /// The part; `None` if the request needs no lock.
    ///
    /// # Errors
    ///
    /// The [`KeyError`] of a `Result`.
    fn into_part(self) -> Result<Option<Vec<u8>>, KeyError>;
}

impl IntoKeyPart for Vec<u8> {
    fn into_part(self) -> Result<Option<Vec<u8>>, KeyError> {
        Ok(Some(self))
    }
}

impl IntoKeyPart for String {
    fn into_part(self) -> Result<Option<Vec<u8>>, KeyError> {
        Ok(Some(self.into_bytes()))
    }
}

impl IntoKeyPart for &'static str {
    fn into_part(self) -> Result<Option<Vec<u8>>, KeyError> {
        Ok(Some(self.into()))
    }
}

impl<P: IntoKeyPart> IntoKeyPart for Option<P> {
    fn into_part(self) -> Result<Option<Vec<u8>>, KeyError> {
        self.map_or(Ok(None), P::into_part)
    }
}

impl<P: IntoKeyPart> IntoKeyPart for Result<P, KeyError> {
    fn into_part(self) -> Result<Option<Vec<u8>>, KeyError> {
        self.and_then(P::into_part)
    }
}

/// A key that is made of a list of parts. Made by the functions of [`key`](crate::key).
///
/// `V` marks a key that is the value of one header, query or path parameter: [`parse`](Key::parse) can read only such a
/// value.
#[must_use = "a key does nothing until it is given to a layer"]
pub struct Key<V = ()> {
    steps: Vec<Step>,
    kind: PhantomData<fn() -> V>,
}

/// Says of a [`Key`] that it is one value that a client sent.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_enums, reason = "it is a name in a type")]
pub enum Value {}

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
                let parse = |text: &str| Some(text.parse::<T>().ok()?.to_string());
                *read = Some((parse, type_name::<T>()));
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
