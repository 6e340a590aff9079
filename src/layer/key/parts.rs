//! [`Key`], a key that is made of parts, and [`Also`], several keys.

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

/// Uses the value of the request header `name`, byte for byte. A request with a missing, empty or repeated header is
/// refused with 400.
pub fn header(name: &'static str) -> Key<Value> {
    Key::from_take(Take::Value(Source::Header(name), None))
}

/// Uses the value of the query parameter `name`, form-decoded. A request with a missing, empty or repeated
/// parameter, or with a value that is not UTF-8, is refused with 400.
pub fn query(name: &'static str) -> Key<Value> {
    Key::from_take(Take::Value(Source::Query(name), None))
}

/// Uses the request's method.
pub fn method() -> Key {
    from_fn(|parts| parts.method.as_str().to_owned())
}

/// Makes one part of the key from the request's head. `make` returns text or bytes, or an `Option` or a `Result` of
/// them. If it returns `None`, the request runs without a lock.
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
/// Uses the path parameter `name`, percent-decoded. On the route `/orders/{order_id}/pay`, the `order_id` of
/// `/orders/42/pay` is `42`.
///
/// The layer must be inside the router, because the router finds the parameters (`docs::requests`, "Path parameters").
/// If the route has no such parameter, every request is refused with 500 `misconfigured`, unless the key is
/// [`optional`](Key::optional). A value that is not UTF-8 is refused with 400.
///
/// In a `fallback_service`, all requests run without a lock. In and around a
/// [nested service](axum::Router::nest_service), only the parameters of its own mount path are known.
pub fn path(name: &'static str) -> Key<Value> {
    Key::from_take(Take::Value(Source::Path(name), None))
}

#[cfg(feature = "axum")]
/// Uses the complete path of the route as the program wrote it, such as `/orders/{order_id}/pay`.
///
/// It works wherever [`path`] works, except below a [`nest_service`](axum::Router::nest_service), where requests run
/// without a lock.
pub fn matched_path() -> Key {
    Key::from_take(Take::MatchedPath)
}

#[cfg(feature = "axum")]
/// Makes one part of the key from an axum extractor that needs neither a state nor the request's body. `make` converts
/// the extracted value into text, and must return the same text for two values that mean the same resource.
///
/// If the extractor refuses the request, the response is `400 invalid-key`, or `500 misconfigured` if the extractor's
/// own response is a server error. With `Router::layer`, add `.when(key::routed)` for extractors other than axum's
/// `Path`, so that unmatched paths run without a lock.
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
    /// Converts the value into a part of the key.
    ///
    /// # Errors
    ///
    /// The error that the closure returned.
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

/// A key that consists of parts. The functions in [`key`](crate::key) make it.
///
/// `V` is `Value` if the key is exactly one value from the client. Only such a key has [`parse`](Key::parse).
#[must_use = "a key does nothing until it is given to a layer"]
pub struct Key<V = ()> {
    steps: Vec<Step>,
    kind: PhantomData<fn() -> V>,
}

/// Marks a [`Key`] that is one value from the client.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_enums, reason = "it is a name in a type")]
pub enum Value {}

#[derive(Clone, Debug)]
struct Step {
    take: Take,
    /// Whether the request runs without a lock if the step's value is missing.
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

    /// Puts a part in front of the key, usually the kind of the resource.
    pub fn prefix(self, prefix: impl Into<Cow<'static, str>>) -> Key {
        self.after(Take::Text(prefix.into()))
    }

    /// Lets requests run without a lock if a value of the key is missing. By default they are refused with 400.
    pub fn optional(self) -> Key {
        let mut steps = self.steps;
        for step in &mut steps {
            step.optional = true;
        }
        Key::of(steps)
    }

    /// Appends the parts of `other`, so that both together are one key. If either of them needs no lock, the request
    /// runs without a lock.
    pub fn and<W>(self, other: Key<W>) -> Key {
        let mut steps = self.steps;
        steps.extend(other.steps);
        Key::of(steps)
    }

    /// Locks the keys of `other` as well, all keys or none. If either of the two needs no lock, only the keys of the
    /// remaining one are locked.
    pub const fn also<E: KeyExtractor>(self, other: E) -> Also<Self, E> {
        Also {
            first: self,
            second: other,
        }
    }

    /// Locks only the requests for which `condition` returns true. Other requests run without a lock, and their key is
    /// not extracted.
    pub fn when(self, condition: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Key {
        self.after(Take::When(Arc::new(condition)))
    }

    fn after(self, take: Take) -> Key {
        Key::<()>::from_take(take).and(self)
    }
}

impl Key<Value> {
    /// Parses the value as a `T` and locks the text that `T` prints, so that all spellings of one value are the same
    /// key. For example, `7`, `07` and `+7` are the same `u64`. A value that is not a `T` is refused with 400.
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

/// The keys of two extractors. Made by [`Key::also`].
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_what_the_closure_returned() {
        let text = |part: Result<Option<Vec<u8>>, KeyError>| part.unwrap().unwrap();
        assert_eq!(text("a".into_part()), b"a");
        assert_eq!(text("a".to_owned().into_part()), b"a");
        assert_eq!(text(vec![b'a'].into_part()), b"a");
        assert_eq!(text(Some("a").into_part()), b"a");
        assert_eq!(text(Ok::<_, KeyError>("a").into_part()), b"a");
        assert!(None::<&str>.into_part().unwrap().is_none());
        assert!(Err::<&str, _>(KeyError::reserved()).into_part().is_err());
    }
}
