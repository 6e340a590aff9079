//! Sources of one value that a client sent.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use http::request::Parts;
use percent_encoding::percent_decode;

use super::source::{Collected, Key, KeySource};
use crate::key_error::{KeyError, Subject};
use crate::lock_key::KeyParts;

/// A source of one value that a client sent: a header, a query parameter, a path parameter.
///
/// [`Key::parse`] works on these. Each is a [`KeySource`] that adds the value as it is.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a single value that a client sent, so it cannot be parsed",
    note = "call `.parse::<T>()` right behind `key::path(..)`, `key::header(..)` or `key::query(..)`"
)]
pub trait KeyValue: Send + Sync + 'static {
    /// The value; `None` if the request needs no lock.
    ///
    /// # Errors
    ///
    /// [`KeyError`] if the value is missing, repeated or empty.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any point with the request; nothing is locked yet.
    fn value<'a>(
        &'a self,
        request: &'a mut Parts,
    ) -> impl Future<Output = Result<Option<Cow<'a, [u8]>>, KeyError>> + Send + 'a;

    /// The error for a value that cannot be read.
    fn unreadable(&self) -> KeyError;
}

// The value unchanged. For a type that is not a source the compiler should say that, and not that it is not a value.
#[diagnostic::do_not_recommend]
impl<S: KeyValue> KeySource for S {
    async fn collect(
        &self,
        request: &mut Parts,
        key: &mut KeyParts,
    ) -> Result<Collected, KeyError> {
        match self.value(request).await? {
            Some(value) => {
                key.push(value)?;
                Ok(Collected::Parts)
            }
            None => Ok(Collected::NoLock),
        }
    }
}

/// The value of the request header `name`.
///
/// The value is taken byte for byte. A header that is repeated or empty is refused with 400, because it is not clear
/// which resource is meant.
pub const fn header(name: &'static str) -> Key<Header> {
    Key::new(Header { name })
}

/// The value of the parameter `name` in the request's query, decoded as a form is: `+` is a space, `%2F` a slash.
///
/// A parameter that is repeated or empty is refused with 400, because it is not clear which resource is meant. So is a
/// value that is not UTF-8: axum's `Query` replaces invalid bytes, and would see one value where there are several
/// keys.
pub const fn query(name: &'static str) -> Key<Query> {
    Key::new(Query { name })
}

/// Source of [`header`].
#[derive(Clone, Copy, Debug)]
pub struct Header {
    name: &'static str,
}

impl Header {
    const fn subject(&self) -> Subject {
        Subject::Named("header", self.name)
    }
}

impl KeyValue for Header {
    async fn value<'a>(
        &'a self,
        request: &'a mut Parts,
    ) -> Result<Option<Cow<'a, [u8]>>, KeyError> {
        let values = request.headers.get_all(self.name).iter();
        let values = values.map(|value| Cow::Borrowed(value.as_bytes()));
        only(values, self.subject()).map(Some)
    }

    fn unreadable(&self) -> KeyError {
        KeyError::malformed_in(self.subject(), UNREADABLE)
    }
}

/// Source of [`query`].
#[derive(Clone, Copy, Debug)]
pub struct Query {
    name: &'static str,
}

impl Query {
    const fn subject(&self) -> Subject {
        Subject::Named("query parameter", self.name)
    }
}

impl KeyValue for Query {
    async fn value<'a>(
        &'a self,
        request: &'a mut Parts,
    ) -> Result<Option<Cow<'a, [u8]>>, KeyError> {
        let pairs = request.uri.query().unwrap_or_default().split('&');
        let values = pairs
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .filter(|(name, _)| *form_decode(name) == *self.name.as_bytes())
            .map(|(_, value)| form_decode(value));
        let value = only(values, self.subject())?;
        if str::from_utf8(&value).is_err() {
            return Err(KeyError::malformed_in(self.subject(), "is not UTF-8"));
        }
        Ok(Some(value))
    }

    fn unreadable(&self) -> KeyError {
        KeyError::malformed_in(self.subject(), UNREADABLE)
    }
}

impl<S: KeySource> Key<S> {
    /// Parses the value as a `T` and locks the text that `T` prints, so that all spellings of one value are one key. A
    /// value that is not a `T` is refused with 400.
    ///
    /// Use it wherever the handler parses the same value: for `Path<u64>` the paths `/orders/7`, `/orders/07` and
    /// `/orders/+7` are one order, but as text they are three keys, and the client chooses which.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_redlock::key;
    ///
    /// let order = key::header("x-order").parse::<u64>().prefix("order");
    /// # let _ = order;
    /// ```
    pub fn parse<T>(self) -> Key<Parsed<S, T>>
    where
        S: KeyValue,
        T: FromStr + fmt::Display + 'static,
    {
        Key::new(Parsed::new(self.source))
    }
}

/// Source of [`Key::parse`].
pub struct Parsed<S, T> {
    source: S,
    read_as: PhantomData<fn() -> T>,
}

impl<S, T> Parsed<S, T> {
    pub(super) const fn new(source: S) -> Self {
        Self {
            source,
            read_as: PhantomData,
        }
    }
}

// By hand: `T` is only a name here.
impl<S: Clone, T> Clone for Parsed<S, T> {
    fn clone(&self) -> Self {
        Self::new(self.source.clone())
    }
}

impl<S: fmt::Debug, T> fmt::Debug for Parsed<S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parsed")
            .field("source", &self.source)
            .field("read_as", &format_args!("{}", std::any::type_name::<T>()))
            .finish()
    }
}

impl<S, T> KeySource for Parsed<S, T>
where
    S: KeyValue,
    T: FromStr + fmt::Display + 'static,
{
    async fn collect(
        &self,
        request: &mut Parts,
        key: &mut KeyParts,
    ) -> Result<Collected, KeyError> {
        let canonical = match self.source.value(request).await? {
            Some(value) => str::from_utf8(&value)
                .ok()
                .and_then(|value| value.parse::<T>().ok())
                .map(|value| value.to_string()),
            None => return Ok(Collected::NoLock),
        };
        key.push(canonical.ok_or_else(|| self.source.unreadable())?)?;
        Ok(Collected::Parts)
    }
}

/// The only value, which must not be empty: all requests with an empty one would share a key.
pub(crate) fn only<V: AsRef<[u8]>>(
    mut values: impl Iterator<Item = V>,
    subject: Subject,
) -> Result<V, KeyError> {
    let value = values
        .next()
        .ok_or_else(|| KeyError::missing_from(subject))?;
    if values.next().is_some() {
        return Err(KeyError::malformed_in(subject, "is repeated"));
    }
    if value.as_ref().is_empty() {
        return Err(KeyError::malformed_in(subject, "is empty"));
    }
    Ok(value)
}

/// Decodes a name or value of a form, byte for byte: invalid UTF-8 is not replaced.
fn form_decode(text: &str) -> Cow<'_, [u8]> {
    if text.contains('+') {
        Cow::Owned(percent_decode(text.replace('+', " ").as_bytes()).collect())
    } else {
        percent_decode(text.as_bytes()).into()
    }
}

/// The text of the error for a value that does not parse.
pub(crate) const UNREADABLE: &str = "cannot be read as what it should be";
