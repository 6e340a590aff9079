//! The queue with the locks of the standard library, in one thread: random operations, compared step by step with
//! the [`reference`](crate::reference).

mod sync {
    pub(super) use std::sync::{Mutex, MutexGuard};
}

#[path = "../../src/manager/queue/fifo/mod.rs"]
#[allow(dead_code, reason = "the comparison needs a part of it")]
#[expect(clippy::duplicate_mod, reason = "here with other locks")]
mod queue;

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use self::queue::{Bounds, Entered, Load, Name, Queue, Refused, Seat, SentAway, Turn};
use crate::reference::{Call, Entry, FIRST, Reference};

const TTLS: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(1)];

/// The keys that the bits of a number choose.
fn chosen(keys: usize) -> Vec<usize> {
    (0..4).filter(|key| keys & (1 << key) != 0).collect()
}

enum Handover {
    Turn(Turn<Self>),
    // The number of a lock, and its turn.
    Lock(u32, Turn<Self>),
}

impl queue::Handover for Handover {
    type Holder = u32;

    fn of_turn(turn: Turn<Self>) -> Self {
        Self::Turn(turn)
    }
}

#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// One operation. Numbers choose one of the turns or seats there are.
#[derive(Clone, Debug)]
enum Step {
    // The bits of the number choose the keys.
    Enter {
        keys: usize,
        ttl: Duration,
        waits: bool,
        shares: bool,
    },
    Poll(usize),
    Leave(usize),
    EndTurn(usize),
    HandOver(usize, Duration, u32),
    Note(usize, u32),
    SetLeaving(usize, bool),
    // The turn of one of its keys is kept, or those of more are taken.
    KeepOnly(usize, usize),
    Widen(usize, usize),
    // Who has the turn of one key sits down before those that wait for it.
    SitInFront(usize, Duration),
    Close,
}

/// Mostly the first, so that locks pass often.
fn ttl() -> impl Strategy<Value = Duration> {
    prop::bool::weighted(0.2).prop_map(|other| TTLS[usize::from(other)])
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let one = || 0_usize..64;
    let step = prop_oneof![
        6 => (0_usize..4, ttl(), prop::bool::weighted(0.8), any::<bool>())
            .prop_map(|(key, ttl, waits, shares)| Step::Enter { keys: 1 << key, ttl, waits, shares }),
        7 => (1_usize..16, ttl(), prop::bool::weighted(0.8))
            .prop_map(|(keys, ttl, waits)| Step::Enter { keys, ttl, waits, shares: false }),
        6 => one().prop_map(Step::Poll),
        4 => one().prop_map(Step::Leave),
        5 => one().prop_map(Step::EndTurn),
        4 => (one(), ttl(), any::<u32>()).prop_map(|(turn, ttl, lock)| Step::HandOver(turn, ttl, lock)),
        2 => (one(), any::<u32>()).prop_map(|(turn, note)| Step::Note(turn, note)),
        2 => (one(), any::<bool>()).prop_map(|(turn, leaving)| Step::SetLeaving(turn, leaving)),
        1 => (one(), one()).prop_map(|(turn, key)| Step::KeepOnly(turn, key)),
        1 => (one(), 1_usize..16).prop_map(|(turn, keys)| Step::Widen(turn, keys)),
        3 => (one(), ttl()).prop_map(|(turn, ttl)| Step::SitInFront(turn, ttl)),
    ];
    let last = prop_oneof![1 => Just(None), 1 => Just(Some(Step::Close))];
    (vec(step.clone(), 1..90), last, vec(step, 0..15))
        .prop_map(|(before, last, after)| [before, last.into_iter().collect(), after].concat())
}

/// The queue and its reference, side by side.
struct Both {
    queue: Arc<Queue<Handover>>,
    names: [Name; 4],
    reference: Reference,
    turns: Vec<(Vec<usize>, Turn<Handover>)>,
    seats: BTreeMap<usize, (Seat<Handover>, Arc<Bell>)>,
    // Seats that are over, and not dropped yet: their places may be others' by now.
    over: Vec<Seat<Handover>>,
    count: usize,
}

impl Both {
    fn new(per_key: usize, total: usize) -> Self {
        Self {
            queue: Arc::new(Queue::new(Bounds { per_key, total })),
            names: ["a", "b", "c", "d"].map(Name::from),
            reference: Reference::new(per_key, total),
            turns: Vec::new(),
            seats: BTreeMap::new(),
            over: Vec::new(),
            count: 0,
        }
    }

    fn pick_turn(&mut self, number: usize) -> Option<(Vec<usize>, Turn<Handover>)> {
        let len = self.turns.len();
        (len > 0).then(|| self.turns.remove(number % len))
    }

