//! What the models are made of: one key, those who want it, and what they see.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::slice;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use loom::cell::UnsafeCell;
use loom::sync::Notify;
use loom::thread::{self, JoinHandle};

use crate::queue::{self, Bounds, Entered, Load, Name, Refused, SentAway};

/// The ttl of all locks here.
pub(crate) const TTL: Duration = Duration::from_secs(10);

pub(crate) type Queue = queue::Queue<Handover>;
pub(crate) type Turn = queue::Turn<Handover>;
pub(crate) type Seat = queue::Seat<Handover>;

/// What waiters are called with, as in the manager: a bare turn, or a lock with its turn.
pub(crate) enum Handover {
    Turn(Turn),
    Lock(Lock),
}

impl queue::Handover for Handover {
    type Holder = u32;

    fn of_turn(turn: Turn) -> Self {
        Self::Turn(turn)
    }
}

/// A lock that behaves as a guard does: dropped, it passes itself on while it may and somebody waits, and otherwise
/// it is released and its turn ends.
pub(crate) struct Lock {
    pub(crate) key: Key,
    pub(crate) turn: Option<Turn>,
    pub(crate) passes: u32,
    pub(crate) released: Arc<AtomicUsize>,
}

impl Drop for Lock {
    fn drop(&mut self) {
        let Some(turn) = self.turn.take() else { return };
        self.key.hold();
        if self.passes > 0 && self.key.queue.has_next_waiter(&self.key.name, TTL) {
            let next = Self {
                key: self.key.clone(),
                turn: Some(turn),
                passes: self.passes - 1,
                released: Arc::clone(&self.released),
            };
            match self
                .key
                .queue
                .hand_over(&self.key.name, TTL, Handover::Lock(next))
            {
                Ok(()) => return,
                Err(Handover::Lock(mut next)) => self.turn = next.turn.take(),
                Err(Handover::Turn(_)) => panic!("it came as a lock"),
            }
        }
        self.released.fetch_add(1, Ordering::SeqCst);
    }
}

/// One key of a queue. Clones are the same key.
#[derive(Clone)]
pub(crate) struct Key {
    pub(crate) queue: Arc<Queue>,
    pub(crate) name: Name,
    // Who has the key writes here. The checker objects to two writes of which neither is known to be the first:
    // also in the orders in which they do not happen to overlap.
    held: Arc<UnsafeCell<()>>,
}

impl Key {
    /// A key of a queue in which two may wait for each key, and three in all.
    pub(crate) fn new() -> Self {
        Self::within(2, 3)
    }

    /// A key, and the turn of whoever has it.
    pub(crate) fn in_use() -> (Self, Turn) {
        let key = Self::new();
        let turn = key.turn();
        (key, turn)
    }

    pub(crate) fn within(per_key: usize, total: usize) -> Self {
        Self {
            queue: Arc::new(Queue::new(Bounds { per_key, total })),
            name: Name::from("key"),
            held: Arc::new(UnsafeCell::new(())),
        }
    }

    /// Gets in line for this key and another.
    pub(crate) fn enter_with(&self, other: &Self) -> Entered<Handover> {
        let names = [Name::clone(&self.name), Name::clone(&other.name)];
        self.queue.enter(&names, TTL, true, false).unwrap()
    }

    /// The turn of this key and another, of which neither is in use.
    pub(crate) fn turn_with(&self, other: &Self) -> Turn {
        match self.enter_with(other) {
            Entered::Turn(turn) => turn,
            Entered::Seat(_) => panic!("somebody has one of them"),
        }
    }

    /// A seat for this key and another, of which one is in use.
    pub(crate) fn seat_with(&self, other: &Self) -> Seat {
        match self.enter_with(other) {
            Entered::Turn(_) => panic!("nobody has either key"),
            Entered::Seat(seat) => seat,
        }
    }

    /// Another key of the same queue.
    pub(crate) fn other(&self) -> Self {
        Self {
            queue: Arc::clone(&self.queue),
            name: Name::from("other"),
            held: Arc::new(UnsafeCell::new(())),
        }
    }

    /// Does what nobody else may do at the same time.
    pub(crate) fn hold(&self) {
        self.held.with_mut(|_| ());
    }

    pub(crate) fn enter(&self, waits: bool) -> Result<Entered<Handover>, Refused<u32>> {
        self.queue
            .enter(slice::from_ref(&self.name), TTL, waits, false)
    }

    /// The turn of a key that is not in use.
    pub(crate) fn turn(&self) -> Turn {
        match self.enter(true).unwrap() {
            Entered::Turn(turn) => turn,
            Entered::Seat(_) => panic!("somebody has the key"),
        }
    }

    /// A seat for a key that is in use.
    pub(crate) fn seat(&self) -> Seat {
        match self.enter(true).unwrap() {
            Entered::Turn(_) => panic!("nobody has the key"),
            Entered::Seat(seat) => seat,
        }
    }

