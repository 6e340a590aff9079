//! What a node stores for each key: [`KeyMap`], the [`Counters`] of fencing tokens, and the records of idempotency
//! keys.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::time::Duration;

use crate::clock::Clock;
use crate::moment::Moment;
use crate::namespace::{Namespace, NodeKey, NodeKeys};
use crate::node::commands::Fence;
#[cfg(feature = "idempotency")]
use crate::node::commands::Record;
use crate::node::{NodeError, unmarked};
use crate::token::FencingToken;
#[cfg(feature = "idempotency")]
use crate::token::OwnerToken;

/// A map by key. It needs no further hash function, because keys contain a hash with a random secret of this process.
pub(crate) type KeyMap<V> = HashMap<NodeKey, V, BuildHasherDefault<Known>>;

#[derive(Clone, Copy, Default)]
pub(crate) struct Known(u64);

impl Hasher for Known {
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn write(&mut self, bytes: &[u8]) {
        // Never called, because keys are not hashed by their bytes.
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// If the map would have to grow, first removes entries that have ended.
pub(crate) fn make_room<V>(map: &mut KeyMap<V>, lives: impl Fn(&V) -> bool) {
    if map.len() == map.capacity() {
        map.retain(|_, value| lives(value));
        // Reserve twice the present number, so that sweeps stay rare.
        map.reserve(map.len());
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Now {
    pub(crate) moment: Moment,
    pub(crate) unix_micros: u64,
}

impl Now {
    pub(crate) fn read(clock: &dyn Clock) -> Self {
        Self {
            moment: clock.now(),
            unix_micros: clock.unix_micros(),
        }
    }

    #[cfg(feature = "idempotency")]
    pub(crate) const fn unix_millis(self) -> u64 {
        self.unix_micros / 1_000
    }
}

#[derive(Clone, Default)]
pub(crate) struct Counters {
    counts: KeyMap<Count>,
    // By the root of the namespace.
    marks: BTreeMap<Box<str>, Mark>,
}

#[derive(Clone)]
struct Count {
    value: u64,
    expires: Moment,
}

#[derive(Clone, Copy, Default)]
struct Mark {
    // The high-water mark, which stands in for missing counters.
    highest: u64,
    // Lower counters count as this, because restored data can hold old counters.
    floor: u64,
}

impl Counters {
    fn count(&self, key: &NodeKey, now: Moment) -> Option<u64> {
        let count = self.counts.get(key)?;
        let counts = count.expires > now && count.value <= FencingToken::LAST_COUNTED;
        counts.then_some(count.value)
    }

    pub(crate) fn token(&self, key: &NodeKey, now: Moment) -> Option<FencingToken> {
        FencingToken::new(self.count(key, now)?)
    }

    fn set(&mut self, keys: &NodeKeys, value: u64, keep: Duration, now: Moment) {
        make_room(&mut self.counts, |count| count.expires > now);
        let expires = now + keep;
        for key in keys.as_slice() {
            match self.counts.get_mut(key) {
                Some(count) => *count = Count { value, expires },
                None => drop(self.counts.insert(key.clone(), Count { value, expires })),
            }
        }
        self.change_mark(keys.namespace(), |mark| {
            mark.highest = value.max(mark.highest);
        });
    }

    pub(crate) fn advance(
        &mut self,
        keys: &NodeKeys,
        fence: Fence,
        now: Now,
    ) -> Result<FencingToken, NodeError> {
        let Mark { highest, floor } = self.countable(keys.namespace())?;
        let counts = keys.as_slice().iter();
        let counts = counts.map(|key| self.count(key, now.moment).unwrap_or(highest));
        let base = counts.max().unwrap_or(highest).max(floor);
        let next = base.saturating_add(FencingToken::STEP);
        let value = match fence.token.get() {
            proposal if is_absurd(proposal, highest, now.unix_micros) => next,
            proposal => proposal.max(next),
        };
        let token = FencingToken::new(value).ok_or_else(unmarked)?;
        self.set(keys, value, fence.keep, now.moment);
        Ok(token)
    }

    pub(crate) fn raise(
        &mut self,
        keys: &NodeKeys,
        fence: Fence,
        now: Moment,
    ) -> Result<(), NodeError> {
        let highest = self.countable(keys.namespace())?.highest;
        for key in keys.as_slice() {
            // A late command must not lower the counter below the mark.
            let count = self.count(key, now);
            let value = count.unwrap_or(highest).max(fence.token.get());
            let keep = match self.counts.get(key) {
                Some(same) if count == Some(value) => same.expires.since(now),
                _ => fence.keep,
            };
            self.set(&NodeKeys::from(key.clone()), value, keep, now);
        }
        Ok(())
    }

    #[cfg(feature = "idempotency")]
    /// Whether a lock on `key` may have been granted with a higher fencing token than `token`.
    pub(crate) fn surpass(&self, key: &NodeKey, token: FencingToken, now: Moment) -> bool {
        // A missing counter may have been as high as the mark.
        let count = self.count(key, now);
        let mark = self.countable(key.namespace());
        let count = count.or_else(|| mark.map(|mark| mark.highest).ok());
        count.is_none_or(|count| count > token.get())
    }

    pub(crate) fn mark(&self, namespace: &Namespace) -> Result<Option<FencingToken>, NodeError> {
        Ok(FencingToken::new(self.countable(namespace)?.highest))
    }

    #[cfg(feature = "idempotency")]
    /// Fencing tokens up to this one may come from before the node lost data.
    pub(crate) fn floor(&self, namespace: &Namespace) -> u64 {
        let mark = self.marks.get(namespace.root());
        mark.map_or(0, |mark| mark.floor)
    }

    /// Raises the mark and the floor of `namespace` to `floor`, which comes from the other nodes.
    pub(crate) fn raise_floor(&mut self, namespace: &Namespace, floor: Option<FencingToken>) {
        let floor = floor.map_or(0, FencingToken::get);
        self.change_mark(namespace, |mark| {
            for value in [&mut mark.highest, &mut mark.floor] {
                let usable = Some(*value).filter(|value| *value <= FencingToken::LAST_COUNTED);
                *value = usable.unwrap_or(0).max(floor);
            }
        });
    }

    /// The mark of `namespace`. Fails if no fencing tokens are left above it.
    fn countable(&self, namespace: &Namespace) -> Result<Mark, NodeError> {
        let mark = self.marks.get(namespace.root()).copied();
        let mark = mark.unwrap_or_default();
        if mark.highest.max(mark.floor) > FencingToken::LAST_COUNTED {
            return Err(unmarked());
        }
        Ok(mark)
    }

    fn change_mark(&mut self, namespace: &Namespace, change: impl FnOnce(&mut Mark)) {
        match self.marks.get_mut(namespace.root()) {
            Some(mark) => change(mark),
            None => change(self.marks.entry(namespace.root().into()).or_default()),
        }
    }
}

/// Whether a proposal is more than an hour ahead of both our clock and the mark, or leaves no fencing tokens above it.
fn is_absurd(proposal: u64, mark: u64, unix_micros: u64) -> bool {
    let ahead = |of: u64| proposal / FencingToken::STEP > of.saturating_add(HOUR);
    let last = proposal > FencingToken::LAST_COUNTED;
    last || ahead(mark / FencingToken::STEP) && ahead(unix_micros)
}

const HOUR: u64 = 3_600 * 1_000_000;

#[cfg(feature = "idempotency")]
#[derive(Clone, Default)]
pub(crate) struct Records {
    slots: KeyMap<Slot>,
}

#[cfg(feature = "idempotency")]
#[derive(Clone)]
pub(crate) struct Slot {
    pub(crate) last: Option<OwnerToken>,
    // The fencing token of that grant. No record with a lower ballot is stored.
    pub(crate) promised: Option<FencingToken>,
    record: Option<Record>,
    // `last` is remembered at least until then. The record has its own end.
    expires: Moment,
}

#[cfg(feature = "idempotency")]
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

#[cfg(feature = "idempotency")]
impl Records {
    pub(crate) fn live(&self, key: &NodeKey, now: Now) -> Option<&Slot> {
        self.slots.get(key).filter(|slot| !slot.is_over(now))
    }

    pub(crate) fn record(&self, key: &NodeKey, now: Now) -> Option<Record> {
        self.live(key, now)?.record(now).cloned()
    }

    fn slot(&mut self, key: &NodeKey, now: Now) -> &mut Slot {
        make_room(&mut self.slots, |slot| !slot.is_over(now));
        let slots = self.slots.entry(key.clone());
        let slot = slots.or_insert_with(|| Slot::new(now));
        if slot.is_over(now) {
            *slot = Slot::new(now);
        }
        slot
    }

    /// Remembers the owner of a new grant. An existing record keeps its end.
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
