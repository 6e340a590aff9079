//! Sources of lock keys, and how they are put together.

use std::borrow::Cow;
use std::fmt;

use http::request::Parts;
use percent_encoding::percent_decode;

use crate::lock_key::{KeyError, KeyParts, Subject};

/// What a [`KeySource`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::exhaustive_enums,
    reason = "there is a key or there is none; a source of a user's own must be able to say which"
)]
pub enum Collected {
    /// It has added its parts.
    Parts,
    /// The request needs no lock; parts that were added do not matter.
    NoLock,
}

/// Where parts of a key come from. Implement it to use a source of your own with the combinators of [`Key`];
/// for most, [`from_fn`] is enough.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a source of lock keys",
    note = "begin with one of `tower_redlock::key`, such as `key::header`, or implement `KeySource`"
)]
pub trait KeySource: Send + Sync + 'static {
    /// Adds the parts that the request has to `key`.
    ///
    /// # Errors
    ///
    /// [`KeyError`] if what they come from is missing or of no use.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any point with the request; nothing is locked yet.
    fn collect(
        &self,
        request: &mut Parts,
        key: &mut KeyParts,
    ) -> impl Future<Output = Result<Collected, KeyError>> + Send;
}

/// A [`KeyExtractor`](super::KeyExtractor) made of a [`KeySource`].
#[derive(Clone)]
#[must_use = "a key does nothing until it is given to a layer"]
pub struct Key<S> {
    source: S,
}

impl<S: KeySource> Key<S> {
    /// A key from a source of your own.
    pub const fn new(source: S) -> Self {
        Self { source }
    }

    /// Puts `prefix` in front, as a part of its own: what kind of thing the key names.
    pub fn prefix(self, prefix: impl Into<Cow<'static, str>>) -> Key<Prefix<S>> {
        Key::new(Prefix {
            prefix: prefix.into(),
            source: self.source,
        })
    }

    /// Runs a request that has not all that the key is made of so far without a lock. By default it is answered
    /// with 400. A value that is there and of no use is answered with 400 all the same.
    pub fn optional(self) -> Key<Optional<S>> {
        Key::new(Optional {
            source: self.source,
        })
    }

    /// Adds the parts of `other` behind these. If either says that no lock is needed, none is taken.
    pub fn and<O: KeySource>(self, other: Key<O>) -> Key<And<S, O>> {
        Key::new(And {
            first: self.source,
            second: other.source,
        })
    }

    /// Locks only the requests for which `condition` holds; the rest run without a lock, and without a look at
    /// their key.
    pub fn when<F>(self, condition: F) -> Key<When<S, F>>
    where
        F: Fn(&Parts) -> bool + Send + Sync + 'static,
    {
        Key::new(When {
            condition,
            source: self.source,
        })
    }

    pub(super) const fn source(&self) -> &S {
        &self.source
    }
}

impl<S> fmt::Debug for Key<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key")
            .field("source", &format_args!("{}", std::any::type_name::<S>()))
            .finish()
    }
}

/// The value of the request header `name`.
///
/// The value is taken as its bytes are. A header that is repeated or empty is answered with 400: it is not clear
/// which resource is meant.
pub const fn header(name: &'static str) -> Key<Header> {
    Key::new(Header { name })
}

/// The value of the parameter `name` in the request's query, decoded as a form is: `+` is a space, `%2F` a slash.
///
/// A parameter that is repeated or empty is answered with 400: it is not clear which resource is meant. So is one
/// that is not UTF-8: axum's `Query` replaces what is not, and would see one value where there are several keys.
pub const fn query(name: &'static str) -> Key<Query> {
    Key::new(Query { name })
}

/// The request's method.
pub const fn method() -> Key<Method> {
    Key::new(Method { _priv: () })
}

/// What `make` returns for a request's head, as one part: see [`IntoKeyPart`].
///
/// # Examples
///
/// ```
/// use tower_redlock::key;
///
/// let host = key::from_fn(|parts| parts.uri.host().map(str::to_owned)).prefix("host");
/// # let _ = host;
/// ```
pub const fn from_fn<F, R>(make: F) -> Key<FromFn<F>>
where
    F: Fn(&Parts) -> R + Send + Sync + 'static,
    R: IntoKeyPart,
{
    Key::new(FromFn { make })
}

/// Source of [`header`].
#[derive(Clone, Copy, Debug)]
pub struct Header {
    name: &'static str,
}

impl KeySource for Header {
    async fn collect(
        &self,
        request: &mut Parts,
        key: &mut KeyParts,
    ) -> Result<Collected, KeyError> {
        let subject = Subject::Named("header", self.name);
        let values = request.headers.get_all(self.name);
        let value = only(values.iter(), subject)?;
        push_value(key, value.as_bytes(), subject)
    }
}

/// Source of [`query`].
#[derive(Clone, Copy, Debug)]
pub struct Query {
    name: &'static str,
}

impl KeySource for Query {
    async fn collect(
        &self,
        request: &mut Parts,
        key: &mut KeyParts,
    ) -> Result<Collected, KeyError> {
        let subject = Subject::Named("query parameter", self.name);
        let pairs = request.uri.query().unwrap_or_default().split('&');
        let values = pairs
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .filter(|(name, _)| *form_decode(name) == *self.name.as_bytes())
            .map(|(_, value)| value);
        let value = only(values, subject)?;
        match str::from_utf8(&form_decode(value)) {
            Ok(value) => push_value(key, value.as_bytes(), subject),
            Err(_) => Err(KeyError::malformed_in(subject, "is not UTF-8")),
        }
    }
}

