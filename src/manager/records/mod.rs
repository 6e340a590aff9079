//! [`RunGuard`]: idempotent work, whose result is stored on the nodes as a record.
//!
//! A second protocol over the rounds of the first. [`recall`] asks the nodes for the record of a key, or else for its
//! lock; [`complete`](mod@complete) writes the record in the step that gives the lock back, and brings it to nodes that lack it. The
//! rules of a record (which one counts, when it ends) are pure, in `protocol::recall`.

pub(crate) mod complete;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::key_error::KeyError;
use crate::lock_key::{LockKey, LockKeys};
use crate::manager::LockManager;
use crate::manager::acquire::acquire_for;
use crate::manager::acquire::call::Acquired;
use crate::manager::error::AcquireError;
use crate::manager::guard::LockGuard;
use crate::manager::handle::LockHandle;
use crate::manager::records::complete::{CompleteError, Room, complete, found};
use crate::manager::want::Want;
use crate::manager::want::recall::{Clocks, Recall};
use crate::node::Record;
use crate::token::FencingToken;

/// The outcome of [`LockManager::begin_idempotent`].
#[derive(Debug)]
#[non_exhaustive]
#[must_use = "a run holds its lock until this is dropped"]
pub enum IdempotentRun {
    /// There is no result: compute it, and [store](RunGuard::complete) it.
    Execute(RunGuard),
    /// The stored result.
    Replay(Bytes),
}

/// The right to compute the result of a key, with the lock of the key. Dropped without a result it releases the lock,
/// and the next caller computes the result.
#[must_use = "a guard that is not bound lets others do the work"]
#[clippy::has_significant_drop]
pub struct RunGuard {
    guard: LockGuard,
    fence: FencingToken,
    keep: Duration,
    clocks: Clocks,
}

impl RunGuard {
    fn new(guard: LockGuard, keep: Duration, clocks: Clocks) -> Result<Self, AcquireError> {
        // Every run asks for one; a node that grants without is out of order.
        let Some(fence) = guard.fence() else {
            return Err(AcquireError::NoQuorum(
                guard.shared().set.no_quorum(Vec::new()),
            ));
        };
        Ok(Self {
            guard,
            fence,
            keep,
            clocks,
        })
    }

    /// An observer of the lock: whether it is lost, and how long it lasts.
    #[must_use]
    pub fn handle(&self) -> LockHandle {
        self.guard.handle()
    }

    /// The fencing token of this run, greater than that of every earlier run of the same key.
    #[must_use]
    pub const fn fence(&self) -> FencingToken {
        self.fence
    }

    /// Room for a result of so many bytes on its way to the nodes, if its turn comes in time and a quorum of nodes is not
    /// too full for the result.
    pub(crate) async fn room(&self, bytes: usize) -> Option<Room> {
        let shared = self.guard.shared();
        let room = Room::wait(shared, bytes).await?;
        let bytes = u64::try_from(bytes).ok()?;
        let has_room = shared.set.nodes.iter().filter(|node| node.has_room(bytes));
        (has_room.count() >= shared.set.terms.quorum.needed()).then_some(room)
    }

    /// Stores the result and releases the lock in the same step. From `Ok` on every caller with this key gets this
    /// result, for as long as it is kept. It is tried also when the lock was lost, and succeeds if nobody else was
    /// granted the lock since.
    ///
    /// Results that are on their way at once take turns: their bytes times the nodes are 8 MiB at most. Results of up to
    /// 6 KiB do not wait.
    ///
    /// # Errors
    ///
    /// [`CompleteError`] if too few nodes have the result within the node time-out: the next caller with this key gets
    /// it, or does the work again. Likewise if its turn does not come within ten node time-outs.
    ///
    /// # Cancel safety
    ///
    /// It goes on while it is polled, and in the background once it is dropped. Dropped before its first poll, or while it
    /// waits for its turn, it releases the lock.
    pub async fn complete(self, result: impl Into<Bytes>) -> Result<(), CompleteError> {
        let result = result.into();
        let shared = Arc::clone(self.guard.shared());
        match Room::wait(&shared, result.len()).await {
            Some(room) => self.store(result, room).await,
            None => Err(CompleteError::nowhere(&shared)),
        }
    }

    /// The same, with [room](Self::room) for it.
    pub(crate) async fn store(self, result: Bytes, room: Room) -> Result<(), CompleteError> {
        // Decided here and nowhere else: later writes of the same result take it from the record.
        let clock = &*self.guard.shared().set.clock;
        let until = self.clocks.end_after(clock, self.keep);
        self.end(Some((result, until)), room).await
    }

    /// Releases the lock without a result: the next caller with this key does the work again.
    ///
    /// # Errors
    ///
    /// [`CompleteError`] if too few nodes replied within the node time-out; the release goes on in the background.
    ///
    /// # Cancel safety
    ///
    /// As for [`complete`](Self::complete).
    pub async fn abandon(self) -> Result<(), CompleteError> {
        self.end(None, Room::default()).await
    }

