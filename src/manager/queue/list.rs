//! The lines of a [`Queue`](super::Queue): one linked list of waiters per key, all in one slab. No locks, no wake-ups.
//!
//! Who waits for several keys stands in one line at a time: that of a key that is in use. How turns end and whom they
//! go to is in [`passing`](super::passing).

use std::collections::HashMap;
use std::collections::hash_map;
use std::mem;
use std::task::{Context, Waker};

use slab::Slab;

use super::passing::After;
use super::{Bounds, Name, Refused, SentAway};

/// All lines. `T` is what waiters are called with, `N` what is told to those who do not wait.
pub(super) struct Lines<T, N> {
    pub(super) entries: HashMap<Name, Entry<N>>,
    pub(super) places: Slab<Place<T>>,
    pub(super) waiting: usize,
    // How many callers have ever got in line.
    callers: u64,
    // After how many misses a caller claims its keys.
    pub(super) misses: u32,
}

/// A key that somebody has a turn for, or that is kept for somebody.
pub(super) struct Entry<N> {
    pub(super) state: State,
    // Who is to have it before all that came later.
    pub(super) claim: Option<usize>,
    pub(super) first: Option<usize>,
    pub(super) last: Option<usize>,
    pub(super) len: usize,
    // The lock is being given back: even who does not wait may wait for that.
    pub(super) leaving: bool,
    pub(super) note: Option<N>,
}

/// Who has a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Somebody has a turn for it.
    Turn,
    /// Nobody, and it is being decided who is next. Never seen outside of the lines.
    Open,
    /// Nobody: it is kept for who claims it, for a moment.
    Kept,
}

/// One waiter: a link in the list of its key, then the keeper of what it was called with.
pub(super) struct Place<T> {
    // In whose line it is.
    pub(super) name: Name,
    before: Option<usize>,
    behind: Option<usize>,
    // Who came first has the lower number.
    pub(super) number: u64,
    pub(super) call: Call<T>,
    // Whether it waits also for who is not about to leave.
    pub(super) waiters: bool,
    // What it wants, if that is several keys.
    pub(super) several: Option<Box<Several>>,
}

/// A caller that wants several keys.
pub(super) struct Several {
    pub(super) names: Vec<Name>,
    // How often it was next at one key while another was in use.
    pub(super) missed: u32,
    // It is in no line: what comes free of its keys is kept for it.
    pub(super) claims: bool,
}

/// What has become of a waiter.
pub(super) enum Call<T> {
    Waiter(Option<Waker>),
    Called(T),
    SentAway(SentAway),
}

/// Where a caller stands after [`Lines::enter`].
pub(super) enum Entrance {
    /// The keys are its.
    Free,
    /// At this place in the line.
    Place(usize),
}

impl<T, N: Clone> Lines<T, N> {
    pub(super) fn new(misses: u32) -> Self {
        Self {
            entries: HashMap::new(),
            places: Slab::new(),
            waiting: 0,
            callers: 0,
            misses,
        }
    }

    /// Takes the key, or a place in its line.
    pub(super) fn enter(
        &mut self,
        name: &Name,
        waiters: bool,
        bounds: Bounds,
    ) -> Result<Entrance, Refused<N>> {
        match self.entries.entry(Name::clone(name)) {
            hash_map::Entry::Vacant(vacant) => {
                vacant.insert(Entry::new(State::Turn));
                Ok(Entrance::Free)
            }
            hash_map::Entry::Occupied(_) => self.get_in_line(name, waiters, bounds, None),
        }
    }

