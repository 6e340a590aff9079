//! [`Contender`]: one caller's rounds over the nodes.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::clock::Clock as _;
use crate::instruments;
use crate::manager::acquire::hint::WaitingWriter;
use crate::manager::acquire::wait::{
    Called, LockSeat, PollDelays, ReleaseNotices, Wait, Woken, contention_delay,
    delay_after_release, names, reckoned, turn, turn_of_all,
};
use crate::manager::error::AcquireError;
use crate::manager::guard::LockGuard;
use crate::manager::lease::held::Turn;
use crate::manager::queue::{Holder, Waiter};
use crate::manager::round::{Attempt, Decision, Purpose};
use crate::manager::shared::Shared;
use crate::namespace::{NodeKey, NodeKeys};
use crate::protocol::renewal::Terms;
use crate::protocol::round::Verdict;

pub(crate) enum Acquired<P: Purpose> {
    Lock(LockGuard, P::Along),
    Found(P::Found),
}

/// The caller of this process that asks the nodes for its keys.
pub(crate) struct Contender<'a, P: Purpose> {
    shared: &'a Arc<Shared>,
    terms: Terms,
    keys: NodeKeys,
    purpose: P,
    // Of permits, while it has a turn: a place before all that wait here. Given up before the turn.
    front: Option<LockSeat<'a>>,
    // Of several keys, while it waits for another process: that of the key in the way, and of those before it with a hint,
    // or none. The others are free. Of permits: none until all slots were found held.
    turn: Option<Turn>,
    // A lock that a holder of this process passed to it.
    handed: Option<LockGuard>,
    // The key in the way, if the nodes tell it.
    blocking: Option<NodeKey>,
    // Readers have it.
    is_read: bool,
    // While readers have the key in the way: of that, and of those before it that they had.
    hints: Vec<WaitingWriter>,
    wait: Wait,
    // Whether it waited in the queue before.
    queued: bool,
    notices: Option<ReleaseNotices>,
    // The last wait ended because the subscriptions work at last, not because of a release.
    opened: bool,
    // While it waits for other processes.
    waiter: Option<Waiter>,
    // A fencing token was not settled.
    unsettled: bool,
    // Split votes since the last other verdict.
    splits: u32,
    // How many contended in the last split: as many will after a release.
    contenders: usize,
    delays: PollDelays,
}

impl<'a, P: Purpose> Contender<'a, P> {
    pub(crate) fn new(
        shared: &'a Arc<Shared>,
        terms: Terms,
        (keys, purpose): (NodeKeys, P),
        turn: Option<Turn>,
        wait: Wait,
        queued: bool,
    ) -> Self {
        if let Some(turn) = turn.as_ref().filter(|_| keys.are_several()) {
            // Those that are free pass to others if one is not.
            turn.set_leaving(true);
        }
        let mut contender = Self {
            shared,
            terms,
            keys,
            purpose,
            front: None,
            handed: None,
            turn,
            blocking: None,
            is_read: false,
            hints: Vec::new(),
            wait,
            queued,
            notices: None,
            opened: false,
            waiter: None,
            unsettled: false,
            splits: 0,
            contenders: 1,
            delays: PollDelays::new(),
        };
        contender.sit_in_front();
        contender
    }

    /// Asks the nodes, round after round, until the lock is acquired, not needed or out of reach, or the wait is over.
    pub(crate) async fn contend(mut self) -> Result<Acquired<P>, AcquireError> {
        if self.wait.is_patient() {
            Box::pin(self.cool_down()).await?;
        }
        // The first caller for a key has a right to one whole round, however short its wait is to be.
        let mut limit = (self.wait.is_patient() && self.queued).then(|| self.left());
        loop {
            if let Some(guard) = self.handed.take()
                && self.purpose.fits(guard.slot())
                && let Some(along) = P::HANDED_ON
            {
                return Ok(Acquired::Lock(self.waited(guard), along));
            }
            let mut attempt = self.attempt(limit)?;
            let decision = self.round(&mut attempt, limit).await?;
            let sent = attempt.sent;
            let round_trip = || self.shared.clock.now().since(sent);
            let verdict = match decision {
                Decision::Lock(verdict) => verdict,
                Decision::Found => return P::found(attempt).map(Acquired::Found),
                Decision::Again if self.purpose.ask_again() => {
                    Box::pin(self.release(attempt)).await;
                    limit = self.wait.is_patient().then(|| self.left());
                    continue;
                }
                Decision::Again => return Err(attempt.no_quorum()),
            };
            match verdict {
                Verdict::Granted => match P::settle(&mut attempt).await {
                    Ok(along) => return self.won(attempt, along),
                    Err(error) if self.must_end(&error) => return Err(error),
                    Err(_) => Box::pin(self.release(attempt)).await,
                },
                Verdict::NoQuorum => return Err(attempt.no_quorum()),
                Verdict::Split {
                    contenders,
                    remaining,
                } => {
                    let round_trip = round_trip();
                    self.note(remaining);
                    self.splits += 1;
                    self.contenders = contenders;
                    if self.has_split_too_often() {
                        return Err(self.busy());
                    }
                    Box::pin(self.release(attempt)).await;
                    if self.splits >= MAX_SPLITS {
                        // Contenders that share the nodes are stuck or long gone. Boxed, as below: a lock that is free
                        // needs no room for it.
                        Box::pin(self.wait_for_release(remaining, round_trip)).await?;
                    } else {
                        Box::pin(self.wait_after_split(remaining, round_trip)).await?;
                    }
                }
                Verdict::Contended { remaining } => {
                    let round_trip = round_trip();
                    self.note(remaining);
                    if self.left().is_zero() {
                        return Err(self.held_for(remaining));
                    }
                    self.splits = 0;
                    Box::pin(self.release(attempt)).await;
                    if self.turn.is_some() || !Box::pin(self.queue()).await? {
                        self.note(remaining);
                        Box::pin(self.wait_for_release(remaining, round_trip)).await?;
                    }
                }
            }
            limit = self.wait.is_patient().then(|| self.left());
        }
    }