/// Source of [`method`].
#[derive(Clone, Copy, Debug)]
pub struct Method {
    _priv: (),
}

impl KeySource for Method {
    async fn collect(
        &self,
        request: &mut Parts,
        key: &mut KeyParts,
    ) -> Result<Collected, KeyError> {
        key.push(request.method.as_str())?;
        Ok(Collected::Parts)
    }
}

/// Source of [`from_fn`].
#[derive(Clone, Copy)]
pub struct FromFn<F> {
    make: F,
}

impl<F> fmt::Debug for FromFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FromFn").finish_non_exhaustive()
    }
}

impl<F, R> KeySource for FromFn<F>
where
    F: Fn(&Parts) -> R + Send + Sync + 'static,
    R: IntoKeyPart,
{
    async fn collect(
        &self,
        request: &mut Parts,
        key: &mut KeyParts,
    ) -> Result<Collected, KeyError> {
        (self.make)(request).push_into(key)
    }
}

/// What the closure of [`from_fn`] may return: text or bytes, or an `Option` (`None`: no lock) or a `Result` of
/// them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a part of a lock key",
    note = "return a `String`, `&'static str` or `Vec<u8>`, or an `Option` or `Result<_, KeyError>` of one"
)]
pub trait IntoKeyPart: Send {
    /// Adds itself to `key`.
    ///
    /// # Errors
    ///
    /// [`KeyError`] if it is one, or if the key becomes too long.
    fn push_into(self, key: &mut KeyParts) -> Result<Collected, KeyError>;
}

macro_rules! into_key_part {
    ($($text:ty),*) => {$(
        impl IntoKeyPart for $text {
            fn push_into(self, key: &mut KeyParts) -> Result<Collected, KeyError> {
                key.push(self)?;
                Ok(Collected::Parts)
            }
        }
    )*};
}

into_key_part!(String, &'static str, Vec<u8>);

impl<P: IntoKeyPart> IntoKeyPart for Option<P> {
    fn push_into(self, key: &mut KeyParts) -> Result<Collected, KeyError> {
        self.map_or(Ok(Collected::NoLock), |part| part.push_into(key))
    }
}

impl<P: IntoKeyPart> IntoKeyPart for Result<P, KeyError> {
    fn push_into(self, key: &mut KeyParts) -> Result<Collected, KeyError> {
        self.and_then(|part| part.push_into(key))
    }
}

/// Source of [`Key::prefix`].
#[derive(Clone, Debug)]
pub struct Prefix<S> {
    prefix: Cow<'static, str>,
    source: S,
}

impl<S: KeySource> KeySource for Prefix<S> {
    async fn collect(
        &self,
        request: &mut Parts,
        key: &mut KeyParts,
    ) -> Result<Collected, KeyError> {
        key.push(self.prefix.as_bytes())?;
        self.source.collect(request, key).await
    }
}

/// Source of [`Key::optional`].
#[derive(Clone, Copy, Debug)]
pub struct Optional<S> {
    source: S,
}

impl<S: KeySource> KeySource for Optional<S> {
    async fn collect(
        &self,
        request: &mut Parts,
        key: &mut KeyParts,
    ) -> Result<Collected, KeyError> {
        match self.source.collect(request, key).await {
            Err(error) if error.is_missing() => Ok(Collected::NoLock),
            result => result,
        }
    }
}

/// Source of [`Key::and`].
#[derive(Clone, Copy, Debug)]
pub struct And<A, B> {
    first: A,
    second: B,
}

impl<A: KeySource, B: KeySource> KeySource for And<A, B> {
    async fn collect(
        &self,
        request: &mut Parts,
        key: &mut KeyParts,
    ) -> Result<Collected, KeyError> {
        match self.first.collect(request, key).await? {
            Collected::Parts => self.second.collect(request, key).await,
            Collected::NoLock => Ok(Collected::NoLock),
        }
    }
}

/// Source of [`Key::when`].
#[derive(Clone, Copy)]
pub struct When<S, F> {
    condition: F,
    source: S,
}

impl<S: fmt::Debug, F> fmt::Debug for When<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("When")
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

impl<S, F> KeySource for When<S, F>
where
    S: KeySource,
    F: Fn(&Parts) -> bool + Send + Sync + 'static,
{
    async fn collect(
        &self,
        request: &mut Parts,
        key: &mut KeyParts,
    ) -> Result<Collected, KeyError> {
        if (self.condition)(request) {
            self.source.collect(request, key).await
        } else {
            Ok(Collected::NoLock)
        }
    }
}

/// The one value there is.
pub(crate) fn only<T>(
    mut values: impl Iterator<Item = T>,
    subject: Subject,
) -> Result<T, KeyError> {
    let value = values
        .next()
        .ok_or_else(|| KeyError::missing_from(subject))?;
    match values.next() {
        None => Ok(value),
        Some(_) => Err(KeyError::malformed_in(subject, "is repeated")),
    }
}

/// Adds a value that a client sent, which must hold something: all requests with an empty one would share a key.
pub(crate) fn push_value(
    key: &mut KeyParts,
    value: &[u8],
    subject: Subject,
) -> Result<Collected, KeyError> {
    if value.is_empty() {
        return Err(KeyError::malformed_in(subject, "is empty"));
    }
    key.push(value)?;
    Ok(Collected::Parts)
}

/// Decodes a name or value of a form, byte for byte: what is not UTF-8 is not replaced.
fn form_decode(text: &str) -> Cow<'_, [u8]> {
    if text.contains('+') {
        Cow::Owned(percent_decode(text.replace('+', " ").as_bytes()).collect())
    } else {
        percent_decode(text.as_bytes()).into()
    }
}
