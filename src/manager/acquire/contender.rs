//! [`Contender`]: the one caller of this process that asks the nodes for its keys.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::clock::Clock as _;
use crate::lock_keys::LockKeys;
use crate::manager::acquire::enter::{called_for_all, enter_all};
use crate::manager::acquire::notices::Listening;
use crate::manager::acquire::outcome::Acquired;
use crate::manager::acquire::round::attempt::{Attempt, Purpose};
use crate::manager::acquire::seat::Entered;
use crate::manager::acquire::wait::Wait;
use crate::manager::error::acquire::{AcquireError, ShuttingDown};
use crate::manager::guard::LockGuard;
use crate::manager::lease::held::{Tenancy, Turns};
use crate::manager::nodes::random::random;
use crate::manager::shared::Shared;
use crate::manager::waiting::holder::Holder;
use crate::manager::waiting::pauses::{LONGEST_ROUND_TRIP, SHORTEST_ROUND_TRIP, aside};
use crate::manager::waiting::waiters::Waiter;
use crate::metrics;
use crate::namespace::{NodeKey, NodeKeys};
use crate::protocol::backoff::Backoff;
use crate::protocol::round::Verdict;

/// The one caller of this process that asks the nodes for its keys.
pub(in crate::manager) struct Contender<'a> {
    shared: &'a Arc<Shared>,
    keys: NodeKeys,
    names: LockKeys,
    purpose: Purpose,
    // While it waits for another process: that of the key in the way, or of none. The others are free meanwhile.
    turns: Option<Turns>,
    // Which key of several was in the way.
    held: Option<NodeKey>,
    wait: Wait,
    // Whether it waited in the queue before.
    queued: bool,
    listening: Option<Listening>,
    // It asks because it can hear the nodes at last, not because of anything that it heard.
    opened: bool,
    // While it waits for other processes.
    waiting: Option<Waiter>,
    // Split votes since the last other verdict.
    splits: u32,
    // How long to wait before the next look, without and with release notices.
    deaf: Backoff,
    hearing: Backoff,
}

impl<'a> Contender<'a> {
    /// The contender that has the `turns` of its keys; `queued` if it waited for them.
    pub(in crate::manager) fn new(
        shared: &'a Arc<Shared>,
        (names, keys): (LockKeys, NodeKeys),
        purpose: Purpose,
        turns: Turns,
        wait: Wait,
        queued: bool,
    ) -> Self {
        if names.are_several() {
            // Those that are free go to others if one is not.
            turns.leave();
        }
        Self {
            shared,
            keys,
            names,
            purpose,
            turns: Some(turns),
            held: None,
            wait,
            queued,
            listening: None,
            opened: false,
            waiting: None,
            splits: 0,
            deaf: Backoff::new(FIRST_POLL, SLOWEST_POLL),
            hearing: Backoff::new(FIRST_POLL_HEARING, SLOWEST_POLL_HEARING),
        }
    }

    /// Rounds until the lock is won or not needed, out of reach, or the wait is over.
    pub(in crate::manager) async fn contend(mut self) -> Result<Acquired, AcquireError> {
        if self.wait.is_patient() {
            self.stand_back().await?;
        }
        // Who comes first is entitled to one whole round, however short its wait is to be.
        let mut deadline = (self.wait.is_patient() && self.queued).then(|| self.left());
        loop {
            // A round without any time could get nothing but leavings that must be released again.
            if deadline.is_some_and(|left| left.is_zero()) {
                return Err(self.busy());
            }
            if let Some(listening) = &self.listening {
                listening.forget();
            }
            let mut attempt = Attempt::new(self.shared, &self.keys, self.purpose)?;
            let decided = match deadline {
                Some(left) => timeout(left, attempt.decide()).await.ok(),
                None => Some(attempt.decide().await),
            };
            metrics::round(decided.map_or("undecided", word));
            let Some(verdict) = decided else {
                return Err(self.busy());
            };
            let round_trip = self.shared.clock.now().since(attempt.sent());
            match verdict {
                Verdict::Granted => return self.won(attempt).await,
                Verdict::Replay { ballot } => {
                    let record = attempt.replay(ballot);
                    let record = record.ok_or_else(|| self.shared.no_answer());
                    return record.map(Acquired::Record).map_err(AcquireError::NoQuorum);
                }
                Verdict::Adopt => {
                    let adopting = self.purpose.adopting();
                    let adopting =
                        adopting.ok_or_else(|| AcquireError::NoQuorum(attempt.no_quorum()))?;
                    self.purpose = adopting;
                    self.give_back(attempt).await;
                }
                Verdict::NoQuorum => return Err(AcquireError::NoQuorum(attempt.no_quorum())),
                Verdict::Split {
                    contenders,
                    remaining,
                } => {
                    self.note(remaining);
                    self.splits += 1;
                    if self.is_over() {
                        return Err(self.busy());
                    }
                    self.give_back(attempt).await;
                    self.step_aside(contenders, remaining, round_trip).await?;
                }
                Verdict::Contended { remaining } => {
                    self.note(remaining);
                    if self.left().is_zero() {
                        return Err(self.busy());
                    }
                    self.splits = 0;
                    self.give_back(attempt).await;
                    self.pause(remaining, round_trip).await?;
                }
            }
            deadline = self.wait.is_patient().then(|| self.left());
        }
    }

