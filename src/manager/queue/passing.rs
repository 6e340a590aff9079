//! How turns end, and whom they go to.
//!
//! A key that comes free is offered to those in its line, in the order in which they came. Who wants this key alone
//! takes it. Who wants several takes them if all of them are free; else it *misses* this one, which goes on to those
//! behind, and moves to the line of a key that is in use. So nothing is kept from anybody for it.
//!
//! But who has missed often enough *claims* its keys: nobody who came later gets any of them, and they are kept for
//! it as they come free. The caller bounds how long that lasts, and gives way when it is over. Of two claims on one
//! key the older prevails; and what was kept for one is not kept for another before somebody who waits for it has
//! had it.

use std::mem;
use std::slice;
use std::task::Waker;

use super::Name;
use super::list::{Call, Entry, Lines, State};

/// What must not be done under the mutex of the queue: wakers and notes are not ours.
#[must_use = "somebody is to be woken"]
pub(super) struct After<N> {
    // Mostly there is one of each.
    waker: Option<Waker>,
    wakers: Vec<Waker>,
    note: Option<N>,
    notes: Vec<N>,
}

/// How turns are given.
pub(super) struct Giving<'a, T> {
    /// Makes what a waiter is called with that takes these keys.
    pub(super) turn: &'a dyn Fn(&[Name]) -> T,
    /// Whether who has missed often enough may claim its keys.
    pub(super) claims: bool,
}

impl<N> After<N> {
    pub(super) const fn new() -> Self {
        Self {
            waker: None,
            wakers: Vec::new(),
            note: None,
            notes: Vec::new(),
        }
    }

    pub(super) fn wake(&mut self, waker: Option<Waker>) {
        if let Some(one) = mem::replace(&mut self.waker, waker) {
            self.wakers.push(one);
        }
    }

    fn drop(&mut self, note: Option<N>) {
        if let Some(one) = mem::replace(&mut self.note, note) {
            self.notes.push(one);
        }
    }

    /// Does it, without the mutex.
    pub(super) fn run(self) {
        drop((self.note, self.notes));
        self.waker.into_iter().for_each(Waker::wake);
        self.wakers.into_iter().for_each(Waker::wake);
    }
}

impl<T> Giving<'_, T> {
    const fn without_claims(&self) -> Self {
        Giving {
            turn: self.turn,
            claims: false,
        }
    }
}

impl<T, N: Clone> Lines<T, N> {
    /// Ends the turns of these keys: each goes to the next, is kept for who claims it, or is free.
    pub(super) fn release(&mut self, names: &[Name], giving: &Giving<'_, T>, after: &mut After<N>) {
        for name in names {
            if let Some(entry) = self.entries.get_mut(name) {
                entry.state = State::Open;
                entry.leaving = false;
                after.drop(entry.note.take());
            }
        }
        // Those who came first come first, whichever of these keys they want.
        while let Some((_, index)) = names.iter().filter_map(|name| self.next(name)).min() {
            self.offer(index, giving, after);
        }
        for name in names {
            self.settle(name, giving, after);
        }
    }

    /// Who is to be offered an open key next: number and place.
    fn next(&self, name: &str) -> Option<(u64, usize)> {
        let entry = self.entries.get(name)?;
        let next = entry.first.filter(|_| entry.state == State::Open)?;
        self.comes_before_claim(entry, next)
            .then_some((self.number(next)?, next))
    }

    /// Whether a waiter came before whoever claims the key.
    fn comes_before_claim(&self, entry: &Entry<N>, index: usize) -> bool {
        let claim = entry.claim.and_then(|claim| self.number(claim));
        claim.is_none_or(|claim| self.number(index) <= Some(claim))
    }

    fn is_free_for(&self, index: usize, name: &str) -> bool {
        let entry = self.entries.get(name);
        entry
            .is_none_or(|entry| entry.state == State::Open && self.comes_before_claim(entry, index))
    }

    /// Lets the first in the line of an open key have all that it wants, or go on.
    fn offer(&mut self, index: usize, giving: &Giving<'_, T>, after: &mut After<N>) {
        let Some(names) = self.names(index) else {
            self.unlink(index);
            self.give_one(index, giving, after);
            return;
        };
        self.unlink(index);
        if names.iter().all(|name| self.is_free_for(index, name)) {
            self.give_all(index, &names, giving, after);
            return;
        }
        let claims = self.miss(index) >= self.misses && giving.claims;
        if !(claims && self.claim(index, &names, giving, after)) {
            self.move_on(index, &names, None, after);
        }
    }

    /// Calls who wants the key of its line alone, and has been taken out of it.
    fn give_one(&mut self, index: usize, giving: &Giving<'_, T>, after: &mut After<N>) {
        let Some(name) = self.places.get(index).map(|place| Name::clone(&place.name)) else {
            return;
        };
        self.give_all(index, slice::from_ref(&name), giving, after);
    }

    fn give_all(
        &mut self,
        index: usize,
        names: &[Name],
        giving: &Giving<'_, T>,
        after: &mut After<N>,
    ) {
        for name in names {
            let entry = self.entries.entry(Name::clone(name));
            entry.or_insert(Entry::new(State::Turn)).state = State::Turn;
        }
        self.call(index, (giving.turn)(names), after);
    }

    fn miss(&mut self, index: usize) -> u32 {
        self.several(index).map_or(0, |several| {
            several.missed = several.missed.saturating_add(1);
            several.missed
        })
    }