    /// Queues behind the callers of this process that found all slots held before it. Returns whether it had to wait for them.
    async fn queue(&mut self) -> Result<bool, AcquireError> {
        let mut queued = false;
        let (shared, keys) = (self.shared, &self.keys);
        match turn::<P>(shared, &self.terms, keys, self.wait, &mut queued).await? {
            Called::Turn(turn) => {
                self.turn = Some(turn);
                self.sit_in_front();
            }
            Called::Lock(guard) => self.handed = Some(guard),
            Called::Lapsed => return Err(self.busy()),
        }
        Ok(queued)
    }

    /// Prepares a round, whose replies say more than all notices before it.
    fn attempt(&self, limit: Option<Duration>) -> Result<Attempt<P>, AcquireError> {
        if let Some(notices) = &self.notices {
            notices.forget();
        }
        // A round without any time could only set keys that must be released again.
        if limit.is_some_and(|limit| limit.is_zero()) {
            return Err(self.busy());
        }
        Attempt::new(self.shared, &self.keys, self.purpose.clone(), self.terms)
    }

    /// One round, which takes `limit` at most.
    async fn round(
        &mut self,
        attempt: &mut Attempt<P>,
        limit: Option<Duration>,
    ) -> Result<Decision, AcquireError> {
        let decision = match limit {
            Some(limit) => timeout(limit, attempt.decide()).await.ok(),
            None => Some(attempt.decide().await),
        };
        instruments::round(decision.map_or("undecided", label));
        let decision = decision.ok_or_else(|| self.busy())?;
        if decision == Decision::Lock(Verdict::Granted) {
            for hint in std::mem::take(&mut self.hints) {
                Box::pin(hint.take_back()).await;
            }
        }
        Ok(decision)
    }

    fn left(&self) -> Duration {
        self.wait.left(self.shared)
    }

    fn held_for(&self, remaining: Option<Duration>) -> AcquireError {
        let now = self.shared.clock.now();
        let holder = remaining.map(|left| Holder::Elsewhere(now + left));
        self.wait.busy_for(self.shared, holder.as_ref())
    }

    fn busy(&self) -> AcquireError {
        self.wait.busy(self.shared, &self.keys)
    }

    fn has_split_too_often(&self) -> bool {
        if self.wait.is_patient() {
            return self.left().is_zero();
        }
        // Bounded by time, too: with a slow node a split may only seem one, and every round takes its time-out.
        self.splits >= MAX_SPLITS
            || self.wait.waited(self.shared) >= self.shared.node_timeout * SPLIT_TIMEOUTS
    }

    /// Whether a fencing token that was not settled ends the call. Only the second does: a node that died between its grant
    /// and its confirmation is no lack of a quorum.
    fn must_end(&mut self, error: &AcquireError) -> bool {
        let is_lack = matches!(error, AcquireError::NoQuorum(_));
        let is_again = std::mem::replace(&mut self.unsettled, true);
        let is_over = self.wait.is_patient() && self.left().is_zero();
        is_again || !is_lack || is_over
    }

