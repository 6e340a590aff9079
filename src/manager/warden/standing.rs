//! What a manager knows of its nodes' right to vote.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::Notify;

use crate::manager::snapshot::seconds;
use crate::moment::Moment;
use crate::node::{NodeError, NodeErrorKind};

/// Whether a node's word counts, as far as a manager knows.
///
/// Serialised, it is `{"is": "voting"}`, and so on with the fields of the variant; times are seconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "is", rename_all = "snake_case")]
#[non_exhaustive]
pub enum NodeStanding {
    /// Not known yet: the node has not been asked, or has not answered.
    Unknown,
    /// It votes. Also where the restart guard is off, and nobody asks.
    Voting,
    /// It may have forgotten locks and does not vote before they have ended.
    Quarantined {
        /// For how long yet, as far as is known.
        #[serde(serialize_with = "seconds")]
        remaining: Duration,
        /// Whether enough other nodes remember the fencing tokens. If not, the clock decides how they go on.
        remembered: bool,
    },
    /// It serves processes with other nodes or settings.
    Foreign {
        /// What is said of it.
        reason: String,
    },
}

/// The standings of all nodes of a manager.
#[derive(Debug)]
pub(in crate::manager) struct Standings {
    slots: Vec<Slot>,
    // Something became known.
    changed: Notify,
    // Until then it is taken on trust that nodes which are seen for the first time have nothing to forget.
    vouched: AtomicBool,
}

#[derive(Debug)]
struct Slot {
    state: Mutex<State>,
    // Look at it now.
    bell: Notify,
    // The next look takes it over from processes with another charter.
    adopt: AtomicBool,
    // The next look ends its quarantine: no lock can be held.
    trusted: AtomicBool,
    // What it refuses to do for a vote and why, until somebody mends that.
    trouble: Mutex<Option<(&'static str, NodeError)>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    Unknown,
    Voting,
    Quarantined(Quarantine),
    Foreign(String),
}

/// A quarantine as this process sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Quarantine {
    pub(super) id: String,
    /// When this process first saw it, by its own clock.
    pub(super) since: Moment,
    pub(super) until: Moment,
    pub(super) remembered: bool,
    /// Seen before anything else of the node.
    pub(super) first: bool,
}

/// While it lives, nodes are trusted to have nothing to forget, or are taken over from others.
#[must_use = "what is asked for ends when this is dropped"]
pub(super) struct Wish<'a> {
    slots: &'a [Slot],
    flag: fn(&Slot) -> &AtomicBool,
}

impl Drop for Wish<'_> {
    fn drop(&mut self) {
        for slot in self.slots {
            (self.flag)(slot).store(false, Ordering::Release);
        }
    }
}

impl Standings {
    /// The standings of so many nodes; all vote where nobody is to ask.
    pub(in crate::manager) fn new(nodes: usize, guarded: bool) -> Self {
        let state = if guarded {
            State::Unknown
        } else {
            State::Voting
        };
        let slot = || Slot {
            state: Mutex::new(state.clone()),
            bell: Notify::new(),
            adopt: AtomicBool::new(false),
            trusted: AtomicBool::new(false),
            trouble: Mutex::new(None),
        };
        Self {
            slots: (0..nodes).map(|_| slot()).collect(),
            changed: Notify::new(),
            vouched: AtomicBool::new(false),
        }
    }

