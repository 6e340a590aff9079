//! Work that is done once: what it came to is kept on the nodes, and whoever asks again is told.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::key_error::KeyError;
use crate::lock_key::LockKey;
use crate::lock_keys::LockKeys;
use crate::manager::LockManager;
use crate::manager::acquire::enter::go;
use crate::manager::acquire::outcome::Acquired;
use crate::manager::acquire::round::attempt::Purpose;
use crate::manager::error::acquire::{AcquireError, NoQuorum};
use crate::manager::error::release::CompleteError;
use crate::manager::guard::{LockGuard, LockHandle};
use crate::manager::release::completion::{End, complete};
use crate::manager::shared::Shared;
use crate::namespace::NodeKeys;
use crate::token::FencingToken;

/// What [`LockManager::recall`] found.
#[derive(Debug)]
#[non_exhaustive]
#[must_use = "work that is to run holds its lock until this is dropped"]
pub enum Recall {
    /// It has not been done: do it, and say what came of it.
    Run(RunGuard),
    /// It has been done, and this came of it.
    Replay(Bytes),
}

/// The right to do a piece of work, and the place to say what came of it.
///
/// It holds the lock of the work's key, which a watchdog extends. Dropped without a word it releases the lock, and the
/// work may be done again.
#[must_use = "a guard that is not bound lets others do the work"]
#[clippy::has_significant_drop]
pub struct RunGuard {
    guard: LockGuard,
    fence: FencingToken,
    keep: Duration,
}

impl RunGuard {
    fn new(guard: LockGuard, keep: Duration) -> Result<Self, AcquireError> {
        // It was asked for; whoever grants without is out of order.
        let fence = guard.fence();
        let fence = fence.ok_or_else(|| AcquireError::NoQuorum(guard.shared().no_answer()))?;
        Ok(Self { guard, fence, keep })
    }

    /// An observer of the lock: whether it is lost, and how long it lasts. It cannot be
    /// [lent](LockHandle::lend).
    #[must_use]
    pub fn handle(&self) -> LockHandle {
        self.guard.handle()
    }

    /// The number of this run, greater than that of every run of the same key before.
    #[must_use]
    pub const fn fence(&self) -> FencingToken {
        self.fence
    }

    /// Writes what came of the work, and gives the lock back in the same step. From `Ok` on everybody who asks is told
    /// this, for as long as it is kept.
    ///
    /// It is tried also when the lock was lost: it holds as long as nobody else was granted the lock since.
    ///
    /// # Errors
    ///
    /// [`CompleteError`] if too few nodes have it within the node time-out: whether anybody will ever be told is not
    /// known. Who asks next finds out, and settles it for good: it is told this, or does the work again.
    ///
    /// # Cancel safety
    ///
    /// It goes on while it is polled, and in the background once it is dropped. Dropped before its first poll, it
    /// releases the lock.
    pub async fn complete(self, came_to: impl Into<Bytes>) -> Result<(), CompleteError> {
        let end = End::After(self.keep);
        self.end(Some((came_to.into(), end))).await
    }

    /// Gives the lock back without a word of what came of the work: whoever asks next does it again.
    ///
    /// # Errors
    ///
    /// [`CompleteError`] if too few nodes answered within the node time-out. What is not released goes on being released
    /// in the background until the ttl has ended it.
    ///
    /// # Cancel safety
    ///
    /// As for [`complete`](Self::complete).
    pub async fn abandon(self) -> Result<(), CompleteError> {
        self.end(None).await
    }

    async fn end(self, outcome: Option<(Bytes, End)>) -> Result<(), CompleteError> {
        let guard = self.guard;
        let shared = Arc::clone(guard.shared());
        // It is not shared.
        let (hold, pending) = guard.resign();
        complete(&shared, &hold, pending, outcome).await
    }
}

impl fmt::Debug for RunGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunGuard")
            .field("key", self.guard.key())
            .field("keep", &self.keep)
            .finish_non_exhaustive()
    }
}

