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

use std::collections::BTreeSet;
use std::fmt;

use crate::plan::{Class, Cut, Plan};
use crate::workload::history::{Event, History, Holder, What};
use tower_redlock_simulated::world::{Fault, Memory};

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
}

impl Terms {
    pub(crate) fn of(plan: &Plan) -> Self {
        let has = |is: fn(&Fault) -> bool| plan.faults().any(is);
        let is_unseen = |loses: Option<(u32, crate::plan::Seen)>| {
            matches!(loses, Some((_, crate::plan::Seen::No)))
        };
        let unseen = plan.episodes.iter().any(|episode| is_unseen(episode.loses));
        let steps: u64 = plan.faults().map(stepped).sum();
        let jitter = plan.faults().filter_map(|fault| match fault {
            Fault::Jitter { process, .. } => Some(*process),
            _ => None,
        });
        // No server of a cluster takes the place of another by itself.
        let stays = plan.topology.cluster.is_none() || plan.faults().all(is_calm);
        let guarded = plan.all_settings().all(|settings| settings.skew.is_some());
        Self {
            within: plan.class == Class::Within,
            ordered_dates: plan.dates_agree()
                && guarded
                && (plan.class == Class::Within || !unseen),
            mask: plan
                .all_settings()
                .map(|all| all.mask as usize)
                .min()
                .unwrap_or(0),
            spread: plan.skew() + steps,
            // As far as dates may differ, and once more for the floor of a promotion.
            ahead: 2 * plan
                .all_settings()
                .filter_map(|all| all.skew)
                .max()
                .unwrap_or(0),
            kept: (plan.calls.iter())
                .map(|call| match call.cut {
                    Cut::Kept(_, span) => span,
                    _ => 0,
                })
                .max()
                .unwrap_or(0),
            keeps: (plan.calls.iter().enumerate())
                .filter(|(_, call)| matches!(call.cut, Cut::Kept(..)))
                .map(|(index, _)| index)
                .collect(),
            exact: !has(|fault| {
                matches!(
                    fault,
                    Fault::HostRate { .. } | Fault::ProcessRate { .. } | Fault::HostStep { .. }
                )
            }),
            jitter: jitter.collect(),
            tidy: stays && plan.faults().all(is_tidy),
            once: stays && plan.faults().all(is_once),
            calm: plan.faults().all(is_calm),
            prompt: plan.faults().all(is_prompt)
                && !plan
                    .calls
                    .iter()
                    .any(|call| matches!(call.cut, Cut::Kept(..))),
            agreed: plan.agrees(),
            overlapping: plan.overlaps_once(),
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
        }
    }
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
        | Fault::Bus { .. }
        | Fault::Redirect { .. } => false,
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

/// Everything that a history breaks.
pub(crate) fn check(history: &History, terms: &Terms) -> Vec<Violation> {
    let checkers: [fn(&History, &Terms) -> Vec<Violation>; 12] = [
        exclusion::check,
        fencing::check,
        free::check,
        validity::check,
        owner::check,
        leftovers::check,
        answers::check,
        loss::check,
        extended::check,
        responses::check,
        progress::check,
        memory::check,
    ];
    let mut all: Vec<Violation> = checkers
        .iter()
        .flat_map(|check| check(history, terms))
        .collect();
    all.sort_by_key(|violation| violation.at_ms);
    all
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

/// When servers lost something, and whether that was seen.
fn losses(history: &History) -> impl Iterator<Item = (u64, u32, bool)> {
    history
        .events
        .iter()
        .filter_map(|Event { at, what }| match what {
            What::Forgot { group, seen } => Some((*at, *group, *seen)),
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

    pub(super) fn history(holders: &[Holder], events: &[(u64, What)]) -> History {
        let events = events.iter().map(|(at, what)| Event {
            at: *at,
            what: what.clone(),
        });
        History {
            holders: holders.to_vec(),
            events: events.collect(),
        }
    }
}
