//! [`WaitLists`]: the waiters of each key, in the order in which they came. No locks; waiters to wake are noted in
//! [`Wakeups`].
//!
//! A waiter for several keys is in one list at a time: that of a key that is in use. How turns end and which waiter
//! gets them is in [`passing`](super::passing).

use std::collections::{BTreeMap, BTreeSet, HashMap, hash_map};
use std::mem;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use super::wakeups::Wakeups;

/// The name of a key.
pub(crate) type Name = Arc<str>;

/// How many may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) per_key: usize,
    pub(crate) total: usize,
}

/// Why a caller got neither a turn nor a seat.
#[derive(Debug)]
pub(crate) enum Refused<N> {
    /// The key is in use here, and the caller does not wait.
    InUse(Option<N>),
    /// As many wait for this key as may.
    KeyFull,
    /// As many wait in all as may.
    Full,
    /// The queue is closed.
    Closed,
}

/// Why a waiter waits no more, though it was not called.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SentAway {
    /// The queue was closed.
    Closed,
    /// It does not wait, and the key that seemed about to come free is in use.
    InUse,
}

/// The waiters of all keys. `T` is the handover to a waiter, `N` the note for callers that do not wait.
pub(super) struct WaitLists<T, N> {
    pub(super) entries: HashMap<Name, Entry<N>>,
    // By number: lower for callers that came earlier.
    pub(super) waiters: BTreeMap<u64, Waiter<T>>,
    pub(super) waiting: usize,
    // How many callers have ever waited.
    callers: u64,
    pub(super) bounds: Bounds,
    // After how many misses a caller claims its keys.
    pub(super) misses: u32,
    closed: bool,
}

/// A key that is in use, or kept for a waiter.
pub(super) struct Entry<N> {
    pub(super) state: State,
    // The waiter that is to have it before all that came later.
    pub(super) claim: Option<u64>,
    // The numbers of those in its list.
    pub(super) waiters: BTreeSet<u64>,
    // The lock is being released: even callers that do not wait may wait for that.
    pub(super) leaving: bool,
    pub(super) note: Option<N>,
}

/// Whether a key is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// A caller has its turn.
    Turn,
    /// No caller has its turn, and the next is being chosen. Never seen outside the mutex.
    Open,
    /// No caller has its turn: it is kept for the waiter that claims it, for a moment.
    Kept,
}

/// One waiter: in the list of a key, and then called with something.
pub(super) struct Waiter<T> {
    // The keys that it wants.
    pub(super) wants: Vec<Name>,
    // The ttl of the locks that it takes as they are.
    pub(super) ttl: Duration,
    // The one of them in whose list it is.
    name: Name,
    pub(super) call: Call<T>,
    // Whether it waits also for a key that is not about to come free.
    may_wait: bool,
    // How often it was next at one of its keys while another was in use.
    pub(super) missed: u32,
}

/// The state of a waiter.
pub(super) enum Call<T> {
    Waiting(Option<Waker>),
    Called(T),
    SentAway(SentAway),
}

impl<T, N: Clone> WaitLists<T, N> {
    pub(super) fn new(bounds: Bounds, misses: u32) -> Self {
        Self {
            entries: HashMap::new(),
            waiters: BTreeMap::new(),
            waiting: 0,
            callers: 0,
            bounds,
            misses,
            closed: false,
        }
    }

