//! Waiting for a lock: in the queue of this process for a turn or for the lock itself, and between two rounds for
//! others. The length of the wait, its signals, and the error at its end.

use std::pin::Pin;
use std::slice;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::timeout;

use crate::clock::Clock as _;
use crate::manager::error::AcquireError;
use crate::manager::guard::LockGuard;
use crate::manager::lease::held::{Passed, Turn};
use crate::manager::queue::Holder;
use crate::manager::queue::fifo::{Entered, Name, Refused, Seat, SentAway};
use crate::manager::round::Purpose;
use crate::manager::shared::Shared;
use crate::moment::Moment;
use crate::namespace::NodeKeys;
use crate::node::{Node, NoticeReceiver, Subscription};
use crate::protocol::backoff::{Backoff, after_split, until_due};
use crate::protocol::renewal::Terms;
use crate::seam::for_pause;

pub(crate) async fn turn<P: Purpose>(
    shared: &Arc<Shared>,
    terms: &Terms,
    keys: &NodeKeys,
    wait: Wait,
    queued: &mut bool,
) -> Result<Called, AcquireError> {
    loop {
        let entered = enter::<P>(shared, terms, keys.first().shared(), wait);
        let seat = match entered.map_err(|refused| refusal(shared, refused, wait))? {
            Entered::Turn(turn) => return Ok(Called::Turn(turn)),
            Entered::Seat(inner) => LockSeat::new(shared, terms, inner),
        };
        let called = called(shared, keys, wait, seat).await?;
        *queued = true;
        match called {
            // Lost between the hand-off and this check: then its turn passes to the next caller.
            Called::Lock(guard) if guard.is_lost() => {}
            Called::Lapsed => {}
            called => return Ok(called),
        }
    }
}

/// Enters the queue for one key. A caller that does not wait is refused if the key is in use, unless nothing is known of
/// the key, and it wants a record, which the caller before it may only read, a permit, of which there may be more, or a lock
/// that it may share.
fn enter<P: Purpose>(
    shared: &Shared,
    terms: &Terms,
    name: &Name,
    wait: Wait,
) -> Result<Entered<Passed>, Refused<Holder>> {
    let names = slice::from_ref(name);
    // No lock has a ttl of zero: none is handed to who takes none.
    let ttl = P::HANDED_ON.map_or(Duration::ZERO, |_| terms.ttl);
    let enter = |may_wait| shared.queue.enter(names, ttl, may_wait, P::SHARED);
    match enter(wait.is_patient()) {
        Err(Refused::InUse(None)) if P::HANDED_ON.is_none() || P::ANY => {
            let entered = enter(true);
            entered.map_err(|refused| match refused {
                Refused::KeyFull | Refused::Full => Refused::InUse(None),
                refused => refused,
            })
        }
        entered => entered,
    }
}

async fn called(
    shared: &Shared,
    keys: &NodeKeys,
    wait: Wait,
    seat: impl Future<Output = Result<Called, SentAway>>,
) -> Result<Called, AcquireError> {
    let _waiter = shared.waiters.add(keys.first(), wait.began, true);
    match timeout(wait.left_in_queue(shared), seat).await {
        Ok(Ok(called)) => Ok(called),
        Ok(Err(SentAway::Closed)) => Err(AcquireError::ShuttingDown),
        Err(_) | Ok(Err(SentAway::InUse)) => Err(wait.busy(shared, keys)),
    }
}

pub(crate) async fn turn_of_all(
    shared: &Arc<Shared>,
    terms: &Terms,
    keys: &NodeKeys,
    wait: Wait,
    before_wait: impl FnOnce(),
) -> Result<Turn, AcquireError> {
    let entered = (shared.queue).enter(&names(keys), terms.ttl, wait.is_patient(), false);
    let seat = match entered.map_err(|refused| refusal(shared, refused, wait))? {
        Entered::Turn(turn) => return Ok(turn),
        Entered::Seat(inner) => LockSeat::new(shared, terms, inner),
    };
    before_wait();
    match called(shared, keys, wait, seat).await? {
        Called::Turn(turn) => Ok(turn),
        // A lock is handed off only to a caller that wants its key alone.
        Called::Lock(_) | Called::Lapsed => Err(wait.busy(shared, keys)),
    }
}

