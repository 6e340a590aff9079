//! [`Waiters`]: who waits for which key, and since when, for those who look.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::manager::shared::Shared;
use crate::metrics;
use crate::moment::Moment;
use crate::namespace::NodeKey;

/// The callers of one manager that wait: in line, or for other processes. Who gets a lock at once is never in it.
#[derive(Debug, Default)]
pub(in crate::manager) struct Waiters(Mutex<BTreeMap<(Moment, u64), NodeKey>>);

impl Waiters {
    fn all(&self) -> MutexGuard<'_, BTreeMap<(Moment, u64), NodeKey>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Key to how many wait for it, and since when the first of them.
    pub(in crate::manager) fn by_key(&self) -> BTreeMap<Arc<str>, (NodeKey, usize, Moment)> {
        let mut keys = BTreeMap::new();
        // The oldest come first.
        for ((since, _), key) in &*self.all() {
            let name = Arc::clone(key.shared());
            let entry = keys.entry(name).or_insert_with(|| (key.clone(), 0, *since));
            entry.1 += 1;
        }
        keys
    }
}

/// One caller that waits.
#[derive(Debug)]
pub(in crate::manager) struct Waiter {
    shared: Arc<Shared>,
    at: (Moment, u64),
    in_line: bool,
}

impl Waiter {
    /// A caller that began at `began` and waits for `key`: in line behind others of its process, or else for other
    /// processes.
    pub(in crate::manager) fn new(
        shared: &Arc<Shared>,
        key: &NodeKey,
        began: Moment,
        in_line: bool,
    ) -> Self {
        let at = (began, shared.next_id());
        shared.waiters.all().insert(at, key.clone());
        if in_line {
            metrics::waiting_more();
        }
        Self {
            shared: Arc::clone(shared),
            at,
            in_line,
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let gone = self.shared.waiters.all().remove(&self.at);
        // Outside the mutex.
        drop(gone);
        if self.in_line {
            metrics::waiting_less();
        }
    }
}
