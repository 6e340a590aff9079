//! [`Waiters`]: which callers wait for which key, and since when, for the snapshot.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::instruments;
use crate::moment::Moment;
use crate::namespace::NodeKey;

/// The callers of one manager that wait: in its queue, or for other processes. A caller that gets its lock at once is
/// never among them. Clones are the same list.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waiters(Arc<Mutex<List>>);

#[derive(Debug, Default)]
struct List {
    // The oldest come first.
    waiters: BTreeMap<(Moment, u64), NodeKey>,
    next: u64,
}

impl Waiters {
    fn list(&self) -> MutexGuard<'_, List> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a caller that began at `began` and waits for `key`, until the result is dropped: in the queue behind other
    /// callers of its process, or else for other processes.
    pub(crate) fn add(&self, key: &NodeKey, began: Moment, in_queue: bool) -> Waiter {
        let mut list = self.list();
        let at = (began, list.next);
        list.next += 1;
        list.waiters.insert(at, key.clone());
        drop(list);
        if in_queue {
            instruments::waiting_more();
        }
        Waiter {
            waiters: self.clone(),
            at,
            in_queue,
        }
    }

    /// For each key: how many callers wait for it, and since when the first of them.
    pub(crate) fn by_key(&self) -> BTreeMap<Arc<str>, (NodeKey, usize, Moment)> {
        let mut keys = BTreeMap::new();
        for ((since, _), key) in &self.list().waiters {
            let name = Arc::clone(key.shared());
            let entry = keys.entry(name).or_insert_with(|| (key.clone(), 0, *since));
            entry.1 += 1;
        }
        keys
    }
}

/// One caller that waits.
#[derive(Debug)]
pub(crate) struct Waiter {
    waiters: Waiters,
    at: (Moment, u64),
    in_queue: bool,
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let gone = self.waiters.list().waiters.remove(&self.at);
        // Outside the mutex.
        drop(gone);
        if self.in_queue {
            instruments::waiting_less();
        }
    }
}
