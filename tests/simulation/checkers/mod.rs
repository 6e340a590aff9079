//! The promises, one file each: what of a history breaks them.
//!
//! A checker is a function of the history and of the terms under which it came about. It says nothing where nothing is
//! promised, and each has histories written by hand that it must object to.

mod answers;
mod exclusion;
mod extended;
mod fencing;
mod free;
mod leftovers;
mod loss;
mod memory;
mod owner;
mod progress;
mod responses;
mod strangers;
mod validity;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::plan::{Class, Cut, Plan, Replicas, Seen};
use crate::workload::history::{Event, History, Holder, What};
use tower_redlock_simulated::world::{Fault, HostId, Memory};

/// What breaks a promise.
#[derive(Clone, Debug)]
pub(crate) struct Violation {
    /// The promise that is broken.
    pub(crate) promise: &'static str,
    /// When, in milliseconds since the beginning.
    pub(crate) at_ms: u64,
    pub(crate) text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {} ms: {}: {}", self.at_ms, self.promise, self.text)
    }
}

/// Under which terms a history came about.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    /// No more is lost than what the promises cover.
    pub(crate) within: bool,
    /// Dates differ by no more than the processes were told, and no server loses anything unseen.
    pub(crate) ordered_dates: bool,
    /// How many losses the quorum masks.
    pub(crate) mask: usize,
    /// By how much any two clocks that tell the date differ, in milliseconds.
    pub(crate) spread: u64,
    /// By how much, in milliseconds, the first fencing tokens after a loss may be ahead of the date of any process.
    pub(crate) ahead: u64,
    /// For how long a call is kept and not polled at most, in milliseconds.
    pub(crate) kept: u64,
    /// The calls that are.
    pub(crate) keeps: BTreeSet<usize>,
    /// All clocks run alike.
    pub(crate) exact: bool,
    /// The places whose tasks are put off at times.
    pub(crate) jitter: BTreeSet<u32>,
    /// Nothing that was sent can arrive after its sender has given it up, and no server gets old data back.
    pub(crate) tidy: bool,
    /// Nothing arrives twice, and no server gets old data back or counts on another time.
    pub(crate) once: bool,
    /// No server, no process and no way between them has a fault.
    pub(crate) calm: bool,
    /// No process and no server stands still, dies, or refuses to write.
    pub(crate) prompt: bool,
    /// All processes agree on their nodes.
    pub(crate) agreed: bool,
    /// Some have another list of nodes, which has one in common with that of the rest.
    pub(crate) overlapping: bool,
    /// The groups from which a lock may go before its end: where replicas do not acknowledge it in time, it was not
    /// granted and is released; or a replica, which is seen as well, counts on a later end.
    pub(crate) may_go: BTreeSet<u32>,
    /// The groups with replicas: what the master loses goes from them later.
    pub(crate) copied: BTreeSet<u32>,
}

impl Terms {
    pub(crate) fn of(plan: &Plan) -> Self {
        let is_within = plan.class == Class::Within;
        let is_unseen = |loses| matches!(loses, Some((_, Seen::No)));
        let unseen = plan.episodes.iter().any(|episode| is_unseen(episode.loses));
        let jitter = plan.faults().filter_map(|fault| match fault {
            Fault::Jitter { process, .. } => Some(*process),
            _ => None,
        });
        // No server of a cluster takes the place of another by itself.
        let stays = plan.topology.cluster.is_none() || plan.faults().all(is_calm);
        let guarded = plan.all_settings().all(|settings| settings.skew.is_some());
        let kept = plan.calls.iter().enumerate();
        let kept = kept.filter_map(|(index, call)| match call.cut {
            Cut::Kept(_, span) => Some((index, span)),
            _ => None,
        });
        let keeps: BTreeMap<usize, u64> = kept.collect();
        let masks = plan.all_settings().map(|all| all.mask as usize);
        let skews = plan.all_settings().filter_map(|all| all.skew);
        let groups = (0..).zip(&plan.topology.groups);
        let copied = groups.filter(|(_, group)| group.replicas > 0);
        Self {
            within: is_within,
            ordered_dates: plan.dates_agree() && guarded && (is_within || !unseen),
            mask: masks.min().unwrap_or(0),
            spread: plan.skew() + plan.faults().map(stepped).sum::<u64>(),
            // As far as dates may differ, and once more for the floor of a promotion.
            ahead: 2 * skews.max().unwrap_or(0),
            kept: keeps.values().copied().max().unwrap_or(0),
            exact: !plan.faults().any(|fault| {
                matches!(
                    fault,
                    Fault::HostRate { .. } | Fault::ProcessRate { .. } | Fault::HostStep { .. }
                )
            }),
            jitter: jitter.collect(),
            tidy: stays && plan.faults().all(is_tidy),
            once: stays && plan.faults().all(is_once),
            calm: plan.faults().all(is_calm),
            prompt: plan.faults().all(is_prompt) && keeps.is_empty(),
            keeps: keeps.into_keys().collect(),
            agreed: plan.agrees(),
            overlapping: plan.overlaps_once(),
            may_go: replicas_differ(plan),
            copied: copied.map(|(group, _)| group).collect(),
        }
    }

