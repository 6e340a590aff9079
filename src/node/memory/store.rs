//! The keys of one memory node, and what the commands do to them.

use std::collections::HashMap;
use std::time::Duration;

use crate::moment::Moment;
use crate::namespace::{NodeKey, NodeKeys};
use crate::node::memory::counters::Counters;
use crate::node::memory::listeners::Listeners;
use crate::node::memory::loans::Loans;
use crate::node::memory::markers::Markers;
use crate::node::memory::records::Records;
use crate::node::{
    AcquireReply, AcquireRequest, ClusterConfig, EndClaim, ExtendReply, ExtendRequest, Fence,
    Holder, NodeError, RaiseReply, RaiseRequest, ReleaseReply, ReleaseRequest, VerifyReply,
    VerifyRequest,
};
use crate::token::{OwnerHash, OwnerToken};

/// The keys of one node.
#[derive(Default)]
pub(super) struct Store {
    pub(super) entries: HashMap<NodeKey, Entry>,
    // Sweep when the map has grown to this.
    sweep_at: usize,
    pub(super) counters: Counters,
    pub(super) markers: Markers,
    pub(super) records: Records,
    pub(super) loans: Loans,
    pub(super) listeners: Listeners,
    #[cfg(feature = "test-util")]
    pub(super) commands: u64,
}

/// One held key.
#[derive(Clone)]
pub(super) struct Entry {
    pub(super) token: OwnerToken,
    pub(super) expires: Moment,
}

impl Entry {
    fn holder(&self, now: Moment) -> Holder {
        let tag = OwnerHash::of(&self.token).tag();
        Holder::new(tag, Some(self.expires.since(now)))
    }
}

impl Store {
    pub(super) fn live(&self, key: &NodeKey, now: Moment) -> Option<&Entry> {
        self.entries.get(key).filter(|entry| entry.expires > now)
    }

    fn set(&mut self, key: NodeKey, token: OwnerToken, ttl: Duration, now: Moment) {
        if self.entries.len() >= self.sweep_at.max(64) {
            self.entries.retain(|_, entry| entry.expires > now);
            // Twice the number of live entries: each sweep follows as many inserts.
            self.sweep_at = self.entries.len().saturating_mul(2);
        }
        let expires = now + ttl;
        self.entries.insert(key, Entry { token, expires });
    }

    /// Another owner's entry among `keys`, and the index of its key.
    fn rival(&self, keys: &NodeKeys, token: &OwnerToken, now: Moment) -> Option<(usize, Holder)> {
        let keys = keys.as_slice().iter().enumerate();
        let mut live = keys.filter_map(|(place, key)| Some((place, self.live(key, now)?)));
        live.find(|(_, entry)| entry.token != *token)
            .map(|(place, entry)| (place, entry.holder(now)))
    }

    fn holds_all(&self, keys: &NodeKeys, token: &OwnerToken, now: Moment) -> bool {
        let ours = |key| {
            self.live(key, now)
                .is_some_and(|entry| entry.token == *token)
        };
        keys.as_slice().iter().all(ours)
    }

    pub(super) fn acquire(
        &mut self,
        request: &AcquireRequest,
        now: Moment,
        unix_micros: u64,
    ) -> Result<AcquireReply, NodeError> {
        self.count_command();
        if let Some(config) = &request.config {
            self.markers
                .admit(request.keys.namespace(), config, Some(request.ttl))?;
        }
        if let Some((place, holder)) = self.rival(&request.keys, &request.token, now) {
            return Ok(AcquireReply::Held(holder.of_key(place)));
        }
        let number = |fence| {
            self.counters
                .advance(&request.keys, fence, now, unix_micros)
        };
        let fence = request.fence.map(number).transpose()?;
        for key in request.keys.as_slice() {
            self.set(key.clone(), request.token, request.ttl, now);
        }
        Ok(AcquireReply::Granted { fence })
    }

