//! The markers of a memory node: whether it may vote, and under which config.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::namespace::Namespace;
use crate::node::{
    CheckInMode, CheckInReply, CheckInRequest, ClusterConfig, NodeError, PromoteRequest,
    quarantined,
};
use crate::token::FencingToken;

#[derive(Clone, Default)]
pub(super) struct Markers {
    // There are few.
    markers: BTreeMap<Box<str>, Marker>,
    // Whether the node may have lost locks. A new node never had any.
    forgot: bool,
}

#[derive(Clone)]
struct Marker {
    digest: String,
    config: String,
    // How long quarantines last under this config, and how long under the one that it replaced, until that was waited
    // for.
    quarantine: Duration,
    former: Duration,
    // Whether the node has voted under this config.
    accepted: bool,
    mode: Mode,
}

/// Whether the node may vote.
#[derive(Clone)]
enum Mode {
    Voting,
    Quarantined {
        id: String,
        // It never had anything to lose.
        unused: bool,
    },
}

impl Marker {
    fn new(request: &CheckInRequest, mode: Mode) -> Self {
        Self {
            digest: request.config.digest.clone(),
            config: request.config.text.clone(),
            quarantine: request.quarantine,
            former: Duration::ZERO,
            accepted: false,
            mode,
        }
    }

    fn reply(&self, high_water: Option<FencingToken>) -> CheckInReply {
        match &self.mode {
            Mode::Voting => CheckInReply::Voting { high_water },
            Mode::Quarantined { id, unused } => CheckInReply::Quarantined {
                id: id.clone(),
                former: self.former,
                accepted: self.accepted,
                unused: *unused,
            },
        }
    }
}

impl Markers {
    pub(super) fn is_voting(
        &self,
        namespace: &Namespace,
        config: &ClusterConfig,
    ) -> Result<bool, NodeError> {
        match self.markers.get(namespace.root()) {
            Some(marker) if marker.digest != config.digest => Err(NodeError::foreign(
                &marker.config,
                marker.digest.clone(),
                config,
            )),
            _ if !config.guarded => Ok(true),
            Some(marker) => Ok(matches!(marker.mode, Mode::Voting)),
            None => Ok(false),
        }
    }

    pub(super) fn admit(
        &self,
        namespace: &Namespace,
        config: &ClusterConfig,
    ) -> Result<(), NodeError> {
        match self.is_voting(namespace, config)? {
            true => Ok(()),
            false => Err(quarantined()),
        }
    }

    pub(super) fn check_in(
        &mut self,
        request: &CheckInRequest,
        high_water: Option<FencingToken>,
    ) -> CheckInReply {
        let config = &request.config;
        let unused = !self.forgot;
        let mode = |unused| match config.guarded {
            true => Mode::Quarantined {
                id: request.fresh.clone(),
                unused,
            },
            false => Mode::Voting,
        };
        let root = request.namespace.root();
        let marker = match self.markers.get_mut(root) {
            Some(marker) if marker.digest == config.digest => marker,
            Some(marker) if request.mode != CheckInMode::Normal => {
                let former = marker.former.max(marker.quarantine);
                *marker = Marker {
                    former,
                    ..Marker::new(request, mode(false))
                };
                marker
            }
            Some(marker) => {
                return CheckInReply::Foreign {
                    config: marker.config.clone(),
                    digest: marker.digest.clone(),
                };
            }
            None => self
                .markers
                .entry(root.into())
                .or_insert(Marker::new(request, mode(unused))),
        };
        if let (CheckInMode::Adopt { former }, Mode::Quarantined { .. }) =
            (request.mode, &marker.mode)
        {
            marker.former = marker.former.max(former);
        }
        marker.reply(high_water)
    }

    pub(super) fn promote(&mut self, request: &PromoteRequest) -> bool {
        let Some(marker) = self.markers.get_mut(request.namespace.root()) else {
            return false;
        };
        let meant =
            matches!(&marker.mode, Mode::Quarantined { id, .. } if *id == request.quarantine);
        if !meant || marker.digest != request.config.digest {
            return false;
        }
        marker.mode = Mode::Voting;
        marker.accepted = true;
        marker.former = Duration::ZERO;
        true
    }

    /// The server restarts with the data that it has: its identity is new, so that a quarantine called `id` begins
    /// under each marker.
    #[cfg(feature = "test-util")]
    pub(super) fn restart(&mut self, id: &str) {
        for marker in self.markers.values_mut() {
            marker.mode = Mode::Quarantined {
                id: id.to_owned(),
                unused: false,
            };
        }
        self.forgot = true;
    }
}
