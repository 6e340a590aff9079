//! [`VotingStatuses`]: which nodes vote, and under which list of nodes, as last observed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::manager::nodes::voting::state::{Foreign, State};
use crate::moment::Moment;
use crate::node::NodeError;

/// What is known of the votes of all nodes.
#[derive(Debug)]
pub(crate) struct VotingStatuses {
    pub(crate) slots: Vec<Slot>,
    // How many make a quorum.
    pub(crate) needed: usize,
    // Something became known.
    pub(crate) changed: Notify,
    // Nodes that are seen for the first time are trusted to have nothing to forget.
    pub(crate) trusts_new: AtomicBool,
    // Every node was asked once, or the first callers have waited long enough for that.
    pub(crate) all_asked: AtomicBool,
    pub(crate) list: Mutex<List>,
    // A node serves processes with another list, which ours is not known to have replaced. Changed under the mutex of
    // `list` only.
    pub(crate) blocked: AtomicBool,
}

/// What is known of the list of nodes as a whole.
#[derive(Debug, Default)]
pub(crate) struct List {
    // Since when all nodes are known to have accepted it.
    pub(crate) complete: Option<Moment>,
    // Since when it is being put in place of another, and by how many calls.
    pub(crate) adopting: Option<(Moment, usize)>,
}

/// What is known of one node, and what to do at its next check-in.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) known: Mutex<Known>,
    // Ask it now.
    pub(crate) wake: Notify,
    // It was asked whether it votes, whether or not it answered.
    pub(crate) asked: AtomicBool,
    // It has answered that.
    pub(crate) answered: AtomicBool,
    // The next check-in takes it over from processes with another config.
    pub(crate) adopt: AtomicBool,
    // The next check-in ends its quarantine: no lock can be held.
    pub(crate) trusted: AtomicBool,
    // The command that it refuses and needs for its vote, and why.
    pub(crate) refusal: Mutex<Option<(&'static str, NodeError)>>,
}

#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) state: State,
    // Whether it was under our config when it last answered.
    pub(crate) accepted: bool,
    // Whether it may have forgotten something then.
    pub(crate) forgot: bool,
    // The configs that ours has replaced there.
    pub(crate) replaced: Vec<String>,
}

