//! What can happen to the nodes.

/// How many nodes there are.
pub(crate) const NODES: usize = 5;
/// What happens to the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scene {
    /// No node forgets anything.
    Calm,
    /// Killed, and started again with nothing.
    KillRestartEmpty,
    /// Everything is deleted; the process and its connections live on.
    FlushAll,
    /// Killed, and started again with its append-only file: whole, without its end, or gone.
    AofRestart,
    /// It becomes the replica of a server that holds nothing or an old copy of it, and a master again: the same process
    /// on the same connections with other data.
    ReplicaFailover,
    /// The same, and what it takes over is a copy that was made while it voted: with its marker, of some time ago.
    FailoverToPromoted,
    /// Its address leads to another server, which holds nothing.
    EndpointMoved,
    /// Killed, and started again with a snapshot of some time ago: marker, locks and counters of the past. The clocks
    /// of the processes differ by seconds.
    OldData,
    /// Processes with different ttls are cut off each from some of the nodes, while nodes forget.
    CutsAndForgetting,
    /// Holders block the threads that they run on, servers run slow scripts, and are flushed.
    BlockedThreads,
}

impl Scene {
    /// Whether at most a few nodes forget at a time: if more do, fencing tokens rely on clocks, which differ here.
    pub(crate) const fn is_about_few(self) -> bool {
        matches!(self, Self::OldData)
    }

    pub(crate) const fn has_spares(self) -> bool {
        matches!(
            self,
            Self::ReplicaFailover | Self::FailoverToPromoted | Self::EndpointMoved
        )
    }

    pub(crate) const fn has_replicas(self) -> bool {
        matches!(self, Self::ReplicaFailover | Self::FailoverToPromoted)
    }

    /// Whether nodes come back with what they had some time ago.
    pub(crate) const fn has_old_data(self) -> bool {
        matches!(
            self,
            Self::AofRestart | Self::ReplicaFailover | Self::FailoverToPromoted | Self::OldData
        )
    }

    pub(crate) fn args(self) -> &'static [&'static str] {
        match self {
            Self::AofRestart => &["--appendonly", "yes", "--appendfsync", "everysec"],
            // A failover has to be over before the locks are. Valkey 9.1 notices only once a second that a copy has
            // come if it is written to disk first.
            Self::ReplicaFailover | Self::FailoverToPromoted => &[
                "--repl-diskless-sync-delay",
                "0",
                "--repl-diskless-load",
                "swapdb",
            ],
            _ => &[],
        }
    }
}
