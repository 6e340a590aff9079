//! [`Want`] says what a call asks the nodes for.
//!
//! A permit is a lock on one of the key's *slots*. A node grants the first requested slot that is free there. Nodes do
//! not count holders, because that would admit too many: if each of three nodes had room for two holders, three holders
//! could each find a quorum of two nodes. `tests/models/permits.rs` has both rules.

#[cfg(feature = "idempotency")]
pub(crate) mod recall;

use std::time::Duration;

use crate::key_error::KeyError;
use crate::lock_key::{LockKey, LockKeys};
use crate::manager::freeing::{FreeCommand, release};
use crate::manager::shared::Shared;
#[cfg(feature = "idempotency")]
use crate::manager::want::recall::{Recall, forget};
use crate::namespace::{Namespace, NodeKeys};
use crate::node::{AcquireReply, AcquireRequest, Node, NodeError, NodeFuture};
use crate::protocol::on_nodes::{OnNodes, Verdict};
#[cfg(feature = "idempotency")]
use crate::protocol::recall::Recalled;
use crate::seam::for_pause;

pub(crate) type Reply = Result<AcquireReply, NodeError>;

#[derive(Clone, Debug)]
pub(crate) enum Want {
    /// The lock on all of the keys, for one owner.
    Lock,
    /// A share in the lock on a key, with other readers.
    Reader,
    /// A lock on one of the slots of a key.
    Permit {
        limit: u32,
        /// Whether it asks for all slots, or only for a few of them.
        asks_all: bool,
    },
    /// The stored result of a run or, if there is none, the lock to compute it.
    #[cfg(feature = "idempotency")]
    Run(Box<Recall>),
}

#[cfg_attr(
    not(feature = "idempotency"),
    expect(dead_code, reason = "all that is found is records")
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    Lock(Verdict),
    Found,
    Again,
}

impl Want {
    /// The keys of nodes for a lock on `names`. Fails if there are several keys for readers or permits, or if a
    /// permit's key leaves no room for the number of its slot.
    pub(crate) fn node_keys(
        &self,
        namespace: &Namespace,
        names: &LockKeys,
    ) -> Result<NodeKeys, KeyError> {
        if names.as_slice().len() > 1 && !matches!(self, Self::Lock) {
            return Err(KeyError::several());
        }
        match self {
            Self::Reader => Ok(namespace.node_keys(names)?.shared()),
            Self::Permit { .. } => {
                let len = names.first().as_str().len();
                // The key with the number of a slot must be a valid key, so that operators can look it up.
                let most = LockKey::MAX_LEN - ":255".len();
                let keys = namespace.permits().node_keys(names)?;
                (len <= most)
                    .then_some(keys)
                    .ok_or_else(|| KeyError::too_long(len, most))
            }
            _ => namespace.node_keys(names),
        }
    }

    pub(crate) const fn permit(limit: u32) -> Self {
        let asks_all = limit <= FEW;
        Self::Permit { limit, asks_all }
    }

    pub(crate) const fn is_permit(&self) -> bool {
        matches!(self, Self::Permit { .. })
    }

    pub(crate) const fn is_shared(&self) -> bool {
        matches!(self, Self::Reader)
    }

    /// Whether a holder of this process may pass its lock to this caller. Otherwise each caller asks the nodes.
    pub(crate) const fn is_handed_on(&self) -> bool {
        matches!(self, Self::Lock | Self::Permit { .. })
    }

    /// Whether this caller can take a lock with this slot from another caller of this process.
    pub(crate) fn fits(&self, slot: Option<u32>) -> bool {
        match self {
            Self::Permit { limit, .. } => slot.is_some_and(|slot| slot < *limit),
            _ => true,
        }
    }
}

/// What depends on the kind in a round.
impl Want {
    /// The keys of the next round. For a permit they begin with a random slot, because callers then seldom compete for
    /// the same slots.
    pub(crate) fn keys(&self, keys: &NodeKeys) -> NodeKeys {
        let Self::Permit { limit, asks_all } = self else {
            return keys.clone();
        };
        let count = if *asks_all { *limit } else { FEW };
        let limit = u64::from(*limit);
        let first = for_pause() % limit;
        let numbers = (first..first + u64::from(count)).map(|number| number % limit);
        keys.slots(numbers.filter_map(|number| u32::try_from(number).ok()))
    }

    /// How long fencing counters are kept for a lock of this `ttl`; `None` if the lock has no fencing token.
    pub(crate) fn counter_ttl(&self, shared: &Shared, ttl: Duration) -> Option<Duration> {
        match self {
            #[cfg(feature = "idempotency")]
            Self::Run(recall) => Some(recall.counter_ttl(shared, ttl)),
            _ => shared.common.fencing.map(|keep| keep.max(ttl)),
        }
    }

    pub(crate) fn ask(&self, node: &dyn Node, request: AcquireRequest) -> NodeFuture<Reply> {
        match self {
            #[cfg(feature = "idempotency")]
            Self::Run(recall) => recall.ask(node, request),
            _ => node.acquire(request),
        }
    }

    /// Keeps the record and the clock of a reply, for a run.
    #[cfg_attr(
        not(feature = "idempotency"),
        expect(
            clippy::unused_self,
            clippy::needless_pass_by_ref_mut,
            reason = "only records say more"
        )
    )]
    pub(crate) fn hear(&mut self, node: usize, reply: AcquireReply) {
        #[cfg(feature = "idempotency")]
        if let Self::Run(recall) = self {
            recall.hear(node, reply);
        }
        #[cfg(not(feature = "idempotency"))]
        let _ = (node, reply);
    }

    pub(crate) fn decide(&self, nodes: &OnNodes) -> Option<Decision> {
        #[cfg(feature = "idempotency")]
        if let Self::Run(recall) = self {
            return Some(match recall.recalled(nodes)? {
                Recalled::Lock(verdict) => Decision::Lock(verdict),
                Recalled::Replay(_) => Decision::Found,
                Recalled::Adopt => Decision::Again,
            });
        }
        Some(match (self, nodes.verdict()?) {
            (
                Self::Permit {
                    asks_all: false, ..
                },
                Verdict::Contended { .. },
            ) => Decision::Again,
            (_, verdict) => Decision::Lock(verdict),
        })
    }

    /// Changes the request for the next round, after [`Decision::Again`]. Returns `false` if it was changed before.
    pub(crate) fn ask_again(&mut self) -> bool {
        match self {
            Self::Permit { asks_all, .. } => !std::mem::replace(asks_all, true),
            #[cfg(feature = "idempotency")]
            Self::Run(recall) => recall.ask_again(),
            _ => false,
        }
    }

    pub(crate) fn free(&self) -> FreeCommand {
        match self {
            #[cfg(feature = "idempotency")]
            Self::Run(_) => forget,
            _ => release,
        }
    }
}

/// How many slots the first round asks for. If half of all slots are held, 15 of 16 such rounds find a free slot.
const FEW: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permit_takes_only_slots_below_its_limit() {
        let (limit, asks_all) = (2, false);
        let permit = Want::Permit { limit, asks_all };
        let fits = [None, Some(1), Some(2)].map(|slot| permit.fits(slot));
        assert_eq!(fits, [false, true, false]);
        assert!(Want::Lock.fits(None));
    }
}
