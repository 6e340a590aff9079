//! [`Store`]: the state of one node: its locks, its [`Markers`] and the [`Listeners`] to releases.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::moment::Moment;
use crate::namespace::{Namespace, NodeKey, NodeKeys};
use crate::node::commands::ClusterConfig;
#[cfg(feature = "idempotency")]
use crate::node::memory::keyed::Records;
use crate::node::memory::keyed::{Counters, KeyMap, make_room};
use crate::node::{NodeError, NoticeSender, quarantined};
use crate::token::Holder;
use crate::token::{OwnerHash, OwnerToken};

#[derive(Default)]
pub(crate) struct Store {
    pub(crate) data: Data,
    pub(crate) listeners: Listeners,
    #[cfg(feature = "test-util")]
    pub(crate) commands: u64,
}

/// The data that a server saves to its file.
#[derive(Clone, Default)]
pub(crate) struct Data {
    pub(crate) entries: KeyMap<Entry>,
    // An owner from which a key was taken cannot set keys until this moment. The token of readers is void only for the
    // taken key.
    pub(crate) void: Vec<(OwnerHash, NodeKey, Moment)>,
    pub(crate) counters: Counters,
    pub(crate) markers: Markers,
    #[cfg(feature = "idempotency")]
    pub(crate) records: Records,
}

#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) token: OwnerToken,
    pub(crate) expires: Moment,
    // The readers, if the lock is shared.
    pub(crate) readers: Vec<Reader>,
}

/// A reader and the moment at which its share ends.
pub(crate) type Reader = (OwnerToken, Moment);

impl Entry {
    pub(crate) fn holder(&self, now: Moment) -> Holder {
        let tag = OwnerHash::of(&self.token).tag();
        Holder {
            tag,
            remaining: Some(self.expires.since(now)),
            key: None,
        }
    }
}

impl Store {
    pub(crate) fn live(&self, key: &NodeKey, now: Moment) -> Option<&Entry> {
        let entry = self.data.entries.get(key);
        entry.filter(|entry| entry.expires > now)
    }

    pub(crate) fn is_void(&self, key: &NodeKey, token: &OwnerToken, now: Moment) -> bool {
        let is_one = *token != key.owners();
        let mut void = self.data.void.iter().filter(|(.., until)| *until > now);
        void.any(|(owner, taken, _)| *owner == OwnerHash::of(token) && (is_one || taken == key))
    }

    pub(crate) fn holds(&self, key: &NodeKey, token: &OwnerToken, now: Moment) -> bool {
        let entry = self.live(key, now);
        entry.is_some_and(|entry| entry.token == *token)
    }

    pub(crate) fn set(&mut self, keys: &NodeKeys, token: OwnerToken, ttl: Duration, now: Moment) {
        let entries = &mut self.data.entries;
        let expires = now + ttl;
        for key in keys.as_slice() {
            make_room(entries, |entry| entry.expires > now);
            let entry = Entry {
                token,
                expires,
                readers: Vec::new(),
            };
            entries.insert(key.clone(), entry);
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
}

/// For the root of each namespace, whether the node may vote and under which config.
#[derive(Clone, Default)]
pub(crate) struct Markers {
    pub(crate) markers: BTreeMap<Box<str>, Marker>,
    // Whether the node may have lost locks. False for a new node.
    pub(crate) forgot: bool,
}

#[derive(Clone)]
pub(crate) struct Marker {
    pub(crate) digest: String,
    pub(crate) config: String,
    // How long quarantines last under this config, and how long they lasted under the replaced config. The latter is
    // zero once the node has voted.
    pub(crate) quarantine: Duration,
    pub(crate) former: Duration,
    // Whether the node has voted under this config.
    pub(crate) accepted: bool,
    pub(crate) mode: Mode,
}

#[derive(Clone)]
pub(crate) enum Mode {
    Voting,
    Quarantined {
        id: String,
        // Whether the node is new, and so has no locks to lose.
        unused: bool,
    },
}

impl Markers {
    pub(crate) fn is_voting(
        &self,
        namespace: &Namespace,
        config: Option<&ClusterConfig>,
    ) -> Result<bool, NodeError> {
        let Some(config) = config else {
            return Ok(true);
        };
        match self.markers.get(namespace.root()) {
            Some(marker) if marker.digest != config.digest => Err(NodeError::foreign(
                &marker.config,
                marker.digest.clone(),
                &config.text,
            )),
            _ if !config.guarded => Ok(true),
            Some(marker) => Ok(matches!(marker.mode, Mode::Voting)),
            None => Ok(false),
        }
    }

    pub(crate) fn admit(
        &self,
        namespace: &Namespace,
        config: Option<&ClusterConfig>,
    ) -> Result<(), NodeError> {
        match self.is_voting(namespace, config)? {
            true => Ok(()),
            false => Err(quarantined()),
        }
    }

    /// Puts each marker into the quarantine `id`.
    #[cfg(feature = "test-util")]
    pub(crate) fn restart(&mut self, id: &str) {
        for marker in self.markers.values_mut() {
            marker.mode = Mode::Quarantined {
                id: id.to_owned(),
                unused: false,
            };
        }
        self.forgot = true;
    }
}

#[derive(Default)]
pub(crate) struct Listeners {
    senders: KeyMap<Vec<(u64, NoticeSender)>>,
    next: u64,
    // Whether no notices are sent.
    deaf: bool,
}

impl Listeners {
    pub(crate) fn add(&mut self, key: &NodeKey, sender: NoticeSender) -> u64 {
        let id = self.next;
        self.next += 1;
        if !self.deaf {
            sender.opened();
        }
        self.senders
            .entry(key.clone())
            .or_default()
            .push((id, sender));
        id
    }

    pub(crate) fn remove(&mut self, key: &NodeKey, id: u64) {
        if let Some(senders) = self.senders.get_mut(key) {
            senders.retain(|(other, _)| *other != id);
            if senders.is_empty() {
                self.senders.remove(key);
            }
        }
    }

    pub(crate) fn announce(&self, key: &NodeKey, waited: Duration) -> u32 {
        if self.deaf {
            return 0;
        }
        let senders = self.senders.get(key).map_or(&[][..], Vec::as_slice);
        for (_, sender) in senders {
            sender.released(waited);
        }
        u32::try_from(senders.len()).unwrap_or(u32::MAX)
    }

    #[cfg(feature = "test-util")]
    pub(crate) fn set_deaf(&mut self, deaf: bool) {
        if self.deaf == deaf {
            return;
        }
        self.deaf = deaf;
        for (_, sender) in self.senders.values().flatten() {
            if deaf {
                sender.closed()
            } else {
                sender.opened()
            }
        }
    }

    #[cfg(feature = "test-util")]
    pub(crate) fn len(&self) -> usize {
        self.senders.values().map(Vec::len).sum()
    }
}
