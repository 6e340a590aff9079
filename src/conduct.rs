//! What layers are told in the same words: which requests they are for, and what they do when the lock is gone.

use std::sync::Arc;

use http::Method;

/// What becomes of a request whose lock is lost while it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnLost {
    /// The inner future is dropped and the answer is `503 lock-lost`; a body that is held under the lock ends
    /// with an error.
    #[default]
    Abort,
    /// It goes on. The handler watches its [`LockHandle`](crate::LockHandle) and decides.
    Continue,
}

/// Which methods a layer is for.
#[derive(Clone, Debug)]
pub(crate) enum Methods {
    /// All but those that are safe by their definition.
    Unsafe,
    All,
    Only(Arc<[Method]>),
}

impl Methods {
    pub(crate) fn cover(&self, method: &Method) -> bool {
        match self {
            Self::Unsafe => !method.is_safe(),
            Self::All => true,
            Self::Only(methods) => methods.contains(method),
        }
    }
}
