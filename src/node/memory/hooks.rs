//! Hooks for tests into a memory node: its faults, and a look inside. Feature `test-util`.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::node::memory::faults::Mode;
use crate::node::memory::node::MemoryNode;
use crate::node::memory::store::Data;

/// Fault hooks and a look inside.
impl MemoryNode {
    /// From now on commands fail at once, as if nothing listened on the port. The keys stay.
    pub fn go_down(&self) {
        let mut backlog = self.shared.faults.backlog();
        self.shared.faults.mode.send_replace(Mode::Down);
        self.shared.store().listeners.set_deaf(true);
        // A frozen server that dies takes the commands in its sockets with it.
        backlog.clear();
    }

    /// Takes commands again, after [`go_down`](Self::go_down).
    pub fn come_up(&self) {
        self.shared.faults.mode.send_replace(Mode::Up);
        self.shared.store().listeners.set_deaf(false);
    }

    /// From now on commands wait, as if the server process were stopped, and run in their order when it is thawed.
    pub fn freeze(&self) {
        self.shared.faults.mode.send_replace(Mode::Frozen);
    }

    /// Runs again, after [`freeze`](Self::freeze).
    pub fn thaw(&self) {
        let mut backlog = self.shared.faults.backlog();
        self.shared.faults.mode.send_replace(Mode::Up);
        for queued in backlog.drain(..) {
            self.shared.execute(queued);
        }
    }

    /// Loses every key, the counters and the memory of having voted, as a restart without persistence does.
    pub fn forget(&self) {
        let mut store = self.shared.store();
        store.data = Data::default();
        store.data.markers.restart("");
    }

    /// Its data right now, for a later [`restore`](Self::restore), as a server saves it to a file.
    #[must_use]
    pub fn snapshot(&self) -> MemorySnapshot {
        MemorySnapshot(Arc::new(self.shared.store().data.clone()))
    }

    /// Restores that data and loses all later data, as a server that restarts from its file. What has expired meanwhile
    /// is gone. It does not vote before it was promoted.
    pub fn restore(&self, snapshot: &MemorySnapshot) {
        // No two quarantines have one name.
        let id = format!("restored:{}", RESTORED.fetch_add(1, Ordering::Relaxed));
        let mut store = self.shared.store();
        store.data.clone_from(&snapshot.0);
        store.data.markers.restart(&id);
    }

    /// The secret that holds `key` (as the node knows it, with its namespace) right now.
    #[must_use]
    pub fn holder(&self, key: &str) -> Option<Vec<u8>> {
        let now = self.shared.now().moment;
        self.shared
            .store()
            .data
            .entries
            .iter()
            .find(|(name, entry)| name.as_str() == key && entry.expires > now)
            .map(|(_, entry)| entry.token.expose().to_vec())
    }

    /// The keys that are held right now, sorted.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        let now = self.shared.now().moment;
        let store = self.shared.store();
        let held = store
            .data
            .entries
            .iter()
            .filter(|(_, entry)| entry.expires > now);
        let mut keys: Vec<String> = held.map(|(key, _)| key.as_str().to_owned()).collect();
        keys.sort_unstable();
        keys
    }

    /// How many commands have run so far.
    #[must_use]
    pub fn commands(&self) -> u64 {
        self.shared.store().commands
    }

    /// How many subscriptions to releases there are.
    #[must_use]
    pub fn subscriptions(&self) -> usize {
        self.shared.store().listeners.len()
    }

    /// From now on releases are not announced, as if the right to subscribe were missing or the connection lost; the
    /// node serves all the same.
    pub fn fall_silent(&self) {
        self.shared.store().listeners.set_deaf(true);
    }

    /// Announces releases again, after [`fall_silent`](Self::fall_silent).
    pub fn speak_up(&self) {
        self.shared.store().listeners.set_deaf(false);
    }
}

/// What a [`MemoryNode`] had at one moment. Made by [`MemoryNode::snapshot`]; clones share it.
#[derive(Clone)]
pub struct MemorySnapshot(Arc<Data>);

static RESTORED: AtomicU64 = AtomicU64::new(0);

impl fmt::Debug for MemorySnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemorySnapshot").finish_non_exhaustive()
    }
}
