//! The markers of a memory node: whether it may vote, and under which config.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::namespace::Namespace;
use crate::node::commands::terms::ClusterConfig;
use crate::node::{NodeError, quarantined};

#[derive(Clone, Default)]
pub(crate) struct Markers {
    // There are few.
    pub(crate) markers: BTreeMap<Box<str>, Marker>,
    // Whether the node may have lost locks. A new node never had any.
    pub(crate) forgot: bool,
}

#[derive(Clone)]
pub(crate) struct Marker {
    pub(crate) digest: String,
    pub(crate) config: String,
    // How long quarantines last under this config, and how long under the one that it replaced, until that was waited
    // for.
    pub(crate) quarantine: Duration,
    pub(crate) former: Duration,
    // Whether the node has voted under this config.
    pub(crate) accepted: bool,
    pub(crate) mode: Mode,
}

/// Whether the node may vote.
#[derive(Clone)]
pub(crate) enum Mode {
    Voting,
    Quarantined {
        id: String,
        // It never had anything to lose.
        unused: bool,
    },
}

impl Markers {
    pub(crate) fn is_voting(
        &self,
        namespace: &Namespace,
        config: &ClusterConfig,
    ) -> Result<bool, NodeError> {
        match self.markers.get(namespace.root()) {
            Some(marker) if marker.digest != config.digest => Err(NodeError::foreign(
                &marker.config,
                marker.digest.clone(),
                &config.text,
            )),
            _ if !config.guarded => Ok(true),
            Some(marker) => Ok(matches!(marker.mode, Mode::Voting)),
            None => Ok(false),
        }
    }

    pub(crate) fn admit(
        &self,
        namespace: &Namespace,
        config: &ClusterConfig,
    ) -> Result<(), NodeError> {
        match self.is_voting(namespace, config)? {
            true => Ok(()),
            false => Err(quarantined()),
        }
    }

    /// The server restarts with the data that it has: its identity is new, so that a quarantine called `id` begins
    /// under each marker.
    #[cfg(feature = "test-util")]
    pub(crate) fn restart(&mut self, id: &str) {
        for marker in self.markers.values_mut() {
            marker.mode = Mode::Quarantined {
                id: id.to_owned(),
                unused: false,
            };
        }
        self.forgot = true;
    }
}
