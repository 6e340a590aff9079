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
    // Until when `last` is remembered at least. The record has its own end.
    expires: Moment,
}

/// What the clocks of a node show: that of locks, and that of records, in milliseconds since 1970.
#[derive(Clone, Copy)]
pub(super) struct Now {
    pub(super) moment: Moment,
    pub(super) unix_micros: u64,
}

impl Now {
    const fn unix_millis(self) -> u64 {
        self.unix_micros / 1_000
    }

    const fn is_after(self, record: &Record) -> bool {
        record.until <= self.unix_millis()
    }
}

impl Slot {
    const fn new(now: Now) -> Self {
        Self {
            last: None,
            record: None,
            expires: now.moment,
        }
    }

    fn record(&self, now: Now) -> Option<&Record> {
        self.record.as_ref().filter(|record| !now.is_after(record))
    }

    fn is_over(&self, now: Now) -> bool {
        self.expires <= now.moment && self.record(now).is_none()
    }
}

impl Records {
    fn live(&self, key: &NodeKey, now: Now) -> Option<&Slot> {
        self.slots.get(key).filter(|slot| !slot.is_over(now))
    }

    fn record(&self, key: &NodeKey, now: Now) -> Option<Record> {
        self.live(key, now)?.record(now).cloned()
    }

    fn slot(&mut self, key: &NodeKey, now: Now) -> &mut Slot {
        if self.slots.len() >= self.sweep_at.max(64) {
            self.slots.retain(|_, slot| !slot.is_over(now));
            self.sweep_at = self.slots.len().saturating_mul(2);
        }
        let slots = self.slots.entry(key.clone());
        let slot = slots.or_insert_with(|| Slot::new(now));
        if slot.is_over(now) {
            *slot = Slot::new(now);
        }
        slot
    }

    /// Notes who was granted the lock. A record that is there stays for as long as it was to stay.
    fn grant(&mut self, key: &NodeKey, token: OwnerToken, linger: Duration, now: Now) {
        let slot = self.slot(key, now);
        slot.last = Some(token);
        slot.expires = slot.expires.max(now.moment + linger);
        if slot.record(now).is_none() {
            slot.record = None;
        }
    }

    fn put(&mut self, key: &NodeKey, record: Record, now: Now) {
        self.slot(key, now).record = Some(record);
    }

    /// Forgets that `token` was granted the lock, if nothing came of it and nobody came later.
    fn forget(&mut self, key: &NodeKey, token: &OwnerToken, now: Now) {
        let void = |slot: &Slot| {
            slot.record(now).is_none() && slot.last.as_ref().is_some_and(|t| t == token)
        };
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
        now: Now,
    ) -> Result<AcquireReply, NodeError> {
        let lock = &request.lock;
        let key = lock.keys.first();
        if let Some(config) = &lock.config {
            // What there is to tell needs no lease.
            self.markers.admit(lock.keys.namespace(), config, None)?;
        }
        let record = self.records.record(key, now);
        if let (Some(record), false) = (&record, request.adopt) {
            self.count_command();
            return Ok(AcquireReply::Recorded(record.clone()));
        }
        let reply = self.acquire(lock, now.moment, now.unix_micros)?;
        let AcquireReply::Granted { fence } = reply else {
            return Ok(reply);
        };
        self.records.grant(key, lock.token, request.linger, now);
        Ok(AcquireReply::Promised {
            fence,
            record,
            now: now.unix_millis(),
        })
    }

    pub(super) fn complete(
        &mut self,
        request: &CompleteRequest,
        now: Now,
    ) -> Result<CompleteReply, NodeError> {
        let (key, token) = (request.release.keys.first(), &request.release.token);
        let voting = match &request.config {
            Some(config) => self
                .markers
                .is_voting(request.release.keys.namespace(), config)?,
            None => true,
        };
        // Without its memory it can still be told what a quorum has.
        let stored = (voting || request.chosen) && self.settle(request, key, token, now);
        let released = self.release(&request.release, now.moment);
        Ok(match (stored, released) {
            (false, _) => CompleteReply::Refused,
            (true, ReleaseReply::Released { listeners }) => CompleteReply::Stored { listeners },
            (true, ReleaseReply::NotOwner | ReleaseReply::Lent) => {
                CompleteReply::Stored { listeners: 0 }
            }
        })
    }

    /// Keeps the record if it may be kept, or forgets the grant if there is none. Whether it is as it should be then.
    fn settle(
        &mut self,
        request: &CompleteRequest,
        key: &NodeKey,
        token: &OwnerToken,
        now: Now,
    ) -> bool {
        let Some(record) = &request.record else {
            self.records.forget(key, token, now);
            return true;
        };
        if now.is_after(record) {
            // Others may have looked for it and found that it has ended.
            return false;
        }
        let slot = self.records.live(key, now);
        let known = slot.and_then(|slot| slot.record(now));
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
                .live(key, now.moment)
                .is_some_and(|entry| entry.token == *token),
        };
        // Whom it granted the lock since, it may have forgotten by its last promotion.
        let floor = self.counters.floor(request.release.keys.namespace());
        let ours = ours && record.ballot.get() > floor;
        let right = same || ours || request.chosen;
        if right {
            self.records.put(key, record.clone(), now);
        }
        right
    }
}
