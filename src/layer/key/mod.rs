//! The keys of the lock that a request needs: [`KeyExtractor`], and the closures that are one.
//!
//! | file | what it has |
//! |---|---|
//! | `parts` | `Key`: a list of steps, each of which adds a part; `header`, `query`, `path` and their like, which begin one; and `Also`: several keys |
//! | `take` | what one step takes from a request |
//! | `route` | what axum knows of the route of a request |

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

/// Finds the key of the lock that a request needs, or the keys, if it needs several at once.
///
/// The ready-made ones are in [`key`](crate::key). A closure over the request's head is one too, if it returns a
/// [`LockKey`] or [`LockKeys`], or an `Option` or a `Result` of one. Pass text from clients through [`LockKey::join`], which escapes it; the sources in `key` do so.
///
/// # Examples
///
/// ```
/// use http::request::Parts;
/// use tower_redlock::layer::KeyExtractor;
/// use tower_redlock::error::KeyError;
/// use tower_redlock::{key, LockKey};
///
/// fn takes_an_extractor(_: impl KeyExtractor) {}
///
/// takes_an_extractor(|parts: &Parts| -> Result<LockKey, KeyError> {
///     LockKey::join([parts.method.as_str(), parts.uri.path()])
/// });
///
/// // Both accounts of a transfer.
/// takes_an_extractor(key::header("x-from").prefix("account").also(key::header("x-to").prefix("account")));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot extract a lock key from a request",
    label = "must be a `KeyExtractor`",
    note = "use one of `tower_redlock::key`, such as `key::header(\"x-order-id\").prefix(\"order\")`",
    note = "a closure `Fn(&http::request::Parts) -> R` is one where `R` is a `LockKey` or `LockKeys`, or an `Option` or \
            `Result` of one; annotate its argument: `|parts: &Parts| ..`"
)]
pub trait KeyExtractor: Send + Sync + 'static {
    /// The keys of the request, or `None` if it needs no lock.
    ///
    /// # Errors
    ///
    /// [`KeyError`] if the request should have a key and has none that can be used. The response is
    /// `400 invalid-key`.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any point with the request; nothing is locked yet.
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

/// A type that a closure as a [`KeyExtractor`] may return: a [`LockKey`] or [`LockKeys`], or an `Option` or a `Result`
/// of one.
#[diagnostic::on_unimplemented(
    message = "a key extractor cannot return `{Self}`",
    note = "return a `LockKey` or `LockKeys`, or an `Option<_>`, `Result<_, KeyError>` or \
            `Result<Option<_>, KeyError>` of one",
    note = "text becomes a key by `LockKey::join([\"order\", text])`, which escapes it",
    note = "a closure cannot be `async` here; implement `KeyExtractor` for a type of your own, which can"
)]
pub trait IntoKey: Send {
    /// The keys, if there are any.
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
