//! [`RestartGuard`]: whether nodes that may have forgotten their locks are kept from granting them again.

use std::time::Duration;

/// Whether nodes that may have forgotten their locks are kept from granting them again.
///
/// A server that restarts without its data, is flushed, or is replaced by another under the same address has
/// forgotten the locks that it granted, and would grant them a second time: two holders at once. With the guard,
/// which is on unless it is switched off, every node carries a *marker* that says who it is. A node whose marker is
/// missing or is another's is in *quarantine*: it grants nothing until every lease that it may have forgotten has
/// ended and it has learnt from the other nodes how high the fencing tokens have come. It takes no operator and no
/// clock of the servers; any process that uses the nodes sees to it.
///
/// The locks that are held meanwhile are not touched: they live on with the quorum that remembers them.
///
/// # How long it takes
///
/// The longest ttl that any process uses with the nodes, and a little for drift, from the moment the first process
/// notices. If fewer than a quorum of nodes remember anything, two times the `max_clock_skew` more: then nobody knows
/// how high the tokens have come, and the clock must do. That is logged as an error, for tokens may repeat if the clock
/// of a process is wrong by more than that.
///
/// # The first start
///
/// Nodes that have never been used look like nodes that have forgotten everything, so the very first start of a
/// deployment waits once, in [`connect`](crate::LockManagerBuilder::connect). Where it is certain that no lock is held,
/// in tests for instance, [`bootstrap`](crate::LockManagerBuilder::bootstrap) skips that.
///
/// # Other nodes, other settings
///
/// A marker also names what the processes agreed on: the names of all nodes, the quorum, and how many losses it masks.
/// A process that was given another list is refused with an error that shows both, for each would have a majority of
/// its own. To change the list: stop all processes; wait for the longest ttl; then, from one process with the new list,
/// call [`adopt_nodes`](crate::LockManager::adopt_nodes) on a manager made by
/// [`lazy`](crate::LockManagerBuilder::lazy). All nodes are quarantined once by that.
///
/// # What it does not see
///
/// A clock of a server that is set forward ends leases early; a virtual machine that is set back to an earlier state
/// comes back with its old marker, and so does a server whose address led to another one for a while. A quorum that
/// masks such losses ([`mask_losses`](crate::LockManagerBuilder::mask_losses)) needs no guard for them. Clients of
/// other libraries on the same keys know nothing of the marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestartGuard {
    // `None`: off.
    pub(super) max_clock_skew: Option<Duration>,
}

impl RestartGuard {
    /// Nodes grant whatever they may have forgotten, as other Redlock libraries have it.
    ///
    /// A process without the guard shows the nodes no list of members either. So nobody refuses it for having another
    /// list than the rest, and it is granted locks by nodes in quarantine: switch the guard off in all processes or in
    /// none.
    pub const OFF: Self = Self {
        max_clock_skew: None,
    };

    /// Nodes that may have forgotten something wait. `skew` is by how much the clocks of any two processes differ at
    /// most; default: 1 s, at most an hour.
    #[must_use]
    pub const fn max_clock_skew(skew: Duration) -> Self {
        Self {
            max_clock_skew: Some(skew),
        }
    }
}

impl Default for RestartGuard {
    fn default() -> Self {
        Self::max_clock_skew(Duration::from_secs(1))
    }
}
