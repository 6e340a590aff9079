//! How turns end, and which waiter gets them.
//!
//! A key that comes free is offered to its waiters, in the order in which they came. A waiter for this key alone takes
//! it. A waiter for several takes them if all of them are free; else it *misses* this one, which is offered to the
//! next, and moves to the list of a key that is in use. So no key is kept from other waiters for it.
//!
//! But a waiter that has missed often enough *claims* its keys: no caller that came later gets any of them, and they
//! are kept for it as they come free. The caller bounds how long that lasts, and gives way when it is over. Of two
//! claims on one key the older prevails; and a key that was kept for one is not kept for another before a waiter has
//! had it.

use std::collections::hash_map;
use std::mem;
use std::slice;
use std::time::Duration;

use super::list::{Call, Entry, Name, State, WaitLists};
use super::wakeups::Wakeups;

/// How turns are given, and the waiters that are woken for it.
pub(super) struct Giving<'a, T, N> {
    /// Makes the handover for a waiter that gets these keys.
    pub(super) turn: &'a dyn Fn(&[Name]) -> T,
    /// Whether a waiter that has missed often enough may claim its keys.
    pub(super) claims: bool,
    /// The waiters that were called.
    pub(super) wakeups: Wakeups<N>,
}

impl<T, N: Clone> WaitLists<T, N> {
    /// Ends the turns of these keys: each passes to the next waiter, is kept for the one that claims it, or is free.
    pub(super) fn release(&mut self, names: &[Name], giving: &mut Giving<'_, T, N>) {
        if let [name] = names
            && let hash_map::Entry::Occupied(place) = self.entries.entry(Name::clone(name))
            && place.get().waiters.is_empty()
            && place.get().claim.is_none()
        {
            // Nobody wants it: the usual case, in which the key is hashed once.
            giving.wakeups.drop(place.remove().note);
            return;
        }
        for name in names {
            if let Some(entry) = self.entries.get_mut(name) {
                entry.state = State::Open;
                entry.leaving = false;
                giving.wakeups.drop(entry.note.take());
            }
        }
        // In the order in which they came, whichever of these keys they want.
        while let Some(number) = names.iter().filter_map(|name| self.next(name)).min() {
            self.offer(number, giving);
        }
        for name in names {
            self.settle(name, giving);
        }
    }

    /// The waiter that is offered an open key next.
    fn next(&self, name: &str) -> Option<u64> {
        let entry = self.entries.get(name)?;
        let next = entry.waiters.first().copied()?;
        (entry.state == State::Open && entry.comes_before_claim(next)).then_some(next)
    }

    fn is_free_for(&self, number: u64, name: &str) -> bool {
        let entry = self.entries.get(name);
        entry.is_none_or(|entry| entry.state == State::Open && entry.comes_before_claim(number))
    }

    /// Gives the first waiter for an open key all keys that it wants, or moves it on.
    fn offer(&mut self, number: u64, giving: &mut Giving<'_, T, N>) {
        let names = self.names(number);
        self.unlink(number);
        if names.iter().all(|name| self.is_free_for(number, name)) {
            self.give(number, &names, giving);
            return;
        }
        let claims = self.miss(number) >= self.misses && giving.claims;
        if !(claims && self.claim(number, &names, giving)) {
            self.move_on(number, &names, None, &mut giving.wakeups);
        }
    }

    /// Calls a waiter that was taken out of its list, with the turn of these keys.
    fn give(&mut self, number: u64, names: &[Name], giving: &mut Giving<'_, T, N>) {
        for name in names {
            let entry = self.entries.entry(Name::clone(name));
            entry.or_insert(Entry::new(State::Turn)).state = State::Turn;
        }
        self.call(number, (giving.turn)(names), &mut giving.wakeups);
    }

    fn miss(&mut self, number: u64) -> u32 {
        self.waiters.get_mut(&number).map_or(0, |waiter| {
            waiter.missed = waiter.missed.saturating_add(1);
            waiter.missed
        })
    }

    /// Puts a waiter into the list of one of its keys that is in use.
    fn move_on(
        &mut self,
        number: u64,
        names: &[Name],
        except: Option<&str>,
        wakeups: &mut Wakeups<N>,
    ) {
        let mut names = names.iter().filter(|name| Some(&***name) != except);
        if let Some(name) = names.find(|name| !self.is_free_for(number, name)) {
            self.link_if_it_waits(number, name, wakeups);
        }
    }

    /// Keeps a key that no waiter took for the one that claims it, or ends its entry.
    fn settle(&mut self, name: &str, giving: &mut Giving<'_, T, N>) {
        let entry = self.entries.get_mut(name);
        let Some(entry) = entry.filter(|entry| entry.state == State::Open) else {
            return;
        };
        match entry.claim {
            Some(claim) => {
                entry.state = State::Kept;
                self.complete(claim, giving);
            }
            None => drop(self.entries.remove(name)),
        }
    }

    /// Claims all of these keys for a waiter that is in no list; `false` if an earlier one claims one of them.
    fn claim(&mut self, number: u64, names: &[Name], giving: &mut Giving<'_, T, N>) -> bool {
        let mut younger: Vec<u64> = Vec::new();
        for entry in names.iter().filter_map(|name| self.entries.get(name)) {
            if !entry.comes_before_claim(number) {
                return false;
            }
            younger.extend(entry.claim.filter(|claim| !younger.contains(claim)));
        }
        let kept: Vec<Name> = younger.iter().flat_map(|one| self.unclaim(*one)).collect();
        for name in names {
            let entry = self.entries.entry(Name::clone(name));
            entry.or_insert(Entry::new(State::Kept)).claim = Some(number);
        }
        let call = self.waiters.get_mut(&number).map(|waiter| &mut waiter.call);
        if let Some(Call::Waiting(waker)) = call {
            // It bounds the time.
            giving.wakeups.wake(waker.take());
        }
        for one in younger {
            let names = self.names(one);
            self.move_on(one, &names, None, &mut giving.wakeups);
        }
        self.lend(&kept, number, giving);
        self.complete(number, giving);
        true
    }