impl LockManager {
    /// Looks what the work called `key` came to, or else takes its lock so that it can be done: one round trip either
    /// way. What it comes to is kept for `keep`, at least a second; [see below](#when-it-ends).
    ///
    /// While another does it, waits up to `max_wait`, or the manager's `max_wait` if that is less. The keys have
    /// nothing to do with those of other locks.
    ///
    /// # What is promised
    ///
    /// While at most as many nodes as the quorum [masks](crate::LockManagerBuilder::mask_losses) lose what they have,
    /// and until it ends: all who are told of `key` are told the same, whatever is slow, crashes, or is cut off; no
    /// clock matters. But **the work may be done twice**: who did it may have crashed, or lost the lock, before it
    /// could say so.
    ///
    /// # When it ends
    ///
    /// That is decided once, by who completes: after `keep`, by the middle one of the clocks of the nodes that granted
    /// the run and of its own process. It goes with the record to every node that is given it later, whoever brings it
    /// there and for how long that one keeps its own. Each node takes it from there by its own clock, and near the end
    /// those who ask compare clocks: one node alone neither ends it early nor brings it back.
    ///
    /// So if no two clocks of the nodes and processes differ by more than *d*, nobody is told it later than `keep` and
    /// *d* after it was said (and the time that the nodes took to grant the run, a node time-out at most), and nobody
    /// is to do it again before `keep` less *d* is over. Let clocks agree to within a second, as
    /// [`max_clock_skew`](crate::RestartGuard::max_clock_skew) has it. Of three nodes or more, a single one whose clock
    /// is wrong by any time changes nothing of that once all have the record; before, it counts as one that lost it.
    /// While the record ends on one node after the other, and others are away, too few may be left to tell what is to
    /// be: then it is [`AcquireError::NoQuorum`], for *d* at most.
    ///
    /// # Errors
    ///
    /// As for [`acquire_within`](Self::acquire_within).
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
    /// use tower_redlock::{LockManager, Recall};
    ///
    /// let locks = LockManager::builder().memory(5).connect().await?;
    /// let (day, at_once) = (Duration::from_secs(86_400), Duration::ZERO);
    /// let Recall::Run(run) = locks.recall("invoice:7", day, at_once).await? else { panic!() };
    /// run.complete("sent").await?;
    /// let Recall::Replay(came_to) = locks.recall("invoice:7", day, at_once).await? else { panic!() };
    /// assert_eq!(came_to, "sent");
    /// # Ok(()) }
    /// ```
    pub async fn recall<K>(
        &self,
        key: K,
        keep: Duration,
        max_wait: Duration,
    ) -> Result<Recall, AcquireError>
    where
        K: TryInto<LockKey>,
        K::Error: Into<KeyError>,
    {
        let key: LockKey = key.try_into().map_err(Into::into)?;
        let shared = &self.shared;
        let keep = keep.max(Duration::from_secs(1));
        let keys = NodeKeys::from(shared.requests.node_key(&key));
        let purpose = Purpose::Recall { adopt: false, keep };
        let limit = max_wait.min(shared.max_wait);
        match go(shared, (LockKeys::from(key), keys), purpose, limit).await? {
            Acquired::Lock(guard) => Ok(Recall::Run(RunGuard::new(guard, keep)?)),
            Acquired::Record(record) => Ok(Recall::Replay(record.body)),
            Acquired::Adopted(guard, record) => {
                // Whether a quorum ever had it is not known; before it is told of, one must.
                let (body, end) = (record.body, End::At(record.until));
                let run = RunGuard::new(guard, keep)?;
                let settled = run.end(Some((body.clone(), end))).await;
                settled.map_err(|_| AcquireError::NoQuorum(shared.no_answer()))?;
                Ok(Recall::Replay(body))
            }
        }
    }
}

#[cfg(feature = "idempotency")]
impl LockManager {
    /// Whether `handle` observes a run of the work called `key` that this manager let begin and that has not ended.
    pub(crate) fn is_run_of(&self, handle: &LockHandle, key: &LockKey) -> bool {
        handle.is_of(&self.shared) && handle.key() == key && !handle.is_lost()
    }
}

impl Shared {
    /// The error where too few nodes had anything to say.
    pub(in crate::manager) fn no_answer(&self) -> NoQuorum {
        NoQuorum {
            needed: self.terms.quorum.needed(),
            nodes: self.nodes.len(),
            failures: Vec::new(),
            retry_after: self.quorum_in(),
            disagreed: false,
        }
    }
}
