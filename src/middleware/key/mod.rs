//! Where lock keys come from, and how they are put together.

mod also;
mod combine;
mod value;

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use http::request::Parts;

use crate::key_error::KeyError;
use crate::lock_key::KeyParts;

pub use self::also::Also;
pub use self::combine::{
    And, FromFn, IntoKeyPart, Method, Optional, Prefix, When, from_fn, method,
};
pub use self::value::{Header, KeyValue, Parsed, Query, header, query};
#[cfg(feature = "axum")]
pub(crate) use self::value::{UNREADABLE, only};

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
        Key::new(Prefix::new(prefix.into(), self.source))
    }

    /// Runs a request that has not all that the key is made of so far without a lock. By default it is answered
    /// with 400. A value that is there and of no use is answered with 400 all the same.
    pub fn optional(self) -> Key<Optional<S>> {
        Key::new(Optional::new(self.source))
    }

    /// Adds the parts of `other` behind these. If either says that no lock is needed, none is taken.
    pub fn and<O: KeySource>(self, other: Key<O>) -> Key<And<S, O>> {
        Key::new(And::new(self.source, other.source))
    }

    /// Locks only the requests for which `condition` holds; the rest run without a lock, and without a look at
    /// their key.
    pub fn when<F>(self, condition: F) -> Key<When<S, F>>
    where
        F: Fn(&Parts) -> bool + Send + Sync + 'static,
    {
        Key::new(When::new(condition, self.source))
    }

    /// Locks only requests of these methods: short for [`when`](Self::when). The layer has a say before, and lets
    /// through those that are safe unless it is [told](crate::RedlockLayer::methods) otherwise.
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

    /// Reads the value as a `T` and locks under what that prints as, so that all spellings of one value are one
    /// key. A value that is no `T` is answered with 400.
    ///
    /// Use it wherever the handler parses the same value: to `Path<u64>` the paths `/orders/7`, `/orders/07` and
    /// `/orders/+7` are one order, but as text they are three keys, and a client could choose which.
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

    pub(in crate::middleware) const fn source(&self) -> &S {
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