    /// Takes all of these keys, or else waits for the first that is in use, or for its lock if that has this `ttl`.
    /// Returns the number of the waiter, or `None` if the caller has the turn.
    pub(super) fn enter(
        &mut self,
        names: &[Name],
        ttl: Duration,
        may_wait: bool,
    ) -> Result<Option<u64>, Refused<N>> {
        if self.closed {
            return Err(Refused::Closed);
        }
        if self.take_free(names) {
            return Ok(None);
        }
        let stays = |name: &&Name| self.entries.contains_key(*name) && !self.is_leaving(name);
        if !may_wait && let Some(name) = names.iter().find(stays) {
            return Err(Refused::InUse(self.note(name)));
        }
        let in_use = |name| Some((name, self.entries.get(name)?));
        let Some((name, entry)) = names.iter().find_map(in_use) else {
            return Ok(None);
        };
        if entry.waiters.len() >= self.bounds.per_key {
            return Err(Refused::KeyFull);
        }
        if self.waiting >= self.bounds.total {
            return Err(Refused::Full);
        }
        self.callers += 1;
        self.waiting += 1;
        let waiter = Waiter {
            wants: names.to_vec(),
            ttl,
            name: Name::clone(name),
            call: Call::Waiting(None),
            may_wait,
            missed: 0,
        };
        self.waiters.insert(self.callers, waiter);
        self.link(self.callers, name);
        Ok(Some(self.callers))
    }

    /// Takes all of these keys if none is in use.
    pub(super) fn take_free(&mut self, names: &[Name]) -> bool {
        if self.closed {
            return false;
        }
        if let [name] = names {
            // The usual case, in which the key is hashed once.
            let place = self.entries.entry(Name::clone(name));
            let is_free = matches!(place, hash_map::Entry::Vacant(_));
            place.or_insert(Entry::new(State::Turn));
            return is_free;
        }
        if names.iter().any(|name| self.entries.contains_key(name)) {
            return false;
        }
        let taken = names
            .iter()
            .map(|name| (Name::clone(name), Entry::new(State::Turn)));
        self.entries.extend(taken);
        true
    }

    /// Whether even a caller that does not wait may wait for the key: it is being released, and no waiter wants it
    /// alone. If the list is full, the key counts as in use for such a caller.
    fn is_leaving(&self, name: &str) -> bool {
        let Some(entry) = self.entries.get(name) else {
            return false;
        };
        let has_room =
            entry.waiters.len() < self.bounds.per_key && self.waiting < self.bounds.total;
        entry.comes_free() && has_room && self.first_of_one(entry).is_none()
    }

    /// The first waiter for a key that wants no other.
    pub(super) fn first_of_one(&self, entry: &Entry<N>) -> Option<u64> {
        let wants_one = |number: &u64| {
            let waiter = self.waiters.get(number);
            waiter.is_some_and(|waiter| waiter.wants.len() == 1)
        };
        entry.waiters.iter().copied().find(wants_one)
    }

    /// Puts a waiter into the list of a key: behind those that came before it.
    fn link(&mut self, number: u64, name: &Name) {
        let waiter = self.waiters.get_mut(&number);
        if let (Some(waiter), Some(entry)) = (waiter, self.entries.get_mut(name)) {
            waiter.name = Name::clone(name);
            entry.waiters.insert(number);
        }
    }

    /// Takes a waiter out of its list.
    pub(super) fn unlink(&mut self, number: u64) {
        let waiter = self.waiters.get(&number);
        if let Some(entry) = waiter.and_then(|waiter| self.entries.get_mut(&waiter.name)) {
            entry.waiters.remove(&number);
        }
    }

    /// Puts a waiter into the list of a key that is in use; or sends it away, if it does not wait for that.
    pub(super) fn link_if_it_waits(&mut self, number: u64, name: &Name, wakeups: &mut Wakeups<N>) {
        let comes_free = self.entries.get(name).is_some_and(Entry::comes_free);
        if comes_free || self.may_wait(number) {
            self.link(number, name);
        } else {
            self.send_away(number, wakeups);
        }
    }

    fn may_wait(&self, number: u64) -> bool {
        let waiter = self.waiters.get(&number);
        waiter.is_some_and(|waiter| waiter.may_wait)
    }

    /// Sends a waiter away that is in no list any more: its key is in use.
    fn send_away(&mut self, number: u64, wakeups: &mut Wakeups<N>) {
        self.end_wait(number, Call::SentAway(SentAway::InUse), wakeups);
    }

