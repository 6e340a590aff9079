//! [`WaitLists`]: one linked list of waiters per key, all in one slab. No locks, no wake-ups.
//!
//! A waiter for several keys is in one list at a time: that of a key that is in use. How turns end and which waiter
//! gets them is in [`passing`](super::passing).

use std::collections::HashMap;
use std::collections::hash_map;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Waker};

use slab::Slab;

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

/// The waiters of all keys. `T` is what a waiter is called with, `N` what callers that do not wait are told.
pub(super) struct WaitLists<T, N> {
    pub(super) entries: HashMap<Name, Entry<N>>,
    pub(super) waiters: Slab<Waiter<T>>,
    pub(super) waiting: usize,
    // How many callers have ever waited.
    callers: u64,
    // After how many misses a caller claims its keys.
    pub(super) misses: u32,
}

/// A key that is in use, or kept for a waiter.
pub(super) struct Entry<N> {
    pub(super) state: State,
    // The waiter that is to have it before all that came later.
    pub(super) claim: Option<usize>,
    pub(super) first: Option<usize>,
    pub(super) last: Option<usize>,
    pub(super) len: usize,
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

/// One waiter: a link in the list of a key, and then what it was called with.
pub(super) struct Waiter<T> {
    // The key in whose list it is.
    pub(super) name: Name,
    before: Option<usize>,
    behind: Option<usize>,
    // Lower for callers that came earlier.
    pub(super) number: u64,
    pub(super) call: Call<T>,
    // Whether it waits also for a key that is not about to come free.
    pub(super) may_wait: bool,
    // The keys that it wants, if they are several.
    pub(super) several: Option<Box<Several>>,
}

/// A caller that wants several keys.
pub(super) struct Several {
    pub(super) names: Vec<Name>,
    // How often it was next at one key while another was in use.
    pub(super) missed: u32,
    // It is in no list: those of its keys that come free are kept for it.
    pub(super) claims: bool,
}

/// The state of a waiter.
pub(super) enum Call<T> {
    Waiting(Option<Waker>),
    Called(T),
    SentAway(SentAway),
}

/// The result of [`WaitLists::enter`].
pub(super) enum Entrance {
    /// The caller has the turn.
    Free,
    /// It waits, at this index.
    Queued(usize),
}

impl<T, N: Clone> WaitLists<T, N> {
    pub(super) fn new(misses: u32) -> Self {
        Self {
            entries: HashMap::new(),
            waiters: Slab::new(),
            waiting: 0,
            callers: 0,
            misses,
        }
    }

    /// Takes the key, or waits for it.
    pub(super) fn enter(
        &mut self,
        name: &Name,
        may_wait: bool,
        bounds: Bounds,
    ) -> Result<Entrance, Refused<N>> {
        match self.entries.entry(Name::clone(name)) {
            hash_map::Entry::Vacant(vacant) => {
                vacant.insert(Entry::new(State::Turn));
                Ok(Entrance::Free)
            }
            hash_map::Entry::Occupied(_) => self.enqueue(name, may_wait, bounds, None),
        }
    }

    /// Takes all of several keys, or waits for the first that is in use.
    pub(super) fn enter_all(
        &mut self,
        names: &[Name],
        may_wait: bool,
        bounds: Bounds,
    ) -> Result<Entrance, Refused<N>> {
        if self.take_free(names) {
            return Ok(Entrance::Free);
        }
        let in_use = || names.iter().filter(|name| self.entries.contains_key(*name));
        // For a caller that does not wait, a key that will not come free comes first.
        let stays = |name: &&Name| !self.is_leaving(name, bounds);
        let in_the_way = if may_wait { None } else { in_use().find(stays) };
        let Some(name) = in_the_way.or_else(|| in_use().next()).map(Name::clone) else {
            return Ok(Entrance::Free);
        };
        let several = Several {
            names: names.to_vec(),
            missed: 0,
            claims: false,
        };
        self.enqueue(&name, may_wait, bounds, Some(several))
    }

    /// Takes all of these keys if none is in use.
    pub(super) fn take_free(&mut self, names: &[Name]) -> bool {
        if names.iter().any(|name| self.entries.contains_key(name)) {
            return false;
        }
        for name in names {
            self.entries
                .insert(Name::clone(name), Entry::new(State::Turn));
        }
        true
    }

    /// Whether even a caller that does not wait may wait for the key: it is being released, and no waiter wants it
    /// alone. If the list is full, the key counts as in use for such a caller.
    fn is_leaving(&self, name: &str, bounds: Bounds) -> bool {
        let Some(entry) = self.entries.get(name) else {
            return false;
        };
        let comes_free = entry.leaving || entry.state == State::Kept;
        let has_room = entry.len < bounds.per_key && self.waiting < bounds.total;
        comes_free && has_room && self.first_of_one(entry).is_none()
    }

    /// The first waiter for a key that wants no other.
    pub(super) fn first_of_one(&self, entry: &Entry<N>) -> Option<usize> {
        let mut next = entry.first;
        while let Some(index) = next {
            let waiter = self.waiters.get(index)?;
            if waiter.several.is_none() {
                break;
            }
            next = waiter.behind;
        }
        next
    }

