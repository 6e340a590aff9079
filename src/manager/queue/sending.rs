//! How waiters are sent away without what they wait for.

use std::mem;
use std::task::Waker;

use super::list::{Call, Lines, State};
use super::passing::After;
use super::{Name, SentAway};

impl<T, N: Clone> Lines<T, N> {
    /// Tells everybody who waits that it is over; returns whom to wake.
    pub(super) fn close(&mut self) -> Vec<Waker> {
        self.waiting = 0;
        self.entries.retain(|_, entry| entry.state == State::Turn);
        for entry in self.entries.values_mut() {
            (entry.first, entry.last, entry.len, entry.claim) = (None, None, 0, None);
        }
        let mut wakers = Vec::new();
        for (_, place) in &mut self.places {
            if let Call::Waiter(waker) = &mut place.call {
                wakers.extend(waker.take());
                place.call = Call::SentAway(SentAway::Closed);
                if let Some(several) = &mut place.several {
                    several.claims = false;
                }
            }
        }
        wakers
    }

    pub(super) fn set_leaving(&mut self, name: &str, leaving: bool, after: &mut After<N>) {
        let Some(entry) = self.entries.get_mut(name) else {
            return;
        };
        entry.leaving = leaving;
        let mut next = entry.first.filter(|_| !leaving);
        while let Some(index) = next {
            next = self.behind(index);
            if self.places.get(index).is_some_and(|place| !place.waiters) {
                self.unlink(index);
                self.send_away(index, after);
            }
        }
    }

    /// Sends a waiter away that is in no line any more: what it wants is in use.
    fn send_away(&mut self, index: usize, after: &mut After<N>) {
        let Some(place) = self.places.get_mut(index) else {
            return;
        };
        let call = Call::SentAway(SentAway::InUse);
        if let Call::Waiter(waker) = mem::replace(&mut place.call, call) {
            self.waiting -= 1;
            after.wake(waker);
        }
    }

    /// Puts a waiter into the line of a key that is in use; or sends it away, if it does not wait for that.
    pub(super) fn link_if_it_waits(&mut self, index: usize, name: &Name, after: &mut After<N>) {
        let entry = self.entries.get(name);
        let comes_free = entry.is_some_and(|entry| entry.leaving || entry.state == State::Kept);
        if comes_free || self.places.get(index).is_some_and(|place| place.waiters) {
            self.link(index, name);
        } else {
            self.send_away(index, after);
        }
    }
}