    pub(super) fn extend(
        &mut self,
        request: &ExtendRequest,
        now: Moment,
    ) -> Result<ExtendReply, NodeError> {
        let voting = match &request.config {
            Some(config) => self.votes(request, config)?,
            None => true,
        };
        if let Some((_, holder)) = self.rival(&request.keys, &request.token, now) {
            return Ok(ExtendReply::Held(holder));
        }
        let held = self.holds_all(&request.keys, &request.token, now);
        if !held && !request.refill {
            return Ok(ExtendReply::Absent);
        }
        let counted = self.raise_counters(&request.keys, request.fence, now);
        // If the counters are unusable the lock is still extended; a key that is set again needs its counter.
        if !held {
            counted?;
        }
        for key in request.keys.as_slice() {
            self.set(key.clone(), request.token, request.ttl, now);
        }
        Ok(match (voting, held) {
            (false, _) => ExtendReply::Quarantined,
            (true, true) => ExtendReply::Extended,
            (true, false) => ExtendReply::Refilled,
        })
    }

    fn votes(&self, request: &ExtendRequest, config: &ClusterConfig) -> Result<bool, NodeError> {
        let namespace = request.keys.namespace();
        let voting = self.markers.is_voting(namespace, config)?;
        Ok(voting && request.ttl <= self.markers.longest(namespace, config))
    }

    fn raise_counters(
        &mut self,
        keys: &NodeKeys,
        fence: Option<Fence>,
        now: Moment,
    ) -> Result<(), NodeError> {
        match fence {
            Some(fence) => self.counters.raise(keys, fence, now),
            None => Ok(()),
        }
    }

    pub(super) fn raise(
        &mut self,
        request: &RaiseRequest,
        now: Moment,
    ) -> Result<RaiseReply, NodeError> {
        self.count_command();
        if !self.holds_all(&request.keys, &request.token, now) {
            return Ok(RaiseReply::NotOwner);
        }
        self.counters.raise(&request.keys, request.fence, now)?;
        Ok(RaiseReply::Raised)
    }

    pub(super) fn verify(
        &mut self,
        request: &VerifyRequest,
        now: Moment,
    ) -> Result<VerifyReply, NodeError> {
        if let Some(config) = &request.config {
            self.markers.admit(request.keys.namespace(), config, None)?;
        }
        // A lock that is set for longer than the node knows of counts for no longer.
        let mut remaining = request.config.as_ref().map_or(Duration::MAX, |config| {
            self.markers.longest(request.keys.namespace(), config)
        });
        for key in request.keys.as_slice() {
            match self.live(key, now) {
                Some(entry) if OwnerHash::of(&entry.token) == request.owner => {
                    remaining = remaining.min(entry.expires.since(now));
                }
                _ => return Ok(VerifyReply::NotOwner),
            }
        }
        Ok(match self.loans.claim(request, now) {
            true => VerifyReply::Owner { remaining },
            false => VerifyReply::Taken,
        })
    }

    pub(super) fn end_claim(&mut self, request: &EndClaim, now: Moment) {
        let entry = self.live(request.keys.first(), now);
        let is_owned = entry.is_some_and(|entry| OwnerHash::of(&entry.token) == request.owner);
        self.loans.end(request, is_owned, now);
    }

    pub(super) fn release(&mut self, request: &ReleaseRequest, now: Moment) -> ReleaseReply {
        self.count_command();
        if self.loans.is_borrowed(request, now) {
            return ReleaseReply::Lent;
        }
        let (mut ours, mut told) = (false, 0);
        for key in request.keys.as_slice() {
            if !self
                .live(key, now)
                .is_some_and(|entry| entry.token == request.token)
            {
                continue;
            }
            ours = true;
            self.entries.remove(key);
            if request.announce {
                told = told.max(self.listeners.announce(key));
            }
        }
        if ours {
            ReleaseReply::Released { listeners: told }
        } else {
            ReleaseReply::NotOwner
        }
    }

    #[cfg(feature = "test-util")]
    pub(super) fn count_command(&mut self) {
        self.commands += 1;
    }

    #[cfg(not(feature = "test-util"))]
    #[expect(clippy::unused_self, reason = "the same signature as with test-util")]
    pub(super) fn count_command(&self) {}
}
