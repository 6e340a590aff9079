//! [`Mutant`]: known defects, of which one can be switched on to see which tests find it.
//!
//! Only in builds with `--cfg tower_redlock_simulation`, by the environment variable `REDLOCK_MUTANT`. In all others
//! [`is`] is the constant `false`, and nothing of this remains. Each place where the code asks [`is`] has the defect
//! beside the right way; those of the Lua scripts are in `node/redis/patches.rs`. `tests/mutants` holds the table of
//! which test finds which.

#[cfg(tower_redlock_simulation)]
use std::sync::OnceLock;

/// Declares the defects, and in builds that can have one, the list of them.
macro_rules! mutants {
    ($($(#[$doc:meta])+ $name:ident,)+) => {
        /// A defect. Where its docs end with a commit, this crate had it until then; the others break a rule of the
        /// protocol.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(dead_code, reason = "some are only in scripts, or in code of one feature")]
        pub(crate) enum Mutant {
            $($(#[$doc])+ $name,)+
        }

        #[cfg(tower_redlock_simulation)]
        const ALL: &[Mutant] = &[$(Mutant::$name),+];
    };
}

mutants! {
    // Which servers vote.
    /// A server behind Sentinels counts however long ago most of them named it. (a01f7d3)
    SentinelsNeverConfirm,
    /// After a failover the quarantine does not wait until nobody counts the former master any more. (a01f7d3)
    FailoverNotSettled,
    /// Processes may have different Sentinels for one node. (a01f7d3)
    SentinelsNotAgreed,
    /// A server that was demoted and promoted again is taken for the one that it was. (5311c46)
    IdentityIsTheProcess,
    /// A server has another identity for processes that declare its replicas than for those that do not. (5311c46)
    DeclaredIdentityDiffers,
    /// A server's settings and role are checked at connect and never again. (5311c46)
    ServerSeenOnce,
    /// Evictions are counted without the process that did them. (b7af8cd)
    EvictionsOfAnyProcess,
    /// A node that forgot votes at once.
    NoQuarantine,
    /// A node in quarantine counts where a lock is extended, though the vote before that has ended or was another's.
    QuarantinedVoteRevives,
    /// A promotion ends whatever quarantine the node is in.
    PromotionNotCompared,
    /// A quarantine lasts half as long as the longest lease.
    QuarantineTooShort,
    /// Acquires take the quick way under a config that was replaced.
    VoteOutlivesConfig,
    /// A process may have a longer ttl than was agreed on. (6a70985)
    TtlBeyondAgreed,
    /// A node is promoted though the call that said that no lock is held has ended meanwhile. (b7af8cd)
    TrustOutlivesItsCall,
    /// A bootstrap begins to wait anew whenever a node goes down. (b7af8cd)
    BootstrapNeverEnds,
    // What all processes agree on.
    /// A node that serves processes with another list costs its vote alone. (6a70985)
    ForeignNodeCostsAVote,
    /// A list of nodes grants locks before each of its nodes has accepted it. (6a70985)
    ListNeedsNoAcceptance,
    /// A node that has forgotten the processes with another list that it served lets ours go on at once.
    ReclaimedAtOnce,
    /// What is agreed on does not say in which format nodes are written. (6a70985)
    FormatNotAgreed,
    /// A process without the restart guard agrees to nothing. (6a70985)
    UnguardedAgreesToNothing,
    // Validity.
    /// Validity is the whole ttl.
    NoDrift,
    /// Validity counts from when the last reply came.
    GrantCountsFromTheReply,
    /// An extension counts from when its reply came.
    ExtensionCountsFromTheReply,
    /// An extension that is confirmed after the deadline revives the lock.
    LossNotFinal,
    /// Half of the nodes, rounded down, are a quorum.
    HalfIsAQuorum,
    /// Whoever is handed a lock counts its validity from then on.
    HandOffPastValidity,
    /// A lock that is handed on near `max_hold` is extended only at the end of its former holder. (b7af8cd)
    HandOffKeepsTheOldEnd,
    // Releases.
    /// A release removes whatever lock is there.
    ReleaseWithoutCompare,
    /// A node that grants after its round was lost is not released.
    LateGrantForgotten,
    /// A reply that came and was not read counts as none when the lock is released. (b7af8cd)
    UnreadReplyForgotten,
    /// A lock is extended after its release.
    RenewalAfterRelease,
    /// A release leaves nothing behind that stops late commands of its owner.
    NoTombstone,
    /// A lock that is handed to a caller who leaves at that moment belongs to nobody.
    LockLostOnCancel,
    /// A shutdown counts a release as done when it is sent. (c08f092)
    ReleaseCountsWhenSent,
    /// A shutdown waits for 250 ms however slow nodes may be, and closes them with what is owed. (c08f092)
    ShutdownGivesUp,
    /// A waiter for several keys keeps the turns of all while it waits for one. (d3eab46)
    TurnKeptWhileWaiting,
    // Fencing tokens.
    /// A token that the nodes do not agree on is handed out before a quorum has it.
    FenceNotWrittenBack,
    /// A node in quarantine has a token written back under a lock that may be one that was lost.
    RaisedInQuarantine,
    /// A node that is promoted does not learn the highest token of the others.
    MarkNotLearnt,
    /// Counters from before a node lost data count as they are. (f509703)
    OldCounterCounts,
    /// A counter is used whatever is written there. (f509703)
    CounterNotChecked,
    /// Counters live for a day. (f6c111c)
    CountersKeptForADay,
    // Idempotency.
    /// A record on one node counts as one that a quorum has.
    RecordOfAMinority,
    /// A result counts as stored when one node has it.
    ResultOnOneNodeIsKept,
    /// A result that some nodes have is returned, whether or not it could be brought to a quorum.
    AdoptedResultNotConfirmed,
    /// A record replaces one of a higher ballot.
    BallotNotCompared,
    /// A run stores its result though another run began since.
    OvertakenRunIsStored,
    /// A run stores its result on a node that remembers no grant, if the lock is its own there.
    ForgottenGrantCounts,
    /// A node that has told a number stores results under lower ballots.
    PromiseNotCompared,
    /// A record that is brought to a quorum is kept for the full time once more. (505f949)
    RecordLivesAnew,
    /// Any refusal says that nothing was done. (4d66eba)
    AnyRefusalIsBelieved,
    /// What is left of a run that has ended lets a request past the layer. (c6214cc)
    EndedRunLetsPast,
    /// One key on two hosts is one key. (a304bfe)
    HostNotInScope,
    /// A request under an outer lock waits for its idempotency key if an inner layer has no key. (b7af8cd)
    OuterLockUnseen,
}

/// Whether this defect is switched on.
#[cfg(not(tower_redlock_simulation))]
pub(crate) const fn is(_: Mutant) -> bool {
    false
}

/// Whether this defect is switched on.
#[cfg(tower_redlock_simulation)]
pub(crate) fn is(mutant: Mutant) -> bool {
    static CHOSEN: OnceLock<Option<Mutant>> = OnceLock::new();
    *CHOSEN.get_or_init(chosen) == Some(mutant)
}

/// The defect that the environment names, if it names one.
#[cfg(tower_redlock_simulation)]
fn chosen() -> Option<Mutant> {
    let name = std::env::var("REDLOCK_MUTANT").unwrap_or_default();
    let chosen = ALL.iter().find(|mutant| format!("{mutant:?}") == name);
    assert!(
        chosen.is_some() || name.is_empty(),
        "REDLOCK_MUTANT is `{name}`, which is none of {ALL:?}"
    );
    chosen.copied()
}
