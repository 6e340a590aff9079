//! [`VotingStatuses`]: which nodes vote, and under which list of nodes, as last observed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::manager::nodes::voting::state::{Foreign, State};
use crate::moment::Moment;
use crate::node::NodeError;

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

    /// Notes that `node` is under our config, which `replaced` others there, and whether it has `forgot` anything that
    /// it may have granted.
    pub(in crate::manager) fn accepts(
        &self,
        node: usize,
        replaced: Vec<String>,
        forgot: bool,
        now: Moment,
    ) {
        if let Some(mut known) = self.known(node) {
            known.accepted = true;
            known.forgot = forgot;
            known.replaced = replaced;
        }
        if self.judge(Some(now)) {
            let waiters = |node: &usize| matches!(self.get(*node), State::Quarantined(_));
            let nodes = 0..self.slots.len();
            nodes.filter(waiters).for_each(|node| self.suspect(node));
        }
    }

    /// Looks at the list as a whole. Tells whether all nodes have accepted it by `now` and had not before.
    pub(in crate::manager) fn judge(&self, now: Option<Moment>) -> bool {
        // Whoever comes last sees what all before have noted.
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

    pub(in crate::manager) fn accepted(&self) -> usize {
        let nodes = 0..self.slots.len();
        let accepted = |node: &usize| self.known(*node).is_some_and(|known| known.accepted);
        nodes.filter(accepted).count()
    }

    /// The nodes under another config, and whether each only costs its vote: ours has replaced theirs.
    pub(in crate::manager) fn foreigners(&self) -> impl Iterator<Item = (usize, bool)> {
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
    pub(in crate::manager) fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::Acquire)
    }

    /// Since when all nodes are known to have accepted the list, or a quorum, if it is being put in place of another.
    pub(in crate::manager) fn complete_since(&self) -> Option<Moment> {
        let list = self.list();
        let adopting = list.adopting.filter(|_| self.accepted() >= self.needed);
        list.complete.or(adopting.map(|(since, _)| since))
    }

    /// Whether no node may have forgotten anything. One that has may have been in use by others until then.
    pub(in crate::manager) fn is_whole(&self) -> bool {
        let whole = |node| {
            self.known(node)
                .is_some_and(|known| known.accepted && !known.forgot)
        };
        (0..self.slots.len()).all(whole)
    }

    /// Notes what an answer to a command says of the config that `node` is under.
    pub(in crate::manager) fn is_foreign(&self, node: usize, error: &NodeError) {
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
        // It tells more than that.
        self.suspect(node);
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
}
