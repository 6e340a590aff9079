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

use std::slice;

use super::list::{Call, Entry, Name, State, WaitLists};
use super::wakeups::Wakeups;

/// How turns are given.
pub(super) struct Giving<'a, T> {
    /// Makes what a waiter is called with when it gets these keys.
    pub(super) turn: &'a dyn Fn(&[Name]) -> T,
    /// Whether a waiter that has missed often enough may claim its keys.
    pub(super) claims: bool,
}

impl<T> Giving<'_, T> {
    const fn without_claims(&self) -> Self {
        Giving {
            turn: self.turn,
            claims: false,
        }
    }
}

impl<T, N: Clone> WaitLists<T, N> {
    /// Ends the turns of these keys: each passes to the next waiter, is kept for the one that claims it, or is free.
    pub(super) fn release(
        &mut self,
        names: &[Name],
        giving: &Giving<'_, T>,
        wakeups: &mut Wakeups<N>,
    ) {
        for name in names {
            if let Some(entry) = self.entries.get_mut(name) {
                entry.state = State::Open;
                entry.leaving = false;
                wakeups.drop(entry.note.take());
            }
        }
        // In the order in which they came, whichever of these keys they want.
        while let Some((_, index)) = names.iter().filter_map(|name| self.next(name)).min() {
            self.offer(index, giving, wakeups);
        }
        for name in names {
            self.settle(name, giving, wakeups);
        }
    }

    /// The waiter that is offered an open key next: its number and index.
    fn next(&self, name: &str) -> Option<(u64, usize)> {
        let entry = self.entries.get(name)?;
        let next = entry.first.filter(|_| entry.state == State::Open)?;
        self.comes_before_claim(entry, next)
            .then_some((self.number(next)?, next))
    }

    /// Whether a waiter came before the one that claims the key.
    fn comes_before_claim(&self, entry: &Entry<N>, index: usize) -> bool {
        let claim = entry.claim.and_then(|claim| self.number(claim));
        claim.is_none_or(|claim| self.number(index) <= Some(claim))
    }

    fn is_free_for(&self, index: usize, name: &str) -> bool {
        let entry = self.entries.get(name);
        entry
            .is_none_or(|entry| entry.state == State::Open && self.comes_before_claim(entry, index))
    }

    /// Gives the first waiter for an open key all keys that it wants, or moves it on.
    fn offer(&mut self, index: usize, giving: &Giving<'_, T>, wakeups: &mut Wakeups<N>) {
        let Some(names) = self.names(index) else {
            self.unlink(index);
            self.give_one(index, giving, wakeups);
            return;
        };
        self.unlink(index);
        if names.iter().all(|name| self.is_free_for(index, name)) {
            self.give_all(index, &names, giving, wakeups);
            return;
        }
        let claims = self.miss(index) >= self.misses && giving.claims;
        if !(claims && self.claim(index, &names, giving, wakeups)) {
            self.move_on(index, &names, None, wakeups);
        }
    }

    /// Calls a waiter for one key that was taken out of its list.
    fn give_one(&mut self, index: usize, giving: &Giving<'_, T>, wakeups: &mut Wakeups<N>) {
        let Some(name) = self
            .waiters
            .get(index)
            .map(|waiter| Name::clone(&waiter.name))
        else {
            return;
        };
        self.give_all(index, slice::from_ref(&name), giving, wakeups);
    }

    fn give_all(
        &mut self,
        index: usize,
        names: &[Name],
        giving: &Giving<'_, T>,
        wakeups: &mut Wakeups<N>,
    ) {
        for name in names {
            let entry = self.entries.entry(Name::clone(name));
            entry.or_insert(Entry::new(State::Turn)).state = State::Turn;
        }
        self.call(index, (giving.turn)(names), wakeups);
    }

    fn miss(&mut self, index: usize) -> u32 {
        self.several(index).map_or(0, |several| {
            several.missed = several.missed.saturating_add(1);
            several.missed
        })
    }

    /// Puts a waiter into the list of one of its keys that is in use.
    fn move_on(
        &mut self,
        index: usize,
        names: &[Name],
        except: Option<&str>,
        wakeups: &mut Wakeups<N>,
    ) {
        let mut names = names.iter().filter(|name| Some(&***name) != except);
        if let Some(name) = names.find(|name| !self.is_free_for(index, name)) {
            self.link_if_it_waits(index, name, wakeups);
        }
    }

    /// Keeps a key that no waiter took for the one that claims it, or ends its entry.
    fn settle(&mut self, name: &str, giving: &Giving<'_, T>, wakeups: &mut Wakeups<N>) {
        let entry = self.entries.get_mut(name);
        let Some(entry) = entry.filter(|entry| entry.state == State::Open) else {
            return;
        };
        match entry.claim {
            Some(claim) => {
                entry.state = State::Kept;
                self.complete(claim, giving, wakeups);
            }
            None => drop(self.entries.remove(name)),
        }
    }

    /// Claims all of these keys for a waiter that is in no list; `false` if an earlier one claims one of them.
    fn claim(
        &mut self,
        index: usize,
        names: &[Name],
        giving: &Giving<'_, T>,
        wakeups: &mut Wakeups<N>,
    ) -> bool {
        let mut younger: Vec<usize> = Vec::new();
        for name in names {
            let Some(entry) = self.entries.get(name) else {
                continue;
            };
            if !self.comes_before_claim(entry, index) {
                return false;
            }
            younger.extend(entry.claim.filter(|claim| !younger.contains(claim)));
        }
        let kept: Vec<Name> = younger.iter().flat_map(|one| self.unclaim(*one)).collect();
        for name in names {
            let entry = self.entries.entry(Name::clone(name));
            entry.or_insert(Entry::new(State::Kept)).claim = Some(index);
        }
        if let Some(waiter) = self.waiters.get_mut(index) {
            if let Some(several) = &mut waiter.several {
                several.claims = true;
            }
            if let Call::Waiting(waker) = &mut waiter.call {
                // It bounds the time.
                wakeups.wake(waker.take());
            }
        }
        for one in younger {
            if let Some(names) = self.names(one) {
                self.move_on(one, &names, None, wakeups);
            }
        }
        self.lend(&kept, index, giving, wakeups);
        self.complete(index, giving, wakeups);
        true
    }