    fn pick_seat(&self, number: usize) -> Option<usize> {
        let len = self.seats.len();
        (len > 0).then(|| *self.seats.keys().nth(number % len).unwrap())
    }

    fn run(&mut self, step: &Step) {
        match *step {
            Step::Enter {
                keys,
                ttl,
                waits,
                shares,
            } => self.enter(&chosen(keys), ttl, waits, shares),
            Step::Poll(number) => self.poll(number),
            Step::Leave(number) => {
                self.over.truncate(number % 3);
                if let Some(number) = self.pick_seat(number) {
                    self.reference.leave_line(number);
                    self.seats.remove(&number);
                }
            }
            Step::EndTurn(number) => {
                if let Some((keys, turn)) = self.pick_turn(number) {
                    self.reference.release(&keys);
                    drop(turn);
                }
            }
            Step::HandOver(number, ttl, lock) => self.hand_over(number, ttl, lock),
            Step::Note(number, note) => {
                if let Some((keys, turn)) = self.pick_turn(number) {
                    turn.set_holder(&note);
                    for key in &keys {
                        self.reference.keys.get_mut(key).unwrap().note = Some(note);
                    }
                    self.turns.push((keys, turn));
                }
            }
            Step::SetLeaving(number, leaving) => {
                if let Some((keys, turn)) = self.pick_turn(number) {
                    turn.set_being_released(leaving);
                    for key in &keys {
                        self.reference.set_being_released(*key, leaving);
                    }
                    self.turns.push((keys, turn));
                }
            }
            Step::KeepOnly(number, key) => self.keep_only(number, key),
            Step::Widen(number, keys) => self.widen(number, &chosen(keys)),
            Step::SitInFront(number, ttl) => self.sit_in_front(number, ttl),
            Step::Close => {
                self.queue.close();
                self.reference.close();
            }
        }
        self.compare();
    }

    fn keep_only(&mut self, number: usize, key: usize) {
        let Some((mut keys, turn)) = self.pick_turn(number) else {
            return;
        };
        let kept = keys.remove(key % keys.len());
        self.reference.release(&keys);
        let turn = turn.keep_only(|name| *name == *self.names[kept]).unwrap();
        self.turns.push((vec![kept], turn));
    }

    fn widen(&mut self, number: usize, more: &[usize]) {
        let Some((keys, turn)) = self.pick_turn(number) else {
            return;
        };
        let mut others = more.to_vec();
        others.retain(|key| !keys.contains(key));
        let mut all = [&*keys, &*others].concat();
        all.sort_unstable();
        let names: Vec<Name> = all.iter().map(|key| self.names[*key].clone()).collect();
        let widened = self.reference.take_free(&others);
        match turn.widen(&names) {
            Some(turn) => {
                assert!(widened, "one of them is in use");
                self.turns.push((all, turn));
            }
            None => {
                assert!(!widened, "all of them are free");
                self.reference.release(&keys);
            }
        }
    }

    fn sit_in_front(&mut self, number: usize, ttl: Duration) {
        let Some((keys, turn)) = self.pick_turn(number) else {
            return;
        };
        let is_free = matches!(*keys, [key] if !self.reference.has_front(key));
        if keys.len() > 1 {
            assert!(turn.front_seat(ttl).is_none());
        } else if is_free {
            let number = self.reference.enter_in_front(keys[0], ttl);
            let seat = turn.front_seat(ttl).unwrap();
            self.seats.insert(number, (seat, Arc::default()));
        }
        self.turns.push((keys, turn));
    }

    fn enter(&mut self, keys: &[usize], ttl: Duration, waits: bool, shares: bool) {
        self.count += 1;
        let number = FIRST + self.count;
        let expected = self.reference.enter(keys, ttl, waits, shares, number);
        let names: Vec<Name> = keys.iter().map(|key| self.names[*key].clone()).collect();
        let entry = match self.queue.enter(&names, ttl, waits, shares) {
            Ok(Entered::Turn(turn)) => {
                self.turns.push((keys.to_vec(), turn));
                Entry::Turn
            }
            Ok(Entered::Seat(seat)) => {
                self.seats.insert(number, (seat, Arc::default()));
                Entry::Seat
            }
            Err(Refused::InUse(note)) => Entry::InUse(note),
            Err(Refused::KeyFull) => Entry::KeyFull,
            Err(Refused::Full) => Entry::Full,
            Err(Refused::Closed) => Entry::Closed,
        };
        assert_eq!(entry, expected);
    }

