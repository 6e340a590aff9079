use std::time::Duration;

use crate::moment::Moment;
use crate::namespace::{NodeKey, NodeKeys};
use crate::node::memory::counters::Counters;
use crate::node::memory::key_map::KeyMap;
use crate::node::memory::listeners::Listeners;
use crate::node::memory::markers::Markers;
use crate::node::memory::records::{Now, Records};
use crate::node::{
    AcquireReply, AcquireRequest, ExtendReply, ExtendRequest, Holder, NodeError, RaiseReply,
    RaiseRequest, ReleaseReply, ReleaseRequest,
};
use crate::token::{OwnerHash, OwnerToken};

/// The state of one node.
#[derive(Default)]
pub(super) struct Store {
    pub(super) data: Data,
    pub(super) listeners: Listeners,
    #[cfg(feature = "test-util")]
    pub(super) commands: u64,
}

/// What a server saves to its file.
#[derive(Clone, Default)]
pub(super) struct Data {
    pub(super) entries: KeyMap<Entry>,
    // Sweep when the map has grown to this.
    sweep_at: usize,
    pub(super) counters: Counters,
    pub(super) markers: Markers,
    pub(super) records: Records,
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
    fn live(&self, key: &NodeKey, now: Moment) -> Option<&Entry> {
        let entry = self.data.entries.get(key);
        entry.filter(|entry| entry.expires > now)
    }

    pub(super) fn holds(&self, key: &NodeKey, token: &OwnerToken, now: Moment) -> bool {
        let entry = self.live(key, now);
        entry.is_some_and(|entry| entry.token == *token)
    }

    fn set(&mut self, keys: &NodeKeys, token: OwnerToken, ttl: Duration, now: Moment) {
        let Data {
            entries, sweep_at, ..
        } = &mut self.data;
        let expires = now + ttl;
        for key in keys.as_slice() {
            if entries.len() >= (*sweep_at).max(64) {
                entries.retain(|_, entry| entry.expires > now);
                // Twice the number of live entries: each sweep follows as many inserts.
                *sweep_at = entries.len().saturating_mul(2);
            }
            entries.insert(key.clone(), Entry { token, expires });
        }
    }

    fn rival(&self, keys: &NodeKeys, token: &OwnerToken, now: Moment) -> Option<(usize, Holder)> {
        let keys = keys.as_slice().iter().enumerate();
        let mut live = keys.filter_map(|(index, key)| Some((index, self.live(key, now)?)));
        live.find(|(_, entry)| entry.token != *token)
            .map(|(index, entry)| (index, entry.holder(now)))
    }

    fn holds_all(&self, keys: &NodeKeys, token: &OwnerToken, now: Moment) -> bool {
        let mut keys = keys.as_slice().iter();
        keys.all(|key| self.holds(key, token, now))
    }

    pub(super) fn acquire(
        &mut self,
        request: &AcquireRequest,
        now: Now,
    ) -> Result<AcquireReply, NodeError> {
        self.count_command();
        let (keys, markers) = (&request.keys, &self.data.markers);
        if let Some(config) = &request.config {
            markers.admit(keys.namespace(), config)?;
        }
        if let Some((index, holder)) = self.rival(keys, &request.token, now.moment) {
            return Ok(AcquireReply::Held(holder.of_key(index)));
        }
        let counters = &mut self.data.counters;
        let advance = |fence| counters.advance(keys, fence, now);
        let fence = request.fence.map(advance).transpose()?;
        self.set(keys, request.token, request.ttl, now.moment);
        Ok(AcquireReply::Granted { fence })
    }

    pub(super) fn extend(
        &mut self,
        request: &ExtendRequest,
        now: Moment,
    ) -> Result<ExtendReply, NodeError> {
        let (keys, markers) = (&request.keys, &self.data.markers);
        let voting = match &request.config {
            Some(config) => markers.is_voting(keys.namespace(), config)?,
            None => true,
        };
        if let Some((_, holder)) = self.rival(keys, &request.token, now) {
            return Ok(ExtendReply::Held(holder));
        }
        let held = self.holds_all(keys, &request.token, now);
        if !held && !request.refill {
            return Ok(ExtendReply::Absent);
        }
        let counters = &mut self.data.counters;
        let raise = |fence| counters.raise(keys, fence, request.touch, now);
        let counted = request.fence.map(raise).transpose();
        // If the counters are unusable the lock is still extended; a key that is set again needs its counter.
        if !held {
            counted?;
        }
        self.set(keys, request.token, request.ttl, now);
        Ok(match (voting, held) {
            (false, _) => ExtendReply::Quarantined,
            (true, true) => ExtendReply::Extended,
            (true, false) => ExtendReply::Refilled,
        })
    }

    pub(super) fn raise(
        &mut self,
        request: &RaiseRequest,
        now: Moment,
    ) -> Result<RaiseReply, NodeError> {
        self.count_command();
        if let Some(config) = &request.config {
            let namespace = request.keys.namespace();
            self.data.markers.admit(namespace, config)?;
        }
        if !self.holds_all(&request.keys, &request.token, now) {
            return Ok(RaiseReply::NotOwner);
        }
        let counters = &mut self.data.counters;
        counters.raise(&request.keys, request.fence, true, now)?;
        Ok(RaiseReply::Raised)
    }

    pub(super) fn release(&mut self, request: &ReleaseRequest, now: Moment) -> ReleaseReply {
        self.count_command();
        let (mut ours, mut told) = (false, 0);
        for key in request.keys.as_slice() {
            if self.holds(key, &request.token, now) {
                ours = true;
                self.data.entries.remove(key);
                if request.announce {
                    told = told.max(self.listeners.announce(key));
                }
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
