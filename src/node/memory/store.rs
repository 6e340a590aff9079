//! The keys of one memory node, and what the commands do to them.

use std::collections::HashMap;
use std::time::Duration;

use super::super::{
    AcquireReply, AcquireRequest, Charter, ExtendReply, ExtendRequest, Fence, Holder, NodeError,
    RaiseReply, RaiseRequest, ReleaseReply, ReleaseRequest, VerifyReply, VerifyRequest,
};
use super::counters::Counters;
use super::listeners::Listeners;
use super::loans::Loans;
use super::markers::Markers;
use super::records::Records;
use crate::moment::Moment;
use crate::namespace::{NodeKey, NodeKeys};
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
            // Twice what is live: each sweep is paid for by as many inserts.
            self.sweep_at = self.entries.len().saturating_mul(2);
        }
        let expires = now + ttl;
        self.entries.insert(key, Entry { token, expires });
    }

    /// Another's entry among `keys`.
    fn rival(&self, keys: &NodeKeys, token: &OwnerToken, now: Moment) -> Option<Holder> {
        let mut live = keys.as_slice().iter().filter_map(|key| self.live(key, now));
        live.find(|entry| entry.token != *token)
            .map(|entry| entry.holder(now))
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
        if let Some(charter) = &request.charter {
            self.markers
                .admit(request.keys.namespace(), charter, Some(request.ttl))?;
        }
        if let Some(holder) = self.rival(&request.keys, &request.token, now) {
            return Ok(AcquireReply::Held(holder));
        }
        let number = |fence| {
            self.counters
                .advance(&request.keys, fence, now, unix_micros)
        };
        let fence = request.fence.map(number);
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
        let voting = match &request.charter {
            Some(charter) => self.votes(request, charter)?,
            None => true,
        };
        if let Some(holder) = self.rival(&request.keys, &request.token, now) {
            return Ok(ExtendReply::Held(holder));
        }
        let held = self.holds_all(&request.keys, &request.token, now);
        if !held && !request.refill {
            return Ok(ExtendReply::Absent);
        }
        self.raise_counters(&request.keys, request.fence, now);
        for key in request.keys.as_slice() {
            self.set(key.clone(), request.token, request.ttl, now);
        }
        Ok(match (voting, held) {
            (false, _) => ExtendReply::Quarantined,
            (true, true) => ExtendReply::Extended,
            (true, false) => ExtendReply::Refilled,
        })
    }

    fn votes(&self, request: &ExtendRequest, charter: &Charter) -> Result<bool, NodeError> {
        self.markers.is_voting(request.keys.namespace(), charter)
    }

    fn raise_counters(&mut self, keys: &NodeKeys, fence: Option<Fence>, now: Moment) {
        if let Some(fence) = fence {
            self.counters.raise(keys, fence, now);
        }
    }

    pub(super) fn raise(&mut self, request: &RaiseRequest, now: Moment) -> RaiseReply {
        self.count_command();
        if !self.holds_all(&request.keys, &request.token, now) {
            return RaiseReply::NotOwner;
        }
        self.counters.raise(&request.keys, request.fence, now);
        RaiseReply::Raised
    }

    pub(super) fn verify(
        &mut self,
        request: &VerifyRequest,
        now: Moment,
    ) -> Result<VerifyReply, NodeError> {
        if let Some(charter) = &request.charter {
            self.markers
                .admit(request.keys.namespace(), charter, None)?;
        }
        let mut remaining = Duration::MAX;
        for key in request.keys.as_slice() {
            match self.live(key, now) {
                Some(entry) if OwnerHash::of(&entry.token) == request.owner => {
                    remaining = remaining.min(entry.expires.since(now));
                }
                _ => return Ok(VerifyReply::NotOwner),
            }
        }
        Ok(match self.claim(request, now) {
            true => VerifyReply::Owner { remaining },
            false => VerifyReply::Taken,
        })
    }

    pub(super) fn release(&mut self, request: &ReleaseRequest, now: Moment) -> ReleaseReply {
        self.count_command();
        if self.is_borrowed(request, now) {
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
