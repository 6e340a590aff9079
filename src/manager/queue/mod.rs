//! The order in which callers of this process get a key. The queue itself is [`fifo`].

pub(crate) mod fifo;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::Clock;
use crate::instruments;
use crate::moment::Moment;
use crate::namespace::NodeKey;

/// The mutex type of [`fifo`]. `tests/queue` replaces it by the mutex of a model checker.
mod sync {
    pub(super) use std::sync::{Mutex, MutexGuard};
}

#[derive(Clone, Debug)]
pub(crate) enum Holder {
    Here(Arc<Deadline>),
    /// Another process has the lock, until this moment unless it extends or releases the lock.
    Elsewhere(Moment),
}

impl Holder {
    pub(crate) fn remaining(&self, clock: &dyn Clock) -> Option<Duration> {
        match self {
            Self::Here(deadline) => deadline.left(clock),
            Self::Elsewhere(end) => Some(end.since(clock.now())),
        }
    }
}

/// The end of validity of a lock of this process, which can be read without a mutex.
#[derive(Debug)]
pub(crate) struct Deadline {
    nanos: AtomicU64,
    // How long the nodes keep the key after the end of validity.
    reserve: Duration,
}

impl Deadline {
    pub(crate) const fn new(end: Moment, reserve: Duration) -> Self {
        Self {
            nanos: AtomicU64::new(end.as_nanos()),
            reserve,
        }
    }

    pub(crate) fn get(&self) -> Moment {
        Moment::from_nanos(self.nanos.load(Ordering::Acquire))
    }

    pub(crate) fn set(&self, end: Moment) {
        self.nanos.store(end.as_nanos(), Ordering::Release);
    }

    fn left(&self, clock: &dyn Clock) -> Option<Duration> {
        let end = self.get();
        (end > Moment::ORIGIN).then(|| (end + self.reserve).since(clock.now()))
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Waiters(Arc<Mutex<ByAge>>);

#[derive(Debug, Default)]
struct ByAge {
    // Callers that have waited for longer come first.
    waiters: BTreeMap<(Moment, u64), NodeKey>,
    next: u64,
    // How many of the waiters wait for other processes.
    outside: usize,
}

impl Waiters {
    fn list(&self) -> MutexGuard<'_, ByAge> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a caller that has waited for `key` since `began`, until the returned [`Waiter`] is dropped.
    pub(crate) fn add(&self, key: &NodeKey, began: Moment, in_queue: bool) -> Waiter {
        let mut list = self.list();
        let at = (began, list.next);
        list.next += 1;
        list.waiters.insert(at, key.clone());
        list.outside += usize::from(!in_queue);
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

    pub(crate) fn count(&self) -> usize {
        self.list().waiters.len()
    }

    pub(crate) fn outside(&self) -> usize {
        self.list().outside
    }

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

#[derive(Debug)]
pub(crate) struct Waiter {
    waiters: Waiters,
    at: (Moment, u64),
    in_queue: bool,
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut list = self.waiters.list();
        let gone = list.waiters.remove(&self.at);
        list.outside -= usize::from(!self.in_queue);
        drop(list);
        // The key is dropped after the mutex is unlocked, to hold the mutex for less time.
        drop(gone);
        if self.in_queue {
            instruments::waiting_less();
        }
    }
}

/// The keys that are in cooldown. Without a cooldown, a process would win its own released keys again every time,
/// because it is the first to know that they are free. A lost entry costs only fairness, so their number is limited.
#[derive(Debug, Default)]
pub(crate) struct Cooldown {
    until: Mutex<HashMap<Arc<str>, Moment>>,
    // Whether there are entries. Usually there are none, and then callers need not lock the mutex.
    are_some: AtomicBool,
}

impl Cooldown {
    fn until(&self) -> MutexGuard<'_, HashMap<Arc<str>, Moment>> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins the cooldown of a key, or lengthens it. A length of zero ends it.
    pub(crate) fn start(&self, name: &Arc<str>, now: Moment, length: Duration) {
        if length.is_zero() && !self.are_some.load(Ordering::Relaxed) {
            return;
        }
        let mut until = self.until();
        if length.is_zero() {
            until.remove(name);
            self.are_some.store(!until.is_empty(), Ordering::Relaxed);
            return;
        }
        self.are_some.store(true, Ordering::Relaxed);
        if until.len() >= LIMIT {
            until.retain(|_, end| *end > now);
        }
        if until.len() < LIMIT {
            let end = until.entry(Arc::clone(name)).or_insert(now);
            *end = (*end).max(now + length);
        }
    }

    pub(crate) fn left(&self, name: &Arc<str>, now: Moment) -> Option<Duration> {
        if !self.are_some.load(Ordering::Relaxed) {
            return None;
        }
        let mut until = self.until();
        let end = *until.get(name)?;
        if end <= now {
            until.remove(name);
            self.are_some.store(!until.is_empty(), Ordering::Relaxed);
            return None;
        }
        Some(end.since(now))
    }
}

const LIMIT: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_key_cools_down_until_its_time_and_is_then_forgotten() {
        let cooldown = Cooldown::default();
        let (name, start) = (Arc::from("k"), Moment::from_nanos(1));
        assert_eq!(cooldown.left(&name, start), None);
        cooldown.start(&name, start, 5 * MS);
        assert_eq!(cooldown.left(&name, start + 2 * MS), Some(3 * MS));
        assert_eq!(cooldown.left(&Arc::from("other"), start), None);
        cooldown.start(&name, start, 3 * MS);
        assert_eq!(cooldown.left(&name, start), Some(5 * MS), "no shorter");
        cooldown.start(&Arc::from("over"), start, MS);
        cooldown.start(&Arc::from("over"), start, Duration::ZERO);
        assert_eq!(cooldown.left(&name, start), Some(5 * MS), "another's");
        let short = Arc::from("short");
        cooldown.start(&short, start, MS);
        assert_eq!(cooldown.left(&short, start + MS), None);
        assert_eq!(cooldown.left(&name, start + MS), Some(4 * MS), "still");
        assert_eq!(cooldown.left(&name, start + 5 * MS), None);
        assert!(cooldown.until().is_empty());
    }

    #[test]
    fn it_is_bounded_and_the_past_makes_room() {
        let cooldown = Cooldown::default();
        let start = Moment::from_nanos(1);
        cooldown.start(&Arc::from("long"), start, 5 * MS);
        for number in 0..2 * LIMIT {
            cooldown.start(&Arc::from(number.to_string()), start, MS);
        }
        assert_eq!(cooldown.until().len(), LIMIT);
        cooldown.start(&Arc::from("new"), start + MS, MS);
        assert_eq!(cooldown.until().len(), 2, "the long one and the new one");
    }
}