pub(crate) fn names(keys: &NodeKeys) -> Vec<Name> {
    let keys = keys.as_slice().iter();
    keys.map(|key| Name::clone(key.shared())).collect()
}

fn refusal(shared: &Shared, refused: Refused<Holder>, wait: Wait) -> AcquireError {
    let bounds = shared.queue.bounds();
    let full = |limit, of_key| AcquireError::QueueFull { limit, of_key };
    match refused {
        Refused::InUse(holder) => wait.busy_for(shared, holder.as_ref()),
        Refused::KeyFull => full(bounds.per_key, true),
        Refused::Full => full(bounds.total, false),
        Refused::Closed => AcquireError::ShuttingDown,
    }
}

/// The value that a waiter is called with. Dropped, it passes on or is released.
pub(crate) enum Called {
    Turn(Turn),
    Lock(LockGuard),
    /// A lock that was not taken in time, and is another's now.
    Lapsed,
}

impl Called {
    fn new(shared: &Arc<Shared>, max_hold: Duration, passed: Passed) -> Self {
        match passed {
            Passed::Turn(turn) => Self::Turn(turn),
            Passed::Lock(tenancy) if !tenancy.lease.accept(tenancy.number) => Self::Lapsed,
            Passed::Lock(tenancy) => {
                // The `max_hold` of the holder before may differ.
                if tenancy.lease.hold_for(tenancy.number, max_hold) {
                    shared.registry.replan(&tenancy.lease);
                }
                Self::Lock(LockGuard::new(Arc::clone(shared), tenancy))
            }
        }
    }
}

/// A place in the queue. Each way out of it gives the tenancy to a guard, also if the caller leaves between hand-over
/// and wake-up.
#[must_use = "a seat that is dropped is given up"]
pub(crate) struct LockSeat<'a> {
    pub(crate) shared: &'a Arc<Shared>,
    pub(crate) inner: Seat<Passed>,
    max_hold: Duration,
}

impl<'a> LockSeat<'a> {
    pub(crate) const fn new(shared: &'a Arc<Shared>, terms: &Terms, inner: Seat<Passed>) -> Self {
        Self {
            shared,
            inner,
            max_hold: terms.max_hold,
        }
    }
}

impl Future for LockSeat<'_> {
    type Output = Result<Called, SentAway>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let (shared, max_hold) = (self.shared, self.max_hold);
        let called = Pin::new(&mut self.inner).poll(cx);
        called.map_ok(|passed| Called::new(shared, max_hold, passed))
    }
}