    /// Calls a waiter that was taken out of its list.
    pub(super) fn call(&mut self, number: u64, handover: T, wakeups: &mut Wakeups<N>) {
        self.end_wait(number, Call::Called(handover), wakeups);
    }

    fn end_wait(&mut self, number: u64, call: Call<T>, wakeups: &mut Wakeups<N>) {
        let Some(waiter) = self.waiters.get_mut(&number) else {
            return;
        };
        if let Call::Waiting(waker) = mem::replace(&mut waiter.call, call) {
            self.waiting -= 1;
            wakeups.wake(waker);
        }
    }

    /// Sets whether the key is about to come free. If it is not, callers that do not wait are sent away.
    pub(super) fn set_leaving(&mut self, name: &str, leaving: bool, wakeups: &mut Wakeups<N>) {
        let Some(entry) = self.entries.get_mut(name) else {
            return;
        };
        entry.leaving = leaving;
        if leaving {
            return;
        }
        let mut impatient: Vec<u64> = entry.waiters.iter().copied().collect();
        impatient.retain(|number| !self.may_wait(*number));
        for number in impatient {
            self.unlink(number);
            self.send_away(number, wakeups);
        }
    }

    /// Refuses all callers from now on, and sends all waiters away.
    pub(super) fn close(&mut self, wakeups: &mut Wakeups<N>) {
        self.closed = true;
        self.waiting = 0;
        self.entries.retain(|_, entry| entry.state == State::Turn);
        for entry in self.entries.values_mut() {
            entry.waiters.clear();
            entry.claim = None;
        }
        for waiter in self.waiters.values_mut() {
            if let Call::Waiting(waker) = &mut waiter.call {
                wakeups.wake(waker.take());
                waiter.call = Call::SentAway(SentAway::Closed);
            }
        }
    }

    /// The names of the keys that a waiter wants.
    pub(super) fn names(&self, number: u64) -> Vec<Name> {
        let waiter = self.waiters.get(&number);
        waiter.map_or_else(Vec::new, |waiter| waiter.wants.clone())
    }

    /// Gives a waiter the waker of `cx` in place of the one that is returned; `Err` if it waits no more.
    pub(super) fn wait(&mut self, number: u64, cx: &Context<'_>) -> Result<Option<Waker>, ()> {
        match self.waiters.get_mut(&number).map(|waiter| &mut waiter.call) {
            Some(Call::Waiting(Some(waker))) if waker.will_wake(cx.waker()) => Ok(None),
            Some(Call::Waiting(waker)) => Ok(waker.replace(cx.waker().clone())),
            _ => Err(()),
        }
    }

    /// Removes a waiter that is in no list any more, and returns its state.
    pub(super) fn take_out(&mut self, number: u64) -> Option<Call<T>> {
        let waiter = self.waiters.remove(&number)?;
        if matches!(waiter.call, Call::Waiting(_)) {
            self.waiting -= 1;
        }
        Some(waiter.call)
    }

    /// Replaces the note of a key, and returns the one before.
    pub(super) fn set_note(&mut self, name: &str, note: N) -> Option<N> {
        self.entries.get_mut(name)?.note.replace(note)
    }

    pub(super) fn note(&self, name: &str) -> Option<N> {
        self.entries.get(name)?.note.clone()
    }
}

impl<N> Entry<N> {
    pub(super) const fn new(state: State) -> Self {
        Self {
            state,
            claim: None,
            waiters: BTreeSet::new(),
            leaving: false,
            note: None,
        }
    }

    fn comes_free(&self) -> bool {
        self.leaving || self.state == State::Kept
    }

    /// Whether a waiter came before the one that claims the key, or is that one.
    pub(super) fn comes_before_claim(&self, number: u64) -> bool {
        self.claim.is_none_or(|claim| number <= claim)
    }
}
