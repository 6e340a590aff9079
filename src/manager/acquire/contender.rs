//! [`Contender`] asks the nodes for its keys. Its [`Pace`] decides what it does after each round.

use std::future::pending;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::clock::Clock as _;
use crate::instruments;
use crate::manager::acquire::call::{Acquired, Call};
use crate::manager::acquire::hint::WaitingWriter;
use crate::manager::acquire::pace::{Pace, Step, Woken, reckoned};
use crate::manager::acquire::turn::{LockSeat, Wakeup, names};
use crate::manager::acquire::wait::ReleaseNotices;
use crate::manager::asking::Asking;
use crate::manager::error::AcquireError;
use crate::manager::guard::LockGuard;
use crate::manager::lease::held::Turn;
use crate::manager::queue::{Holder, Waiter};
use crate::manager::want::Decision;
use crate::namespace::NodeKey;
use crate::protocol::on_nodes::Verdict;
use crate::seam::for_pause;

pub(crate) struct Contender<'a> {
    call: Call<'a>,
    // Only for permits: a seat in front of all waiters of this process, while the contender has the turn. This field is
    // declared before `turn`, because the seat must be dropped before the turn.
    front: Option<LockSeat<'a>>,
    // A contender for a permit can do without the turn until it has found all slots held. A contender for several keys
    // passes on most of its turns while it waits for another process: see `narrow_turn`.
    turn: Option<Turn>,
    // A lock that a holder of this process passed to this contender.
    handed: Option<LockGuard>,
    // The blocking key is the key that another owner has. The flag says whether readers have it.
    rival: Option<(NodeKey, bool)>,
    // While readers have the blocking key: our hints on this key, and on keys before it that readers had earlier.
    hints: Vec<WaitingWriter>,
    queued: bool,
    // `Some` while the contender waits for other processes.
    listening: Option<Listening>,
    pace: Pace,
}

struct Listening {
    notices: ReleaseNotices,
    _waiter: Waiter,
}

impl<'a> Contender<'a> {
    pub(crate) fn new(call: Call<'a>, turn: Option<Turn>, queued: bool) -> Self {
        if let Some(turn) = turn.as_ref().filter(|_| call.keys.are_several()) {
            // If the nodes refuse one key, this contender soon passes on the turns of the other keys. Therefore even
            // callers that do not wait for locks may wait for these turns.
            turn.set_being_released(true);
        }
        let mut contender = Self {
            front: None,
            handed: None,
            turn,
            rival: None,
            hints: Vec::new(),
            queued,
            listening: None,
            pace: Pace::new(call.wait.is_patient()),
            call,
        };
        contender.sit_in_front();
        contender
    }

    pub(crate) async fn contend(mut self) -> Result<Acquired, AcquireError> {
        if self.call.wait.is_patient()
            && let Some(cooling) = self.cooling()
        {
            Box::pin(self.cool_down(cooling)).await?;
        }
        // A caller that did not queue gets one whole round, even if its own limit is shorter than a round.
        let mut limit = self.limit().filter(|_| self.queued);
        loop {
            if let Some(guard) = self
                .handed
                .take()
                .filter(|guard| self.call.want.fits(guard.slot()))
            {
                return Ok(self.call.handed_on(guard));
            }
            let mut asking = self.asking(limit)?;
            let decision = self.round(&mut asking, limit).await?;
            let verdict = match decision {
                Decision::Lock(verdict) => verdict,
                #[cfg(feature = "idempotency")]
                Decision::Found => return Ok(Acquired::Found(Box::new(asking))),
                Decision::Again if self.call.want.ask_again() => {
                    Box::pin(self.release(asking)).await;
                    limit = self.limit();
                    continue;
                }
                _ => return Err(asking.no_quorum()),
            };
            let call = &self.call;
            match self.pace.next(verdict, || call.times()) {
                Step::Take => match asking.settle().await {
                    Ok(()) => return self.won(asking),
                    Err(error) if self.must_end(&error) => return Err(error),
                    Err(_) => Box::pin(self.release(asking)).await,
                },
                Step::NoQuorum => return Err(asking.no_quorum()),
                Step::GiveUp => return Err(self.gives_up(verdict)),
                // Boxed to keep this future small, because a call for a free lock never comes here.
                step => Box::pin(self.go_again(asking, verdict, step)).await?,
            }
            limit = self.limit();
        }
    }

