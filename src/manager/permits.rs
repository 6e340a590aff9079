//! Permits: at most `limit` holders of a key at once. A permit is a lock on one of the key's *slots*, with a quorum, a
//! validity, renewals, loss and release like any lock.
//!
//! Nodes do not count holders, which would admit too many: where each of three nodes has room for two, three holders find
//! two nodes each. Votes are counted for each slot instead. A node grants the first slot that is free there, in the order
//! of the request, so that one round is enough while slots are free. `tests/models/permits.rs` has both rules.

use std::convert::Infallible;
use std::time::Duration;

use smallvec::SmallVec;

use crate::manager::error::AcquireError;
use crate::manager::release::{FreeCommand, release};
use crate::manager::round::{Attempt, Decision, Purpose, Reply};
use crate::manager::shared::Shared;
use crate::namespace::NodeKeys;
use crate::node::{AcquireReply, AcquireRequest, Node, NodeFuture};
use crate::protocol::round::{Round, Verdict, Vote};
use crate::seam::for_pause;

/// A round for one of the slots of a key.
#[derive(Clone, Debug)]
pub(crate) struct Permit {
    limit: u32,
    // Whether it asks for all slots rather than for a few of them.
    asks_all: bool,
    // Which of the slots that were asked for each node granted.
    granted: SmallVec<[(usize, usize); 3]>,
}

impl Permit {
    pub(crate) fn new(limit: u32) -> Self {
        Self {
            limit,
            asks_all: limit <= FEW,
            granted: SmallVec::new(),
        }
    }

    fn votes(&self, slot: usize) -> usize {
        let granted = self.granted.iter();
        granted.filter(|(_, other)| *other == slot).count()
    }

    /// The slot with the most votes.
    fn best(&self) -> Option<usize> {
        let slots = self.granted.iter().map(|(_, slot)| *slot);
        slots.max_by_key(|slot| self.votes(*slot))
    }
}

impl Purpose for Permit {
    type Found = Infallible;
    type Along = ();
    const FREE: FreeCommand = release;
    const HANDED_ON: Option<()> = Some(());
    const ANY: bool = true;

    /// Begins with a random slot, so that callers seldom ask for the same ones.
    fn keys(&mut self, keys: &NodeKeys) -> NodeKeys {
        let count = if self.asks_all { self.limit } else { FEW };
        let limit = u64::from(self.limit);
        let first = for_pause() % limit;
        let numbers = (first..first + u64::from(count)).map(|number| number % limit);
        keys.slots(numbers.filter_map(|number| u32::try_from(number).ok()))
    }

    fn keep_fence(&self, shared: &Shared, ttl: Duration) -> Option<Duration> {
        shared.fencing.map(|keep| keep.max(ttl))
    }

    fn ask(&self, node: &dyn Node, request: AcquireRequest) -> NodeFuture<Reply> {
        node.acquire(request)
    }

    fn vote(&mut self, node: usize, reply: AcquireReply) -> Vote {
        match reply {
            AcquireReply::Slot { index, fence } => {
                self.granted.push((node, index));
                Vote::Granted(fence)
            }
            AcquireReply::Held(holder) => Vote::Refused(holder),
            // No reply to this request; the node may have set a key.
            _ => Vote::Failed { owed: true },
        }
    }

    fn decide(&self, round: &Round) -> Option<Decision> {
        let best = self.best().map_or(0, |slot| self.votes(slot));
        Some(match round.verdict_of_any(best)? {
            Verdict::Contended { .. } if !self.asks_all => Decision::Again,
            verdict => Decision::Lock(verdict),
        })
    }

    /// The caller that passes it on may have had a higher limit.
    fn fits(&self, slot: Option<u32>) -> bool {
        slot.is_some_and(|slot| slot < self.limit)
    }

    /// The next round asks for all slots.
    fn ask_again(&mut self) -> bool {
        !std::mem::replace(&mut self.asks_all, true)
    }

    fn found(attempt: Attempt<Self>) -> Result<Infallible, AcquireError> {
        Err(attempt.no_quorum())
    }

    fn is_replay((): &()) -> bool {
        false
    }

    async fn settle(attempt: &mut Attempt<Self>) -> Result<(), AcquireError> {
        let Some(slot) = attempt.purpose.best() else {
            return Err(attempt.no_quorum());
        };
        let mut strays = std::mem::take(&mut attempt.purpose.granted).into_vec();
        strays.retain(|(_, other)| *other != slot);
        attempt.keep_only(slot, strays);
        attempt.agree_on_fence().await
    }
}

/// How many slots the first round asks for. With half of all slots held, 15 of 16 such rounds find a free one; a
/// request for all would cost more than the rounds that it saves.
const FEW: u32 = 4;