    /// Terms under which everything is promised.
    #[cfg(test)]
    pub(crate) fn strict() -> Self {
        Self {
            within: true,
            ordered_dates: true,
            mask: 0,
            spread: 0,
            ahead: 0,
            kept: 0,
            keeps: BTreeSet::new(),
            exact: true,
            jitter: BTreeSet::new(),
            tidy: true,
            once: true,
            calm: true,
            prompt: true,
            agreed: true,
            overlapping: false,
            may_go: BTreeSet::new(),
            copied: BTreeSet::new(),
        }
    }

    /// The same with one difference.
    #[cfg(test)]
    fn but(change: impl FnOnce(&mut Self)) -> Self {
        let mut terms = Self::strict();
        change(&mut terms);
        terms
    }
}

/// The groups where a lock is only on a node if a replica acknowledges it, for some process; or where a replica may
/// count on another end of a lock than its master, whose clock was set, or of which it hears late: old servers tell it
/// for how long.
fn replicas_differ(plan: &Plan) -> BTreeSet<u32> {
    let mut all = plan.all_settings();
    let is_asked = all.any(|settings| settings.replicas == Replicas::Required);
    let set = plan.faults().flat_map(|fault| match fault {
        Fault::ReplicaCut { host, .. }
        | Fault::ReplicaLag { host, .. }
        | Fault::HostStep { host, .. } => vec![*host],
        Fault::Bus { host, to, .. } => vec![*host, *to],
        _ => Vec::new(),
    });
    let set: BTreeSet<HostId> = set.collect();
    let has_replicas = |group: usize| plan.topology.groups[group].replicas > 0;
    let mut hosts = plan.topology.hosts();
    hosts.retain(|(host, group, _)| is_asked || has_replicas(*group) && set.contains(host));
    hosts.iter().map(|(_, group, _)| *group as u32).collect()
}

/// By how much a fault sets the date of a server.
fn stepped(fault: &Fault) -> u64 {
    match fault {
        Fault::HostStep { ms, .. } => ms.unsigned_abs(),
        _ => 0,
    }
}

/// Whether everything that is sent arrives in time or never, and nothing comes back that was gone.
fn is_tidy(fault: &Fault) -> bool {
    matches!(
        fault,
        Fault::Delay { .. }
            | Fault::Heal { .. }
            | Fault::Freeze { .. }
            | Fault::Thaw { .. }
            | Fault::HostRate { .. }
            | Fault::Evict { .. }
            | Fault::EvictionPolicy { .. }
            | Fault::OutOfMemory { .. }
            | Fault::Refuses { .. }
            | Fault::Flush { .. }
            | Fault::FlushScripts { .. }
            | Fault::Resume { .. }
            | Fault::Pause { .. }
            | Fault::Start { .. }
            | Fault::ProcessRate { .. }
            | Fault::ProcessStep { .. }
            | Fault::Jitter { .. }
            | Fault::Suspend { .. }
            | Fault::HealAll
    )
}

/// Whether what was released stays so: what is late is void, as long as the server remembers that.
fn is_once(fault: &Fault) -> bool {
    match fault {
        Fault::Crash { memory, .. } => matches!(memory, Memory::All | Memory::None),
        Fault::Duplicate { .. }
        | Fault::HostStep { .. }
        | Fault::ReplicaLag { .. }
        | Fault::ReplicaCut { .. }
        | Fault::Promote { .. }
        | Fault::Demote { .. }
        | Fault::Opinion { .. }
        | Fault::Failover { .. }
        | Fault::Bus { .. } => false,
        _ => true,
    }
}

/// Whether locks are extended and, where it [is prompt](is_prompt), whoever asks for a lock that is free gets it soon.
fn is_calm(fault: &Fault) -> bool {
    matches!(
        fault,
        Fault::ProcessStep { .. }
            | Fault::ProcessRate { .. }
            | Fault::HostRate { .. }
            | Fault::Heal { .. }
            | Fault::Delay { max_ms: ..10, .. }
            // Callers are blocked, and their locks are extended.
            | Fault::Block { .. }
            | Fault::Unblock { .. }
    )
}