    fn left(&self) -> Duration {
        self.wait.left(self.shared)
    }

    fn busy(&self) -> AcquireError {
        self.wait.busy(self.shared, self.keys.as_slice())
    }

    /// Tells those who do not wait how long the holder's lease goes on.
    fn note(&self, remaining: Option<Duration>) {
        if let (Some(remaining), Some(turns)) = (remaining, &self.turns) {
            turns.note(&Holder::Elsewhere(self.shared.clock.now() + remaining));
        }
    }

    /// Lets others have all keys but the one that is in the way, if they are several.
    fn loosen(&mut self) {
        if self.names.are_several() {
            let turns = self.turns.take().zip(self.held.as_ref());
            let turns = turns.and_then(|(turns, held)| turns.keep_only(held));
            self.turns = turns.inspect(Turns::stay);
        }
    }

    /// Takes what was let go again: at once, or else with nothing in hand, as one who has just come.
    async fn regain(&mut self) -> Result<(), AcquireError> {
        if !self.names.are_several() {
            return Ok(());
        }
        let turns = self.turns.take();
        let mut turns = turns.and_then(|turns| turns.widen(&self.keys));
        if turns.is_none() {
            let turn = match enter_all(self.shared, &self.keys, self.wait)? {
                Entered::Turn(turn) => turn,
                Entered::Seat(seat) => {
                    // It is this process that it waits for now.
                    (self.listening, self.waiting) = (None, None);
                    called_for_all(self.shared, &self.keys, seat, self.wait).await?
                }
            };
            turns = Some(Turns::new(turn));
        }
        self.turns = turns.inspect(Turns::leave);
        Ok(())
    }

    /// Whether split votes are not to be tried again.
    fn is_over(&self) -> bool {
        if self.wait.is_patient() {
            return self.left().is_zero();
        }
        // Bounded by time, too: with a slow node a split may only seem one, and every round takes its time-out.
        self.splits >= MAX_SPLITS
            || self.wait.waited(self.shared) >= self.shared.node_timeout * SPLIT_TIMEOUTS
    }

    /// Numbers a granted round and puts it under the care of the watchdog.
    async fn won(self, mut attempt: Attempt) -> Result<Acquired, AcquireError> {
        let record = attempt.adoptable().await;
        let record = record.map_err(AcquireError::NoQuorum)?;
        attempt.number().await.map_err(AcquireError::NoQuorum)?;
        // It never asks without them.
        let turns = self.turns;
        let turns = turns.ok_or_else(|| AcquireError::NoQuorum(self.shared.no_answer()))?;
        if self.names.are_several() {
            turns.stay();
        }
        let hold = attempt.win(self.names, turns)?;
        let inserted = self.shared.registry.insert(&hold);
        let guard = LockGuard::new(Arc::clone(self.shared), Tenancy::first(hold));
        if !inserted {
            // Dropping the guard releases what was just granted.
            return Err(AcquireError::ShuttingDown(ShuttingDown));
        }
        let guard = guard.waited_for(self.wait.waited(self.shared));
        Ok(match record {
            Some(record) => Acquired::Adopted(guard, record),
            None => Acquired::Lock(guard),
        })
    }

    /// Takes back what a lost round got, so that the next does not meet its own leavings.
    async fn give_back(&mut self, attempt: Attempt) {
        self.held = attempt.in_the_way();
        let limit = if self.wait.is_patient() {
            self.left()
        } else {
            self.shared.node_timeout
        };
        // Not in time: it goes on in the background.
        let _ = timeout(limit, attempt.give_back()).await;
    }

    /// Lets the others go first, for a moment that is random and grows with their number.
    async fn step_aside(
        &mut self,
        contenders: usize,
        remaining: Option<Duration>,
        round_trip: Duration,
    ) -> Result<(), AcquireError> {
        let Some(pause) = aside(contenders, round_trip) else {
            return Ok(());
        };
        if !self.wait.is_patient() {
            sleep(pause).await;
            return Ok(());
        }
        self.loosen();
        self.note(remaining);
        sleep(pause.min(self.left())).await;
        self.regain().await
    }