    /// A lock of a key that is not in use, and how often it was released.
    pub(crate) fn lock(&self, passes: u32) -> (Lock, Arc<AtomicUsize>) {
        let released = Arc::default();
        let lock = Lock {
            key: self.clone(),
            turn: Some(self.turn()),
            passes,
            released: Arc::clone(&released),
        };
        (lock, released)
    }

    /// Does something with this key on a thread of its own.
    pub(crate) fn spawn<T: 'static>(
        &self,
        work: impl FnOnce(Self) -> T + 'static,
    ) -> JoinHandle<T> {
        let key = self.clone();
        thread::spawn(move || work(key))
    }

    /// Waits to be called, and has the key for a moment.
    pub(crate) fn wait(&self, seat: Seat) -> Result<&'static str, SentAway> {
        let bell = Bell::new();
        let outcome = bell.block_on(seat).map(|handover| self.take(handover));
        bell.assert_done();
        outcome
    }

    /// Has the key for a moment.
    pub(crate) fn take(&self, handover: Handover) -> &'static str {
        match handover {
            Handover::Turn(turn) => {
                self.hold();
                drop(turn);
                "turn"
            }
            Handover::Lock(lock) => {
                drop(lock);
                "lock"
            }
        }
    }

    /// Looks whether it is called, and goes away: without the key, or after a moment with it.
    pub(crate) fn look_once(&self, mut seat: Seat) -> &'static str {
        let bell = Bell::new();
        let seen = match bell.poll(&mut seat) {
            Poll::Ready(outcome) => self.take(outcome.unwrap()),
            Poll::Pending => {
                drop(seat);
                // Whoever is called is woken, though that may come a little later.
                ["left", "left when called"][bell.rings()]
            }
        };
        bell.assert_done();
        seen
    }

    /// A lock was released once, and nothing is left of anybody.
    pub(crate) fn assert_released(&self, released: &AtomicUsize) {
        assert_eq!(released.load(Ordering::SeqCst), 1);
        self.assert_empty();
    }

    /// Nothing is left of anybody.
    pub(crate) fn assert_empty(&self) {
        let empty = Load {
            keys: 0,
            waiting: 0,
            seats: 0,
        };
        assert_eq!(self.queue.load(), empty);
    }
}

/// A task: woken, it polls again. It is woken once, when it is called.
pub(crate) struct Bell {
    notify: Notify,
    rings: AtomicUsize,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        let before = self.rings.fetch_add(1, Ordering::SeqCst);
        assert_eq!(before, 0, "woken too often");
        self.notify.notify();
    }
}

impl Bell {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            notify: Notify::new(),
            rings: AtomicUsize::new(0),
        })
    }

    pub(crate) fn rings(&self) -> usize {
        self.rings.load(Ordering::SeqCst)
    }

    pub(crate) fn poll(self: &Arc<Self>, seat: &mut Seat) -> Poll<Result<Handover, SentAway>> {
        let waker = Waker::from(Arc::clone(self));
        Pin::new(seat).poll(&mut Context::from_waker(&waker))
    }

    pub(crate) fn block_on(self: &Arc<Self>, mut seat: Seat) -> Result<Handover, SentAway> {
        loop {
            match self.poll(&mut seat) {
                Poll::Ready(outcome) => return outcome,
                Poll::Pending => self.notify.wait(),
            }
        }
    }

    /// Nobody keeps the waker of a task whose seat is gone; one who is about to wake it may have it in hand.
    pub(crate) fn assert_done(self: &Arc<Self>) {
        assert!(Arc::strong_count(self) <= 2, "somebody kept a waker");
    }
}

/// The outcomes that were seen, over all orders.
#[derive(Clone, Default)]
pub(crate) struct Seen(Arc<Mutex<BTreeSet<String>>>);

impl Seen {
    pub(crate) fn note(&self, outcome: impl Into<String>) {
        self.0.lock().unwrap().insert(outcome.into());
    }
}

/// Runs `model` in every order, and asserts that exactly these outcomes are seen.
pub(crate) fn explore<const N: usize>(
    outcomes: [&str; N],
    model: impl Fn(&Seen) + Send + Sync + 'static,
) {
    explore_within(None, outcomes, model);
}

/// As [`explore`], of the orders with at most `preemptions` switches away from a thread that could go on.
pub(crate) fn explore_within<const N: usize>(
    preemptions: Option<usize>,
    outcomes: [&str; N],
    model: impl Fn(&Seen) + Send + Sync + 'static,
) {
    let seen = Seen::default();
    let orders = Arc::new(AtomicUsize::new(0));
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.check({
        let (seen, orders) = (seen.clone(), Arc::clone(&orders));
        move || {
            orders.fetch_add(1, Ordering::SeqCst);
            model(&seen);
        }
    });
    let seen = seen.0.lock().unwrap();
    let expected: BTreeSet<String> = outcomes.into_iter().map(str::to_owned).collect();
    assert_eq!(*seen, expected);
    report(orders.load(Ordering::SeqCst));
}

#[expect(clippy::print_stdout, reason = "shown on demand")]
fn report(orders: usize) {
    println!("{orders} orders");
}
