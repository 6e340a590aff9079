//! The lines of a [`Queue`](super::Queue): one linked list of waiters per key, all in one slab. No locks, no wake-ups.

use std::collections::HashMap;
use std::collections::hash_map;
use std::task::{Context, Waker};

use slab::Slab;

use super::{Bounds, Name, Refused};

/// All lines. `T` is what waiters are called with, `N` what is told to those who do not wait.
pub(super) struct Lines<T, N> {
    entries: HashMap<Name, Entry<N>>,
    places: Slab<Place<T>>,
    waiting: usize,
}

/// A key that somebody has a turn for.
struct Entry<N> {
    first: Option<usize>,
    last: Option<usize>,
    len: usize,
    // The lock is being given back: even who does not wait may wait for that.
    leaving: bool,
    note: Option<N>,
}

/// One waiter: a link in the list of its key, then the keeper of what it was called with.
struct Place<T> {
    name: Name,
    before: Option<usize>,
    behind: Option<usize>,
    call: Call<T>,
}

/// What has become of a waiter.
pub(super) enum Call<T> {
    Waiting(Option<Waker>),
    Called(T),
    Closed,
}

/// Where a caller stands after [`Lines::enter`].
pub(super) enum Entrance {
    /// The key is its.
    Free,
    /// At this place in the line.
    Place(usize),
}

impl<T, N: Clone> Lines<T, N> {
    pub(super) fn new() -> Self {
        Self {
            entries: HashMap::new(),
            places: Slab::new(),
            waiting: 0,
        }
    }

    pub(super) fn enter(
        &mut self,
        name: &Name,
        waits: bool,
        bounds: Bounds,
    ) -> Result<Entrance, Refused<N>> {
        let entry = match self.entries.entry(Name::clone(name)) {
            hash_map::Entry::Vacant(vacant) => {
                vacant.insert(Entry::new());
                return Ok(Entrance::Free);
            }
            hash_map::Entry::Occupied(occupied) => occupied.into_mut(),
        };
        // Room for who does not wait is a favour: without it, the key is in use, and the line is not its business.
        let is_next = entry.leaving && entry.len == 0 && self.waiting < bounds.total;
        let may_wait = waits || is_next;
        if !may_wait {
            return Err(Refused::InUse(entry.note.clone()));
        }
        if entry.len >= bounds.per_key {
            return Err(Refused::KeyFull);
        }
        if self.waiting >= bounds.total {
            return Err(Refused::Full);
        }
        let index = self.places.insert(Place {
            name: Name::clone(name),
            before: entry.last,
            behind: None,
            call: Call::Waiting(None),
        });
        match entry.last.and_then(|last| self.places.get_mut(last)) {
            Some(last) => last.behind = Some(index),
            None => entry.first = Some(index),
        }
        entry.last = Some(index);
        entry.len += 1;
        self.waiting += 1;
        Ok(Entrance::Place(index))
    }

    /// Takes the first waiter out of the line of `name`.
    pub(super) fn take_first(&mut self, name: &str) -> Option<usize> {
        let index = self.entries.get(name)?.first?;
        self.unlink(index);
        Some(index)
    }

    fn unlink(&mut self, index: usize) {
        let Some(place) = self.places.get_mut(index) else {
            return;
        };
        let (before, behind) = (place.before.take(), place.behind.take());
        let entry = self.entries.get_mut(&place.name);
        if let Some(place) = before.and_then(|before| self.places.get_mut(before)) {
            place.behind = behind;
        }
        if let Some(place) = behind.and_then(|behind| self.places.get_mut(behind)) {
            place.before = before;
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
        self.waiting -= 1;
    }

    /// Calls a waiter that was taken out of its line; returns its waker.
    pub(super) fn call(&mut self, index: usize, baton: T) -> Option<Waker> {
        let place = self.places.get_mut(index)?;
        match std::mem::replace(&mut place.call, Call::Called(baton)) {
            Call::Waiting(waker) => waker,
            Call::Called(_) | Call::Closed => None,
        }
    }

    /// Leaves a waiter waiting, with the waker of `cx` and without the one it returns; or tells, by `Err`, that it
    /// waits no more.
    pub(super) fn wait(&mut self, index: usize, cx: &Context<'_>) -> Result<Option<Waker>, ()> {
        match self.places.get_mut(index).map(|place| &mut place.call) {
            Some(Call::Waiting(Some(waker))) if waker.will_wake(cx.waker()) => Ok(None),
            Some(Call::Waiting(waker)) => Ok(waker.replace(cx.waker().clone())),
            _ => Err(()),
        }
    }

    /// Takes a waiter out, with what it was called with.
    pub(super) fn remove(&mut self, index: usize) -> Option<Call<T>> {
        if matches!(self.places.get(index)?.call, Call::Waiting(_)) {
            self.unlink(index);
        }
        self.places.try_remove(index).map(|place| place.call)
    }

    /// Tells everybody who waits that it is over; returns whom to wake.
    pub(super) fn close(&mut self) -> Vec<Waker> {
        self.waiting = 0;
        for entry in self.entries.values_mut() {
            (entry.first, entry.last, entry.len) = (None, None, 0);
        }
        let mut wakers = Vec::new();
        for (_, place) in &mut self.places {
            if let Call::Waiting(waker) = &mut place.call {
                wakers.extend(waker.take());
                place.call = Call::Closed;
            }
        }
        wakers
    }

    /// Takes out the entry of a key that is not in use any more, and returns its note.
    pub(super) fn forget(&mut self, name: &str) -> Option<N> {
        self.entries.remove(name)?.note
    }

    /// Puts another note in place of the one that is returned.
    pub(super) fn set_note(&mut self, name: &str, note: Option<N>) -> Option<N> {
        let entry = self.entries.get_mut(name)?;
        std::mem::replace(&mut entry.note, note)
    }

    pub(super) fn note(&self, name: &str) -> Option<N> {
        self.entries.get(name)?.note.clone()
    }

    pub(super) fn set_leaving(&mut self, name: &str, leaving: bool) {
        if let Some(entry) = self.entries.get_mut(name) {
            entry.leaving = leaving;
        }
    }

    /// How many wait for `name`.
    pub(super) fn waiting_for(&self, name: &str) -> usize {
        self.entries.get(name).map_or(0, |entry| entry.len)
    }

    /// How many wait in all.
    pub(super) const fn waiting(&self) -> usize {
        self.waiting
    }

    /// How many keys are in use.
    pub(super) fn keys(&self) -> usize {
        self.entries.len()
    }

    /// How many wait, or were called and have not looked yet.
    pub(super) fn places(&self) -> usize {
        self.places.len()
    }
}

impl<N> Entry<N> {
    const fn new() -> Self {
        Self {
            first: None,
            last: None,
            len: 0,
            leaving: false,
            note: None,
        }
    }
}
