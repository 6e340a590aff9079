//! The counters that number the holders of keys.

use std::collections::HashMap;
use std::time::Duration;

use super::super::Fence;
use crate::moment::Moment;
use crate::namespace::{Namespace, NodeKey, NodeKeys};
use crate::token::FencingToken;

/// The counters of one node, and the highest value of all, for each namespace.
#[derive(Default)]
pub(super) struct Counters {
    counts: HashMap<NodeKey, Count>,
    // Sweep when the map has grown to this.
    sweep_at: usize,
    // By the namespaces that were chosen.
    marks: HashMap<Box<str>, u64>,
}

struct Count {
    value: u64,
    expires: Moment,
}

impl Counters {
    fn count(&self, key: &NodeKey, now: Moment) -> Option<u64> {
        let count = self.counts.get(key)?;
        (count.expires > now).then_some(count.value)
    }

    fn set(&mut self, keys: &NodeKeys, value: u64, keep: Duration, now: Moment) {
        if self.counts.len() >= self.sweep_at.max(1_024) {
            self.counts.retain(|_, count| count.expires > now);
            self.sweep_at = self.counts.len().saturating_mul(2);
        }
        for key in keys.as_slice() {
            let expires = now + keep;
            self.counts.insert(key.clone(), Count { value, expires });
        }
        self.raise_mark(keys.namespace(), value);
    }

    /// A new number for a holder of `keys`: see [`Fence`].
    pub(super) fn advance(
        &mut self,
        keys: &NodeKeys,
        fence: Fence,
        now: Moment,
        unix_micros: u64,
    ) -> FencingToken {
        let mark = self
            .marks
            .get(keys.namespace().root())
            .copied()
            .unwrap_or(0);
        let counts = keys.as_slice().iter();
        let base = counts
            .map(|key| self.count(key, now).unwrap_or(mark))
            .max()
            .unwrap_or(mark);
        let next = base.saturating_add(FencingToken::STEP);
        let value = match fence.token.get() {
            proposal if is_absurd(proposal, mark, unix_micros) => next,
            proposal => proposal.max(next),
        };
        self.set(keys, value, fence.keep, now);
        FencingToken::new(value).unwrap_or(fence.token)
    }

    /// Raises lower counters to the number of `fence`, and keeps all of them.
    pub(super) fn raise(&mut self, keys: &NodeKeys, fence: Fence, now: Moment) {
        for key in keys.as_slice() {
            let value = self.count(key, now).unwrap_or(0).max(fence.token.get());
            self.set(&NodeKeys::from(key.clone()), value, fence.keep, now);
        }
    }

    /// The highest value that any counter of `namespace` ever had.
    pub(super) fn mark(&self, namespace: &Namespace) -> Option<FencingToken> {
        FencingToken::new(self.marks.get(namespace.root()).copied()?)
    }

    pub(super) fn raise_mark(&mut self, namespace: &Namespace, value: u64) {
        match self.marks.get_mut(namespace.root()) {
            Some(mark) => *mark = value.max(*mark),
            None => drop(self.marks.insert(namespace.root().into(), value)),
        }
    }

    /// Forgets everything.
    #[cfg(feature = "test-util")]
    pub(super) fn clear(&mut self) {
        self.counts.clear();
        self.marks.clear();
    }
}

/// Whether a proposal is of a clock that is more than an hour ahead of ours, and of all that was counted before.
fn is_absurd(proposal: u64, mark: u64, unix_micros: u64) -> bool {
    let ahead = |of: u64| proposal / FencingToken::STEP > of.saturating_add(HOUR);
    ahead(mark / FencingToken::STEP) && ahead(unix_micros)
}

/// In microseconds.
const HOUR: u64 = 3_600 * 1_000_000;