    /// Gives the lock of a settled round to the watchdog.
    fn won(mut self, attempt: Attempt<P>, along: P::Along) -> Result<Acquired<P>, AcquireError> {
        self.front = None;
        // With permits and readers the turn passes on: the next waiter may find another slot free, or share the lock.
        let turn = self.turn.take_if(|_| !P::ANY && !P::SHARED);
        if let Some(turn) = turn.as_ref().filter(|_| self.keys.are_several()) {
            turn.set_leaving(false);
        }
        let held = attempt.win(turn)?;
        let waited = self.wait.waited(self.shared);
        // Nobody else has set it.
        let _ = held.waited.set(waited);
        let guard = LockGuard::first(self.shared, held).ok_or(AcquireError::ShuttingDown)?;
        if P::SHARED {
            let lease = &guard.tenancy().lease;
            self.shared.open_leases.open(lease, &self.terms);
        }
        Ok(Acquired::Lock(guard.waited_for(waited), along))
    }

    fn waited(&self, guard: LockGuard) -> LockGuard {
        guard.waited_for(self.wait.waited(self.shared))
    }

    /// Releases the keys of a lost round, so that they do not refuse the next one.
    async fn release(&mut self, attempt: Attempt<P>) {
        self.blocking = attempt.blocking_key();
        self.is_read = attempt.is_read();
        let limit = if self.wait.is_patient() {
            self.left()
        } else {
            self.shared.node_timeout
        };
        // A release that takes longer goes on in the background.
        let _ = timeout(limit, attempt.release()).await;
    }

    /// Tells callers that do not wait how long the holder's lease goes on.
    fn note(&self, remaining: Option<Duration>) {
        if let (Some(remaining), Some(turn)) = (remaining, &self.turn) {
            turn.note(&Holder::Elsewhere(self.shared.clock.now() + remaining));
        }
    }

    /// Of several keys, passes the turns of all except the one in the way, and those whose readers are kept out: the next
    /// caller here would be refused for that.
    fn narrow_turn(&mut self) {
        if !self.keys.are_several() {
            return;
        }
        let is_hinted = |key: &NodeKey| self.hints.iter().any(|hint| hint.is_for(key));
        let stays = |key: &&NodeKey| match &self.blocking {
            Some(blocking) if *key == blocking => true,
            // Those behind it may be wanted by who has it.
            Some(blocking) => self.is_read && key.as_str() < blocking.as_str() && is_hinted(key),
            None => false,
        };
        let stay: Vec<&NodeKey> = self.keys.as_slice().iter().filter(stays).collect();
        let stays = |name: &str| stay.iter().any(|key| key.as_str() == name);
        let turn = self.turn.take().and_then(|turn| turn.keep_only(stays));
        self.turn = turn.inspect(|turn| turn.set_leaving(false));
    }

    /// Takes back the turns that [`narrow_turn`](Self::narrow_turn) passed: if they are not free, passes the last one,
    /// too, and queues anew.
    async fn widen_turn(&mut self) -> Result<(), AcquireError> {
        if !self.keys.are_several() {
            return Ok(());
        }
        let (shared, keys) = (self.shared, &self.keys);
        let turn = self.turn.take();
        let turn = match turn.and_then(|turn| turn.widen(&names(keys))) {
            Some(turn) => turn,
            None => {
                // It waits for this process then, not for others.
                let end = || {
                    (self.notices, self.waiter) = (None, None);
                    self.hints.clear();
                };
                turn_of_all(shared, &self.terms, keys, self.wait, end).await?
            }
        };
        turn.set_leaving(true);
        self.turn = Some(turn);
        Ok(())
    }

    /// Listens to releases, unless as many callers wait already as may.
    fn subscribe(&mut self) -> Result<(), AcquireError> {
        let (shared, keys) = (self.shared, &self.keys);
        let limit = shared.queue.bounds().total;
        if self.waiter.is_none() && shared.waiters.count() >= limit {
            let of_key = false;
            return Err(AcquireError::QueueFull { limit, of_key });
        }
        self.waiter
            .get_or_insert_with(|| shared.waiters.add(keys.first(), self.wait.began, false));
        self.notices
            .get_or_insert_with(|| ReleaseNotices::subscribe(&shared.nodes, keys));
        Ok(())
    }

    /// Lets other processes go first after a contended release by this one.
    async fn cool_down(&mut self) -> Result<(), AcquireError> {
        let now = self.shared.clock.now();
        let keys = self.keys.as_slice().iter();
        let cooling =
            keys.filter_map(|key| Some((self.shared.cooldown.left(key.shared(), now)?, key)));
        let Some((left, key)) = cooling.max_by_key(|(left, _)| *left) else {
            return Ok(());
        };
        self.blocking = Some(key.clone());
        self.narrow_turn();
        // They will have it for a while; to subscribe now saves a round trip afterwards. Who has not found all permits held
        // does not wait for a release: each would be answered by a cooldown.
        if self.turn.is_some() || !P::ANY {
            self.subscribe()?;
        }
        let pause = sleep(left.min(self.left()));
        self.unless_called(pause).await?;
        if self.left().is_zero() && self.handed.is_none() {
            return Err(self.busy());
        }
        self.widen_turn().await
    }

