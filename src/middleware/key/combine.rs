//! Sources made by the program, and sources made of other sources.

use std::borrow::Cow;
use std::fmt;

use http::request::Parts;

use super::source::{Collected, Key, KeySource};
use crate::key_error::KeyError;
use crate::lock_key::KeyParts;

impl<S: KeySource> Key<S> {
    /// Puts `prefix` in front, as a part of its own: the kind of resource that the key names.
    pub fn prefix(self, prefix: impl Into<Cow<'static, str>>) -> Key<Prefix<S>> {
        let (prefix, source) = (prefix.into(), self.source);
        Key::new(Prefix { prefix, source })
    }

    /// Runs a request without a lock if a value that the key needs is missing. By default it is refused with 400. A
    /// value that is present and cannot be used is still refused with 400.
    pub fn optional(self) -> Key<Optional<S>> {
        let source = self.source;
        Key::new(Optional { source })
    }

    /// Adds the parts of `other` behind these. If either source needs no lock, none is acquired.
    pub fn and<O: KeySource>(self, other: Key<O>) -> Key<And<S, O>> {
        let (first, second) = (self.source, other.source);
        Key::new(And { first, second })
    }

    /// Locks only the requests for which `condition` holds; the others run without a lock, and their key is not
    /// extracted.
    pub fn when<F>(self, condition: F) -> Key<When<S, F>>
    where
        F: Fn(&Parts) -> bool + Send + Sync + 'static,
    {
        let source = self.source;
        Key::new(When { condition, source })
    }

    /// Locks only requests of these methods: short for [`when`](Self::when). The layer's own
    /// [`methods`](crate::RedlockLayer::methods), by default all except the safe ones, apply first.
    ///
    /// # Examples
    ///
    /// ```
    /// use http::Method;
    /// use tower_redlock::key;
    ///
    /// let order = key::header("x-order").prefix("order").only([Method::POST, Method::PUT]);
    /// # let _ = order;
    /// ```
    pub fn only(
        self,
        methods: impl IntoIterator<Item = http::Method>,
    ) -> Key<When<S, impl Fn(&Parts) -> bool + Send + Sync + 'static>> {
        let methods: Vec<http::Method> = methods.into_iter().collect();
        self.when(move |parts: &Parts| methods.contains(&parts.method))
    }
}

/// The request's method.
pub const fn method() -> Key<Method> {
    Key::new(Method { _priv: () })
}

/// One part, made by a function of the request's head: see [`IntoKeyPart`].
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

/// A type that the closure of [`from_fn`] may return: text or bytes, or an `Option` (`None`: no lock) or a `Result` of
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
    /// The [`KeyError`] of a `Result`, or that the key becomes too long.
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
