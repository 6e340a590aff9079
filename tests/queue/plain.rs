//! The queue with the locks of the standard library, in one thread: random operations, compared step by step with
//! the [`reference`](crate::reference).

mod sync {
    pub(super) use std::sync::{Mutex, MutexGuard};
}

#[path = "../../src/manager/queue/mod.rs"]
#[allow(dead_code, reason = "the comparison needs a part of it")]
#[expect(clippy::duplicate_mod, reason = "here with other locks")]
mod queue;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use proptest::collection::vec;
use proptest::prelude::*;

use self::queue::{Bounds, Closed, Entered, Load, MISSES, Name, Queue, Refused, Seat, Turn};
use crate::reference::{Call, Entry, Reference};

enum Baton {
    Turn(Turn<Self>),
    // The number of a lock, and its turn.
    Lock(u32, Turn<Self>),
}

impl queue::Baton for Baton {
    type Note = u32;

    fn bare(turn: Turn<Self>) -> Self {
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
    Enter { key: usize, waits: bool },
    Poll(usize),
    Leave(usize),
    EndTurn(usize),
    HandOver(usize, u32),
    Note(usize, u32),
    BeginRelease(usize),
    Close,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let one = || 0_usize..64;
    let step = prop_oneof![
        12 => (0_usize..3, prop::bool::weighted(0.8)).prop_map(|(key, waits)| Step::Enter { key, waits }),
        6 => one().prop_map(Step::Poll),
        4 => one().prop_map(Step::Leave),
        5 => one().prop_map(Step::EndTurn),
        4 => (one(), any::<u32>()).prop_map(|(turn, lock)| Step::HandOver(turn, lock)),
        2 => (one(), any::<u32>()).prop_map(|(turn, note)| Step::Note(turn, note)),
        2 => one().prop_map(Step::BeginRelease),
    ];
    let last = prop_oneof![1 => Just(None), 1 => Just(Some(Step::Close))];
    (vec(step.clone(), 1..60), last, vec(step, 0..15))
        .prop_map(|(before, last, after)| [before, last.into_iter().collect(), after].concat())
}

/// The queue and its reference, side by side.
struct Both {
    queue: Arc<Queue<Baton>>,
    names: [Name; 3],
    reference: Reference,
    turns: Vec<(usize, Turn<Baton>)>,
    seats: BTreeMap<usize, (Seat<Baton>, Arc<Bell>)>,
    // Seats that are over, and not dropped yet: their places may be others' by now.
    over: Vec<Seat<Baton>>,
    count: usize,
}

impl Both {
    fn new(per_key: usize, total: usize) -> Self {
        Self {
            queue: Arc::new(Queue::new(Bounds { per_key, total }, MISSES)),
            names: ["a", "b", "c"].map(Name::from),
            reference: Reference::new(per_key, total),
            turns: Vec::new(),
            seats: BTreeMap::new(),
            over: Vec::new(),
            count: 0,
        }
    }

    fn pick_turn(&mut self, number: usize) -> Option<(usize, Turn<Baton>)> {
        let len = self.turns.len();
        (len > 0).then(|| self.turns.remove(number % len))
    }

    fn pick_seat(&self, number: usize) -> Option<usize> {
        let len = self.seats.len();
        (len > 0).then(|| *self.seats.keys().nth(number % len).unwrap())
    }

    fn run(&mut self, step: &Step) {
        match *step {
            Step::Enter { key, waits } => self.enter(key, waits),
            Step::Poll(number) => self.poll(number),
            Step::Leave(number) => {
                self.over.truncate(number % 3);
                if let Some(number) = self.pick_seat(number) {
                    self.reference.leave_line(number);
                    self.seats.remove(&number);
                }
            }
            Step::EndTurn(number) => {
                if let Some((key, turn)) = self.pick_turn(number) {
                    self.reference.end_turn(key);
                    drop(turn);
                }
            }
            Step::HandOver(number, lock) => self.hand_over(number, lock),
            Step::Note(number, note) => {
                if let Some((key, turn)) = self.pick_turn(number) {
                    turn.note(&note);
                    self.reference.lines.get_mut(&key).unwrap().note = Some(note);
                    self.turns.push((key, turn));
                }
            }
            Step::BeginRelease(number) => {
                if let Some((key, turn)) = self.pick_turn(number) {
                    turn.set_leaving(true, None);
                    self.reference.begin_release(key);
                    self.turns.push((key, turn));
                }
            }
            Step::Close => {
                self.queue.close();
                self.reference.close();
            }
        }
        self.compare();
    }

