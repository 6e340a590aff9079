//! [`Credentials`] that change, and the callback that gives them.

use std::error::Error;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use crate::node::NodeFuture;

/// A user and a password, and for how long they are valid. `Debug` shows no password.
///
/// See [`RedisNodeBuilder::credentials`](crate::node::redis::RedisNodeBuilder::credentials).
#[derive(Clone, PartialEq, Eq)]
#[must_use = "credentials do nothing unless a callback returns them"]
pub struct Credentials {
    pub(crate) user: Option<String>,
    pub(crate) password: String,
    pub(crate) valid_for: Option<Duration>,
}

impl Credentials {
    /// This password, for the user of the node's URL; without one, for the default user.
    pub fn password(password: impl Into<String>) -> Self {
        Self {
            user: None,
            password: password.into(),
            valid_for: None,
        }
    }

    /// The user that the password is for.
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }

    /// For how long they are valid from now on. Unless set: until the connection ends.
    ///
    /// After three quarters of it, and not before 100 ms are over, the callback is called again.
    pub const fn valid_for(mut self, time: Duration) -> Self {
        self.valid_for = Some(time);
        self
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("user", &self.user)
            .field("valid_for", &self.valid_for)
            .finish_non_exhaustive()
    }
}

type Callback = dyn Fn() -> NodeFuture<Result<Credentials, String>> + Send + Sync;

#[derive(Clone)]
pub(crate) struct CredentialsSource(
    // It is called once at a time by each connection, and a panic in it ends that connection's task.
    pub(crate) Arc<AssertUnwindSafe<Box<Callback>>>,
);

impl CredentialsSource {
    pub(crate) fn new<F, Fut, E>(source: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        Self(Arc::new(AssertUnwindSafe(Box::new(move || {
            let credentials = source();
            Box::pin(async move {
                let credentials = credentials.await;
                credentials.map_err(|error| error.into().to_string())
            })
        }))))
    }
}

impl fmt::Debug for CredentialsSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CredentialsSource(..)")
    }
}