    fn state(&self, node: usize) -> Option<MutexGuard<'_, State>> {
        let slot = self.slots.get(node)?;
        Some(slot.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What is known of `node`.
    pub(super) fn get(&self, node: usize) -> State {
        self.state(node)
            .map_or(State::Unknown, |state| state.clone())
    }

    /// Notes what is known of `node` now; tells what was known before.
    pub(super) fn set(&self, node: usize, state: State) -> State {
        let before = match self.state(node) {
            Some(mut slot) => std::mem::replace(&mut *slot, state),
            None => State::Unknown,
        };
        self.changed.notify_waiters();
        before
    }

    fn trouble(&self, node: usize) -> Option<MutexGuard<'_, Option<(&'static str, NodeError)>>> {
        let slot = self.slots.get(node)?;
        Some(slot.trouble.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Notes that `node` refuses a command, and why; tells whether that is news.
    pub(super) fn refuses(&self, node: usize, command: &'static str, error: NodeError) -> bool {
        let trouble = Some((command, error));
        self.trouble(node)
            .is_some_and(|mut known| std::mem::replace(&mut *known, trouble.clone()) != trouble)
    }

    /// Notes that `node` does not refuse this command, or any.
    pub(super) fn obeys(&self, node: usize, command: Option<&'static str>) {
        if let Some(mut known) = self.trouble(node)
            && (command.is_none() || command == known.as_ref().map(|(refused, _)| *refused))
        {
            *known = None;
        }
    }

    /// Has `node` looked at again soon.
    pub(in crate::manager) fn suspect(&self, node: usize) {
        if let Some(slot) = self.slots.get(node) {
            slot.bell.notify_one();
        }
    }

    /// Has all nodes looked at.
    pub(in crate::manager) fn suspect_all(&self) {
        (0..self.slots.len()).for_each(|node| self.suspect(node));
    }

    /// Waits until `node` is suspected.
    pub(super) async fn suspected(&self, node: usize) {
        match self.slots.get(node) {
            Some(slot) => slot.bell.notified().await,
            None => std::future::pending().await,
        }
    }

    /// Waits for news of any node. To be made before the look that it follows.
    pub(in crate::manager) fn news(&self) -> tokio::sync::futures::Notified<'_> {
        self.changed.notified()
    }

    /// Whether nodes that are seen for the first time are trusted to have nothing to forget.
    pub(in crate::manager) fn vouch(&self, vouched: bool) {
        self.vouched.store(vouched, Ordering::Release);
    }

    /// Trusts all nodes to have nothing to forget, until this is dropped.
    pub(super) fn trust_all(&self) -> Wish<'_> {
        self.wish(|slot| &slot.trusted)
    }

