//! Memory nodes that fail in the ways servers fail, and a look inside them. Feature `test-util`.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{oneshot, watch};

use super::super::{NodeError, NodeErrorKind, NodeFuture, NodeState};
use super::counters::Counters;
use super::markers::Markers;
use super::records::Records;
use super::store::{Entry, Store};
use super::{MemoryNode, Shared};
use crate::moment::Moment;
use crate::namespace::NodeKey;

/// How a node behaves, and what waits for it to behave otherwise.
pub(super) struct Faults {
    mode: watch::Sender<Mode>,
    // What stands in the sockets of a frozen node: it runs when the node is thawed, wanted or not.
    backlog: Mutex<Vec<Queued>>,
}

/// A command in the socket of a frozen node.
type Queued = Box<dyn FnOnce(&Shared) + Send>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Up,
    Down,
    Frozen,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            mode: watch::Sender::new(Mode::Up),
            backlog: Mutex::default(),
        }
    }
}

impl Faults {
    /// A frozen server looks as if it were up.
    pub(super) fn state(&self) -> NodeState {
        match *self.mode.borrow() {
            Mode::Up | Mode::Frozen => NodeState::Up,
            Mode::Down => NodeState::Down(down()),
        }
    }

    /// Waits until the node takes commands and runs them.
    pub(super) fn well(&self) -> NodeFuture<Result<(), NodeError>> {
        let mut mode = self.mode.subscribe();
        Box::pin(async move {
            // The sender cannot go while a node exists that could be waited for.
            let _ = mode.wait_for(|mode| *mode == Mode::Up).await;
            Ok(())
        })
    }

    fn backlog(&self) -> MutexGuard<'_, Vec<Queued>> {
        self.backlog.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn down() -> NodeError {
    NodeError::new(NodeErrorKind::Unavailable, "the node is down")
}

impl Shared {
    /// Runs `command` now, or when the node is thawed, or not at all.
    pub(super) async fn run_if_well<C, T>(&self, command: C) -> Result<T, NodeError>
    where
        C: FnOnce(&mut Store, Moment) -> T + Send + 'static,
        T: Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        {
            // Modes change under this mutex, so no command slips in after a thaw has emptied the backlog.
            let mut backlog = self.faults.backlog();
            let mode = *self.faults.mode.borrow();
            match mode {
                Mode::Up => return Ok(self.execute(command)),
                Mode::Down => return Err(down()),
                Mode::Frozen => backlog.push(Box::new(move |shared: &Self| {
                    // Nobody may wait for the answer any more.
                    let _ = sender.send(shared.execute(command));
                })),
            }
        }
        let broken = |_| NodeError::new(NodeErrorKind::Interrupted, "the connection broke");
        receiver.await.map_err(broken)
    }
}

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

    /// From now on commands wait, as if the server process were stopped. They run in their order when it is
    /// thawed, also those whose futures were dropped meanwhile: they stand in the server's socket.
    pub fn freeze(&self) {
        self.shared.faults.mode.send_replace(Mode::Frozen);
    }

    /// Runs again, after [`freeze`](Self::freeze).
    pub fn thaw(&self) {
        let mut backlog = self.shared.faults.backlog();
        self.shared.faults.mode.send_replace(Mode::Up);
        for queued in backlog.drain(..) {
            queued(&self.shared);
        }
    }

    /// Loses every key, the counters and the memory of having voted, as a restart without persistence does.
    pub fn forget(&self) {
        let mut store = self.shared.store();
        store.entries.clear();
        store.counters.clear();
        store.markers.forget();
        store.records.clear();
        store.loans.clear();
    }

    /// What it has right now, for a later [`restore`](Self::restore): as a server that saves it to a file.
    #[must_use]
    pub fn snapshot(&self) -> MemorySnapshot {
        let store = self.shared.store();
        MemorySnapshot(Arc::new(Saved {
            entries: store.entries.clone(),
            counters: store.counters.clone(),
            markers: store.markers.clone(),
            records: store.records.clone(),
        }))
    }

    /// Has what it had then and has lost what came since, as a server that starts again from its file. What has expired
    /// meanwhile is gone. It does not vote before it was promoted.
    pub fn restore(&self, snapshot: &MemorySnapshot) {
        let Saved {
            entries,
            counters,
            markers,
            records,
        } = &*snapshot.0;
        // No two quarantines have one name.
        let id = format!("restored:{}", RESTORED.fetch_add(1, Ordering::Relaxed));
        let mut store = self.shared.store();
        store.entries.clone_from(entries);
        store.counters.clone_from(counters);
        store.markers = markers.of_another(&id);
        store.records.clone_from(records);
    }

    /// The secret that holds `key` (as the node knows it, with its namespace) right now.
    #[must_use]
    pub fn holder(&self, key: &str) -> Option<Vec<u8>> {
        let now = self.shared.now();
        self.shared
            .store()
            .entries
            .iter()
            .find(|(place, entry)| place.as_str() == key && entry.expires > now)
            .map(|(_, entry)| entry.token.expose().to_vec())
    }

    /// The keys that are held right now, sorted.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        let now = self.shared.now();
        let mut keys: Vec<String> = self
            .shared
            .store()
            .entries
            .iter()
            .filter(|(_, entry)| entry.expires > now)
            .map(|(key, _)| key.as_str().to_owned())
            .collect();
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

    /// From now on nobody hears of releases, as if the right to subscribe were missing or the connection gone; the
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
pub struct MemorySnapshot(Arc<Saved>);

struct Saved {
    entries: HashMap<NodeKey, Entry>,
    counters: Counters,
    markers: Markers,
    records: Records,
}

static RESTORED: AtomicU64 = AtomicU64::new(0);

impl fmt::Debug for MemorySnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemorySnapshot").finish_non_exhaustive()
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Faults").field(&*self.mode.borrow()).finish()
    }
}
