//! The command that writes fencing tokens back.

use std::sync::Arc;

use crate::moment::Moment;
use crate::namespace::NodeKeys;
use crate::node::NodeError;
use crate::node::commands::{ClusterConfig, Fence};
use crate::node::memory::store::Store;
use crate::token::OwnerToken;

/// A request to write a lock's fencing token back to a node.
#[derive(Clone, Debug)]
pub struct RaiseRequest {
    /// The keys of the lock.
    pub keys: NodeKeys,
    /// The owner token.
    pub token: OwnerToken,
    /// The fencing token of the lock.
    pub fence: Fence,
    /// The config that the node must have. A node in quarantine refuses, because the lock may be from before it lost
    /// data.
    pub config: Option<Arc<ClusterConfig>>,
}

/// A node's reply to a raise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RaiseReply {
    /// The keys hold our token and no counter is below the fencing token.
    Raised,
    /// A key was absent or held another token. Nothing was changed.
    NotOwner,
}

#[cfg(feature = "redis")]
pub(crate) mod on_redis {
    use redis::{Cmd, Value};

    use super::*;
    use crate::node::commands::script::{
        Parts, Script, digits, items, life, refusal, run, standing,
    };
    use crate::node::redis::link::Link;

    pub(crate) static SCRIPT: Script = Script::of(include_str!("raise.lua"));

    pub(crate) async fn raise(
        link: &Link,
        request: &RaiseRequest,
    ) -> Result<RaiseReply, NodeError> {
        let mut connection = link.connection(&request.token)?;
        let cmd = cmd(request, connection.identity());
        let value = run(&mut connection, &SCRIPT, &cmd).await?;
        read(&value, request.config.as_deref())
    }

    fn cmd(request: &RaiseRequest, identity: &str) -> Cmd {
        let keys = request.keys.as_slice();
        let mut cmd = SCRIPT.run(1 + 2 * keys.len(), 5 + 2 * keys.len());
        cmd.arg(Parts(&request.keys.namespace().marker()));
        for key in keys {
            cmd.arg(key.as_str()).arg(Parts(&key.counter()));
        }
        cmd.arg(request.token.expose())
            .arg(digits(request.fence.token))
            .arg(life(request.fence.keep));
        standing(&mut cmd, request.config.as_deref(), identity);
        cmd
    }

    pub(crate) fn read(
        reply: &Value,
        ours: Option<&ClusterConfig>,
    ) -> Result<RaiseReply, NodeError> {
        match reply {
            Value::Int(1) => Ok(RaiseReply::Raised),
            Value::Int(0) => Ok(RaiseReply::NotOwner),
            other => Err(refusal(items(other), ours, "a raise")),
        }
    }

    #[cfg(test)]
    #[test]
    fn nonsense_is_no_reply() {
        for value in crate::node::commands::script::nonsense() {
            assert!(
                read(&value, None).is_err() || value == Value::Int(1),
                "{value:?}"
            );
        }
    }
}

impl Store {
    pub(crate) fn raise(
        &mut self,
        request: &RaiseRequest,
        now: Moment,
    ) -> Result<RaiseReply, NodeError> {
        let (namespace, config) = (request.keys.namespace(), request.config.as_deref());
        self.data.markers.admit(namespace, config)?;
        let (keys, token) = (&request.keys, &request.token);
        if !self.holds_all(keys, token, now) && !self.is_reader(keys.first(), token, now) {
            return Ok(RaiseReply::NotOwner);
        }
        let counters = &mut self.data.counters;
        counters.raise(&request.keys, request.fence, now)?;
        Ok(RaiseReply::Raised)
    }
}
