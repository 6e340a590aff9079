//! [`WaitLists`] keeps the waiters of each key in order, and chooses the waiter that gets a key when it comes free.
//!
//! A waiter for several keys is in the list of only one of them, which is in use. When this key comes free and the
//! waiter's other keys are free as well, the waiter gets all of them. Otherwise it moves to the list of another key
//! that is in use, and the free key is offered to the next waiter.

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
    InUse(Option<N>),
    KeyFull,
    Full,
    Closed,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SentAway {
    Closed,
    InUse,
}

pub(super) struct WaitLists<T, N> {
    pub(super) entries: HashMap<Name, Entry<N>>,
    // By number. Callers that came earlier have lower numbers.
    pub(super) waiters: BTreeMap<u64, Waiter<T>>,
    pub(super) waiting: usize,
    // The number of the last caller.
    callers: u64,
    // The number of the last caller that entered in front of all others. These numbers count down from `FIRST`.
    front: u64,
    pub(super) bounds: Bounds,
    closed: bool,
}

pub(super) struct Entry<N> {
    // The turn has ended, and the next caller is being chosen. Always false when the mutex is unlocked.
    is_open: bool,
    // The numbers of the waiters in the list of this key.
    waiters: BTreeSet<u64>,
    // How many of these waiters can share the key with the waiter before them.
    followers: usize,
    // The key is about to come free, so even callers that do not wait for locks may wait for it.
    being_released: bool,
    holder: Option<N>,
}

pub(super) struct Waiter<T> {
    wants: Vec<Name>,
    // Only a lock with this ttl is handed over to the caller.
    ttl: Duration,
    // The wanted key in whose list this waiter is.
    name: Name,
    call: Call<T>,
    // False if the caller waits only for keys that are about to come free.
    may_wait: bool,
    // Whether the caller can share the key with others.
    shares: bool,
    // Whether the caller and the waiter before it could both share the key when the caller came.
    follows: bool,
}

pub(super) enum Call<T> {
    Waiting(Option<Waker>),
    Called(T),
    SentAway(SentAway),
}

/// Makes the turns of called waiters. Collects wakers and holders under the mutex, to wake and drop them after it is
/// unlocked.
pub(super) struct Dispatch<'a, T, N> {
    turn: &'a dyn Fn(&[Name]) -> T,
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

    /// Takes all of these keys if they are free. Otherwise adds a waiter to the list of the first key that is in use.
    /// Returns the number of the waiter, or `None` if the caller has the turn.
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

    /// Adds a waiter in front of all others and returns its number. The caller has the turn of the key already, and can
    /// now get a permit from a holder in this process as well.
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
            // The usual case of one key has a shortcut, which hashes the key only once.
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

    /// Whether a caller that does not wait for locks may wait for this key. It may if the key is being released, the
    /// queue has room, and no waiter wants only this key.
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
            // The usual case of one key without waiters has a shortcut, which hashes the key only once.
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
        // Waiters are asked in the order in which they came, no matter in which of the lists they are.
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

    /// Gives a waiter all keys that it wants. If one of them is in use, moves the waiter to the list of that key, or
    /// sends it away if it may not wait for it.
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

    /// The waiter to which a lock can be handed over: the first that wants only this key, if it wants this `ttl`.
    /// `None` if an earlier waiter for several keys lacks only this key.
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
    /// How many waiters count towards the limit of a key. A waiter in front does not count, and adjacent waiters that
    /// can share the key count as one.
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

    /// Wakes waiters and drops holders. The caller must not hold the mutex.
    pub(super) fn finish(self) {
        drop(self.holders);
        self.wakers.into_iter().for_each(Waker::wake);
    }
}

// Waiters in front of all others have numbers below this, all other waiters have numbers above it.
const FIRST: u64 = 1 << 63;
