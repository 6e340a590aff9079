//! [`WaitLists`]: the waiters of each key in order, and the one that gets a key that comes free. No locks; waiters to
//! wake are collected in [`Dispatch`].
//!
//! A waiter for several keys is in the list of one key that is in use. When this key comes free and all its others are
//! free, it gets them; otherwise it moves to the list of one in use, and the next waiter is offered the key. So no free
//! key is kept from anybody, and waiters for fewer keys may overtake it.

use std::collections::{BTreeMap, BTreeSet, HashMap, hash_map};
use std::mem;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use smallvec::SmallVec;

pub(crate) type Name = Arc<str>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) per_key: usize,
    pub(crate) total: usize,
}

#[derive(Debug)]
pub(crate) enum Refused<N> {
    /// The key is in use here, and the caller does not wait.
    InUse(Option<N>),
    KeyFull,
    Full,
    Closed,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SentAway {
    Closed,
    /// It does not wait, and the key that seemed about to come free is in use.
    InUse,
}

pub(super) struct WaitLists<T, N> {
    pub(super) entries: HashMap<Name, Entry<N>>,
    // By number: lower for callers that came earlier.
    pub(super) waiters: BTreeMap<u64, Waiter<T>>,
    pub(super) waiting: usize,
    // The number of the last caller.
    callers: u64,
    // That of the last one that came before all others.
    front: u64,
    pub(super) bounds: Bounds,
    closed: bool,
}

pub(super) struct Entry<N> {
    // Its turn has ended, and the next caller is being chosen. Never seen outside the mutex.
    is_open: bool,
    // The numbers of those in its list.
    waiters: BTreeSet<u64>,
    // How many of them come together with the one before.
    followers: usize,
    // The lock is being released: even callers that do not wait may wait for that.
    being_released: bool,
    holder: Option<N>,
}

pub(super) struct Waiter<T> {
    // The keys that it wants.
    wants: Vec<Name>,
    // The ttl of the locks that it takes as they are.
    ttl: Duration,
    // The one of them in whose list it is.
    name: Name,
    call: Call<T>,
    // Whether it waits also for a key that is not about to come free.
    may_wait: bool,
    // Whether it has the key together with others that share it, and whether one stood before it when it came.
    shares: bool,
    follows: bool,
}

pub(super) enum Call<T> {
    Waiting(Option<Waker>),
    Called(T),
    SentAway(SentAway),
}

/// The turns that are given, and foreign code to run outside of the mutex.
pub(super) struct Dispatch<'a, T, N> {
    turn: &'a dyn Fn(&[Name]) -> T,
    // Mostly there is one of each.
    wakers: SmallVec<[Waker; 1]>,
    holders: SmallVec<[N; 1]>,
}

