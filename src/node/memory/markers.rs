//! What a memory node remembers of itself: whether it may vote.

use std::collections::HashMap;
use std::time::Duration;

use super::super::{
    Charter, CheckIn, Entry, NodeError, NodeErrorKind, Promotion, Standing, foreign_charter,
};
use crate::namespace::Namespace;
use crate::token::FencingToken;

/// The markers of one node, one for each namespace that was chosen.
#[derive(Clone, Default)]
pub(super) struct Markers {
    markers: HashMap<Box<str>, Marker>,
    // Whether there may have been locks before that are forgotten. A node that has just been made never had any.
    forgot: bool,
}

#[derive(Clone)]
struct Marker {
    digest: String,
    charter: String,
    max_lease: Duration,
    // `None`: it votes.
    quarantine: Option<String>,
}

impl Markers {
    /// Whether the node votes under `charter`.
    pub(super) fn is_voting(
        &self,
        namespace: &Namespace,
        charter: &Charter,
    ) -> Result<bool, NodeError> {
        match self.markers.get(namespace.root()) {
            Some(marker) if marker.digest != charter.digest => Err(NodeError::new(
                NodeErrorKind::Misconfigured,
                foreign_charter(&marker.charter, &charter.text),
            )),
            Some(marker) => Ok(marker.quarantine.is_none()),
            // One that has just been made has nothing to forget.
            None => Ok(!self.forgot),
        }
    }

    /// Lets only those in who may be granted something, for `lease`.
    pub(super) fn admit(
        &self,
        namespace: &Namespace,
        charter: &Charter,
        lease: Option<Duration>,
    ) -> Result<(), NodeError> {
        if !self.is_voting(namespace, charter)? {
            return Err(NodeError::new(
                NodeErrorKind::Quarantined,
                "it may have forgotten locks and does not vote before those have ended",
            ));
        }
        let marker = self.markers.get(namespace.root());
        if marker.is_some_and(|marker| lease > Some(marker.max_lease)) {
            return Err(NodeError::new(
                NodeErrorKind::Quarantined,
                "it has not been told yet of leases as long as ours",
            ));
        }
        Ok(())
    }

    pub(super) fn check_in(
        &mut self,
        request: &CheckIn,
        high_water: Option<FencingToken>,
    ) -> Standing {
        let charter = &request.charter;
        let fresh = || self.forgot.then(|| request.fresh.clone());
        let marker = match self.markers.get_mut(request.namespace.root()) {
            Some(marker) if marker.digest == charter.digest => marker,
            Some(marker) if request.entry == Entry::Adopt => {
                marker.digest.clone_from(&charter.digest);
                marker.charter.clone_from(&charter.text);
                marker.quarantine = Some(request.fresh.clone());
                marker
            }
            Some(marker) => {
                return Standing::Foreign {
                    charter: marker.charter.clone(),
                };
            }
            None => {
                let marker = Marker {
                    digest: charter.digest.clone(),
                    charter: charter.text.clone(),
                    max_lease: charter.max_lease,
                    quarantine: fresh(),
                };
                self.markers
                    .entry(request.namespace.root().into())
                    .or_insert(marker)
            }
        };
        marker.max_lease = marker.max_lease.max(charter.max_lease);
        let max_lease = marker.max_lease;
        match &marker.quarantine {
            None => Standing::Voting {
                max_lease,
                high_water,
            },
            Some(id) => Standing::Quarantined {
                id: id.clone(),
                max_lease,
            },
        }
    }

    pub(super) fn promote(&mut self, request: &Promotion) -> bool {
        match self.markers.get_mut(request.namespace.root()) {
            Some(marker)
                if marker.digest == request.charter.digest
                    && marker.quarantine.as_ref() == Some(&request.quarantine) =>
            {
                marker.quarantine = None;
                true
            }
            _ => false,
        }
    }

    /// What a server finds of itself that starts again with these: all that it knew, but it is not the one that knew
    /// it, and begins a quarantine called `id`.
    #[cfg(feature = "test-util")]
    pub(super) fn of_another(&self, id: &str) -> Self {
        let mut found = self.clone();
        for marker in found.markers.values_mut() {
            marker.quarantine = Some(id.to_owned());
        }
        found.forgot = true;
        found
    }

    /// Forgets everything.
    #[cfg(feature = "test-util")]
    pub(super) fn forget(&mut self) {
        self.markers.clear();
        self.forgot = true;
    }
}
