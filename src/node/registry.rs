use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::node::error::{NodeError, NodeErrorKind};

/// The servers of one manager's nodes, so that one server is never counted as two nodes.
#[derive(Clone, Debug, Default)]
pub struct ServerRegistry {
    // Server identity to node name.
    servers: Arc<Mutex<HashMap<String, String>>>,
}

impl ServerRegistry {
    /// An empty registry.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Stores that `node` is served by the server `identity` (its `run_id`), in place of any before.
    ///
    /// # Errors
    ///
    /// [`NodeErrorKind::Misconfigured`] if another node is served by it already.
    pub(crate) fn claim(&self, node: &str, identity: &str) -> Result<(), NodeError> {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        servers.retain(|_, name| name != node);
        if let Some(other) = servers.get(identity) {
            return Err(NodeError::new(
                NodeErrorKind::Misconfigured,
                format!(
                    "it is the same server as node `{other}`; every node must be a server of its own, remove one of the two"
                ),
            ));
        }
        servers.insert(identity.to_owned(), node.to_owned());
        drop(servers);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_counted_once() {
        let registry = ServerRegistry::new();
        registry.claim("a", "run-1").unwrap();
        registry.claim("a", "run-1").unwrap();
        let error = registry.claim("b", "run-1").unwrap_err();
        assert_eq!(error.kind(), NodeErrorKind::Misconfigured);
        assert!(
            error.to_string().contains("same server as node `a`"),
            "{error}"
        );
        // A restarted server has a new identity, and the old one is free again.
        registry.claim("a", "run-2").unwrap();
        registry.claim("b", "run-1").unwrap();
    }

    #[test]
    fn nodes_whose_servers_swap_addresses_find_their_way() {
        let registry = ServerRegistry::new();
        registry.claim("a", "run-1").unwrap();
        registry.claim("b", "run-2").unwrap();
        registry.claim("a", "run-2").unwrap_err();
        registry.claim("b", "run-1").unwrap();
        registry.claim("a", "run-2").unwrap();
    }
}
