//! [`BoxKeyExtractor`]: a key extractor whose type is not part of its name.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use http::request::Parts;

use crate::key_error::KeyError;
use crate::lock_keys::LockKeys;

use super::key_extractor::KeyExtractor;

/// A [`KeyExtractor`] of any type. Made by [`RedlockLayer::boxed`](super::RedlockLayer::boxed).
#[derive(Clone)]
pub struct BoxKeyExtractor {
    extractor: Arc<dyn Erased>,
}

type Extracted<'a> = Pin<Box<dyn Future<Output = Result<Option<LockKeys>, KeyError>> + Send + 'a>>;

/// [`KeyExtractor`] with a boxed future, so that it can be a trait object.
trait Erased: Send + Sync {
    fn extract<'a>(&'a self, parts: &'a mut Parts) -> Extracted<'a>;
}

impl<K: KeyExtractor> Erased for K {
    fn extract<'a>(&'a self, parts: &'a mut Parts) -> Extracted<'a> {
        Box::pin(KeyExtractor::extract(self, parts))
    }
}

impl BoxKeyExtractor {
    pub(super) fn new(extractor: Arc<impl KeyExtractor>) -> Self {
        Self { extractor }
    }
}

impl KeyExtractor for BoxKeyExtractor {
    async fn extract(&self, parts: &mut Parts) -> Result<Option<LockKeys>, KeyError> {
        Erased::extract(&*self.extractor, parts).await
    }
}

impl fmt::Debug for BoxKeyExtractor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoxKeyExtractor").finish_non_exhaustive()
    }
}
