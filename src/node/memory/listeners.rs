//! The subscriptions to releases on one memory node.

use crate::namespace::NodeKey;
use crate::node::NoticeSender;
use crate::node::memory::key_map::KeyMap;

/// The senders of one node, by key.
#[derive(Default)]
pub(crate) struct Listeners {
    senders: KeyMap<Vec<(u64, NoticeSender)>>,
    next: u64,
    // A node that is down sends no notices.
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

    pub(crate) fn announce(&self, key: &NodeKey) -> u32 {
        if self.deaf {
            return 0;
        }
        let senders = self.senders.get(key).map_or(&[][..], Vec::as_slice);
        for (_, sender) in senders {
            sender.released();
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

    /// How many subscriptions there are.
    #[cfg(feature = "test-util")]
    pub(crate) fn len(&self) -> usize {
        self.senders.values().map(Vec::len).sum()
    }
}
