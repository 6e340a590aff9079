//! Settings that both layers have: the methods they apply to, and what happens when the lock or the client is gone.

use std::sync::Arc;

use http::Method;

/// What happens to a request whose lock is lost while it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnLost {
    /// The inner future is dropped and the response is `503 lock-lost`; a body that is held under the lock ends
    /// with an error.
    #[default]
    Abort,
    /// The request continues. The handler watches its [`LockHandle`](crate::LockHandle) and decides.
    Continue,
}

/// What happens to a request whose client disconnects while it runs. Each layer has its own default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnDisconnect {
    /// The request runs to its end under its lock. Once its client is gone it runs in a task of its own, in the tokio
    /// runtime that served it; task-locals of the request's task are not visible there.
    ///
    /// For an `IdempotencyLayer` this is the default: the response is stored, and a client that gives up and repeats
    /// the request gets it.
    RunToEnd,
    /// The inner future is dropped where it stands, and the lock is released; a repeat runs from the start.
    ///
    /// For a `RedlockLayer` this is the default.
    Cancel,
}

/// The methods that a layer applies to.
#[derive(Clone, Debug)]
pub(crate) enum Methods {
    /// All except the safe ones (RFC 9110, section 9.2.1).
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