    /// Releases the keys of a lost round, and waits until it is time for the next round.
    async fn go_again(
        &mut self,
        asking: Asking,
        verdict: Verdict,
        step: Step,
    ) -> Result<(), AcquireError> {
        let round_trip = self.call.shared.set.clock.now().since(asking.sent);
        let remaining = verdict.remaining();
        self.set_holder(remaining);
        self.release(asking).await;
        if step == Step::StandBack {
            return self.stand_back(remaining, round_trip).await;
        }
        let is_contended = matches!(verdict, Verdict::Contended { .. });
        if is_contended && self.turn.is_none() && self.queue().await? {
            return Ok(());
        }
        self.set_holder(remaining);
        self.listen(remaining, round_trip).await
    }

    /// For a permit: queues behind callers that found all slots held. Returns whether it had to wait.
    async fn queue(&mut self) -> Result<bool, AcquireError> {
        let mut queued = false;
        match self.call.turn(&mut queued).await? {
            Wakeup::Turn(turn) => {
                self.turn = Some(turn);
                self.sit_in_front();
            }
            Wakeup::Lock(guard) => self.handed = Some(guard),
            Wakeup::Lapsed => return Err(self.call.busy()),
        }
        Ok(queued)
    }

    /// Prepares a round. Forgets all notices that have come, because the replies of the round will be newer.
    fn asking(&self, limit: Option<Duration>) -> Result<Asking, AcquireError> {
        if let Some(listening) = &self.listening {
            listening.notices.forget();
        }
        // With no time left, a round could only set keys that must be released again.
        if limit.is_some_and(|limit| limit.is_zero()) {
            return Err(self.call.busy());
        }
        let Call {
            shared,
            terms,
            keys,
            want,
            ..
        } = &self.call;
        Asking::new(shared, keys, want.clone(), *terms)
    }

    async fn round(
        &mut self,
        asking: &mut Asking,
        limit: Option<Duration>,
    ) -> Result<Decision, AcquireError> {
        let decision = match limit {
            Some(limit) => timeout(limit, asking.decide()).await.ok(),
            None => Some(asking.decide().await),
        };
        instruments::round(decision.map_or("undecided", label));
        let decision = decision.ok_or_else(|| self.call.busy())?;
        if decision == Decision::Lock(Verdict::Granted) {
            for hint in std::mem::take(&mut self.hints) {
                Box::pin(hint.take_back()).await;
            }
        }
        Ok(decision)
    }

    fn limit(&self) -> Option<Duration> {
        self.call.wait.is_patient().then(|| self.left())
    }

    fn left(&self) -> Duration {
        self.call.left()
    }

    fn gives_up(&self, verdict: Verdict) -> AcquireError {
        // After a split perhaps no caller has the lock, so the replies do not say how long another caller will have it.
        let Verdict::Contended { remaining } = verdict else {
            return self.call.busy();
        };
        let now = self.call.shared.set.clock.now();
        let holder = remaining.map(|left| Holder::Elsewhere(now + left));
        self.call.wait.busy_for(self.call.shared, holder.as_ref())
    }

    fn must_end(&mut self, error: &AcquireError) -> bool {
        let is_lack = matches!(error, AcquireError::NoQuorum(_));
        let left = self.left();
        self.pace.must_end(is_lack, left)
    }

    fn won(mut self, asking: Asking) -> Result<Acquired, AcquireError> {
        self.front = None;
        let (shared, want) = (self.call.shared, &self.call.want);
        // A permit or a reader does not keep the turn, because the next waiter may find another slot free, or share the
        // lock.
        let keeps_turn = !want.is_permit() && !want.is_shared();
        let turn = self.turn.take_if(|_| keeps_turn);
        if let Some(turn) = turn.as_ref().filter(|_| self.call.keys.are_several()) {
            turn.set_being_released(false);
        }
        let waited = self.call.waited();
        #[cfg(feature = "idempotency")]
        let granted = asking.granted();
        let held = asking.win(turn, waited, self.call.caller.clone())?;
        let guard = LockGuard::first(shared, held).ok_or(AcquireError::ShuttingDown)?;
        if want.is_shared() {
            let lease = &guard.tenancy.lease;
            shared.open_leases.open(lease, &self.call.terms);
        }
        let guard = guard.waited_for(waited);
        #[cfg(feature = "idempotency")]
        if let Some(granted) = granted {
            return Ok(Acquired::Run(guard, granted));
        }
        Ok(Acquired::Lock(guard))
    }

