//! What a queue is to do, as simply as it can be said: who came first has the lowest number, and lines are whoever
//! waits in them, by number.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Those in front have lower numbers, those in line higher ones.
pub(crate) const FIRST: usize = 1 << 20;

/// The reference of a queue with these bounds. Seats have numbers, keys too.
pub(crate) struct Reference {
    per_key: usize,
    total: usize,
    closed: bool,
    front: usize,
    pub(crate) keys: BTreeMap<usize, Key>,
    pub(crate) seats: BTreeMap<usize, Place>,
    // Keys of which it is being decided who has them next.
    open: BTreeSet<usize>,
}

/// A key in use.
#[derive(Default)]
pub(crate) struct Key {
    leaving: bool,
    pub(crate) note: Option<u32>,
}

/// A caller in line, or one that was called and has not looked yet.
pub(crate) struct Place {
    pub(crate) wants: Vec<usize>,
    // Which locks it takes as they are.
    ttl: Duration,
    // In whose line it is, if in any.
    line: Option<usize>,
    waits: bool,
    // Whether it has the key together with others, and whether one of these stood before it when it came.
    shares: bool,
    follows: bool,
    pub(crate) call: Option<Call>,
    /// Whether the queue has the waker of the task that polled last, and whether that was woken.
    pub(crate) watched: bool,
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
    /// It does not wait, and what it wants is in use.
    InUse,
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
            front: FIRST,
            keys: BTreeMap::new(),
            seats: BTreeMap::new(),
            open: BTreeSet::new(),
        }
    }

    /// How many wait in all.
    pub(crate) fn waiting(&self) -> usize {
        let seats = self.seats.range(FIRST..);
        seats.filter(|(_, place)| place.call.is_none()).count()
    }

    /// How many wait behind the one in front; those that come together are one.
    fn in_line(&self, key: usize) -> usize {
        let line = self.line(key).into_iter();
        line.filter(|number| *number > FIRST && !self.seats[number].follows)
            .count()
    }

    pub(crate) fn has_front(&self, key: usize) -> bool {
        self.line(key).first().is_some_and(|number| *number < FIRST)
    }

    pub(crate) fn enter_in_front(&mut self, key: usize, ttl: Duration) -> usize {
        self.front -= 1;
        let mut place = Place::new(&[key], ttl, true, false);
        place.line = (!self.closed).then_some(key);
        place.call = self.closed.then_some(Call::Closed);
        self.seats.insert(self.front, place);
        self.front
    }

    fn line(&self, key: usize) -> Vec<usize> {
        let seats = self.seats.iter();
        let in_line = seats.filter(|(_, place)| place.line == Some(key));
        in_line.map(|(number, _)| *number).collect()
    }

    pub(crate) fn enter(
        &mut self,
        wants: &[usize],
        ttl: Duration,
        waits: bool,
        shares: bool,
        number: usize,
    ) -> Entry {
        if self.closed {
            return Entry::Closed;
        }
        if self.take_free(wants) {
            return Entry::Turn;
        }
        let in_use: Vec<usize> = wants
            .iter()
            .copied()
            .filter(|key| self.keys.contains_key(key))
            .collect();
        let has_room = |key: usize| {
            let line = self.line(key);
            let of_one = line.iter().any(|other| self.seats[other].wants.len() == 1);
            self.keys[&key].leaving
                && !of_one
                && self.in_line(key) < self.per_key
                && self.waiting() < self.total
        };
        if let (false, Some(key)) = (waits, in_use.iter().find(|key| !has_room(**key))) {
            return Entry::InUse(self.keys[key].note);
        }
        let line = self.line(in_use[0]);
        let follows = shares && line.last().is_some_and(|last| self.seats[last].shares);
        if !follows && self.in_line(in_use[0]) >= self.per_key {
            return Entry::KeyFull;
        }
        if self.waiting() >= self.total {
            return Entry::Full;
        }
        let mut place = Place::new(wants, ttl, waits, shares);
        (place.line, place.follows) = (Some(in_use[0]), follows);
        self.seats.insert(number, place);
        Entry::Seat
    }

    pub(crate) fn take_free(&mut self, wants: &[usize]) -> bool {
        let free = !self.closed && wants.iter().all(|key| !self.keys.contains_key(key));
        if free {
            for key in wants {
                self.keys.insert(*key, Key::default());
            }
        }
        free
    }

    /// Polls a seat: what it was called with, and then the seat is over.
    pub(crate) fn poll(&mut self, number: usize) -> Option<Call> {
        let place = self.seats.get_mut(&number).unwrap();
        (place.watched, place.woken) = (true, false);
        let call = place.call?;
        self.seats.remove(&number);
        Some(call)
    }

    /// A seat goes, with what it was called with.
    pub(crate) fn leave_line(&mut self, number: usize) {
        let place = self.seats.remove(&number).unwrap();
        if matches!(place.call, Some(Call::Turn | Call::Lock(_))) {
            self.release(&place.wants);
        }
    }

    /// Ends turns: whose line it is may have the key, in order.
    pub(crate) fn release(&mut self, names: &[usize]) {
        for key in names {
            let entry = self.keys.get_mut(key).unwrap();
            (entry.leaving, entry.note) = (false, None);
            self.open.insert(*key);
        }
        loop {
            let open = names.iter().filter(|key| self.open.contains(key));
            let Some(number) = open
                .filter_map(|key| self.line(*key).first().copied())
                .min()
            else {
                break;
            };
            self.offer(number);
        }
        for key in names {
            if self.open.remove(key) {
                self.keys.remove(key);
            }
        }
    }

    fn is_free(&self, key: usize) -> bool {
        !self.keys.contains_key(&key) || self.open.contains(&key)
    }

    fn offer(&mut self, number: usize) {
        let wants = self.seats[&number].wants.clone();
        let Some(key) = wants.iter().copied().find(|key| !self.is_free(*key)) else {
            for key in &wants {
                self.open.remove(key);
                self.keys.entry(*key).or_default();
            }
            return self.call(number, Call::Turn);
        };
        if self.seats[&number].waits || self.keys[&key].leaving {
            self.seats.get_mut(&number).unwrap().line = Some(key);
        } else {
            self.call(number, Call::InUse);
        }
    }

    /// Who is called with the lock of a key as it is.
    fn heir(&self, key: usize, ttl: Duration) -> Option<usize> {
        for number in self.line(key) {
            let place = &self.seats[&number];
            if place.wants.len() == 1 {
                return (place.ttl == ttl).then_some(number);
            }
            let mut others = place.wants.iter().filter(|other| **other != key);
            if others.all(|other| self.is_free(*other)) {
                return None;
            }
        }
        None
    }

    pub(crate) fn has_next_waiter(&self, key: usize, ttl: Duration) -> bool {
        self.heir(key, ttl).is_some()
    }

    /// Calls the next with the lock of a key; `false` if nobody takes it.
    pub(crate) fn hand_over(&mut self, key: usize, ttl: Duration, call: Call) -> bool {
        let Some(heir) = self.heir(key, ttl) else {
            return false;
        };
        self.call(heir, call);
        true
    }

    fn call(&mut self, number: usize, call: Call) {
        let place = self.seats.get_mut(&number).unwrap();
        (place.call, place.line) = (Some(call), None);
        place.wake();
    }

    pub(crate) fn set_being_released(&mut self, key: usize, leaving: bool) {
        self.keys.get_mut(&key).unwrap().leaving = leaving;
        for number in self.line(key) {
            if !leaving && !self.seats[&number].waits {
                self.call(number, Call::InUse);
            }
        }
    }

    pub(crate) fn close(&mut self) {
        self.closed = true;
        let seats = self.seats.iter();
        let waiting = seats.filter(|(_, place)| place.call.is_none());
        for number in waiting.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.call(number, Call::Closed);
        }
    }
}

impl Place {
    fn new(wants: &[usize], ttl: Duration, waits: bool, shares: bool) -> Self {
        Self {
            wants: wants.to_vec(),
            ttl,
            line: None,
            waits,
            shares,
            follows: false,
            call: None,
            watched: false,
            woken: false,
        }
    }

    fn wake(&mut self) {
        if self.watched {
            (self.watched, self.woken) = (false, true);
        }
    }
}