impl Drop for LockSeat<'_> {
    fn drop(&mut self) {
        if let Some(passed) = self.inner.leave() {
            drop(Called::new(self.shared, self.max_hold, passed));
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    pub(crate) began: Moment,
    limit: Duration,
}

impl Wait {
    pub(crate) const fn new(began: Moment, limit: Duration) -> Self {
        Self { began, limit }
    }

    pub(crate) const fn is_patient(&self) -> bool {
        !self.limit.is_zero()
    }

    pub(crate) fn waited(&self, shared: &Shared) -> Duration {
        shared.clock.now().since(self.began)
    }

    pub(crate) fn left(&self, shared: &Shared) -> Duration {
        if !self.is_patient() {
            return Duration::ZERO;
        }
        self.limit.saturating_sub(self.waited(shared))
    }

    /// How long to wait in the queue. A caller that does not wait for locks waits there for a release or a record: a
    /// node time-out at most.
    pub(crate) fn left_in_queue(&self, shared: &Shared) -> Duration {
        if self.is_patient() {
            self.left(shared)
        } else {
            shared.node_timeout.saturating_sub(self.waited(shared))
        }
    }

    pub(crate) fn busy(&self, shared: &Shared, keys: &NodeKeys) -> AcquireError {
        let holder = keys
            .as_slice()
            .iter()
            .find_map(|key| shared.queue.note(key.shared()));
        self.busy_for(shared, holder.as_ref())
    }

    pub(crate) fn busy_for(&self, shared: &Shared, holder: Option<&Holder>) -> AcquireError {
        let remaining = holder.and_then(|holder| holder.remaining(&*shared.clock));
        if self.is_patient() {
            let waited = self.waited(shared);
            AcquireError::WaitTimeout { waited, remaining }
        } else {
            AcquireError::Contended { remaining }
        }
    }
}

/// Subscriptions on all nodes that can announce releases. Dropped, they end.
#[derive(Debug)]
pub(crate) struct ReleaseNotices {
    receiver: NoticeReceiver,
    _subscriptions: Vec<Subscription>,
}

impl ReleaseNotices {
    /// Subscribes. A release of any of several keys counts: the key in the way may change.
    pub(crate) fn subscribe(nodes: &[Arc<dyn Node>], keys: &NodeKeys) -> Self {
        let receiver = NoticeReceiver::new(nodes.len());
        let notifiers = nodes.iter().enumerate();
        let notifiers = notifiers.filter_map(|(index, node)| Some((index, node.notifier()?)));
        let subscriptions = notifiers.flat_map(|(index, notifier)| {
            let receiver = &receiver;
            let keys = keys.as_slice().iter();
            keys.map(move |key| notifier.subscribe(key, receiver.sender(index)))
        });
        Self {
            _subscriptions: subscriptions.collect(),
            receiver,
        }
    }

    /// How long the holder had waited who has released the key; zero if that is not known.
    pub(crate) fn waited(&self) -> Duration {
        self.receiver.notices().waited
    }

    pub(crate) fn open(&self) -> usize {
        self.receiver.notices().open
    }

    /// Forgets the notices so far: the nodes are about to be asked.
    pub(crate) fn forget(&self) {
        self.receiver.forget();
    }

    /// Waits for `needed` notices; or for fewer, and no more within `grace`; or, if `opening`, until the subscriptions
    /// on `needed` nodes work.
    pub(crate) async fn next(&self, needed: usize, grace: Duration, opening: bool) -> Woken {
        loop {
            let notices = self.receiver.notices();
            if notices.released > 0 {
                let _ = timeout(grace, self.released(needed)).await;
                return Woken::Released;
            }
            if opening && notices.open >= needed && notices.least_open < needed {
                return Woken::Opened;
            }
            self.receiver.changed().await;
        }
    }

    pub(crate) async fn released(&self, needed: usize) {
        while self.receiver.notices().released < needed {
            self.receiver.changed().await;
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    Released,
    /// The subscriptions work at last.
    Opened,
}

#[derive(Debug)]
pub(crate) struct PollDelays {
    without_notices: Backoff,
    with_notices: Backoff,
}

impl PollDelays {
    pub(crate) const fn new() -> Self {
        Self {
            without_notices: Backoff::new(FIRST_POLL, SLOWEST_POLL),
            with_notices: Backoff::new(FIRST_POLL_NOTIFIED, SLOWEST_POLL_NOTIFIED),
        }
    }

    /// The delay before the next round; `notified` if a quorum of nodes announces releases.
    pub(crate) fn next(&mut self, notified: bool) -> Duration {
        let backoff = if notified {
            &mut self.with_notices
        } else {
            &mut self.without_notices
        };
        backoff.next(for_pause())
    }
}

/// A random delay that spreads the rounds of the contenders; `None` if this one goes at once.
pub(crate) fn contention_delay(contenders: usize, round_trip: Duration) -> Option<Duration> {
    if contenders < 2 {
        return None;
    }
    let round_trip = reckoned(round_trip);
    let delay = after_split(for_pause(), contenders, round_trip);
    // One or two go at once: two cannot split an odd number of nodes.
    (delay >= round_trip * 3 / 4).then_some(delay)
}

/// A delay after a release that lets those go first who have waited longer, if the notice says how long the holder had.
pub(crate) fn delay_after_release(
    contenders: usize,
    (age, before): (Duration, Duration),
    round_trip: Duration,
) -> Option<Duration> {
    if before.is_zero() {
        return contention_delay(contenders, round_trip);
    }
    let delay = until_due(age, before, reckoned(round_trip));
    (!delay.is_zero()).then_some(delay)
}

/// The round trip that contenders reckon with where they spread their rounds: at least a timer's millisecond, at most
/// that of a slow node.
pub(crate) fn reckoned(round_trip: Duration) -> Duration {
    round_trip.clamp(Duration::from_millis(1), Duration::from_millis(25))
}

const FIRST_POLL: Duration = Duration::from_millis(4);
/// The ceiling of the longest delay.
const SLOWEST_POLL: Duration = Duration::from_millis(100);
const FIRST_POLL_NOTIFIED: Duration = Duration::from_millis(100);
const SLOWEST_POLL_NOTIFIED: Duration = Duration::from_secs(1);