    fn enter(&mut self, key: usize, waits: bool) {
        self.count += 1;
        let expected = self.reference.enter(key, waits, self.count);
        let entry = match self.queue.enter(&self.names[key], waits) {
            Ok(Entered::Turn(turn)) => {
                self.turns.push((key, turn));
                Entry::Turn
            }
            Ok(Entered::Seat(seat)) => {
                self.seats.insert(self.count, (seat, Arc::default()));
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
        let key = self.reference.seats[&number].key;
        let expected = self.reference.poll(number);
        let (seat, bell) = self.seats.get_mut(&number).unwrap();
        // Another task each time: only the last one counts.
        *bell = Arc::default();
        let waker = Waker::from(Arc::clone(bell));
        let call = match Pin::new(seat).poll(&mut Context::from_waker(&waker)) {
            Poll::Pending => None,
            Poll::Ready(Err(Closed)) => Some(Call::Closed),
            Poll::Ready(Ok(Baton::Turn(turn))) => {
                self.turns.push((key, turn));
                Some(Call::Turn)
            }
            Poll::Ready(Ok(Baton::Lock(lock, turn))) => {
                self.turns.push((key, turn));
                Some(Call::Lock(lock))
            }
        };
        assert_eq!(call, expected);
        if call.is_some() {
            let over = self.seats.remove(&number).map(|(seat, _)| seat);
            self.over.extend(over);
        }
    }

    fn hand_over(&mut self, number: usize, lock: u32) {
        let Some((key, turn)) = self.pick_turn(number) else {
            return;
        };
        let taken = self.reference.call_first(key, Call::Lock(lock));
        let name = &self.names[key];
        match self.queue.hand_over(name, Baton::Lock(lock, turn)) {
            Ok(()) => assert!(taken, "nobody waits, and somebody took it"),
            Err(Baton::Lock(back, turn)) => {
                assert!(!taken, "somebody waits, and it came back");
                assert_eq!(back, lock);
                self.turns.push((key, turn));
            }
            Err(Baton::Turn(_)) => panic!("a lock came back as a bare turn"),
        }
    }

    fn compare(&self) {
        let expected = Load {
            keys: self.reference.lines.len(),
            waiting: self.reference.waiting(),
            seats: self.reference.seats.len(),
        };
        assert_eq!(self.queue.load(), expected);
        for (key, name) in self.names.iter().enumerate() {
            let note = self.reference.lines.get(&key).and_then(|line| line.note);
            assert_eq!(self.queue.note(name), note);
        }
        for (key, turn) in &self.turns {
            let waiting = &self.reference.lines[key].waiting;
            assert_eq!(turn.is_waited_for(), !waiting.is_empty());
        }
        for (number, (_, bell)) in &self.seats {
            let place = &self.reference.seats[number];
            assert_eq!(bell.0.load(Ordering::SeqCst), usize::from(place.woken));
            let kept = place.polled && place.call.is_none();
            assert_eq!(Arc::strong_count(bell), 1 + usize::from(kept), "wakers");
        }
    }

    /// Everybody goes, in any order, and nothing is left.
    fn end(mut self) {
        let empty = Load {
            keys: 0,
            waiting: 0,
            seats: 0,
        };
        while self.queue.load() != empty {
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
    fn it_does_what_a_line_of_numbers_does(per_key in 1_usize..5, total in 1_usize..8, steps in steps()) {
        let mut both = Both::new(per_key, total);
        for step in &steps {
            both.run(step);
        }
        both.end();
    }
}
