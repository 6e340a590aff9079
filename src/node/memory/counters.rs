//! The counters of the fencing tokens of keys.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::moment::Moment;
use crate::namespace::{Namespace, NodeKey, NodeKeys};
use crate::node::commands::terms::Fence;
use crate::node::memory::key_map::{KeyMap, Now};
use crate::node::{NodeError, unmarked};
use crate::token::FencingToken;

/// The counters of one node, and the highest value of each namespace.
#[derive(Clone, Default)]
pub(crate) struct Counters {
    counts: KeyMap<Count>,
    // Sweep when the map has grown to this.
    sweep_at: usize,
    // By the namespaces that were chosen, which are few.
    marks: BTreeMap<Box<str>, Mark>,
}

#[derive(Clone)]
struct Count {
    value: u64,
    expires: Moment,
}

#[derive(Clone, Copy, Default)]
struct Mark {
    // It stands in for missing counters.
    highest: u64,
    // A lower counter counts as this: restored data may hold old counters.
    floor: u64,
}

impl Counters {
    fn count(&self, key: &NodeKey, now: Moment) -> Option<u64> {
        let count = self.counts.get(key)?;
        let counts = count.expires > now && count.value <= FencingToken::LAST_COUNTED;
        counts.then_some(count.value)
    }

    fn set(&mut self, keys: &NodeKeys, value: u64, keep: Duration, now: Moment) {
        if self.counts.len() >= self.sweep_at.max(1_024) {
            self.counts.retain(|_, count| count.expires > now);
            self.sweep_at = self.counts.len().saturating_mul(2);
        }
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
            // A late command must not lower what the mark stands for.
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
    /// Whether a lock on `key` may have been granted with a higher number than `token`.
    pub(crate) fn surpass(&self, key: &NodeKey, token: FencingToken, now: Moment) -> bool {
        // A missing counter may have come as far as the mark.
        let count = self.count(key, now);
        let mark = self.countable(key.namespace());
        let count = count.or_else(|| mark.map(|mark| mark.highest).ok());
        count.is_none_or(|count| count > token.get())
    }

    /// The highest value that any counter of `namespace` ever had.
    pub(crate) fn mark(&self, namespace: &Namespace) -> Result<Option<FencingToken>, NodeError> {
        Ok(FencingToken::new(self.countable(namespace)?.highest))
    }

    #[cfg(feature = "idempotency")]
    /// A fencing token up to this may be from before the node lost data.
    pub(crate) fn floor(&self, namespace: &Namespace) -> u64 {
        let mark = self.marks.get(namespace.root());
        mark.map_or(0, |mark| mark.floor)
    }

    /// From now on no counter of `namespace` counts for less than `floor`, which the other nodes gave.
    pub(crate) fn raise_floor(&mut self, namespace: &Namespace, floor: Option<FencingToken>) {
        let floor = floor.map_or(0, FencingToken::get);
        self.change_mark(namespace, |mark| {
            for value in [&mut mark.highest, &mut mark.floor] {
                let usable = Some(*value).filter(|value| *value <= FencingToken::LAST_COUNTED);
                *value = usable.unwrap_or(0).max(floor);
            }
        });
    }

    /// The mark of `namespace`, if there are fencing tokens left above it.
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

/// Whether a proposal is more than an hour ahead of our clock and of the mark, or leaves no fencing tokens above it.
fn is_absurd(proposal: u64, mark: u64, unix_micros: u64) -> bool {
    let ahead = |of: u64| proposal / FencingToken::STEP > of.saturating_add(HOUR);
    let last = proposal > FencingToken::LAST_COUNTED;
    last || ahead(mark / FencingToken::STEP) && ahead(unix_micros)
}

/// In microseconds.
const HOUR: u64 = 3_600 * 1_000_000;
