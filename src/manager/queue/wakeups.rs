//! [`Wakeups`]: waiters that are to be woken once the mutex of the queue is free.

use std::mem;
use std::task::Waker;

/// Wakers to wake and notes to drop, without the mutex of the queue: neither is the queue's own code.
#[must_use = "a waiter is to be woken"]
pub(super) struct Wakeups<N> {
    // Mostly there is one of each.
    waker: Option<Waker>,
    wakers: Vec<Waker>,
    note: Option<N>,
    notes: Vec<N>,
}

impl<N> Wakeups<N> {
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

    pub(super) fn drop(&mut self, note: Option<N>) {
        if let Some(one) = mem::replace(&mut self.note, note) {
            self.notes.push(one);
        }
    }

    /// Wakes and drops. The caller does not hold the mutex.
    pub(super) fn run(self) {
        drop((self.note, self.notes));
        self.waker.into_iter().for_each(Waker::wake);
        self.wakers.into_iter().for_each(Waker::wake);
    }
}
