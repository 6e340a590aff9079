//! How waiters are sent away without a turn.

use std::mem;
use std::task::Waker;

use super::list::{Call, Name, SentAway, State, WaitLists};
use super::wakeups::Wakeups;

impl<T, N: Clone> WaitLists<T, N> {
    /// Sends all waiters away; returns their wakers.
    pub(super) fn close(&mut self) -> Vec<Waker> {
        self.waiting = 0;
        self.entries.retain(|_, entry| entry.state == State::Turn);
        for entry in self.entries.values_mut() {
            (entry.first, entry.last, entry.len, entry.claim) = (None, None, 0, None);
        }
        let mut wakers = Vec::new();
        for (_, waiter) in &mut self.waiters {
            if let Call::Waiting(waker) = &mut waiter.call {
                wakers.extend(waker.take());
                waiter.call = Call::SentAway(SentAway::Closed);
                if let Some(several) = &mut waiter.several {
                    several.claims = false;
                }
            }
        }
        wakers
    }

    /// Sets whether the key is about to come free. If it is not, callers that do not wait are sent away.
    pub(super) fn set_leaving(&mut self, name: &str, leaving: bool, wakeups: &mut Wakeups<N>) {
        let Some(entry) = self.entries.get_mut(name) else {
            return;
        };
        entry.leaving = leaving;
        let mut next = entry.first.filter(|_| !leaving);
        while let Some(index) = next {
            next = self.behind(index);
            if self
                .waiters
                .get(index)
                .is_some_and(|waiter| !waiter.may_wait)
            {
                self.unlink(index);
                self.send_away(index, wakeups);
            }
        }
    }

    /// Sends a waiter away that is in no list any more: its key is in use.
    fn send_away(&mut self, index: usize, wakeups: &mut Wakeups<N>) {
        let Some(waiter) = self.waiters.get_mut(index) else {
            return;
        };
        let call = Call::SentAway(SentAway::InUse);
        if let Call::Waiting(waker) = mem::replace(&mut waiter.call, call) {
            self.waiting -= 1;
            wakeups.wake(waker);
        }
    }

    /// Puts a waiter into the list of a key that is in use; or sends it away, if it does not wait for that.
    pub(super) fn link_if_it_waits(&mut self, index: usize, name: &Name, wakeups: &mut Wakeups<N>) {
        let entry = self.entries.get(name);
        let comes_free = entry.is_some_and(|entry| entry.leaving || entry.state == State::Kept);
        if comes_free
            || self
                .waiters
                .get(index)
                .is_some_and(|waiter| waiter.may_wait)
        {
            self.link(index, name);
        } else {
            self.send_away(index, wakeups);
        }
    }
}
