//! [`RestartGuard`]: whether nodes that may have forgotten their locks are kept from granting them again.

use std::time::Duration;

use serde::Deserialize;

use crate::settings::error::{ConfigError, check_range};

/// Whether nodes that may have forgotten their locks are kept from granting them again.
///
/// A server that restarts without its data, is flushed, or is replaced by another under the same address has
/// forgotten the locks that it granted, and would grant them a second time: two holders at once. With the guard,
/// which is on by default, every node carries a *marker* with its identity. A node whose marker is missing or is
/// another's is in *quarantine*: it grants nothing until every lease that it may have forgotten has
/// ended and it has learnt from the other nodes how high the fencing tokens have come. It takes no operator and no
/// clock of the servers; any process that uses the nodes does it.
///
/// The locks that are held meanwhile live on. A holder writes its lock to a node in quarantine, too, and that counts as
/// long as the vote of the node before it does. So a lock outlives the restart of all of its nodes, also of a single
/// one, if they are back within its validity (behind Sentinels: of fewer than a quorum).
///
/// # How long it takes
///
/// [`max_ttl`](crate::Settings::max_ttl), the longest ttl that any process may use, and a little more for
/// clocks that drift; a node behind Sentinels their
/// [`confirm_within`](crate::node::redis::RedisNodeBuilder::confirm_within) longer. So no lock rests any more on what a
/// node has forgotten when that votes again, however many nodes forgot: **two holders are kept apart though all nodes
/// forget at once.**
///
/// Each process waits on its own clock, from when it first saw the node in that quarantine, and the first whose wait is
/// over ends it for all. Nothing of a wait is stored: a process that starts meanwhile waits anew. So while such a wait
/// is on, let one process stay up.
///
/// While the other nodes are enough for a quorum, nobody notices. If they are not, no new lock is granted until enough
/// quarantines are over; with one node that is so after each of its restarts.
///
/// If fewer than a quorum of nodes vote by then, it is unknown how high the fencing tokens have come, and the clock of
/// the process and `max_clock_skew` must do. That is logged as an error, for tokens may repeat if clocks of processes
/// differ by more. It is logged also where servers restarted with all of their data, for that cannot be told of a file;
/// then counters that are higher than the clock go on.
///
/// # The first start
///
/// Nodes that have never been used look like nodes that have forgotten everything, so the very first start of a
/// deployment waits once, in [`connect`](crate::Settings::connect). Where it is certain that no lock is held,
/// in tests for instance, [`bootstrap`](crate::Settings::bootstrap) skips that. It takes *all* nodes: nothing
/// is granted before every node of the list has accepted that once. From then on a quorum will do.
///
/// # Other nodes, other settings
///
/// A marker also holds the config of the processes: the format of the data on the nodes, the names of all nodes, the
/// quorum, how many losses it masks, `max_ttl`, and whether there are a guard and fencing tokens. A process with
/// another config is refused with an error that shows both, for each list would have a majority of its own; so is one
/// without the guard. And one such node is enough: a manager that finds any of its nodes to serve others grants nothing
/// and extends nothing until they agree. Held locks end with their validity. It may be that both lists stop: give all
/// processes one of them, or change the members.
///
/// To change the config: stop all processes; then, from one process with the new settings, call
/// [`adopt_nodes`](crate::LockManager::adopt_nodes) on a manager made by [`lazy`](crate::Settings::lazy).
/// Every node has to answer that, and all are quarantined once, for the longer of the old and the new `max_ttl`.
/// Nothing remembers which lists were replaced: a node that comes back with an old one stops the processes with the new
/// one, like any node of others, until it is adopted, too.
///
/// An overlap of two lists is hidden by a node that they share and that one of them cannot reach, or that has come
/// back empty, for the process that is first. Neither list grants anything through it unless it accepted that list
/// before, and processes that can reach it check every second. A process that knew it for a node of others goes on
/// only when its quarantine is over, which begins when the others must have noticed. But locks that were granted before
/// are held until they end, extended by those that cannot reach it; and a process that starts just then does not know
/// of others. If the ttl of the others is shorter than theirs, or within the next second, both can hold a lock
/// meanwhile. And of two lists with two nodes in common each may be given one of them, when one comes back empty: then
/// neither goes on before the other's processes are stopped.
///
/// # What it does not see
///
/// A clock of a server that is set forward ends leases early; a virtual machine that is set back to an earlier state
/// comes back with its old marker, and so does a server whose address led to another one for a while. A quorum that
/// masks such losses ([`mask_losses`](crate::Settings::mask_losses)) needs no guard for them. Clients of
/// other libraries on the same keys know nothing of the marker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[serde(expecting = "\"off\" or a table with max_clock_skew")]
pub struct RestartGuard {
    #[serde(with = "humantime_serde")]
    max_clock_skew: Option<Duration>,
    off: bool,
}

impl RestartGuard {
    /// Nodes grant also locks that they may have forgotten, as with other Redlock libraries.
    ///
    /// Switch it off in all processes or in none: those with and those without it refuse each other. Processes without
    /// it are refused for another list, too, as soon as a node tells that it serves others; but a list need not have
    /// been accepted by all nodes before it is used.
    ///
    /// # What it saves, and gives up
    ///
    /// With [`Fencing::OFF`](crate::settings::Fencing::OFF) as well, a lock on one key is a plain `SET NX PX` on each
    /// node, as other Redlock clients have it, and takes a server about half the time (`BENCHMARKS.md`). The nodes then
    /// promise what they promise those clients, and two things less than otherwise:
    ///
    /// * A node compares the list of nodes when a process connects, once a second, and when a lock is extended, and no
    ///   longer with each grant. Processes with different lists can both hold a lock until they notice.
    /// * A command that was left in a connection which broke may set the key after its owner has released it. The key
    ///   is then nobody's until its ttl ends.
    ///
    /// Who holds a lock is asked for only after a refusal, which takes a second round trip to the nodes that refused.
    pub const OFF: Self = Self {
        max_clock_skew: None,
        off: true,
    };

    /// Nodes that may have forgotten locks are quarantined. `skew` is by how much the clocks of any two processes
    /// differ at most; default: 1 s, at most an hour.
    #[must_use]
    pub const fn max_clock_skew(skew: Duration) -> Self {
        Self {
            max_clock_skew: Some(skew),
            off: false,
        }
    }

    /// By how much clocks differ at most; `None` if there is no guard.
    pub(super) fn checked(self) -> Result<Option<Duration>, ConfigError> {
        if self.off {
            return Ok(None);
        }
        let skew = self.max_clock_skew.unwrap_or(USUAL_SKEW);
        check_range(
            "restart_guard.max_clock_skew",
            skew,
            Duration::ZERO..=MAX_SKEW,
        )?;
        Ok(Some(skew))
    }
}

const USUAL_SKEW: Duration = Duration::from_secs(1);
const MAX_SKEW: Duration = Duration::from_secs(60 * 60);
