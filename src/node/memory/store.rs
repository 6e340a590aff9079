use std::time::Duration;

use crate::moment::Moment;
use crate::namespace::{NodeKey, NodeKeys};
use crate::node::memory::counters::Counters;
use crate::node::memory::key_map::KeyMap;
use crate::node::memory::listeners::Listeners;
use crate::node::memory::markers::Markers;
#[cfg(feature = "idempotency")]
use crate::node::memory::records::Records;
use crate::protocol::round::Holder;
use crate::token::{OwnerHash, OwnerToken};

/// The state of one node.
#[derive(Default)]
pub(crate) struct Store {
    pub(crate) data: Data,
    pub(crate) listeners: Listeners,
    #[cfg(feature = "test-util")]
    pub(crate) commands: u64,
}

/// What a server saves to its file.
#[derive(Clone, Default)]
pub(crate) struct Data {
    pub(crate) entries: KeyMap<Entry>,
    // Sweep when the map has grown to this.
    sweep_at: usize,
    pub(crate) counters: Counters,
    pub(crate) markers: Markers,
    #[cfg(feature = "idempotency")]
    pub(crate) records: Records,
}

/// One held key.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) token: OwnerToken,
    pub(crate) expires: Moment,
}

impl Entry {
    fn holder(&self, now: Moment) -> Holder {
        let tag = OwnerHash::of(&self.token).tag();
        Holder {
            tag,
            remaining: Some(self.expires.since(now)),
            key: None,
        }
    }
}

impl Store {
    fn live(&self, key: &NodeKey, now: Moment) -> Option<&Entry> {
        let entry = self.data.entries.get(key);
        entry.filter(|entry| entry.expires > now)
    }

    pub(crate) fn holds(&self, key: &NodeKey, token: &OwnerToken, now: Moment) -> bool {
        let entry = self.live(key, now);
        entry.is_some_and(|entry| entry.token == *token)
    }

    pub(crate) fn set(&mut self, keys: &NodeKeys, token: OwnerToken, ttl: Duration, now: Moment) {
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

    pub(crate) fn rival(
        &self,
        keys: &NodeKeys,
        token: &OwnerToken,
        now: Moment,
    ) -> Option<(usize, Holder)> {
        let keys = keys.as_slice().iter().enumerate();
        let mut live = keys.filter_map(|(index, key)| Some((index, self.live(key, now)?)));
        live.find(|(_, entry)| entry.token != *token)
            .map(|(index, entry)| (index, entry.holder(now)))
    }

    pub(crate) fn holds_all(&self, keys: &NodeKeys, token: &OwnerToken, now: Moment) -> bool {
        let mut keys = keys.as_slice().iter();
        keys.all(|key| self.holds(key, token, now))
    }

    #[cfg(feature = "test-util")]
    pub(crate) fn count_command(&mut self) {
        self.commands += 1;
    }

    #[cfg(not(feature = "test-util"))]
    #[expect(clippy::unused_self, reason = "the same signature as with test-util")]
    pub(crate) fn count_command(&self) {}
}
