//! [`Replicas`]: how many replicas must acknowledge a lock, by a `WAIT` after each acquire and each renewal.

use std::sync::OnceLock;
use std::time::Duration;

use redis::{Cmd, Value};

use crate::node::redis::error::failed;
use crate::node::{NodeContext, NodeError, NodeErrorKind};

/// How many replicas must have a lock before it counts, and how long they may take.
#[derive(Debug)]
pub(crate) struct Replicas {
    require: u32,
    // Unless set: a third of the node time-out.
    within: Option<Duration>,
    // Known once the node has started.
    limit: OnceLock<Duration>,
}

impl Replicas {
    pub(super) const fn new(require: u32, within: Option<Duration>) -> Self {
        Self {
            require,
            within,
            limit: OnceLock::new(),
        }
    }

    /// Takes the limit from the manager's node time-out.
    pub(super) fn begin(&self, context: &NodeContext) {
        self.limit
            .get_or_init(|| self.within.unwrap_or(context.node_timeout / 3));
    }

    /// How long the replicas may take.
    pub(super) fn limit(&self) -> Duration {
        let within = self.within.unwrap_or_default();
        self.limit.get().copied().unwrap_or(within)
    }

    pub(super) fn check(&self, context: &NodeContext) -> Result<(), NodeError> {
        let (within, node_timeout) = (self.limit(), context.node_timeout);
        if within < node_timeout {
            return Ok(());
        }
        Err(NodeError::new(
            NodeErrorKind::Misconfigured,
            format!(
                "its replicas may take {within:?}, but the manager waits for a node no longer than {node_timeout:?}; choose a shorter `within` or a longer `node_timeout`"
            ),
        ))
    }

    /// The command that waits for the replicas. It takes whole milliseconds, and 0 would be for ever.
    pub(crate) fn wait(&self) -> Cmd {
        let millis = self.limit().as_millis().max(1);
        let mut cmd = redis::cmd("WAIT");
        cmd.arg(self.require)
            .arg(u64::try_from(millis).unwrap_or(u64::MAX));
        cmd
    }

    pub(crate) fn judge(&self, reply: Option<Value>) -> Result<(), NodeError> {
        let reply = reply.unwrap_or(Value::Nil).extract_error();
        match reply {
            Ok(Value::Int(count)) if count >= i64::from(self.require) => Ok(()),
            Ok(Value::Int(count)) => {
                let (require, limit) = (self.require, self.limit());
                Err(not_replicated(format!(
                    "{count} of {require} replicas acknowledged within {limit:?}"
                )))
            }
            Ok(_) => Err(not_replicated(
                "it answered WAIT with something that makes no sense".to_owned(),
            )),
            Err(error) => Err(not_replicated(format!("WAIT failed: {}", failed(&error)))),
        }
    }
}

fn not_replicated(detail: String) -> NodeError {
    NodeError::new(NodeErrorKind::NotReplicated, detail)
}