    async fn release(&mut self, asking: Asking) {
        self.rival = asking.rival();
        let limit = self.limit().unwrap_or(self.call.shared.set.node_timeout);
        // A release that takes longer goes on in the background.
        let _ = timeout(limit, asking.release()).await;
    }

    /// Sets how long the holder's lease lasts, for the errors of callers that do not wait.
    fn set_holder(&self, remaining: Option<Duration>) {
        if let (Some(remaining), Some(turn)) = (remaining, &self.turn) {
            let end = self.call.shared.set.clock.now() + remaining;
            turn.set_holder(&Holder::Elsewhere(end));
        }
    }
}

impl Contender<'_> {
    /// Keeps the turn for the blocking key and for keys with our writer hint, and passes all other turns on.
    fn narrow_turn(&mut self) {
        if !self.call.keys.are_several() {
            return;
        }
        let is_hinted = |key: &NodeKey| self.hints.iter().any(|hint| hint.is_for(key));
        let stays = |key: &&NodeKey| match &self.rival {
            Some((blocking, _)) if *key == blocking => true,
            // Keys after the blocking key are passed on, because its holder may want them.
            Some((blocking, is_read)) => {
                *is_read && key.as_str() < blocking.as_str() && is_hinted(key)
            }
            None => false,
        };
        let keys = self.call.keys.as_slice().iter();
        let stay: Vec<&NodeKey> = keys.filter(stays).collect();
        let stays = |name: &str| stay.iter().any(|key| key.as_str() == name);
        let turn = self.turn.take().and_then(|turn| turn.keep_only(stays));
        self.turn = turn.inspect(|turn| turn.set_being_released(false));
    }

    /// Takes back the turns that [`narrow_turn`](Self::narrow_turn) passed on. If one of them is not free, passes on
    /// all turns, and queues for all keys again.
    async fn widen_turn(&mut self) -> Result<(), AcquireError> {
        if !self.call.keys.are_several() {
            return Ok(());
        }
        let turn = self.turn.take();
        let turn = match turn.and_then(|turn| turn.widen(&names(&self.call.keys))) {
            Some(turn) => turn,
            None => {
                // From now on the call waits for callers of this process, so it needs no notices and no hints.
                let end = || {
                    self.listening = None;
                    self.hints.clear();
                };
                self.call.turn_of_all(end).await?
            }
        };
        turn.set_being_released(true);
        self.turn = Some(turn);
        Ok(())
    }
}