impl<T, N: Clone> WaitLists<T, N> {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            entries: HashMap::new(),
            waiters: BTreeMap::new(),
            waiting: 0,
            callers: FIRST,
            front: FIRST,
            bounds,
            closed: false,
        }
    }

    /// Takes all of these keys, or waits for the first that is in use, or for its lock if that has this `ttl`. Returns
    /// the number of the waiter, or `None` with the turn.
    pub(super) fn enter(
        &mut self,
        names: &[Name],
        ttl: Duration,
        may_wait: bool,
        shares: bool,
    ) -> Result<Option<u64>, Refused<N>> {
        if self.closed {
            return Err(Refused::Closed);
        }
        if self.take_free(names) {
            return Ok(None);
        }
        let stays =
            |name: &&Name| self.entries.contains_key(*name) && !self.is_being_released(name);
        if !may_wait && let Some(name) = names.iter().find(stays) {
            return Err(Refused::InUse(self.holder(name)));
        }
        let in_use = |name| Some((name, self.entries.get(name)?));
        let Some((name, entry)) = names.iter().find_map(in_use) else {
            return Ok(None);
        };
        let last = entry.waiters.last();
        let last = last.and_then(|number| self.waiters.get(number));
        let follows = shares && last.is_some_and(|waiter| waiter.shares);
        if !follows && entry.in_line() >= self.bounds.per_key {
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
            shares,
            follows,
        };
        self.waiters.insert(self.callers, waiter);
        self.link(self.callers, name);
        Ok(Some(self.callers))
    }

    /// Puts the caller that has the turn of a key before all that wait for it, for a lock of this `ttl` that another
    /// holder may pass to it. Returns its number. It counts as one that contends, not as one that waits.
    pub(super) fn enter_in_front(&mut self, name: &Name, ttl: Duration) -> u64 {
        self.front -= 1;
        let call = match self.closed {
            true => Call::SentAway(SentAway::Closed),
            false => Call::Waiting(None),
        };
        let waiter = Waiter {
            wants: vec![Name::clone(name)],
            ttl,
            name: Name::clone(name),
            call,
            may_wait: true,
            shares: false,
            follows: false,
        };
        self.waiters.insert(self.front, waiter);
        if !self.closed {
            self.link(self.front, name);
        }
        self.front
    }

    pub(super) fn take_free(&mut self, names: &[Name]) -> bool {
        if self.closed {
            return false;
        }
        if let [name] = names {
            // The usual case, in which the key is hashed once.
            let place = self.entries.entry(Name::clone(name));
            let is_free = matches!(place, hash_map::Entry::Vacant(_));
            place.or_default();
            return is_free;
        }
        if names.iter().any(|name| self.entries.contains_key(name)) {
            return false;
        }
        let taken = names
            .iter()
            .map(|name| (Name::clone(name), Entry::default()));
        self.entries.extend(taken);
        true
    }

    /// Whether even a caller that does not wait may wait for the key: it is being released, and no waiter wants it
    /// alone.
    fn is_being_released(&self, name: &str) -> bool {
        let Some(entry) = self.entries.get(name) else {
            return false;
        };
        let has_room = entry.in_line() < self.bounds.per_key && self.waiting < self.bounds.total;
        let wants_one = |number: &u64| {
            let waiter = self.waiters.get(number);
            waiter.is_some_and(|waiter| waiter.wants.len() == 1)
        };
        entry.being_released && has_room && !entry.waiters.iter().any(wants_one)
    }

    fn link(&mut self, number: u64, name: &Name) {
        let waiter = self.waiters.get_mut(&number);
        if let (Some(waiter), Some(entry)) = (waiter, self.entries.get_mut(name)) {
            waiter.name = Name::clone(name);
            entry.waiters.insert(number);
            entry.followers += usize::from(waiter.follows);
        }
    }

    fn unlink(&mut self, number: u64) {
        let Some(waiter) = self.waiters.get(&number) else {
            return;
        };
        if let Some(entry) = self.entries.get_mut(&waiter.name)
            && entry.waiters.remove(&number)
        {
            entry.followers -= usize::from(waiter.follows);
        }
    }

    pub(super) fn release(&mut self, names: &[Name], dispatch: &mut Dispatch<'_, T, N>) {
        if let [name] = names
            && let hash_map::Entry::Occupied(place) = self.entries.entry(Name::clone(name))
            && place.get().waiters.is_empty()
        {
            // Nobody wants it: the usual case, in which the key is hashed once.
            dispatch.holders.extend(place.remove().holder);
            return;
        }
        for name in names {
            if let Some(entry) = self.entries.get_mut(name) {
                entry.is_open = true;
                entry.being_released = false;
                dispatch.holders.extend(entry.holder.take());
            }
        }
        // In the order in which they came, whichever of these keys they want.
        while let Some(number) = names.iter().filter_map(|name| self.next(name)).min() {
            self.offer(number, dispatch);
        }
        for name in names {
            if self.is_free(name) {
                self.entries.remove(name);
            }
        }
    }

    fn next(&self, name: &str) -> Option<u64> {
        let entry = self.entries.get(name).filter(|entry| entry.is_open)?;
        entry.waiters.first().copied()
    }

    fn is_free(&self, name: &str) -> bool {
        self.entries.get(name).is_none_or(|entry| entry.is_open)
    }

    /// Gives the first waiter for an open key all keys that it wants; or moves it to the list of one that is in use, or
    /// sends it away.
    fn offer(&mut self, number: u64, dispatch: &mut Dispatch<'_, T, N>) {
        self.unlink(number);
        let Some(waiter) = self.waiters.get(&number) else {
            return;
        };
        let (names, may_wait) = (waiter.wants.clone(), waiter.may_wait);
        let Some(name) = names.iter().find(|name| !self.is_free(name)) else {
            for name in &names {
                let entry = self.entries.entry(Name::clone(name));
                entry.or_default().is_open = false;
            }
            let handover = (dispatch.turn)(&names);
            return self.end_wait(number, Call::Called(handover), dispatch);
        };
        if may_wait
            || self
                .entries
                .get(name)
                .is_some_and(|entry| entry.being_released)
        {
            self.link(number, name);
        } else {
            self.end_wait(number, Call::SentAway(SentAway::InUse), dispatch);
        }
    }

    fn end_wait(&mut self, number: u64, call: Call<T>, dispatch: &mut Dispatch<'_, T, N>) {
        let Some(waiter) = self.waiters.get_mut(&number) else {
            return;
        };
        if let Call::Waiting(waker) = mem::replace(&mut waiter.call, call) {
            self.waiting -= usize::from(number > FIRST);
            dispatch.wakers.extend(waker);
        }
    }

    /// The waiter to which the lock of a key can pass: the first that wants this key alone, with this `ttl`, unless a
    /// waiter before it wants another ttl, or several keys of which only this one is missing.
    fn next_waiter(&self, name: &str, ttl: Duration) -> Option<u64> {
        for number in self.entries.get(name)?.waiters.iter() {
            let waiter = self.waiters.get(number)?;
            if waiter.wants.len() == 1 {
                return (waiter.ttl == ttl).then_some(*number);
            }
            let mut others = waiter.wants.iter().filter(|other| ***other != *name);
            if others.all(|other| self.is_free(other)) {
                return None;
            }
        }
        None
    }

    pub(super) fn has_next_waiter(&self, name: &str, ttl: Duration) -> bool {
        self.next_waiter(name, ttl).is_some()
    }

    /// Passes the lock of a key, of this `ttl`, to its [`next_waiter`](Self::next_waiter), or returns `handover`.
    pub(super) fn hand_over(
        &mut self,
        name: &str,
        ttl: Duration,
        handover: T,
        dispatch: &mut Dispatch<'_, T, N>,
    ) -> Result<(), T> {
        let Some(next_waiter) = self.next_waiter(name, ttl) else {
            return Err(handover);
        };
        self.unlink(next_waiter);
        self.end_wait(next_waiter, Call::Called(handover), dispatch);
        Ok(())
    }

    pub(super) fn set_being_released(
        &mut self,
        name: &str,
        being_released: bool,
        dispatch: &mut Dispatch<'_, T, N>,
    ) {
        let Some(entry) = self.entries.get_mut(name) else {
            return;
        };
        entry.being_released = being_released;
        if being_released {
            return;
        }
        let may_wait = |number: &u64| {
            let waiter = self.waiters.get(number);
            waiter.is_none_or(|waiter| waiter.may_wait)
        };
        let mut impatient: Vec<u64> = entry.waiters.iter().copied().collect();
        impatient.retain(|number| !may_wait(number));
        for number in impatient {
            self.unlink(number);
            self.end_wait(number, Call::SentAway(SentAway::InUse), dispatch);
        }
    }

    pub(super) fn close(&mut self, dispatch: &mut Dispatch<'_, T, N>) {
        self.closed = true;
        self.waiting = 0;
        for entry in self.entries.values_mut() {
            entry.waiters.clear();
            entry.followers = 0;
        }
        for waiter in self.waiters.values_mut() {
            if let Call::Waiting(waker) = &mut waiter.call {
                dispatch.wakers.extend(waker.take());
                waiter.call = Call::SentAway(SentAway::Closed);
            }
        }
    }

    pub(super) fn wait(&mut self, number: u64, cx: &Context<'_>) -> Result<Option<Waker>, ()> {
        match self.waiters.get_mut(&number).map(|waiter| &mut waiter.call) {
            Some(Call::Waiting(Some(waker))) if waker.will_wake(cx.waker()) => Ok(None),
            Some(Call::Waiting(waker)) => Ok(waker.replace(cx.waker().clone())),
            _ => Err(()),
        }
    }

    pub(super) fn take_out(&mut self, number: u64) -> Option<Call<T>> {
        self.unlink(number);
        let waiter = self.waiters.remove(&number)?;
        if matches!(waiter.call, Call::Waiting(_)) {
            self.waiting -= usize::from(number > FIRST);
        }
        Some(waiter.call)
    }

    pub(super) fn set_holder(&mut self, name: &str, holder: N, dispatch: &mut Dispatch<'_, T, N>) {
        if let Some(entry) = self.entries.get_mut(name) {
            dispatch.holders.extend(entry.holder.replace(holder));
        }
    }

    pub(super) fn holder(&self, name: &str) -> Option<N> {
        self.entries.get(name)?.holder.clone()
    }
}

impl<N> Entry<N> {
    /// How many wait in line: all but the one in front. Those that come together are one.
    fn in_line(&self) -> usize {
        let is_in_front = self.waiters.first().is_some_and(|number| *number < FIRST);
        self.waiters.len() - self.followers - usize::from(is_in_front)
    }
}

impl<N> Default for Entry<N> {
    fn default() -> Self {
        Self {
            is_open: false,
            waiters: BTreeSet::new(),
            followers: 0,
            being_released: false,
            holder: None,
        }
    }
}

impl<'a, T, N> Dispatch<'a, T, N> {
    pub(super) fn new(turn: &'a dyn Fn(&[Name]) -> T) -> Self {
        Self {
            turn,
            wakers: SmallVec::new(),
            holders: SmallVec::new(),
        }
    }

    /// Wakes the waiters that were called, and drops holders. The caller does not hold the mutex.
    pub(super) fn finish(self) {
        drop(self.holders);
        self.wakers.into_iter().for_each(Waker::wake);
    }
}

/// Lower than the numbers of all in line, and higher than those in front.
const FIRST: u64 = 1 << 63;