    /// Gives others the keys that were kept for claims that are over, before they are kept for `claim`.
    fn lend(&mut self, kept: &[Name], claim: u64, giving: &mut Giving<'_, T, N>) {
        let mut free = Vec::new();
        for name in kept {
            let entry = self.entries.get(name);
            let Some(entry) = entry.filter(|entry| entry.claim == Some(claim)) else {
                free.push(Name::clone(name));
                continue;
            };
            if let Some(number) = self.first_of_one(entry) {
                self.unlink(number);
                self.give(number, slice::from_ref(name), giving);
            }
        }
        let claims = mem::replace(&mut giving.claims, false);
        self.release(&free, giving);
        giving.claims = claims;
    }

    /// Ends the claim of a waiter, if it has one; returns the keys that were kept for it.
    fn unclaim(&mut self, number: u64) -> Vec<Name> {
        let mut names = self.names(number);
        names.retain(|name| {
            let entry = self.entries.get_mut(name);
            let entry = entry.filter(|entry| entry.claim == Some(number));
            entry.is_some_and(|entry| {
                entry.claim = None;
                entry.state == State::Kept
            })
        });
        names
    }

    /// Calls a waiter that claims its keys if all of them are kept for it.
    fn complete(&mut self, number: u64, giving: &mut Giving<'_, T, N>) {
        let names = self.names(number);
        let is_kept = |name: &Name| {
            let entry = self.entries.get(name);
            entry.is_some_and(|entry| entry.state == State::Kept && entry.claim == Some(number))
        };
        if names.iter().all(is_kept) {
            drop(self.unclaim(number));
            self.give(number, &names, giving);
        }
    }

    /// Whether a waiter claims its keys.
    pub(super) fn claims(&self, number: u64) -> bool {
        let waiter = self.waiters.get(&number);
        let name = waiter.and_then(|waiter| waiter.wants.first());
        let entry = name.and_then(|name| self.entries.get(name));
        entry.is_some_and(|entry| entry.claim == Some(number))
    }

    /// Ends the claim of a waiter, if it has one: it waits as before, and the keys that were kept for it go to others.
    pub(super) fn give_way(&mut self, number: u64, giving: &mut Giving<'_, T, N>) {
        if !self.claims(number) {
            return;
        }
        let kept = self.unclaim(number);
        if let Some(waiter) = self.waiters.get_mut(&number) {
            waiter.missed = 0;
        }
        // At least one of its keys is in use: else it had been called.
        let mut in_use = self.names(number);
        in_use.retain(|name| !kept.contains(name));
        self.move_on(number, &in_use, None, &mut giving.wakeups);
        giving.claims = false;
        self.release(&kept, giving);
    }

    /// Removes a waiter and returns its state; the keys that were kept for it go to others.
    pub(super) fn remove(&mut self, number: u64, giving: &mut Giving<'_, T, N>) -> Option<Call<T>> {
        self.unlink(number);
        let kept = self.unclaim(number);
        let call = self.take_out(number);
        giving.claims = false;
        self.release(&kept, giving);
        call
    }

    /// The waiter that takes the lock of a key as it is: the next, unless that wants one of another ttl, or several
    /// keys and they are free, for which the lock must be released. Also those before it, which miss this key.
    fn heir(&self, name: &str, ttl: Duration) -> Option<(u64, Vec<u64>)> {
        let entry = self.entries.get(name)?;
        let mut missing = Vec::new();
        let next = entry.waiters.iter().copied();
        for number in next.take_while(|number| entry.comes_before_claim(*number)) {
            let waiter = self.waiters.get(&number)?;
            if waiter.wants.len() == 1 {
                return (waiter.ttl == ttl).then_some((number, missing));
            }
            let mut others = waiter.wants.iter().filter(|other| ***other != *name);
            let has_its_turn = others.all(|other| self.is_free_for(number, other));
            if has_its_turn || waiter.missed.saturating_add(1) >= self.misses {
                return None;
            }
            missing.push(number);
        }
        None
    }

    /// Whether a waiter would take the lock of a key, which has this `ttl`, as it is.
    pub(super) fn has_heir(&self, name: &str, ttl: Duration) -> bool {
        self.heir(name, ttl).is_some()
    }

    /// Calls the next waiter that takes the lock of a key, which has this `ttl`, as it is, or returns `handover`.
    /// Waiters before it, which want several keys, miss this one.
    pub(super) fn hand_over(
        &mut self,
        name: &str,
        ttl: Duration,
        handover: T,
        wakeups: &mut Wakeups<N>,
    ) -> Result<(), T> {
        let Some((heir, missing)) = self.heir(name, ttl) else {
            return Err(handover);
        };
        for number in missing {
            let names = self.names(number);
            self.unlink(number);
            self.miss(number);
            self.move_on(number, &names, Some(name), wakeups);
        }
        self.unlink(heir);
        self.call(heir, handover, wakeups);
        Ok(())
    }
}