    /// Lets the other contenders go first, for a delay that is random and grows with their number.
    async fn wait_after_split(
        &mut self,
        remaining: Option<Duration>,
        round_trip: Duration,
    ) -> Result<(), AcquireError> {
        let Some(delay) = contention_delay(self.contenders, round_trip) else {
            return Ok(());
        };
        if !self.wait.is_patient() {
            sleep(delay).await;
            return Ok(());
        }
        self.narrow_turn();
        self.note(remaining);
        sleep(delay.min(self.left())).await;
        self.widen_turn().await
    }

    async fn wait_for_release(
        &mut self,
        remaining: Option<Duration>,
        round_trip: Duration,
    ) -> Result<(), AcquireError> {
        self.narrow_turn();
        self.note(remaining);
        self.subscribe()?;
        self.sit_in_front();
        self.stop_readers().await;
        let Some(notices) = self.notices.take() else {
            return self.widen_turn().await;
        };
        let needed = self.shared.terms.quorum.needed();
        // Nobody else can have it before the holder's lease ends, unless the holder releases it. Servers keep a key
        // until the millisecond of its end is over. The end of a lease, as of one that seems to have ended, is not
        // announced.
        let lease = remaining.filter(|left| !left.is_zero());
        let is_announced = remaining.is_none_or(|left| !left.is_zero());
        let poll = (self.delays).next(is_announced && notices.open() >= needed);
        let limit = lease.map_or(poll, |left| poll.min(left.saturating_add(MILLISECOND)));
        let limit = limit.min(self.left());
        // Callers of several keys wake each other: two that hurried for nothing would do so for ever.
        let opening = !(self.opened && self.keys.are_several());
        let woken = timeout(limit, notices.next(needed, reckoned(round_trip), opening));
        let woken = self.unless_called(woken).await?.and_then(Result::ok);
        let ages = (self.wait.waited(self.shared), notices.waited());
        self.notices = Some(notices);
        self.opened = woken == Some(Woken::Opened);
        if woken == Some(Woken::Released)
            && let Some(delay) = delay_after_release(self.contenders, ages, round_trip)
        {
            self.unless_called(sleep(delay.min(self.left()))).await?;
        }
        if P::ANY && self.handed.is_none() {
            return self.cool_down().await;
        }
        self.widen_turn().await
    }

    /// If readers are in the way, leaves a hint at the nodes that no new ones are to come; else takes all hints back.
    async fn stop_readers(&mut self) {
        let Some(key) = self.blocking.as_ref().filter(|_| self.is_read) else {
            return self.hints.clear();
        };
        // Who reads this key may wait for those that sort after it.
        self.hints.retain(|hint| hint.sorts_up_to(key));
        if !self.hints.iter().any(|hint| hint.is_for(key)) {
            self.hints.extend(WaitingWriter::new(self.shared, key));
        }
        for hint in &mut self.hints {
            hint.renew().await;
        }
    }

    fn sit_in_front(&mut self) {
        let turn = self
            .turn
            .as_ref()
            .filter(|_| P::ANY && self.front.is_none());
        if let Some(seat) = turn.and_then(|turn| turn.front_seat(self.terms.ttl)) {
            self.front = Some(LockSeat::new(self.shared, &self.terms, seat));
        }
    }

    /// Waits for `done`; `None` if a permit was handed over before that.
    async fn unless_called<F: Future>(
        &mut self,
        done: F,
    ) -> Result<Option<F::Output>, AcquireError> {
        let called = async {
            match &mut self.front {
                Some(seat) => seat.await,
                None => pending().await,
            }
        };
        let called = tokio::select! {
            biased;
            () = self.shared.registry.closing.given() => return Err(AcquireError::ShuttingDown),
            called = called => called,
            output = done => return Ok(Some(output)),
        };
        self.front = None;
        if let Ok(Called::Lock(guard)) = called {
            self.handed = Some(guard).filter(|guard| !guard.is_lost());
        }
        Ok(None)
    }
}

const fn label(decision: Decision) -> &'static str {
    match decision {
        Decision::Lock(Verdict::Granted) => "granted",
        Decision::Lock(Verdict::NoQuorum) => "no-quorum",
        Decision::Lock(Verdict::Split { .. }) => "split",
        Decision::Lock(Verdict::Contended { .. }) => "contended",
        Decision::Found | Decision::Again => "recorded",
    }
}

const MILLISECOND: Duration = Duration::from_millis(1);
/// How many split votes in a row count as contention.
const MAX_SPLITS: u32 = 8;
/// For how many node time-outs split votes are tried again at once, for a caller that does not wait.
const SPLIT_TIMEOUTS: u32 = 2;