    /// Gives others the keys that were kept for claims that are over, before they are kept for `claim`.
    fn lend(
        &mut self,
        kept: &[Name],
        claim: usize,
        giving: &Giving<'_, T>,
        wakeups: &mut Wakeups<N>,
    ) {
        let mut free = Vec::new();
        for name in kept {
            let entry = self.entries.get(name);
            let Some(entry) = entry.filter(|entry| entry.claim == Some(claim)) else {
                free.push(Name::clone(name));
                continue;
            };
            if let Some(index) = self.first_of_one(entry) {
                self.unlink(index);
                self.give_one(index, giving, wakeups);
            }
        }
        self.release(&free, &giving.without_claims(), wakeups);
    }

    /// Ends a claim; returns the keys that were kept for it.
    fn unclaim(&mut self, index: usize) -> Vec<Name> {
        let Some(mut names) = self.names(index) else {
            return Vec::new();
        };
        if let Some(several) = self.several(index) {
            several.claims = false;
        }
        names.retain(|name| {
            let entry = self.entries.get_mut(name);
            let entry = entry.filter(|entry| entry.claim == Some(index));
            entry.is_some_and(|entry| {
                entry.claim = None;
                entry.state == State::Kept
            })
        });
        names
    }

    /// Calls a waiter that claims its keys if all of them are kept for it.
    fn complete(&mut self, index: usize, giving: &Giving<'_, T>, wakeups: &mut Wakeups<N>) {
        let Some(names) = self.names(index) else {
            return;
        };
        let is_kept = |name: &Name| {
            let entry = self.entries.get(name);
            entry.is_some_and(|entry| entry.state == State::Kept && entry.claim == Some(index))
        };
        if names.iter().all(is_kept) {
            drop(self.unclaim(index));
            self.give_all(index, &names, giving, wakeups);
        }
    }

    /// Whether a waiter claims its keys.
    pub(super) fn claims(&self, index: usize) -> bool {
        let several = self
            .waiters
            .get(index)
            .and_then(|waiter| waiter.several.as_ref());
        several.is_some_and(|several| several.claims)
    }

    /// Ends the claim of a waiter, if it has one: it waits as before, and the keys that were kept for it go to others.
    pub(super) fn give_way(
        &mut self,
        index: usize,
        giving: &Giving<'_, T>,
        wakeups: &mut Wakeups<N>,
    ) {
        let Some(names) = self.names(index).filter(|_| self.claims(index)) else {
            return;
        };
        let kept = self.unclaim(index);
        if let Some(several) = self.several(index) {
            several.missed = 0;
        }
        // At least one of its keys is in use: else it had been called.
        let mut in_use = names.clone();
        in_use.retain(|name| !kept.contains(name));
        self.move_on(index, &in_use, None, wakeups);
        self.release(&kept, &giving.without_claims(), wakeups);
    }

    /// Removes a waiter and returns its state; the keys that were kept for it go to others.
    pub(super) fn remove(
        &mut self,
        index: usize,
        giving: &Giving<'_, T>,
        wakeups: &mut Wakeups<N>,
    ) -> Option<Call<T>> {
        let waits = matches!(self.waiters.get(index)?.call, Call::Waiting(_));
        let claims = self.claims(index);
        let kept = if claims {
            self.unclaim(index)
        } else {
            Vec::new()
        };
        if waits && !claims {
            self.unlink(index);
        }
        let call = self.take_out(index);
        self.release(&kept, &giving.without_claims(), wakeups);
        call
    }

    /// The waiter that takes the lock of a key as it is: the next, unless that wants several keys and they are free,
    /// for which the lock must be released. Also those before it, which miss this key.
    fn heir(&self, name: &str) -> Option<(usize, Vec<usize>)> {
        let entry = self.entries.get(name)?;
        let (mut next, mut missing) = (entry.first, Vec::new());
        while let Some(index) = next.filter(|index| self.comes_before_claim(entry, *index)) {
            let Some(several) = self.waiters.get(index)?.several.as_ref() else {
                return Some((index, missing));
            };
            let mut others = several.names.iter().filter(|other| ***other != *name);
            let has_its_turn = others.all(|other| self.is_free_for(index, other));
            if has_its_turn || several.missed.saturating_add(1) >= self.misses {
                return None;
            }
            missing.push(index);
            next = self.behind(index);
        }
        None
    }

    /// Whether a waiter would take the lock of a key as it is.
    pub(super) fn has_heir(&self, name: &str) -> bool {
        self.heir(name).is_some()
    }

    /// Calls the next waiter that takes the lock of a key as it is, or returns `handover`. Waiters before it, which
    /// want several keys, miss this one.
    pub(super) fn hand_over(
        &mut self,
        name: &str,
        handover: T,
        wakeups: &mut Wakeups<N>,
    ) -> Result<(), T> {
        let Some((heir, missing)) = self.heir(name) else {
            return Err(handover);
        };
        for index in missing {
            let Some(names) = self.names(index) else {
                continue;
            };
            self.unlink(index);
            self.miss(index);
            self.move_on(index, &names, Some(name), wakeups);
        }
        self.unlink(heir);
        self.call(heir, handover, wakeups);
        Ok(())
    }
}
