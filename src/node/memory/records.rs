//! What requests came to, beside the locks of their idempotency keys.

use std::collections::HashMap;
use std::time::Duration;

use super::super::{
    AcquireReply, CompleteReply, CompleteRequest, NodeError, RecallRequest, ReleaseReply,
};
use super::store::Store;
use crate::moment::Moment;
use crate::namespace::NodeKey;
use crate::record::Record;
use crate::token::OwnerToken;

/// The records of one node, and whom it granted their locks last.
#[derive(Clone, Default)]
pub(super) struct Records {
    slots: HashMap<NodeKey, Slot>,
    // Sweep when the map has grown to this.
    sweep_at: usize,
}

#[derive(Clone)]
struct Slot {
    last: Option<OwnerToken>,
    record: Option<Record>,
    expires: Moment,
}

impl Records {
    fn live(&self, key: &NodeKey, now: Moment) -> Option<&Slot> {
        self.slots.get(key).filter(|slot| slot.expires > now)
    }

    fn record(&self, key: &NodeKey, now: Moment) -> Option<Record> {
        self.live(key, now)?.record.clone()
    }

    fn slot(&mut self, key: &NodeKey, now: Moment) -> &mut Slot {
        if self.slots.len() >= self.sweep_at.max(64) {
            self.slots.retain(|_, slot| slot.expires > now);
            self.sweep_at = self.slots.len().saturating_mul(2);
        }
        let fresh = || Slot {
            last: None,
            record: None,
            expires: now,
        };
        let slot = self.slots.entry(key.clone()).or_insert_with(fresh);
        if slot.expires <= now {
            *slot = fresh();
        }
        slot
    }

    /// Notes who was granted the lock. A record that is there stays for as long as it was to stay.
    fn grant(&mut self, key: &NodeKey, token: OwnerToken, linger: Duration, now: Moment) {
        let slot = self.slot(key, now);
        slot.last = Some(token);
        slot.expires = slot.expires.max(now + linger);
    }

    fn put(&mut self, key: &NodeKey, record: Record, keep: Duration, now: Moment) {
        let slot = self.slot(key, now);
        slot.record = Some(record);
        slot.expires = slot.expires.max(now + keep);
    }

    /// Forgets that `token` was granted the lock, if nothing came of it and nobody came later.
    fn forget(&mut self, key: &NodeKey, token: &OwnerToken) {
        let void =
            |slot: &Slot| slot.record.is_none() && slot.last.as_ref().is_some_and(|t| t == token);
        if self.slots.get(key).is_some_and(void) {
            self.slots.remove(key);
        }
    }

    /// Forgets everything.
    #[cfg(feature = "test-util")]
    pub(super) fn clear(&mut self) {
        self.slots.clear();
    }
}

impl Store {
    pub(super) fn recall(
        &mut self,
        request: &RecallRequest,
        now: Moment,
        unix_micros: u64,
    ) -> Result<AcquireReply, NodeError> {
        let lock = &request.lock;
        let key = lock.keys.first();
        if let Some(charter) = &lock.charter {
            // What there is to tell needs no lease.
            self.markers.admit(lock.keys.namespace(), charter, None)?;
        }
        let record = self.records.record(key, now);
        if let (Some(record), false) = (&record, request.adopt) {
            self.count_command();
            return Ok(AcquireReply::Recorded(record.clone()));
        }
        let reply = self.acquire(lock, now, unix_micros)?;
        let AcquireReply::Granted { fence } = reply else {
            return Ok(reply);
        };
        self.records.grant(key, lock.token, request.linger, now);
        Ok(match record {
            Some(record) => AcquireReply::Adopting { fence, record },
            None => AcquireReply::Granted { fence },
        })
    }

    pub(super) fn complete(
        &mut self,
        request: &CompleteRequest,
        now: Moment,
    ) -> Result<CompleteReply, NodeError> {
        let (key, token) = (request.release.keys.first(), &request.release.token);
        let voting = match &request.charter {
            Some(charter) => self
                .markers
                .is_voting(request.release.keys.namespace(), charter)?,
            None => true,
        };
        // Without its memory it can still be told what a quorum has.
        let stored = (voting || request.chosen) && self.settle(request, key, token, now);
        let released = self.release(&request.release, now);
        Ok(match (stored, released) {
            (false, _) => CompleteReply::Refused,
            (true, ReleaseReply::Released { listeners }) => CompleteReply::Stored { listeners },
            (true, ReleaseReply::NotOwner) => CompleteReply::Stored { listeners: 0 },
        })
    }

    /// Keeps the record if it may be kept, or forgets the grant if there is none. Whether it is as it should be then.
    fn settle(
        &mut self,
        request: &CompleteRequest,
        key: &NodeKey,
        token: &OwnerToken,
        now: Moment,
    ) -> bool {
        let Some(record) = &request.record else {
            self.records.forget(key, token);
            return true;
        };
        let slot = self.records.live(key, now);
        let known = slot.and_then(|slot| slot.record.as_ref());
        let known = known.map(|known| known.ballot);
        if known > Some(record.ballot) {
            // Whoever wrote it was told of ours, if that was chosen.
            return request.chosen;
        }
        let same = known == Some(record.ballot);
        let last = slot.and_then(|slot| slot.last.as_ref());
        let ours = match last {
            Some(last) => last == token,
            None => self
                .live(key, now)
                .is_some_and(|entry| entry.token == *token),
        };
        let right = same || ours || request.chosen;
        if right {
            // Also if it is the same: it may be wanted for longer.
            self.records.put(key, record.clone(), request.keep, now);
        }
        right
    }
}
