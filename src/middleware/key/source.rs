//! [`Key`] and [`KeySource`]: a key and the source of its parts.

use std::fmt;

use http::request::Parts;

use crate::key_error::KeyError;
use crate::lock_key::KeyParts;

/// The result of a [`KeySource`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::exhaustive_enums,
    reason = "there is a key or there is none; a source of a user's own must be able to return either"
)]
pub enum Collected {
    /// The source has added its parts.
    Parts,
    /// The request needs no lock; parts that were added are ignored.
    NoLock,
}

/// A source of the parts of a key. Implement it to use a source of your own with the combinators of [`Key`]; for most,
/// [`from_fn`](super::from_fn) is enough.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a source of lock keys",
    note = "begin with one of `tower_redlock::key`, such as `key::header`, or implement `KeySource`"
)]
pub trait KeySource: Send + Sync + 'static {
    /// Adds the parts that the request has to `key`.
    ///
    /// # Errors
    ///
    /// [`KeyError`] if the value that they come from is missing or cannot be used.
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

/// A [`KeyExtractor`](crate::middleware::KeyExtractor) made of a [`KeySource`].
#[derive(Clone)]
#[must_use = "a key does nothing until it is given to a layer"]
pub struct Key<S> {
    pub(in crate::middleware) source: S,
}

impl<S: KeySource> Key<S> {
    /// A key from a source of your own.
    pub const fn new(source: S) -> Self {
        Self { source }
    }
}

impl<S> fmt::Debug for Key<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key")
            .field("source", &format_args!("{}", std::any::type_name::<S>()))
            .finish()
    }
}