    /// After a release that others waited for, by this process: they go first.
    async fn stand_back(&mut self) -> Result<(), AcquireError> {
        let now = self.shared.clock.now();
        let keys = self.keys.as_slice().iter();
        let pauses =
            keys.filter_map(|key| Some((self.shared.cooldown.pause(key.shared(), now)?, key)));
        let Some((pause, key)) = pauses.max_by_key(|(pause, _)| *pause) else {
            return Ok(());
        };
        self.held = Some(key.clone());
        self.loosen();
        // They will be a while; to listen from now on saves a round trip afterwards.
        self.listen();
        tokio::select! {
            biased;
            () = self.shared.registry.closing() => return Err(AcquireError::ShuttingDown(ShuttingDown)),
            () = sleep(pause.min(self.left())) => {}
        }
        if self.left().is_zero() {
            return Err(self.busy());
        }
        self.regain().await
    }

    fn listen(&mut self) {
        let (shared, keys) = (self.shared, &self.keys);
        self.waiting
            .get_or_insert_with(|| Waiter::new(shared, keys.first(), self.wait.began(), false));
        self.listening
            .get_or_insert_with(|| Listening::start(&shared.nodes, keys));
    }

    /// Waits until there is reason to ask again.
    async fn pause(
        &mut self,
        remaining: Option<Duration>,
        round_trip: Duration,
    ) -> Result<(), AcquireError> {
        self.loosen();
        self.note(remaining);
        self.doze(remaining, round_trip).await?;
        self.regain().await
    }

    /// Sleeps until there is reason to ask again: releases, the end of the holder's lease, or a look now and then.
    async fn doze(
        &mut self,
        remaining: Option<Duration>,
        round_trip: Duration,
    ) -> Result<(), AcquireError> {
        self.listen();
        let Some(listening) = &self.listening else {
            return Ok(());
        };
        let needed = self.shared.terms.quorum.needed();
        let backoff = if listening.open() >= needed {
            &mut self.hearing
        } else {
            &mut self.deaf
        };
        let poll = backoff.next(random());
        let grace = round_trip.clamp(SHORTEST_ROUND_TRIP, LONGEST_ROUND_TRIP);
        // Nobody can have it before the holder's lease ends, unless the holder releases it. A lease that seems to
        // have ended is no reason to hurry.
        let lease = remaining.filter(|left| !left.is_zero());
        let nap = lease
            .map_or(poll, |left| poll.min(left))
            .min(self.wait.left(self.shared));
        // Callers of several keys wake each other: two that hurried for nothing would do so for ever.
        let opening = !(self.opened && self.names.are_several());
        let mut rivals = tokio::select! {
            biased;
            () = self.shared.registry.closing() => return Err(AcquireError::ShuttingDown(ShuttingDown)),
            rivals = listening.enough(needed, grace, opening) => rivals,
            () = sleep(nap) => 1,
        };
        self.opened = rivals == 0;
        while let Some(pause) = aside(rivals, round_trip) {
            listening.forget();
            let pause = pause.min(self.wait.left(self.shared));
            // Taken and released again meanwhile: draw anew. Else a crowd would come one by one to a lock that is
            // long taken.
            rivals = tokio::select! {
                biased;
                () = self.shared.registry.closing() => return Err(AcquireError::ShuttingDown(ShuttingDown)),
                rivals = listening.released(needed) => rivals,
                () = sleep(pause) => return Ok(()),
            };
        }
        Ok(())
    }
}

/// What a verdict is called where it is counted.
const fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Granted => "granted",
        Verdict::Replay { .. } | Verdict::Adopt => "recorded",
        Verdict::NoQuorum => "no_quorum",
        Verdict::Split { .. } => "split",
        Verdict::Contended { .. } => "contended",
    }
}

/// How many split votes in a row count as contention, for who does not wait.
const MAX_SPLITS: u32 = 8;
/// For how many node time-outs split votes are tried again at once, for who does not wait.
const SPLIT_TIMEOUTS: u32 = 2;
/// The ceiling of the first pause between two looks at a busy lock; it doubles from there.
const FIRST_POLL: Duration = Duration::from_millis(4);
/// The ceiling of the longest pause between two looks at a busy lock.
const SLOWEST_POLL: Duration = Duration::from_millis(100);
/// The same while a quorum of nodes announces releases: a look is only a safeguard then.
const FIRST_POLL_HEARING: Duration = Duration::from_millis(100);
const SLOWEST_POLL_HEARING: Duration = Duration::from_secs(1);
