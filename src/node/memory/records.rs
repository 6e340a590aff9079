//! The records of idempotency keys.

use std::time::Duration;

use crate::moment::Moment;
use crate::namespace::NodeKey;
use crate::node::memory::key_map::{KeyMap, Now};
use crate::record::Record;
use crate::token::{FencingToken, OwnerToken};

#[derive(Clone, Default)]
pub(crate) struct Records {
    slots: KeyMap<Slot>,
    // Sweep when the map has grown to this.
    sweep_at: usize,
}

#[derive(Clone)]
pub(crate) struct Slot {
    pub(crate) last: Option<OwnerToken>,
    // The number that it was granted the lock with: nothing is stored under a lower ballot.
    pub(crate) promised: Option<FencingToken>,
    record: Option<Record>,
    // Until when `last` is remembered at least. The record has its own end.
    expires: Moment,
}

impl Slot {
    const fn new(now: Now) -> Self {
        Self {
            last: None,
            promised: None,
            record: None,
            expires: now.moment,
        }
    }

    pub(crate) fn record(&self, now: Now) -> Option<&Record> {
        self.record
            .as_ref()
            .filter(|record| record.until > now.unix_millis())
    }

    fn is_over(&self, now: Now) -> bool {
        self.expires <= now.moment && self.record(now).is_none()
    }
}

impl Records {
    pub(crate) fn live(&self, key: &NodeKey, now: Now) -> Option<&Slot> {
        self.slots.get(key).filter(|slot| !slot.is_over(now))
    }

    pub(crate) fn record(&self, key: &NodeKey, now: Now) -> Option<Record> {
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

    /// Notes the owner that was granted the lock. A record that is there keeps its end.
    pub(crate) fn grant(
        &mut self,
        key: &NodeKey,
        (token, fence): (OwnerToken, Option<FencingToken>),
        linger: Duration,
        now: Now,
    ) {
        let slot = self.slot(key, now);
        (slot.last, slot.promised) = (Some(token), fence);
        slot.expires = slot.expires.max(now.moment + linger);
        if slot.record(now).is_none() {
            slot.record = None;
        }
    }

    pub(crate) fn put(&mut self, key: &NodeKey, record: Record, now: Now) {
        self.slot(key, now).record = Some(record);
    }

    pub(crate) fn forget(&mut self, key: &NodeKey, token: &OwnerToken, now: Now) {
        let void = |slot: &Slot| {
            slot.record(now).is_none() && slot.last.as_ref().is_some_and(|t| t == token)
        };
        if self.slots.get(key).is_some_and(void) {
            self.slots.remove(key);
        }
    }
}
