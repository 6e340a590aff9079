//! Who listens to the releases on one memory node.

use std::collections::HashMap;
use std::sync::Arc;

use super::super::{Ear, Notifier, Subscription};
use super::{MemoryNode, Shared};
use crate::namespace::NodeKey;

/// The ears of one node, by key.
#[derive(Default)]
pub(super) struct Listeners {
    ears: HashMap<NodeKey, Vec<(u64, Ear)>>,
    next: u64,
    // A node that is down tells nobody anything.
    deaf: bool,
}

impl Listeners {
    fn add(&mut self, key: &NodeKey, ear: Ear) -> u64 {
        let id = self.next;
        self.next += 1;
        if !self.deaf {
            ear.opened();
        }
        self.ears.entry(key.clone()).or_default().push((id, ear));
        id
    }

    fn remove(&mut self, key: &NodeKey, id: u64) {
        if let Some(ears) = self.ears.get_mut(key) {
            ears.retain(|(other, _)| *other != id);
            if ears.is_empty() {
                self.ears.remove(key);
            }
        }
    }

    /// Tells the listeners of `key`, and how many they are.
    pub(super) fn announce(&self, key: &NodeKey) -> u32 {
        if self.deaf {
            return 0;
        }
        let ears = self.ears.get(key).map_or(&[][..], Vec::as_slice);
        let count = u32::try_from(ears.len()).unwrap_or(u32::MAX);
        for (_, ear) in ears {
            ear.released(Some(count));
        }
        count
    }

    /// Ends or begins all subscriptions, as the loss of a connection and a new one do.
    #[cfg(feature = "test-util")]
    pub(super) fn set_deaf(&mut self, deaf: bool) {
        if self.deaf == deaf {
            return;
        }
        self.deaf = deaf;
        for (_, ear) in self.ears.values().flatten() {
            if deaf { ear.closed() } else { ear.opened() }
        }
    }

    /// How many subscriptions there are.
    #[cfg(feature = "test-util")]
    pub(super) fn len(&self) -> usize {
        self.ears.values().map(Vec::len).sum()
    }
}

impl Notifier for MemoryNode {
    fn subscribe(&self, key: &NodeKey, ear: Ear) -> Subscription {
        let id = self.shared.store().listeners.add(key, ear);
        Subscription::new(End {
            shared: Arc::clone(&self.shared),
            key: key.clone(),
            id,
        })
    }
}

/// Ends a subscription when it is dropped.
struct End {
    shared: Arc<Shared>,
    key: NodeKey,
    id: u64,
}

impl Drop for End {
    fn drop(&mut self) {
        self.shared.store().listeners.remove(&self.key, self.id);
    }
}