    async fn end(self, result: Option<(Bytes, u64)>, room: Room) -> Result<(), CompleteError> {
        let (guard, ballot) = (self.guard, self.fence);
        let shared = Arc::clone(guard.shared());
        // It is not shared.
        let (held, pending) = guard.resign();
        let record = result.map(|(body, until)| Record {
            ballot,
            body,
            until,
        });
        complete(&shared, &held, pending, record, room).await
    }
}

impl fmt::Debug for RunGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunGuard")
            .field("key", &self.guard.shown())
            .field("keep", &self.keep)
            .finish_non_exhaustive()
    }
}

impl LockManager {
    /// Returns the stored result for `key`, or acquires its lock so that the caller can compute it: one round trip
    /// either way. While another caller computes it, waits up to `max_wait`, or the manager's if that is less. The keys
    /// are apart from those of other locks. The result is kept for `keep`, at least a second.
    ///
    /// All callers that get a result for `key` get the same until it ends, while at most as many nodes as the quorum
    /// [masks](crate::Settings::mask_losses) lose their data. But **the work may be done twice**: its caller may crash,
    /// or lose the lock, before it stores the result.
    ///
    /// The end is decided once, by the caller that completes: after `keep`, by the middle one of the clocks of the
    /// nodes and of its process, and it goes with the record to every node. If no two clocks differ by more than *d*,
    /// no caller gets the result later than `keep` and *d* after it was stored (and a node time-out), and none computes
    /// it again before `keep` less *d*. A single wrong clock of three nodes or more changes nothing once all have the
    /// record. Near the end it may be [`AcquireError::NoQuorum`], for *d* at most.
    ///
    /// # Errors
    ///
    /// As for [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    ///
    /// As for [`acquire`](Self::acquire).
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use tower_redlock::lock::IdempotentRun;
    /// use tower_redlock::LockManager;
    ///
    /// let locks = LockManager::builder().memory(5).connect().await?;
    /// let (day, no_wait) = (Duration::from_secs(86_400), Duration::ZERO);
    /// for _ in 0..2 {
    ///     let result = match locks.begin_idempotent("invoice:7", day, no_wait).await? {
    ///         IdempotentRun::Replay(result) => result,
    ///         IdempotentRun::Execute(run) => {
    ///             run.complete("sent").await?;
    ///             "sent".into()
    ///         }
    ///         _ => unreachable!("there are two cases"),
    ///     };
    ///     assert_eq!(result, "sent");
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn begin_idempotent<K>(
        &self,
        key: K,
        keep: Duration,
        max_wait: Duration,
    ) -> Result<IdempotentRun, AcquireError>
    where
        K: TryInto<LockKey, Error: Into<KeyError>>,
    {
        let key: LockKey = key.try_into().map_err(Into::into)?;
        let limit = max_wait.min(self.times.max_wait);
        self.begin_idempotent_within(key, keep, limit, Duration::ZERO)
            .await
    }

    /// The same, waiting up to `limit`. The run may last a `max_hold` and the time in which it only waits, `idle` at
    /// most.
    pub(crate) async fn begin_idempotent_within(
        &self,
        key: LockKey,
        keep: Duration,
        limit: Duration,
        idle: Duration,
    ) -> Result<IdempotentRun, AcquireError> {
        let mut terms = self.times.terms;
        terms.max_hold = terms.max_hold.saturating_add(idle);
        let keep = keep.max(Duration::from_secs(1));
        let names = LockKeys::from(key);
        let shared = self.group(names.first());
        let keys = shared.idempotency.node_keys(&names)?;
        let want = Want::Run(Box::new(Recall::new(shared, &terms, keep)));
        let (guard, granted) = match acquire_for(shared, terms, (keys, want), limit).await? {
            Acquired::Run(guard, granted) => (guard, granted),
            Acquired::Found(asking) => return Ok(IdempotentRun::Replay(found(*asking)?.body)),
            // No lock of a run is handed on.
            Acquired::Lock(_) => return Err(AcquireError::Contended { remaining: None }),
        };
        let run = RunGuard::new(guard, keep, granted.clocks)?;
        let Some(record) = granted.record else {
            return Ok(IdempotentRun::Execute(run));
        };
        // Whether a quorum ever had it is not known; before a caller gets it, one must.
        let body = record.body.clone();
        let lacking = || AcquireError::NoQuorum(shared.set.no_quorum(Vec::new()));
        let room = Room::wait(shared, body.len()).await.ok_or_else(lacking)?;
        let settled = run.end(Some((record.body, record.until)), room).await;
        if settled.is_err() {
            return Err(lacking());
        }
        Ok(IdempotentRun::Replay(body))
    }

    pub(crate) fn is_run_of(&self, handle: &LockHandle, key: &LockKey) -> bool {
        handle.is_of(&self.shared) && handle.key() == key && !handle.is_lost()
    }
}