    fn poll(&mut self, number: usize) {
        let Some(number) = self.pick_seat(number) else {
            return;
        };
        let keys = self.reference.seats[&number].wants.clone();
        let expected = self.reference.poll(number);
        let (seat, bell) = self.seats.get_mut(&number).unwrap();
        // Another task each time: only the last one counts.
        *bell = Arc::default();
        let waker = Waker::from(Arc::clone(bell));
        let call = match Pin::new(seat).poll(&mut Context::from_waker(&waker)) {
            Poll::Pending => None,
            Poll::Ready(Err(SentAway::Closed)) => Some(Call::Closed),
            Poll::Ready(Err(SentAway::InUse)) => Some(Call::InUse),
            Poll::Ready(Ok(Handover::Turn(turn))) => {
                self.turns.push((keys, turn));
                Some(Call::Turn)
            }
            Poll::Ready(Ok(Handover::Lock(lock, turn))) => {
                self.turns.push((keys, turn));
                Some(Call::Lock(lock))
            }
        };
        assert_eq!(call, expected);
        if call.is_some() {
            let over = self.seats.remove(&number).map(|(seat, _)| seat);
            self.over.extend(over);
        }
    }

    fn hand_over(&mut self, number: usize, ttl: Duration, lock: u32) {
        let Some((keys, turn)) = self.pick_turn(number) else {
            return;
        };
        let [key] = *keys else {
            // Only a lock of one key is passed.
            self.turns.push((keys, turn));
            return;
        };
        let taken = self.reference.hand_over(key, ttl, Call::Lock(lock));
        let name = &self.names[key];
        match self.queue.hand_over(name, ttl, Handover::Lock(lock, turn)) {
            Ok(()) => assert!(taken, "nobody waits, and somebody took it"),
            Err(Handover::Lock(back, turn)) => {
                assert!(!taken, "somebody waits, and it came back");
                assert_eq!(back, lock);
                self.turns.push((keys, turn));
            }
            Err(Handover::Turn(_)) => panic!("a lock came back as a bare turn"),
        }
    }

    fn compare(&self) {
        let expected = Load {
            keys: self.reference.keys.len(),
            waiting: self.reference.waiting(),
            seats: self.reference.seats.len(),
        };
        assert_eq!(self.queue.load(), expected);
        for (key, name) in self.names.iter().enumerate() {
            let note = self.reference.keys.get(&key).and_then(|key| key.note);
            assert_eq!(self.queue.holder(name), note);
        }
        for (keys, _) in &self.turns {
            for ttl in TTLS {
                for key in keys {
                    let has_next_waiter = self.queue.has_next_waiter(&self.names[*key], ttl);
                    assert_eq!(has_next_waiter, self.reference.has_next_waiter(*key, ttl));
                }
            }
        }
        for (number, (_, bell)) in &self.seats {
            let place = &self.reference.seats[number];
            assert_eq!(bell.0.load(Ordering::SeqCst), usize::from(place.woken));
            let kept = usize::from(place.watched);
            assert_eq!(Arc::strong_count(bell), 1 + kept, "wakers");
        }
        self.assert_nobody_is_kept_waiting();
    }

    /// Each key that is in use is so because somebody has its turn or has been called with it; and who waits does so
    /// for a key that is in use.
    fn assert_nobody_is_kept_waiting(&self) {
        let seats = &self.reference.seats;
        let called = seats
            .values()
            .filter(|place| matches!(place.call, Some(Call::Turn | Call::Lock(_))));
        let mut had: Vec<usize> = called.flat_map(|place| place.wants.clone()).collect();
        had.extend(self.turns.iter().flat_map(|(keys, _)| keys));
        let once: BTreeSet<usize> = had.iter().copied().collect();
        assert_eq!(had.len(), once.len(), "two have one key");
        let in_use: BTreeSet<usize> = self.reference.keys.keys().copied().collect();
        assert_eq!(in_use, once, "nobody has a key that is in use");
        for place in seats.values().filter(|place| place.call.is_none()) {
            let in_use = |key| once.contains(key);
            assert!(place.wants.iter().any(in_use), "it waits for nothing");
        }
    }

    /// Everybody goes, in any order, and nothing is left.
    fn end(mut self) {
        while self.queue.load().keys + self.queue.load().seats > 0 {
            assert!(!(self.turns.is_empty() && self.seats.is_empty()));
            self.run(&Step::Poll(self.count));
            self.run(&Step::EndTurn(self.count));
            self.count += 1;
        }
        assert!(self.turns.is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    #[test]
    fn it_does_what_lines_of_numbers_do(
        (per_key, total) in (1_usize..5, 1_usize..9),
        steps in steps(),
    ) {
        let mut both = Both::new(per_key, total);
        for step in &steps {
            both.run(step);
        }
        both.end();
    }
}
