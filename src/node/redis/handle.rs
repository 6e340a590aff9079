//! What keeps a node alive, how its commands are run, and what it is besides a node.

use std::fmt;
use std::sync::Arc;

use redis::{Cmd, Value};

use super::connection::Core;
use super::link::Link;
use super::scripts::Script;
use super::{RedisNode, commands};
use crate::namespace::NodeKey;
use crate::node::{Ear, NodeError, NodeFuture, Notifier, Subscription};

/// The link for what belongs to no owner.
pub(super) const FIRST: fn(&Core) -> Result<Link, NodeError> = |core| core.link_of(0);

impl RedisNode {
    /// Runs one script once it is polled: `cmd` for the link it goes out on, which `choose` finds, and its answer read
    /// by `read`.
    pub(super) fn command<T: 'static>(
        &self,
        choose: impl FnOnce(&Core) -> Result<Link, NodeError> + Send + 'static,
        script: &'static Script,
        cmd: impl FnOnce(&Link) -> Cmd + Send + 'static,
        read: impl FnOnce(&Value) -> Result<T, NodeError> + Send + 'static,
    ) -> NodeFuture<Result<T, NodeError>> {
        let handle = Arc::clone(&self.handle);
        Box::pin(async move {
            let mut link = choose(&handle.core)?;
            let cmd = cmd(&link);
            read(&commands::run(&mut link, script, &cmd).await?)
        })
    }

    /// Where the node is, the same for two URLs of one address; without credentials.
    #[allow(
        dead_code,
        reason = "the builder of the manager looks for duplicates with it"
    )]
    pub(crate) fn address(&self) -> &str {
        &self.handle.core.target.address
    }
}

impl Notifier for RedisNode {
    fn subscribe(&self, key: &NodeKey, ear: Ear) -> Subscription {
        self.handle.core.hub.subscribe(key, ear)
    }
}

impl fmt::Debug for RedisNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the client: it holds the credentials.
        f.debug_struct("RedisNode")
            .field("name", &self.handle.core.name)
            .field("state", &self.handle.core.state())
            .finish_non_exhaustive()
    }
}

/// What nodes and their commands hold. The supervisor holds only the core, so when the last of these is gone it ends.
pub(super) struct Handle {
    pub(super) core: Arc<Core>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.core.stop();
    }
}
