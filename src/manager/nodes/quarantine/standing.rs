//! What a manager knows of its nodes' right to vote.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use crate::manager::nodes::quarantine::state::{Quarantine, State, VotingStatus};
use crate::moment::Moment;
use crate::node::{NodeError, NodeErrorKind};

/// The standings of all nodes of a manager.
#[derive(Debug)]
pub(in crate::manager) struct VotingStatuses {
    pub(in crate::manager) slots: Vec<Slot>,
    // How many make a quorum.
    pub(in crate::manager) needed: usize,
    // Something became known.
    pub(in crate::manager) changed: Notify,
    // Until then it is taken on trust that nodes which are seen for the first time have nothing to forget.
    pub(in crate::manager) vouched: AtomicBool,
    // Nothing is waited for any more before the first lock is asked for.
    pub(in crate::manager) introduced: AtomicBool,
    pub(in crate::manager) list: Mutex<List>,
    // Some node serves processes with another list, of which we do not know that ours has replaced it. Changed under
    // the mutex of `list` only.
    pub(in crate::manager) blocked: AtomicBool,
}

/// What is known of the list of nodes as a whole.
#[derive(Debug, Default)]
pub(in crate::manager) struct List {
    // Since when all nodes are known to have accepted it.
    pub(in crate::manager) complete: Option<Moment>,
    // Since when it is being put in place of another, and by how many calls.
    pub(in crate::manager) adopting: Option<(Moment, usize)>,
}

/// What is known of one node, and what it is to be looked at for.
#[derive(Debug)]
pub(in crate::manager) struct Slot {
    pub(in crate::manager) known: Mutex<Known>,
    // Look at it now.
    pub(in crate::manager) bell: Notify,
    // It was looked at, whether or not it answered.
    pub(in crate::manager) looked: AtomicBool,
    // It has said whether it votes.
    pub(in crate::manager) heard: AtomicBool,
    // The next look takes it over from processes with another config.
    pub(in crate::manager) adopt: AtomicBool,
    // The next look ends its quarantine: no lock can be held.
    pub(in crate::manager) trusted: AtomicBool,
    // What it refuses to do for a vote and why, until somebody mends that.
    pub(in crate::manager) trouble: Mutex<Option<(&'static str, NodeError)>>,
}

#[derive(Debug)]
pub(in crate::manager) struct Known {
    pub(in crate::manager) state: State,
    // Whether it was under our config when it last said anything.
    pub(in crate::manager) accepted: bool,
    // Whether it may have forgotten something then.
    pub(in crate::manager) forgot: bool,
    // The configs that ours has replaced there.
    pub(in crate::manager) replaced: Vec<String>,
}

impl VotingStatuses {
    /// The standings of so many nodes, of which so many are needed; all vote where it does not matter what they forget.
    pub(in crate::manager) fn new(nodes: usize, needed: usize, guarded: bool) -> Self {
        let state = if guarded {
            State::Unknown
        } else {
            State::Voting
        };
        let slot = || Slot {
            known: Mutex::new(Known {
                state: state.clone(),
                accepted: false,
                forgot: false,
                replaced: Vec::new(),
            }),
            bell: Notify::new(),
            looked: AtomicBool::new(false),
            heard: AtomicBool::new(false),
            adopt: AtomicBool::new(false),
            trusted: AtomicBool::new(false),
            trouble: Mutex::new(None),
        };
        Self {
            slots: (0..nodes).map(|_| slot()).collect(),
            needed,
            changed: Notify::new(),
            vouched: AtomicBool::new(false),
            introduced: AtomicBool::new(!guarded),
            list: Mutex::default(),
            blocked: AtomicBool::new(false),
        }
    }