    fn enqueue(
        &mut self,
        name: &Name,
        may_wait: bool,
        bounds: Bounds,
        several: Option<Several>,
    ) -> Result<Entrance, Refused<N>> {
        if !may_wait && !self.is_leaving(name, bounds) {
            return Err(Refused::InUse(self.note(name)));
        }
        if self.waiting_for(name) >= bounds.per_key {
            return Err(Refused::KeyFull);
        }
        if self.waiting >= bounds.total {
            return Err(Refused::Full);
        }
        self.callers += 1;
        self.waiting += 1;
        let index = self.waiters.insert(Waiter {
            name: Name::clone(name),
            before: None,
            behind: None,
            number: self.callers,
            call: Call::Waiting(None),
            may_wait,
            several: several.map(Box::new),
        });
        self.link(index, name);
        Ok(Entrance::Queued(index))
    }

    /// Puts a waiter into the list of a key: behind those that came before it.
    pub(super) fn link(&mut self, index: usize, name: &Name) {
        let (Some(number), Some(entry)) = (self.number(index), self.entries.get(name)) else {
            return;
        };
        // Most come last.
        let is_last = entry.last.and_then(|last| self.number(last)) < Some(number);
        let (mut before, mut behind) = (entry.last, None);
        if !is_last {
            (before, behind) = (None, entry.first);
            while let Some(other) = behind.filter(|other| self.number(*other) < Some(number)) {
                (before, behind) = (Some(other), self.behind(other));
            }
        }
        if let Some(waiter) = self.waiters.get_mut(index) {
            (waiter.before, waiter.behind) = (before, behind);
            waiter.name = Name::clone(name);
        }
        if let Some(waiter) = before.and_then(|before| self.waiters.get_mut(before)) {
            waiter.behind = Some(index);
        }
        if let Some(waiter) = behind.and_then(|behind| self.waiters.get_mut(behind)) {
            waiter.before = Some(index);
        }
        if let Some(entry) = self.entries.get_mut(name) {
            if before.is_none() {
                entry.first = Some(index);
            }
            if behind.is_none() {
                entry.last = Some(index);
            }
            entry.len += 1;
        }
    }

    /// Takes a waiter out of its list.
    pub(super) fn unlink(&mut self, index: usize) {
        let Some(waiter) = self.waiters.get_mut(index) else {
            return;
        };
        let (before, behind) = (waiter.before.take(), waiter.behind.take());
        let entry = self.entries.get_mut(&waiter.name);
        if let Some(waiter) = before.and_then(|before| self.waiters.get_mut(before)) {
            waiter.behind = behind;
        }
        if let Some(waiter) = behind.and_then(|behind| self.waiters.get_mut(behind)) {
            waiter.before = before;
        }
        if let Some(entry) = entry {
            if before.is_none() {
                entry.first = behind;
            }
            if behind.is_none() {
                entry.last = before;
            }
            entry.len -= 1;
        }
    }

    pub(super) fn number(&self, index: usize) -> Option<u64> {
        self.waiters.get(index).map(|waiter| waiter.number)
    }

    pub(super) fn behind(&self, index: usize) -> Option<usize> {
        self.waiters.get(index)?.behind
    }

    pub(super) fn several(&mut self, index: usize) -> Option<&mut Several> {
        self.waiters.get_mut(index)?.several.as_deref_mut()
    }

    /// The names of the keys that a waiter wants, if they are several.
    pub(super) fn names(&self, index: usize) -> Option<Vec<Name>> {
        let several = self.waiters.get(index)?.several.as_ref()?;
        Some(several.names.clone())
    }

    /// Calls a waiter that was taken out of its list.
    pub(super) fn call(&mut self, index: usize, handover: T, wakeups: &mut Wakeups<N>) {
        let Some(waiter) = self.waiters.get_mut(index) else {
            return;
        };
        if let Call::Waiting(waker) = mem::replace(&mut waiter.call, Call::Called(handover)) {
            self.waiting -= 1;
            wakeups.wake(waker);
        }
    }

    /// Gives a waiter the waker of `cx` in place of the one that is returned; `Err` if it waits no more.
    pub(super) fn wait(&mut self, index: usize, cx: &Context<'_>) -> Result<Option<Waker>, ()> {
        match self.waiters.get_mut(index).map(|waiter| &mut waiter.call) {
            Some(Call::Waiting(Some(waker))) if waker.will_wake(cx.waker()) => Ok(None),
            Some(Call::Waiting(waker)) => Ok(waker.replace(cx.waker().clone())),
            _ => Err(()),
        }
    }

    /// Removes a waiter that is in no list any more, and returns its state.
    pub(super) fn take_out(&mut self, index: usize) -> Option<Call<T>> {
        let waiter = self.waiters.try_remove(index)?;
        if matches!(waiter.call, Call::Waiting(_)) {
            self.waiting -= 1;
        }
        Some(waiter.call)
    }

    /// Replaces the note of a key, and returns the one before.
    pub(super) fn set_note(&mut self, name: &str, note: Option<N>) -> Option<N> {
        let entry = self.entries.get_mut(name)?;
        mem::replace(&mut entry.note, note)
    }

    pub(super) fn note(&self, name: &str) -> Option<N> {
        self.entries.get(name)?.note.clone()
    }

    /// How many are in the list of `name`.
    fn waiting_for(&self, name: &str) -> usize {
        self.entries.get(name).map_or(0, |entry| entry.len)
    }

    /// How many wait in all.
    pub(super) const fn waiting(&self) -> usize {
        self.waiting
    }

    /// How many keys are in use, or kept.
    pub(super) fn keys(&self) -> usize {
        self.entries.len()
    }

    /// How many wait, or were called and have not polled since.
    pub(super) fn seats(&self) -> usize {
        self.waiters.len()
    }
}

impl<N> Entry<N> {
    pub(super) const fn new(state: State) -> Self {
        Self {
            state,
            claim: None,
            first: None,
            last: None,
            len: 0,
            leaving: false,
            note: None,
        }
    }
}