impl VotingStatuses {
    /// Of `nodes` nodes, of which a quorum is `needed`. Unless they are `guarded`, all vote.
    pub(crate) fn new(nodes: usize, needed: usize, guarded: bool) -> Self {
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
            wake: Notify::new(),
            asked: AtomicBool::new(false),
            answered: AtomicBool::new(false),
            adopt: AtomicBool::new(false),
            trusted: AtomicBool::new(false),
            refusal: Mutex::new(None),
        };
        Self {
            slots: (0..nodes).map(|_| slot()).collect(),
            needed,
            changed: Notify::new(),
            trusts_new: AtomicBool::new(false),
            all_asked: AtomicBool::new(!guarded),
            list: Mutex::default(),
            blocked: AtomicBool::new(false),
        }
    }

    pub(crate) fn known(&self, node: usize) -> Option<MutexGuard<'_, Known>> {
        let slot = self.slots.get(node)?;
        Some(slot.known.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of `node`.
    pub(crate) fn get(&self, node: usize) -> State {
        self.known(node)
            .map_or(State::Unknown, |known| known.state.clone())
    }

    /// Stores what is known of `node`; returns what was known before.
    pub(crate) fn set(&self, node: usize, state: State) -> State {
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
        self.reassess(None);
        before
    }

    /// Stores that `node` is under our config, which `replaced` others there, and whether it may have forgotten a
    /// grant.
    pub(crate) fn accepts(&self, node: usize, replaced: Vec<String>, forgot: bool, now: Moment) {
        if let Some(mut known) = self.known(node) {
            known.accepted = true;
            known.forgot = forgot;
            known.replaced = replaced;
        }
        if self.reassess(Some(now)) {
            let waiting = |node: &usize| matches!(self.get(*node), State::Quarantined(_));
            let nodes = 0..self.slots.len();
            nodes.filter(waiting).for_each(|node| self.recheck(node));
        }
    }

    /// Judges the list as a whole. Returns whether all nodes have accepted it by `now` and had not before.
    fn reassess(&self, now: Option<Moment>) -> bool {
        // The last of several concurrent callers sees what all have stored.
        let mut list = self.list();
        let blocked = self.foreigners().any(|(_, harmless)| !harmless);
        self.blocked.store(blocked, Ordering::Release);
        let whole = self.accepted() == self.slots.len();
        let completed = whole && list.complete.is_none();
        if !whole {
            list.complete = None;
        } else if completed {
            list.complete = now;
        }
        drop(list);
        self.changed.notify_waiters();
        completed
    }

    fn accepted(&self) -> usize {
        let nodes = 0..self.slots.len();
        let accepted = |node: &usize| self.known(*node).is_some_and(|known| known.accepted);
        nodes.filter(accepted).count()
    }

    /// The nodes under another config, and whether each only costs its vote: ours has replaced theirs.
    pub(crate) fn foreigners(&self) -> impl Iterator<Item = (usize, bool)> {
        let replaced: Vec<String> = (0..self.slots.len())
            .filter_map(|node| self.known(node).map(|known| known.replaced.clone()))
            .flatten()
            .collect();
        (0..self.slots.len()).filter_map(move |node| {
            let known = self.known(node)?;
            match &known.state {
                State::Foreign(foreign) if !known.accepted => {
                    let digest = foreign.digest.as_ref();
                    let before = digest.is_some_and(|digest| replaced.contains(digest));
                    Some((node, before && !foreign.replaces_ours))
                }
                _ => None,
            }
        })
    }

    /// Whether nothing may be granted or extended, because a node serves processes with another list.
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::Acquire)
    }

    /// Since when all nodes are known to have accepted the list, or a quorum, if it is being put in place of another.
    pub(crate) fn complete_since(&self) -> Option<Moment> {
        let list = self.list();
        let adopting = list.adopting.filter(|_| self.accepted() >= self.needed);
        list.complete.or(adopting.map(|(since, _)| since))
    }

    /// Whether no node may have forgotten a grant. One that has may have been in use by others until then.
    pub(crate) fn is_intact(&self) -> bool {
        let whole = |node| {
            self.known(node)
                .is_some_and(|known| known.accepted && !known.forgot)
        };
        (0..self.slots.len()).all(whole)
    }

    /// Stores that `node` is under another config, as the error of a command says.
    pub(crate) fn note_foreign(&self, node: usize, error: &NodeError) {
        let digest = error.config();
        let known = match self.get(node) {
            State::Foreign(foreign) => foreign.digest.as_deref() == digest,
            _ => false,
        };
        if known {
            return;
        }
        self.set(
            node,
            State::Foreign(Foreign {
                reason: error.to_string(),
                digest: digest.map(str::to_owned),
                replaces_ours: false,
            }),
        );
        // Its check-in tells more than the error.
        self.recheck(node);
    }

    /// Stores that `node` was asked whether it votes, and whether it `answered`.
    pub(crate) fn checked_in(&self, node: usize, answered: bool) {
        let Some(slot) = self.slots.get(node) else {
            return;
        };
        let heard = answered && !slot.answered.swap(true, Ordering::AcqRel);
        if !slot.asked.swap(true, Ordering::AcqRel) || heard {
            self.changed.notify_waiters();
        }
    }

    pub(crate) fn refusal(
        &self,
        node: usize,
    ) -> Option<MutexGuard<'_, Option<(&'static str, NodeError)>>> {
        let slot = self.slots.get(node)?;
        Some(slot.refusal.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Stores that `node` refuses a command, and why; returns whether that is news.
    pub(crate) fn note_refusal(
        &self,
        node: usize,
        command: &'static str,
        error: NodeError,
    ) -> bool {
        let refusal = Some((command, error));
        self.refusal(node)
            .is_some_and(|mut known| std::mem::replace(&mut *known, refusal.clone()) != refusal)
    }

    /// Stores that `node` does not refuse this command, or any.
    pub(crate) fn clear_refusal(&self, node: usize, command: Option<&'static str>) {
        if let Some(mut known) = self.refusal(node)
            && (command.is_none() || command == known.as_ref().map(|(refused, _)| *refused))
        {
            *known = None;
        }
    }

    /// Has `node` asked again now.
    pub(crate) fn recheck(&self, node: usize) {
        if let Some(slot) = self.slots.get(node) {
            slot.wake.notify_one();
        }
    }

    /// Has all nodes asked again now.
    pub(crate) fn recheck_all(&self) {
        (0..self.slots.len()).for_each(|node| self.recheck(node));
    }

    /// Waits until `node` is to be asked again.
    pub(crate) async fn recheck_due(&self, node: usize) {
        match self.slots.get(node) {
            Some(slot) => slot.wake.notified().await,
            None => std::future::pending().await,
        }
    }

    /// Resolves at the next change of any status. Create it before the statuses are read.
    pub(crate) fn news(&self) -> tokio::sync::futures::Notified<'_> {
        self.changed.notified()
    }
}
