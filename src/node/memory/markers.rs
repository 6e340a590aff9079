//! The markers of a memory node: whether it may vote, and under which config.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::mutant::{self, Mutant};
use crate::namespace::Namespace;
use crate::node::{
    CheckInMode, CheckInReply, CheckInRequest, ClusterConfig, NodeError, PromoteRequest,
    lease_too_long, quarantined,
};
use crate::token::FencingToken;

/// The markers of one node, one for each root namespace.
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
    max_lease: Duration,
    // The longest lease under the config before, until it was waited for.
    earlier: Duration,
    // Whether the node has voted under this config.
    accepted: bool,
    replaced: Vec<String>,
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
    fn new(config: &ClusterConfig, mode: Mode) -> Self {
        Self {
            digest: config.digest.clone(),
            config: config.text.clone(),
            max_lease: config.max_lease,
            earlier: Duration::ZERO,
            accepted: false,
            replaced: Vec::new(),
            mode,
        }
    }

    /// The marker of a node that is taken over from processes with another config.
    fn adopted(&self, config: &ClusterConfig, mode: Mode) -> Self {
        let others = self.replaced.iter();
        let others = others.filter(|digest| **digest != config.digest && **digest != self.digest);
        let replaced = std::iter::once(&self.digest).chain(others);
        Self {
            earlier: self.earlier.max(self.max_lease),
            replaced: replaced.take(MOST_REPLACED).cloned().collect(),
            ..Self::new(config, mode)
        }
    }

    fn reply(&self, high_water: Option<FencingToken>) -> CheckInReply {
        match &self.mode {
            Mode::Voting => CheckInReply::Voting {
                max_lease: self.max_lease,
                high_water,
                replaced: self.replaced.clone(),
            },
            Mode::Quarantined { id, unused } => CheckInReply::Quarantined {
                id: id.clone(),
                max_lease: self.max_lease,
                earlier: self.earlier,
                accepted: self.accepted,
                unused: *unused,
                replaced: self.replaced.clone(),
            },
        }
    }
}

impl Markers {
    /// Whether the node votes under `config`.
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

    /// The longest time for which a lock that is set under `config` counts.
    pub(super) fn longest(&self, namespace: &Namespace, config: &ClusterConfig) -> Duration {
        if !config.guarded || mutant::is(Mutant::LongerLeaseGranted) {
            return Duration::MAX;
        }
        let marker = self.markers.get(namespace.root());
        marker.map_or(Duration::ZERO, |marker| marker.max_lease)
    }

    /// Refuses commands that the node must not grant, under `config` and for `lease`.
    pub(super) fn admit(
        &self,
        namespace: &Namespace,
        config: &ClusterConfig,
        lease: Option<Duration>,
    ) -> Result<(), NodeError> {
        if !self.is_voting(namespace, config)? {
            return Err(quarantined());
        }
        if lease > Some(self.longest(namespace, config)) {
            return Err(lease_too_long());
        }
        Ok(())
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
            Some(marker) if request.mode == CheckInMode::Adopt => {
                *marker = marker.adopted(config, mode(false));
                marker
            }
            Some(marker) => {
                return CheckInReply::Foreign {
                    config: marker.config.clone(),
                    digest: marker.digest.clone(),
                    replaced: marker.replaced.clone(),
                };
            }
            None => self
                .markers
                .entry(root.into())
                .or_insert(Marker::new(config, mode(unused))),
        };
        marker.max_lease = marker.max_lease.max(config.max_lease);
        marker.reply(high_water)
    }

    pub(super) fn promote(&mut self, request: &PromoteRequest) -> bool {
        let Some(marker) = self.markers.get_mut(request.namespace.root()) else {
            return false;
        };
        let meant =
            matches!(&marker.mode, Mode::Quarantined { id, .. } if *id == request.quarantine);
        let meant = meant || mutant::is(Mutant::PromotionNotCompared);
        if !meant || marker.digest != request.config.digest {
            return false;
        }
        marker.mode = Mode::Voting;
        marker.accepted = true;
        marker.earlier = Duration::ZERO;
        marker.max_lease = marker.max_lease.max(request.max_lease);
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

/// How many earlier configs a node remembers.
const MOST_REPLACED: usize = 8;