/// Whether everything goes on.
fn is_prompt(fault: &Fault) -> bool {
    !matches!(
        fault,
        Fault::Freeze { .. }
            | Fault::OutOfMemory { .. }
            | Fault::Refuses { .. }
            | Fault::Block { .. }
            | Fault::Pause { .. }
            | Fault::Suspend { .. }
            | Fault::Jitter { .. }
            | Fault::Evict { .. }
            | Fault::EvictionPolicy { .. }
            | Fault::Flush { .. }
    )
}

/// What a checker objects to, and when, in milliseconds since the beginning.
type Found = Vec<(u64, String)>;

type Checker = fn(&History, &Terms) -> Found;

/// The promises, each with its checker.
const CHECKERS: [(&str, Checker); 12] = [
    ("one holder at a time", exclusion::check),
    ("fencing tokens grow", fencing::check),
    ("a free key is not refused", free::check),
    ("no validity beyond what nodes grant", validity::check),
    ("only the owner releases", owner::check),
    ("no key is left", leftovers::check),
    ("every waiter is answered", answers::check),
    ("a loss is told before validity ends", loss::check),
    ("a lock is extended while it is held", extended::check),
    (
        "one response per idempotency key and caller",
        responses::check,
    ),
    ("progress after healing", progress::check),
    ("bounded memory", memory::check),
];

/// Everything that a history breaks.
pub(crate) fn check(history: &History, terms: &Terms) -> Vec<Violation> {
    let found = CHECKERS.into_iter().flat_map(|(promise, check)| {
        let found = check(history, terms).into_iter();
        found.map(|(at_ms, text)| Violation {
            promise,
            at_ms,
            text,
        })
    });
    let mut all: Vec<Violation> = found.collect();
    all.sort_by_key(|violation| violation.at_ms);
    all
}

/// The events that are objected to by themselves.
fn each_event(history: &History, objection: impl Fn(&What) -> Option<String>) -> Found {
    let events = history.events.iter();
    let found = events.filter_map(|Event { at, what }| Some((*at, objection(what)?)));
    found.collect()
}

/// Two holders in words.
fn both(history: &History, one: usize, two: usize) -> String {
    format!("{}; and {}", named(history, one), named(history, two))
}

/// A holder in words: who was told when that it has what.
fn named(history: &History, holder: usize) -> String {
    let Holder {
        process,
        call,
        granted,
        ..
    } = &history.holders[holder];
    let lock = lock(history, holder);
    format!("{process} (call {call}) holds {lock} since {granted} ms")
}

/// The lock of a holder in words.
fn lock(history: &History, holder: usize) -> String {
    let Holder { keys, fence, .. } = &history.holders[holder];
    let keys = keys.join("+");
    match fence {
        Some(fence) => format!("{keys} (fencing token {fence})"),
        None => format!("{keys} (no fencing token)"),
    }
}

/// When servers lost something, and of which group.
fn losses(history: &History) -> impl Iterator<Item = (u64, u32)> {
    let events = history.events.iter();
    events.filter_map(|Event { at, what }| match what {
        What::Forgot { group } => Some((*at, *group)),
        _ => None,
    })
}

#[cfg(test)]
mod hand {
    //! What histories that are written by hand are made of.

    use super::*;
    use tower_redlock_simulated::world::ProcessId;

    pub(super) fn process(place: u32) -> ProcessId {
        ProcessId { place, life: 0 }
    }

    /// The holder of `order:1` in a process, with this owner and fencing token.
    pub(super) fn holder(place: u32, owner: &str, fence: u64, granted: u64) -> Holder {
        Holder {
            process: process(place),
            call: place as usize,
            keys: vec!["lk:order:1".to_owned()],
            owner: owner.to_owned(),
            fence: Some(fence),
            granted,
            started: granted,
            ttl: 1_000,
            is_reader: false,
        }
    }

    pub(super) fn connected(place: u32, groups: [u32; 3]) -> What {
        What::Connected {
            process: process(place),
            groups: groups.to_vec(),
        }
    }

    pub(super) fn history(holders: &[Holder], events: &[(u64, What)]) -> History {
        let events = events.iter().cloned();
        History {
            holders: holders.to_vec(),
            events: events.map(|(at, what)| Event { at, what }).collect(),
        }
    }
}
