//! What a queue is to do, as simply as it can be said: a line of numbers per key.

use std::collections::{BTreeMap, VecDeque};

/// The reference of a queue with these bounds. Seats and turns have numbers.
pub(crate) struct Reference {
    per_key: usize,
    total: usize,
    closed: bool,
    pub(crate) lines: BTreeMap<usize, Line>,
    pub(crate) seats: BTreeMap<usize, Place>,
}

/// A key in use.
#[derive(Default)]
pub(crate) struct Line {
    pub(crate) waiting: VecDeque<usize>,
    leaving: bool,
    pub(crate) note: Option<u32>,
}

/// A caller in line, or one that was called and has not looked yet.
pub(crate) struct Place {
    pub(crate) key: usize,
    pub(crate) call: Option<Call>,
    /// Whether it has polled: then it is woken when it is called.
    pub(crate) polled: bool,
    pub(crate) woken: bool,
}

/// What a caller is called with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// A bare turn.
    Turn,
    /// The lock of this number, with its turn.
    Lock(u32),
    /// The queue is closed.
    Closed,
}

/// What comes of getting in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Turn,
    Seat,
    InUse(Option<u32>),
    KeyFull,
    Full,
    Closed,
}

impl Reference {
    pub(crate) fn new(per_key: usize, total: usize) -> Self {
        Self {
            per_key,
            total,
            closed: false,
            lines: BTreeMap::new(),
            seats: BTreeMap::new(),
        }
    }

    /// How many wait in all.
    pub(crate) fn waiting(&self) -> usize {
        self.lines.values().map(|line| line.waiting.len()).sum()
    }

    pub(crate) fn enter(&mut self, key: usize, waits: bool, number: usize) -> Entry {
        let waiting = self.waiting();
        if self.closed {
            return Entry::Closed;
        }
        let Some(line) = self.lines.get_mut(&key) else {
            self.lines.insert(key, Line::default());
            return Entry::Turn;
        };
        let after_release = line.leaving && line.waiting.is_empty() && waiting < self.total;
        if !waits && !after_release {
            return Entry::InUse(line.note);
        }
        if line.waiting.len() >= self.per_key {
            return Entry::KeyFull;
        }
        if waiting >= self.total {
            return Entry::Full;
        }
        line.waiting.push_back(number);
        let place = Place {
            key,
            call: None,
            polled: false,
            woken: false,
        };
        self.seats.insert(number, place);
        Entry::Seat
    }

    /// Polls a seat: what it was called with, and then the seat is over.
    pub(crate) fn poll(&mut self, number: usize) -> Option<Call> {
        let place = self.seats.get_mut(&number).unwrap();
        place.polled = true;
        let call = place.call?;
        self.seats.remove(&number);
        Some(call)
    }

    /// A seat goes, with what it was called with.
    pub(crate) fn leave_line(&mut self, number: usize) {
        let place = self.seats.remove(&number).unwrap();
        if let Some(line) = self.lines.get_mut(&place.key) {
            line.waiting.retain(|other| *other != number);
        }
        if matches!(place.call, Some(Call::Turn | Call::Lock(_))) {
            self.end_turn(place.key);
        }
    }

    pub(crate) fn end_turn(&mut self, key: usize) {
        let line = self.lines.get_mut(&key).unwrap();
        line.leaving = false;
        line.note = None;
        if !self.call_first(key, Call::Turn) {
            self.lines.remove(&key);
        }
    }

    /// Calls the first in line; `false` if there is none.
    pub(crate) fn call_first(&mut self, key: usize, call: Call) -> bool {
        let line = self.lines.get_mut(&key).unwrap();
        let Some(number) = line.waiting.pop_front() else {
            return false;
        };
        self.call(number, call);
        true
    }

    fn call(&mut self, number: usize, call: Call) {
        let place = self.seats.get_mut(&number).unwrap();
        place.call = Some(call);
        place.woken = place.polled;
    }

    pub(crate) fn begin_release(&mut self, key: usize) {
        self.lines.get_mut(&key).unwrap().leaving = true;
    }

    pub(crate) fn close(&mut self) {
        self.closed = true;
        let told: Vec<usize> = self
            .lines
            .values_mut()
            .flat_map(|line| std::mem::take(&mut line.waiting))
            .collect();
        for number in told {
            self.call(number, Call::Closed);
        }
    }
}
