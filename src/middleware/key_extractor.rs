//! [`KeyExtractor`]: from the head of a request to the key of its lock.

use http::request::Parts;

use crate::lock_key::{KeyError, KeyParts, LockKey};

use super::key::{Collected, Key, KeySource};

/// Finds the key of the lock that a request needs.
///
/// The ready-made ones are in [`key`](crate::key). A closure over the request's head is one too, if it returns
/// what [`IntoKey`] takes. What a client sent belongs through [`LockKey::join`], which escapes it; `key`'s own
/// sources do so.
///
/// # Examples
///
/// ```
/// use http::request::Parts;
/// use tower_redlock::middleware::KeyExtractor;
/// use tower_redlock::{KeyError, LockKey};
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
    note = "a closure `Fn(&http::request::Parts) -> R` is one where `R` is a `LockKey`, or an `Option` or `Result` \
            of it; annotate its argument: `|parts: &Parts| ..`"
)]
pub trait KeyExtractor: Send + Sync + 'static {
    /// The key of the request, or `None` if it needs no lock.
    ///
    /// # Errors
    ///
    /// [`KeyError`] if the request should have a key and has none that can be used. It is answered with
    /// `400 invalid-key`.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any point with the request; nothing is locked yet.
    fn extract(
        &self,
        parts: &mut Parts,
    ) -> impl Future<Output = Result<Option<LockKey>, KeyError>> + Send;
}

impl<F, R> KeyExtractor for F
where
    F: Fn(&Parts) -> R + Send + Sync + 'static,
    R: IntoKey,
{
    fn extract(
        &self,
        parts: &mut Parts,
    ) -> impl Future<Output = Result<Option<LockKey>, KeyError>> + Send {
        std::future::ready(self(parts).into_key())
    }
}

impl<S: KeySource> KeyExtractor for Key<S> {
    async fn extract(&self, parts: &mut Parts) -> Result<Option<LockKey>, KeyError> {
        let mut key = KeyParts::new();
        match self.source().collect(parts, &mut key).await? {
            Collected::Parts => key.finish().map(Some),
            Collected::NoLock => Ok(None),
        }
    }
}

/// What a closure that is a [`KeyExtractor`] may return: a [`LockKey`], or an `Option` or a `Result` of it.
#[diagnostic::on_unimplemented(
    message = "a key extractor cannot return `{Self}`",
    note = "return a `LockKey`, `Option<LockKey>`, `Result<LockKey, KeyError>` or \
            `Result<Option<LockKey>, KeyError>`"
)]
pub trait IntoKey: Send {
    /// The key, if there is one.
    ///
    /// # Errors
    ///
    /// The error that the closure returned.
    fn into_key(self) -> Result<Option<LockKey>, KeyError>;
}

impl IntoKey for LockKey {
    fn into_key(self) -> Result<Option<LockKey>, KeyError> {
        Ok(Some(self))
    }
}

impl IntoKey for Option<LockKey> {
    fn into_key(self) -> Result<Option<LockKey>, KeyError> {
        Ok(self)
    }
}

impl IntoKey for Result<LockKey, KeyError> {
    fn into_key(self) -> Result<Option<LockKey>, KeyError> {
        self.map(Some)
    }
}

impl IntoKey for Result<Option<LockKey>, KeyError> {
    fn into_key(self) -> Result<Option<LockKey>, KeyError> {
        self
    }
}
