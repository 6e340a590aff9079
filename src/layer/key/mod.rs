//! [`KeyExtractor`]: finds the lock keys of a request. `parts` has the extractor [`Key`], `take` its steps, and `route`
//! the steps that need axum.

mod parts;
#[cfg(feature = "axum")]
mod route;
mod take;

use http::request::Parts;

#[cfg(tower_redlock_tests)]
pub use self::parts::{Also, IntoKeyPart, Value};
pub use self::parts::{Key, from_fn, header, method, query};
#[cfg(feature = "axum")]
pub use self::parts::{from_extractor, matched_path, path};
#[cfg(feature = "axum")]
pub use self::route::routed;
use crate::key_error::KeyError;
use crate::lock_key::{LockKey, LockKeys};

/// Finds the lock keys of a request.
///
/// The module [`key`](crate::key) has functions that make an extractor. A closure over the request's head is an
/// extractor, too, if it returns a [`LockKey`] or [`LockKeys`], or an `Option` or a `Result` of one of them. Pass text
/// from clients through [`LockKey::join`], which escapes it.
///
/// # Examples
///
/// ```
/// use http::request::Parts;
/// use tower_redlock::layer::KeyExtractor;
/// use tower_redlock::error::KeyError;
/// use tower_redlock::LockKey;
///
/// fn takes_an_extractor(_: impl KeyExtractor) {}
///
/// takes_an_extractor(|parts: &Parts| -> Result<LockKey, KeyError> {
///     LockKey::join([parts.method.as_str(), parts.uri.path()])
/// });
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot extract a lock key from a request",
    label = "must be a `KeyExtractor`",
    note = "use one of `tower_redlock::key`, such as `key::header(\"x-order-id\").prefix(\"order\")`",
    note = "a closure `Fn(&http::request::Parts) -> R` is one where `R` is a `LockKey` or `LockKeys`, or an `Option` or \
            `Result` of one; annotate its argument: `|parts: &Parts| ..`"
)]
pub trait KeyExtractor: Send + Sync + 'static {
    /// Returns the keys of the request, or `None` if it needs no lock.
    ///
    /// # Errors
    ///
    /// [`KeyError`] if a key is missing or cannot be used. The response is `400 invalid-key`.
    ///
    /// # Cancel safety
    ///
    /// The layer drops this future if the client disconnects. Nothing is locked yet.
    fn extract(
        &self,
        parts: &mut Parts,
    ) -> impl Future<Output = Result<Option<LockKeys>, KeyError>> + Send;
}

impl<F, R> KeyExtractor for F
where
    F: Fn(&Parts) -> R + Send + Sync + 'static,
    R: IntoKey,
{
    fn extract(
        &self,
        parts: &mut Parts,
    ) -> impl Future<Output = Result<Option<LockKeys>, KeyError>> + Send {
        std::future::ready(self(parts).into_key())
    }
}

/// A type that a closure used as a [`KeyExtractor`] may return.
#[diagnostic::on_unimplemented(
    message = "a key extractor cannot return `{Self}`",
    note = "return a `LockKey` or `LockKeys`, or an `Option<_>`, `Result<_, KeyError>` or \
            `Result<Option<_>, KeyError>` of one",
    note = "text becomes a key by `LockKey::join([\"order\", text])`, which escapes it",
    note = "a closure cannot be `async` here; implement `KeyExtractor` for a type of your own, which can"
)]
pub trait IntoKey: Send {
    /// Converts the value into keys.
    ///
    /// # Errors
    ///
    /// The error that the closure returned.
    fn into_key(self) -> Result<Option<LockKeys>, KeyError>;
}

macro_rules! into_key {
    ($($keys:ty),*) => {$(
        impl IntoKey for $keys {
            fn into_key(self) -> Result<Option<LockKeys>, KeyError> {
                Ok(Some(self.into()))
            }
        }

        impl IntoKey for Option<$keys> {
            fn into_key(self) -> Result<Option<LockKeys>, KeyError> {
                Ok(self.map(Into::into))
            }
        }

        impl IntoKey for Result<$keys, KeyError> {
            fn into_key(self) -> Result<Option<LockKeys>, KeyError> {
                self.map(|keys| Some(keys.into()))
            }
        }

        impl IntoKey for Result<Option<$keys>, KeyError> {
            fn into_key(self) -> Result<Option<LockKeys>, KeyError> {
                Ok(self?.map(Into::into))
            }
        }
    )*};
}

into_key!(LockKey, LockKeys);