    /// Takes all nodes that answer over from processes with another charter, until this is dropped.
    pub(super) fn adopt_all(&self) -> Wish<'_> {
        self.wish(|slot| &slot.adopt)
    }

    fn wish(&self, flag: fn(&Slot) -> &AtomicBool) -> Wish<'_> {
        for slot in &self.slots {
            flag(slot).store(true, Ordering::Release);
        }
        self.suspect_all();
        Wish {
            slots: &self.slots,
            flag,
        }
    }

    pub(super) fn is_trusted(&self, node: usize, quarantine: &Quarantine) -> bool {
        let slot = self.slots.get(node);
        let trusted = slot.is_some_and(|slot| slot.trusted.load(Ordering::Acquire));
        trusted || quarantine.first && self.vouched.load(Ordering::Acquire)
    }

    pub(super) fn is_adopted(&self, node: usize) -> bool {
        let slot = self.slots.get(node);
        slot.is_some_and(|slot| slot.adopt.load(Ordering::Acquire))
    }

    /// Notes that what `node` was to be looked at for is done.
    pub(super) fn done(&self, node: usize, adopted: bool) {
        if let Some(slot) = self.slots.get(node) {
            let flag = if adopted { &slot.adopt } else { &slot.trusted };
            flag.store(false, Ordering::Release);
        }
    }

    /// Whether a node has yet to be looked at for something.
    pub(super) fn is_pending(&self) -> bool {
        let wanted = |flag: &AtomicBool| flag.load(Ordering::Acquire);
        let mut slots = self.slots.iter();
        slots.any(|slot| wanted(&slot.adopt) || wanted(&slot.trusted))
    }

    /// What is known of `node`, for people.
    pub(in crate::manager) fn show(&self, node: usize, now: Moment) -> NodeStanding {
        match self.get(node) {
            State::Unknown => NodeStanding::Unknown,
            State::Voting => NodeStanding::Voting,
            State::Quarantined(quarantine) => NodeStanding::Quarantined {
                remaining: quarantine.until.since(now),
                remembered: quarantine.remembered,
            },
            State::Foreign(reason) => NodeStanding::Foreign { reason },
        }
    }

    /// Why `node` does not grant.
    pub(in crate::manager) fn explain(&self, node: usize, now: Moment) -> Option<NodeError> {
        // As long as that is not mended, no waiting helps.
        let trouble = self.trouble(node)?.clone();
        if let Some((_, error)) = trouble {
            return Some(error);
        }
        match self.show(node, now) {
            NodeStanding::Quarantined {
                remaining,
                remembered,
            } => Some(NodeError::new(
                NodeErrorKind::Quarantined,
                format!(
                    "it restarted or lost its data, and does not vote for another {remaining:.1?}, until the locks that it may have forgotten have ended{}",
                    if remembered {
                        ""
                    } else {
                        "; fewer than a quorum of nodes remember theirs"
                    }
                ),
            )),
            _ => None,
        }
    }

    /// The nodes of which `reason` can be said.
    pub(in crate::manager) fn foreign(&self) -> Vec<(usize, NodeError)> {
        let nodes = (0..self.slots.len()).filter_map(|node| match self.get(node) {
            State::Foreign(reason) => {
                let error = NodeError::new(NodeErrorKind::Misconfigured, reason);
                Some((node, error))
            }
            _ => None,
        });
        nodes.collect()
    }

    /// How many nodes vote.
    pub(in crate::manager) fn voting(&self) -> usize {
        self.count(|state| *state == State::Voting)
    }

    /// Of how many nodes it is known whether they vote, and not to be changed by what is vouched for.
    pub(in crate::manager) fn settled(&self) -> usize {
        let vouched = self.vouched.load(Ordering::Acquire);
        self.count(|state| match state {
            State::Unknown => false,
            State::Quarantined(quarantine) => !(vouched && quarantine.first),
            State::Voting | State::Foreign(_) => true,
        })
    }

    /// How many of the nodes that are `up` vote or will.
    pub(in crate::manager) fn promising(&self, up: impl Fn(usize) -> bool) -> usize {
        let will = |node: &usize| matches!(self.get(*node), State::Voting | State::Quarantined(_));
        let nodes = 0..self.slots.len();
        nodes.filter(will).filter(|node| up(*node)).count()
    }

    fn count(&self, wanted: impl Fn(&State) -> bool) -> usize {
        let nodes = 0..self.slots.len();
        nodes.filter(|node| wanted(&self.get(*node))).count()
    }

    /// After how long `needed` nodes vote, if it is quarantines that keep them from it. Only nodes that are `up` count.
    pub(in crate::manager) fn quorum_in(
        &self,
        needed: usize,
        now: Moment,
        up: impl Fn(usize) -> bool,
    ) -> Option<Duration> {
        let nodes = (0..self.slots.len()).filter(|node| up(*node));
        let mut waits: Vec<Duration> = nodes
            .filter_map(|node| match self.get(node) {
                State::Voting => Some(Duration::ZERO),
                State::Quarantined(quarantine) => Some(quarantine.until.since(now)),
                State::Unknown | State::Foreign(_) => None,
            })
            .collect();
        waits.sort_unstable();
        let wait = waits.get(needed.checked_sub(1)?)?;
        (!wait.is_zero()).then_some(*wait)
    }

    /// Whether it is known already what an error of this kind says of `node`.
    pub(in crate::manager) fn knows(&self, node: usize, kind: NodeErrorKind) -> bool {
        match kind {
            NodeErrorKind::Quarantined => matches!(self.get(node), State::Quarantined(_)),
            NodeErrorKind::Misconfigured => matches!(self.get(node), State::Foreign(_)),
            _ => true,
        }
    }
}