/// The waits between two rounds.
impl Contender<'_> {
    fn subscribe(&mut self) -> Result<(), AcquireError> {
        if self.listening.is_some() {
            return Ok(());
        }
        let (shared, keys) = (self.call.shared, &self.call.keys);
        let limit = shared.common.queue.bounds().total;
        if shared.common.waiters.count() >= limit {
            let of_key = false;
            return Err(AcquireError::QueueFull { limit, of_key });
        }
        self.listening = Some(Listening {
            _waiter: shared
                .common
                .waiters
                .add(keys.first(), self.call.wait.began, false),
            notices: ReleaseNotices::subscribe(&shared.set.nodes, keys),
        });
        Ok(())
    }

    fn cooling(&self) -> Option<(Duration, NodeKey)> {
        let now = self.call.shared.set.clock.now();
        let keys = self.call.keys.as_slice().iter();
        let cooldown = &self.call.shared.cooldown;
        let cooling = keys.filter_map(|key| Some((cooldown.left(key.shared(), now)?, key)));
        let (left, key) = cooling.max_by_key(|(left, _)| *left)?;
        Some((left, key.clone()))
    }

    async fn cool_down(&mut self, (left, key): (Duration, NodeKey)) -> Result<(), AcquireError> {
        self.rival = Some((
            key,
            self.rival.as_ref().is_some_and(|(_, is_read)| *is_read),
        ));
        self.narrow_turn();
        // Subscribe now, because other processes will have the lock for a while, and subscribing after the cooldown
        // would cost a round trip. A caller for a permit that has not found all slots held does not subscribe, because
        // each release would only begin another cooldown.
        if self.turn.is_some() || !self.call.want.is_permit() {
            self.subscribe()?;
        }
        let pause = sleep(left.min(self.left()));
        self.unless_called(pause).await?;
        if self.left().is_zero() && self.handed.is_none() {
            return Err(self.call.busy());
        }
        self.widen_turn().await
    }

    async fn stand_back(
        &mut self,
        remaining: Option<Duration>,
        round_trip: Duration,
    ) -> Result<(), AcquireError> {
        let Some(delay) = self.pace.after_split(round_trip, for_pause) else {
            return Ok(());
        };
        if !self.call.wait.is_patient() {
            sleep(delay).await;
            return Ok(());
        }
        self.narrow_turn();
        self.set_holder(remaining);
        sleep(delay.min(self.left())).await;
        self.widen_turn().await
    }

    /// Waits for a release, or until it is time to ask the nodes again without one.
    async fn listen(
        &mut self,
        remaining: Option<Duration>,
        round_trip: Duration,
    ) -> Result<(), AcquireError> {
        self.narrow_turn();
        self.set_holder(remaining);
        self.subscribe()?;
        self.sit_in_front();
        self.stop_readers().await;
        let Some(listening) = self.listening.take() else {
            return self.widen_turn().await;
        };
        let notices = &listening.notices;
        let needed = self.call.shared.set.terms.quorum.needed();
        let is_notified = notices.open() >= needed;
        let limit = self.pace.listen_for(remaining, is_notified, for_pause());
        let limit = limit.min(self.left());
        let opening = self.pace.ends_when_open(self.call.keys.are_several());
        let woken = timeout(limit, notices.next(needed, reckoned(round_trip), opening));
        let woken = self.unless_called(woken).await?.and_then(Result::ok);
        let (waited, holder) = (self.call.waited(), notices.waited());
        self.listening = Some(listening);
        self.pace.woken(woken);
        if woken == Some(Woken::Released)
            && let Some(delay) = self
                .pace
                .after_release(waited, holder, round_trip, for_pause)
        {
            self.unless_called(sleep(delay.min(self.left()))).await?;
        }
        if self.call.want.is_permit() && self.handed.is_none() {
            return match self.cooling() {
                Some(cooling) => self.cool_down(cooling).await,
                None => Ok(()),
            };
        }
        self.widen_turn().await
    }

    /// Leaves a hint on the nodes if readers have the blocking key. Otherwise takes all hints back.
    async fn stop_readers(&mut self) {
        let Some((key, true)) = &self.rival else {
            return self.hints.clear();
        };
        // Drops hints on keys that sort after this key, because the readers of this key may wait for those keys.
        self.hints.retain(|hint| hint.sorts_up_to(key));
        if !self.hints.iter().any(|hint| hint.is_for(key)) {
            self.hints.extend(WaitingWriter::new(self.call.shared, key));
        }
        for hint in &mut self.hints {
            hint.renew().await;
        }
    }

    fn sit_in_front(&mut self) {
        let is_due = self.call.want.is_permit() && self.front.is_none();
        let turn = self.turn.as_ref().filter(|_| is_due);
        if let Some(seat) = turn.and_then(|turn| turn.front_seat(self.call.terms.ttl)) {
            self.front = Some(LockSeat::new(self.call.shared, &self.call.terms, seat));
        }
    }

    /// Waits for `done`. Returns `None` if a holder of this process hands over its permit before that.
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
            () = self.call.shared.registry.closing.given() => return Err(AcquireError::ShuttingDown),
            called = called => called,
            output = done => return Ok(Some(output)),
        };
        self.front = None;
        if let Ok(Wakeup::Lock(guard)) = called {
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