    pub(in crate::manager) fn known(&self, node: usize) -> Option<MutexGuard<'_, Known>> {
        let slot = self.slots.get(node)?;
        Some(slot.known.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(in crate::manager) fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of `node`.
    pub(in crate::manager) fn get(&self, node: usize) -> State {
        self.known(node)
            .map_or(State::Unknown, |known| known.state.clone())
    }

    /// Notes what is known of `node` now; tells what was known before.
    pub(in crate::manager) fn set(&self, node: usize, state: State) -> State {
        let before = match self.known(node) {
            Some(mut known) => {
                if matches!(state, State::Foreign(_)) {
                    known.accepted = false;
                    known.replaced.clear();
                }
                std::mem::replace(&mut known.state, state)
            }
            None => State::Unknown,
        };
        self.judge(None);
        before
    }

    /// Notes that `node` was looked at, and whether it `answered`.
    pub(in crate::manager) fn looked(&self, node: usize, answered: bool) {
        let Some(slot) = self.slots.get(node) else {
            return;
        };
        let heard = answered && !slot.heard.swap(true, Ordering::AcqRel);
        if !slot.looked.swap(true, Ordering::AcqRel) || heard {
            self.changed.notify_waiters();
        }
    }

    /// How many nodes have said whether they vote.
    pub(in crate::manager) fn heard(&self) -> usize {
        let heard = |slot: &&Slot| slot.heard.load(Ordering::Acquire);
        self.slots.iter().filter(heard).count()
    }

    /// Whether no node has yet to be looked at, nor is about to be let in.
    pub(in crate::manager) fn is_introduced(&self) -> bool {
        let mut slots = self.slots.iter().enumerate();
        slots.all(|(node, slot)| {
            slot.looked.load(Ordering::Acquire) && !self.is_welcome(node, &self.get(node))
        })
    }

    /// Whether `node` is about to be let in, for it need not wait.
    pub(in crate::manager) fn is_welcome(&self, node: usize, state: &State) -> bool {
        match state {
            State::Quarantined(quarantine) => {
                (quarantine.unused && self.is_whole() || self.is_trusted(node, quarantine))
                    && self.complete_since().is_some()
            }
            _ => false,
        }
    }

    /// Waits until every node was looked at once, so that it is known whom they serve; at most for `limit`. Once in the
    /// life of a manager.
    pub(in crate::manager) async fn introduced(&self, limit: Duration) {
        if self.introduced.load(Ordering::Acquire) {
            return;
        }
        let all = async {
            loop {
                let news = self.news();
                if self.is_introduced() {
                    return;
                }
                news.await;
            }
        };
        let _ = timeout(limit, all).await;
        self.introduced.store(true, Ordering::Release);
    }

    pub(in crate::manager) fn trouble(
        &self,
        node: usize,
    ) -> Option<MutexGuard<'_, Option<(&'static str, NodeError)>>> {
        let slot = self.slots.get(node)?;
        Some(slot.trouble.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Notes that `node` refuses a command, and why; tells whether that is news.
    pub(in crate::manager) fn refuses(
        &self,
        node: usize,
        command: &'static str,
        error: NodeError,
    ) -> bool {
        let trouble = Some((command, error));
        self.trouble(node)
            .is_some_and(|mut known| std::mem::replace(&mut *known, trouble.clone()) != trouble)
    }

    /// Notes that `node` does not refuse this command, or any.
    pub(in crate::manager) fn obeys(&self, node: usize, command: Option<&'static str>) {
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
    pub(in crate::manager) async fn suspected(&self, node: usize) {
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

    pub(in crate::manager) fn is_trusted(&self, node: usize, quarantine: &Quarantine) -> bool {
        let slot = self.slots.get(node);
        let trusted = slot.is_some_and(|slot| slot.trusted.load(Ordering::Acquire));
        trusted || quarantine.first && self.vouched.load(Ordering::Acquire)
    }

    pub(in crate::manager) fn is_adopted(&self, node: usize) -> bool {
        let slot = self.slots.get(node);
        slot.is_some_and(|slot| slot.adopt.load(Ordering::Acquire))
    }

    /// Notes that what `node` was to be looked at for is done.
    pub(in crate::manager) fn done(&self, node: usize, adopted: bool) {
        if let Some(slot) = self.slots.get(node) {
            let flag = if adopted { &slot.adopt } else { &slot.trusted };
            flag.store(false, Ordering::Release);
        }
    }

    /// Whether a node has yet to be looked at for something.
    pub(in crate::manager) fn is_pending(&self) -> bool {
        let wanted = |flag: &AtomicBool| flag.load(Ordering::Acquire);
        let mut slots = self.slots.iter();
        slots.any(|slot| wanted(&slot.adopt) || wanted(&slot.trusted))
    }

    /// What is known of `node`, for people.
    pub(in crate::manager) fn show(&self, node: usize, now: Moment) -> VotingStatus {
        match self.get(node) {
            State::Unknown => VotingStatus::Unknown,
            State::Voting => VotingStatus::Voting,
            State::Quarantined(quarantine) => VotingStatus::Quarantined {
                remaining: quarantine.end.moment().map(|end| end.since(now)),
                remembered: quarantine.remembered,
            },
            State::Foreign(foreign) => VotingStatus::Foreign {
                reason: foreign.reason,
            },
        }
    }

    /// Why `node` does not grant.
    pub(in crate::manager) fn explain(&self, node: usize, now: Moment) -> Option<NodeError> {
        // As long as that is not mended, no waiting helps.
        let trouble = self.trouble(node)?.clone();
        if let Some((_, error)) = trouble {
            return Some(error);
        }
        match self.get(node) {
            State::Quarantined(quarantine) => {
                let text = quarantine.explain(now);
                Some(NodeError::new(NodeErrorKind::Quarantined, text))
            }
            State::Foreign(foreign) => Some(NodeError::new(NodeErrorKind::Foreign, foreign.reason)),
            State::Unknown | State::Voting => None,
        }
    }

    /// How many nodes vote.
    pub(in crate::manager) fn voting(&self) -> usize {
        self.count(|state| *state == State::Voting)
    }

    /// How many nodes have said whether they vote, and are not about to be let in.
    pub(in crate::manager) fn settled(&self) -> usize {
        let slots = self.slots.iter().enumerate();
        let settled = |(node, slot): &(usize, &Slot)| {
            slot.heard.load(Ordering::Acquire) && !self.is_welcome(*node, &self.get(*node))
        };
        slots.filter(settled).count()
    }

    /// How many of the nodes that are `up` vote or will.
    pub(in crate::manager) fn promising(&self, up: impl Fn(usize) -> bool) -> usize {
        let will = |node: &usize| match self.get(*node) {
            State::Voting => true,
            State::Quarantined(quarantine) => quarantine.end.moment().is_some(),
            State::Unknown | State::Foreign(_) => false,
        };
        let nodes = 0..self.slots.len();
        nodes.filter(will).filter(|node| up(*node)).count()
    }

    pub(in crate::manager) fn count(&self, wanted: impl Fn(&State) -> bool) -> usize {
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
        let mut waiters: Vec<Duration> = nodes
            .filter_map(|node| match self.get(node) {
                State::Voting => Some(Duration::ZERO),
                State::Quarantined(quarantine) => quarantine.end.moment().map(|end| end.since(now)),
                State::Unknown | State::Foreign(_) => None,
            })
            .collect();
        waiters.sort_unstable();
        let wait = waiters.get(needed.checked_sub(1)?)?;
        (!wait.is_zero()).then_some(*wait)
    }

    /// Whether it is known already what an error of this kind says of `node`.
    pub(in crate::manager) fn knows(&self, node: usize, kind: NodeErrorKind) -> bool {
        match kind {
            NodeErrorKind::Quarantined => matches!(self.get(node), State::Quarantined(_)),
            _ => true,
        }
    }
}