    /// Takes all of several keys, or a place in the line of the first that is in use.
    pub(super) fn enter_all(
        &mut self,
        names: &[Name],
        waiters: bool,
        bounds: Bounds,
    ) -> Result<Entrance, Refused<N>> {
        if self.take_free(names) {
            return Ok(Entrance::Free);
        }
        let in_use = || names.iter().filter(|name| self.entries.contains_key(*name));
        // For who does not wait the one that matters is the one that it must not wait for.
        let stays = |name: &&Name| !self.is_leaving(name, bounds);
        let in_the_way = if waiters { None } else { in_use().find(stays) };
        let Some(name) = in_the_way.or_else(|| in_use().next()).map(Name::clone) else {
            return Ok(Entrance::Free);
        };
        let several = Several {
            names: names.to_vec(),
            missed: 0,
            claims: false,
        };
        self.get_in_line(&name, waiters, bounds, Some(several))
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

    /// Whether even who does not wait may wait for the key: nobody has it any more, and nobody before wants it alone.
    /// Room for that is a favour: without it, the key is in use, and the line is not its business.
    fn is_leaving(&self, name: &str, bounds: Bounds) -> bool {
        let Some(entry) = self.entries.get(name) else {
            return false;
        };
        let comes_free = entry.leaving || entry.state == State::Kept;
        let has_room = entry.len < bounds.per_key && self.waiting < bounds.total;
        comes_free && has_room && self.first_of_one(entry).is_none()
    }

    /// The first in the line of a key who wants no other.
    pub(super) fn first_of_one(&self, entry: &Entry<N>) -> Option<usize> {
        let mut next = entry.first;
        while let Some(index) = next {
            let place = self.places.get(index)?;
            if place.several.is_none() {
                break;
            }
            next = place.behind;
        }
        next
    }

    fn get_in_line(
        &mut self,
        name: &Name,
        waiters: bool,
        bounds: Bounds,
        several: Option<Several>,
    ) -> Result<Entrance, Refused<N>> {
        if !waiters && !self.is_leaving(name, bounds) {
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
        let index = self.places.insert(Place {
            name: Name::clone(name),
            before: None,
            behind: None,
            number: self.callers,
            call: Call::Waiter(None),
            waiters,
            several: several.map(Box::new),
        });
        self.link(index, name);
        Ok(Entrance::Place(index))
    }

    /// Puts a waiter into the line of a key: behind those who came before it.
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
        if let Some(place) = self.places.get_mut(index) {
            (place.before, place.behind) = (before, behind);
            place.name = Name::clone(name);
        }
        if let Some(place) = before.and_then(|before| self.places.get_mut(before)) {
            place.behind = Some(index);
        }
        if let Some(place) = behind.and_then(|behind| self.places.get_mut(behind)) {
            place.before = Some(index);
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

    /// Takes a waiter out of its line.
    pub(super) fn unlink(&mut self, index: usize) {
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
    }

    pub(super) fn number(&self, index: usize) -> Option<u64> {
        self.places.get(index).map(|place| place.number)
    }

    pub(super) fn behind(&self, index: usize) -> Option<usize> {
        self.places.get(index)?.behind
    }

    pub(super) fn several(&mut self, index: usize) -> Option<&mut Several> {
        self.places.get_mut(index)?.several.as_deref_mut()
    }

    /// The names of the keys that a waiter wants, if they are several.
    pub(super) fn names(&self, index: usize) -> Option<Vec<Name>> {
        let several = self.places.get(index)?.several.as_ref()?;
        Some(several.names.clone())
    }

    /// Calls a waiter that was taken out of its line.
    pub(super) fn call(&mut self, index: usize, baton: T, after: &mut After<N>) {
        let Some(place) = self.places.get_mut(index) else {
            return;
        };
        if let Call::Waiter(waker) = mem::replace(&mut place.call, Call::Called(baton)) {
            self.waiting -= 1;
            after.wake(waker);
        }
    }

    /// Leaves a waiter waiting, with the waker of `cx` and without the one it returns; or tells, by `Err`, that it
    /// waits no more.
    pub(super) fn wait(&mut self, index: usize, cx: &Context<'_>) -> Result<Option<Waker>, ()> {
        match self.places.get_mut(index).map(|place| &mut place.call) {
            Some(Call::Waiter(Some(waker))) if waker.will_wake(cx.waker()) => Ok(None),
            Some(Call::Waiter(waker)) => Ok(waker.replace(cx.waker().clone())),
            _ => Err(()),
        }
    }

    /// Takes a waiter out that is in no line any more, with what it was called with.
    pub(super) fn take_out(&mut self, index: usize) -> Option<Call<T>> {
        let place = self.places.try_remove(index)?;
        if matches!(place.call, Call::Waiter(_)) {
            self.waiting -= 1;
        }
        Some(place.call)
    }

    /// Puts another note in place of the one that is returned.
    pub(super) fn set_note(&mut self, name: &str, note: Option<N>) -> Option<N> {
        let entry = self.entries.get_mut(name)?;
        mem::replace(&mut entry.note, note)
    }

    pub(super) fn note(&self, name: &str) -> Option<N> {
        self.entries.get(name)?.note.clone()
    }

    /// How many are in the line of `name`.
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

    /// How many wait, or were called and have not looked yet.
    pub(super) fn places(&self) -> usize {
        self.places.len()
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