    /// Puts a waiter into the line of one of its keys that is in use.
    fn move_on(&mut self, index: usize, names: &[Name], but: Option<&str>, after: &mut After<N>) {
        let mut names = names.iter().filter(|name| Some(&***name) != but);
        if let Some(name) = names.find(|name| !self.is_free_for(index, name)) {
            self.link_if_it_waits(index, name, after);
        }
    }

    /// What becomes of a key that nobody took.
    fn settle(&mut self, name: &str, giving: &Giving<'_, T>, after: &mut After<N>) {
        let entry = self.entries.get_mut(name);
        let Some(entry) = entry.filter(|entry| entry.state == State::Open) else {
            return;
        };
        match entry.claim {
            Some(claim) => {
                entry.state = State::Kept;
                self.complete(claim, giving, after);
            }
            None => drop(self.entries.remove(name)),
        }
    }

    /// Claims all of these keys for a waiter that is in no line; `false` if one is claimed by who came before.
    fn claim(
        &mut self,
        index: usize,
        names: &[Name],
        giving: &Giving<'_, T>,
        after: &mut After<N>,
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
        if let Some(place) = self.places.get_mut(index) {
            if let Some(several) = &mut place.several {
                several.claims = true;
            }
            if let Call::Waiter(waker) = &mut place.call {
                // To watch the time.
                after.wake(waker.take());
            }
        }
        for one in younger {
            if let Some(names) = self.names(one) {
                self.move_on(one, &names, None, after);
            }
        }
        self.lend(&kept, index, giving, after);
        self.complete(index, giving, after);
        true
    }

    /// Lets others have what was kept for claims that are over, before the one of `claim` keeps it.
    fn lend(&mut self, kept: &[Name], claim: usize, giving: &Giving<'_, T>, after: &mut After<N>) {
        let mut free = Vec::new();
        for name in kept {
            let entry = self.entries.get(name);
            let Some(entry) = entry.filter(|entry| entry.claim == Some(claim)) else {
                free.push(Name::clone(name));
                continue;
            };
            if let Some(index) = self.first_of_one(entry) {
                self.unlink(index);
                self.give_one(index, giving, after);
            }
        }
        self.release(&free, &giving.without_claims(), after);
    }

    /// Ends a claim; returns what was kept for it.
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

    /// Calls who claims its keys if all of them are kept for it.
    fn complete(&mut self, index: usize, giving: &Giving<'_, T>, after: &mut After<N>) {
        let Some(names) = self.names(index) else {
            return;
        };
        let is_kept = |name: &Name| {
            let entry = self.entries.get(name);
            entry.is_some_and(|entry| entry.state == State::Kept && entry.claim == Some(index))
        };
        if names.iter().all(is_kept) {
            drop(self.unclaim(index));
            self.give_all(index, &names, giving, after);
        }
    }

    /// Whether a waiter claims its keys.
    pub(super) fn claims(&self, index: usize) -> bool {
        let several = self
            .places
            .get(index)
            .and_then(|place| place.several.as_ref());
        several.is_some_and(|several| several.claims)
    }

    /// Ends the claim of a waiter, if it has one: it waits as before, and what was kept for it goes to others.
    pub(super) fn give_way(&mut self, index: usize, giving: &Giving<'_, T>, after: &mut After<N>) {
        let Some(names) = self.names(index).filter(|_| self.claims(index)) else {
            return;
        };
        let kept = self.unclaim(index);
        if let Some(several) = self.several(index) {
            several.missed = 0;
        }
        // One of its keys at least is in use: else it had been called.
        let mut in_use = names.clone();
        in_use.retain(|name| !kept.contains(name));
        self.move_on(index, &in_use, None, after);
        self.release(&kept, &giving.without_claims(), after);
    }

    /// Takes a waiter out, with what it was called with; what was kept for it goes to others.
    pub(super) fn remove(
        &mut self,
        index: usize,
        giving: &Giving<'_, T>,
        after: &mut After<N>,
    ) -> Option<Call<T>> {
        let waiters = matches!(self.places.get(index)?.call, Call::Waiter(_));
        let claims = self.claims(index);
        let kept = if claims {
            self.unclaim(index)
        } else {
            Vec::new()
        };
        if waiters && !claims {
            self.unlink(index);
        }
        let call = self.take_out(index);
        self.release(&kept, &giving.without_claims(), after);
        call
    }

    /// Who is called with the lock of a key as it is: the next in line, unless that wants several keys and has its
    /// turn, for which the lock is to be released.
    fn heir(&self, name: &str) -> Option<(usize, Vec<usize>)> {
        let entry = self.entries.get(name)?;
        let (mut next, mut missing) = (entry.first, Vec::new());
        while let Some(index) = next.filter(|index| self.comes_before_claim(entry, *index)) {
            let Some(several) = self.places.get(index)?.several.as_ref() else {
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

    /// Whether the lock of a key would be taken as it is.
    pub(super) fn has_heir(&self, name: &str) -> bool {
        self.heir(name).is_some()
    }

    /// Calls the next who takes the lock of a key as it is, or gives it back. Who comes before and wants several keys
    /// misses this one.
    pub(super) fn hand_over(
        &mut self,
        name: &str,
        baton: T,
        after: &mut After<N>,
    ) -> Result<(), T> {
        let Some((heir, missing)) = self.heir(name) else {
            return Err(baton);
        };
        for index in missing {
            let Some(names) = self.names(index) else {
                continue;
            };
            self.unlink(index);
            self.miss(index);
            self.move_on(index, &names, Some(name), after);
        }
        self.unlink(heir);
        self.call(heir, baton, after);
        Ok(())
    }
}
