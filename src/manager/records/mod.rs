//! [`RunGuard`]: idempotent work, whose result is stored on the nodes as a record.

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

/// The right to compute the result of a key, with the lock of the key. If it is dropped without a result, it releases
/// the lock, and the next caller computes the result.
#[must_use = "a guard that is not bound lets others do the work"]
#[clippy::has_significant_drop]
pub struct RunGuard {
    guard: LockGuard,
    fence: FencingToken,
    keep: Duration,
    clocks: Clocks,
}

impl RunGuard {
    /// An observer of the lock.
    #[must_use]
    pub fn handle(&self) -> LockHandle {
        self.guard.handle()
    }

    /// The fencing token of the lock.
    #[must_use]
    pub const fn fence(&self) -> FencingToken {
        self.fence
    }

    /// Waits for room to send `bytes` to the nodes. Returns `None` if there is none in time, or if fewer nodes than a
    /// quorum have room to store them.
    pub(crate) async fn room(&self, bytes: usize) -> Option<Room> {
        let shared = &self.guard.shared;
        let room = Room::wait(shared, bytes).await?;
        let bytes = u64::try_from(bytes).ok()?;
        let has_room = shared.set.nodes.iter().filter(|node| node.has_room(bytes));
        (has_room.count() >= shared.set.terms.quorum.needed()).then_some(room)
    }

    /// Stores the result and releases the lock in the same step. After `Ok`, every caller with this key gets this
    /// result, for as long as it is kept. Even if the lock was lost, this succeeds unless another caller was granted
    /// the lock since.
    ///
    /// Large results take turns: the bytes of results under way, times the number of nodes, are at most 8 MiB. Results
    /// of up to 6 KiB do not wait.
    ///
    /// # Errors
    ///
    /// [`CompleteError`] if too few nodes have the result within the node time-out, or if its turn does not come within
    /// ten node time-outs. The next caller with this key gets the result, or does the work again.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, storing goes on in the background. But if it is dropped before its first poll, or
    /// while it waits for its turn, it only releases the lock.
    pub async fn complete(self, result: impl Into<Bytes>) -> Result<(), CompleteError> {
        let result = result.into();
        let shared = Arc::clone(&self.guard.shared);
        match Room::wait(&shared, result.len()).await {
            Some(room) => self.store(result, room).await,
            None => Err(CompleteError::nowhere(&shared)),
        }
    }

    pub(crate) async fn store(self, result: Bytes, room: Room) -> Result<(), CompleteError> {
        // The end is computed only here. Later writes of the same result take the end from the record.
        let clock = &*self.guard.shared.set.clock;
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
        let ballot = self.fence;
        let record = result.map(|(body, until)| Record {
            ballot,
            body,
            until,
        });
        // The guard of a run is never shared, so the lock ends with it.
        complete(self.guard.resign(), record, room).await
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
    /// Returns the stored result for `key`, or acquires the lock of `key` so that the caller can compute the result.
    /// While another caller computes the result, this call waits for at most `max_wait`, or the
    /// [`max_wait`](Self::with_max_wait) of this handle if that is less. These keys are independent of the keys of
    /// other locks.
    ///
    /// Until the result ends, all callers that get a result for `key` get the same result. But **the work may be done
    /// twice**: a caller may crash, or lose the lock, before it stores the result.
    ///
    /// A result is kept for `keep`, but for at least one second. Its end is computed by the median of the clocks of the
    /// nodes and of the process that stored it. If clocks differ by up to *d*, the end is up to *d* early or late, and
    /// near the end a call can fail with [`AcquireError::NoQuorum`].
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
    /// use tower_redlock::idempotency::IdempotentRun;
    /// use tower_redlock::LockManager;
    ///
    /// let locks = LockManager::builder().memory(5).connect().await?;
    /// let day = Duration::from_secs(86_400);
    /// let result = match locks.begin_idempotent("invoice:7", day, Duration::ZERO).await? {
    ///     IdempotentRun::Replay(result) => result,
    ///     IdempotentRun::Execute(run) => {
    ///         run.complete("sent").await?;
    ///         "sent".into()
    ///     }
    ///     _ => unreachable!("there are two cases"),
    /// };
    /// assert_eq!(result, "sent");
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
        let keys = shared.runs.namespace.node_keys(&names)?;
        let want = Want::Run(Box::new(Recall::new(shared, &terms, keep)));
        let (guard, granted) = match acquire_for(shared, terms, (keys, want), limit).await? {
            Acquired::Run(guard, granted) => (guard, granted),
            Acquired::Found(asking) => return Ok(IdempotentRun::Replay(found(*asking)?.body)),
            // Unreachable, because the lock of a run is never handed over.
            Acquired::Lock(_) => return Err(AcquireError::Contended { remaining: None }),
        };
        let lacking = || AcquireError::NoQuorum(shared.set.no_quorum(Vec::new()));
        let run = RunGuard {
            // Every run asks for a fencing token, so only faulty nodes grant the lock without one.
            fence: guard.fence().ok_or_else(lacking)?,
            guard,
            keep,
            clocks: granted.clocks,
        };
        let Some(record) = granted.record else {
            return Ok(IdempotentRun::Execute(run));
        };
        // Perhaps no quorum ever had this record, so it is written to a quorum before the caller gets it.
        let body = record.body.clone();
        let room = Room::wait(shared, body.len()).await.ok_or_else(lacking)?;
        let settled = run.end(Some((record.body, record.until)), room).await;
        if settled.is_err() {
            return Err(lacking());
        }
        Ok(IdempotentRun::Replay(body))
    }

    pub(crate) fn runs_without_record(&self, error: &AcquireError) {
        self.shared.set.runs_without_record(error);
    }

    pub(crate) fn is_run_of(&self, handle: &LockHandle, key: &LockKey) -> bool {
        handle.is_of(&self.shared) && handle.key() == key && !handle.is_lost()
    }
}
