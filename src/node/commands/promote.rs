//! Promote: ends the node's quarantine, if it is in the one that is named.

use std::sync::Arc;
use std::time::Duration;

use crate::namespace::Namespace;
use crate::node::commands::terms::ClusterConfig;
use crate::node::memory::markers::Mode;
use crate::node::memory::store::Store;
use crate::node::{NodeError, unmarked};
use crate::token::FencingToken;

/// The end of a node's quarantine.
#[derive(Clone, Debug)]
pub struct PromoteRequest {
    /// The namespace of the locks.
    pub namespace: Namespace,
    /// The config that the node must have.
    pub config: Arc<ClusterConfig>,
    /// The name of the quarantine that ends. If the node is in another one by now, nothing is done.
    pub quarantine: String,
    /// Its high-water mark is raised to this, and no counter counts for less from then on: restored data may hold old
    /// ones.
    pub floor: Option<FencingToken>,
}

#[cfg(feature = "redis")]
pub(crate) mod on_redis {
    use redis::{Cmd, Value};

    use crate::node::NodeError;
    use crate::node::commands::promote::PromoteRequest;
    use crate::node::commands::script::{Parts, Script, digits, run};
    use crate::node::redis::error::garbled;
    use crate::node::redis::shared::Shared;

    pub(crate) static SCRIPT: Script = Script::of(include_str!("promote.lua"));

    pub(crate) async fn promote(
        shared: &Shared,
        request: &PromoteRequest,
    ) -> Result<bool, NodeError> {
        let mut connection = shared.connection_of(0)?;
        let cmd = cmd(request, connection.identity());
        read(&run(&mut connection, &SCRIPT, &cmd).await?)
    }

    fn cmd(request: &PromoteRequest, identity: &str) -> Cmd {
        let mut cmd = SCRIPT.run(1, 5);
        cmd.arg(Parts(&request.namespace.marker()))
            .arg(identity)
            .arg(&request.config.digest)
            .arg(&request.quarantine);
        match request.floor {
            Some(floor) => cmd.arg(digits(floor)),
            None => cmd.arg(""),
        };
        cmd
    }

    pub(crate) fn read(reply: &Value) -> Result<bool, NodeError> {
        match reply {
            Value::Int(1) => Ok(true),
            Value::Int(0) => Ok(false),
            _ => Err(garbled("a promotion")),
        }
    }

    #[cfg(test)]
    #[test]
    fn nonsense_is_no_reply() {
        for value in crate::node::commands::value::nonsense() {
            assert!(read(&value).is_err() || value == Value::Int(1), "{value:?}");
        }
    }
}

impl Store {
    pub(crate) fn promote(&mut self, request: &PromoteRequest) -> Result<bool, NodeError> {
        let usable = |floor: FencingToken| floor.get() <= FencingToken::LAST_COUNTED;
        if !request.floor.is_none_or(usable) {
            return Err(unmarked());
        }
        let markers = &mut self.data.markers.markers;
        let Some(marker) = markers.get_mut(request.namespace.root()) else {
            return Ok(false);
        };
        let meant =
            matches!(&marker.mode, Mode::Quarantined { id, .. } if *id == request.quarantine);
        if !meant || marker.digest != request.config.digest {
            return Ok(false);
        }
        marker.mode = Mode::Voting;
        marker.accepted = true;
        marker.former = Duration::ZERO;
        let counters = &mut self.data.counters;
        counters.raise_floor(&request.namespace, request.floor);
        Ok(true)
    }
}
