//! What a manager knows of its list of nodes as a whole: whether all have accepted it, and whether others have one that
//! overlaps with it.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::manager::nodes::quarantine::standing::{Slot, VotingStatuses};
use crate::manager::nodes::quarantine::state::{Foreign, State};
use crate::moment::Moment;
use crate::node::{NodeError, NodeErrorKind};

/// While it lives, nodes are trusted to have nothing to forget, or are taken over from others.
#[must_use = "what is asked for ends when this is dropped"]
pub(in crate::manager) struct Wish<'a> {
    pub(in crate::manager) voting: &'a VotingStatuses,
    pub(in crate::manager) flag: fn(&Slot) -> &AtomicBool,
}

impl Drop for Wish<'_> {
    fn drop(&mut self) {
        for slot in &self.voting.slots {
            (self.flag)(slot).store(false, Ordering::Release);
        }
    }
}

/// While it lives, nodes are taken over from others, and a quorum of them will do for the list to be used.
#[must_use = "what is asked for ends when this is dropped"]
pub(in crate::manager) struct Adoption<'a> {
    pub(in crate::manager) _wish: Wish<'a>,
    pub(in crate::manager) voting: &'a VotingStatuses,
}

impl Drop for Adoption<'_> {
    fn drop(&mut self) {
        let mut list = self.voting.list();
        list.adopting = match list.adopting {
            Some((since, calls)) if calls > 1 => Some((since, calls - 1)),
            _ => None,
        };
    }
}

impl VotingStatuses {
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

    /// Whether quarantines of other nodes than `node` end by `end`, and it is not yet known what those are let in with.
    pub(in crate::manager) fn is_awaited(&self, node: usize, end: Moment) -> bool {
        let mut others = (0..self.slots.len()).filter(|other| *other != node);
        others.any(|other| match self.get(other) {
            State::Quarantined(other) => {
                other.plan.is_none() && other.end.moment().is_some_and(|at| at <= end)
            }
            _ => false,
        })
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

    /// Trusts all nodes to have nothing to forget, until this is dropped.
    pub(in crate::manager) fn trust_all(&self) -> Wish<'_> {
        self.wish(|slot| &slot.trusted)
    }

    /// Takes all nodes that answer over from processes with another config, until this is dropped.
    pub(in crate::manager) fn adopt_all(&self, now: Moment) -> Adoption<'_> {
        let mut list = self.list();
        let (since, calls) = list.adopting.unwrap_or((now, 0));
        list.adopting = Some((since, calls + 1));
        drop(list);
        Adoption {
            _wish: self.wish(|slot| &slot.adopt),
            voting: self,
        }
    }

    pub(in crate::manager) fn wish(&self, flag: fn(&Slot) -> &AtomicBool) -> Wish<'_> {
        for slot in &self.slots {
            flag(slot).store(true, Ordering::Release);
        }
        self.suspect_all();
        Wish { voting: self, flag }
    }

    /// The nodes that keep us from granting anything, and what each says.
    pub(in crate::manager) fn blocking(&self) -> Vec<(usize, NodeError)> {
        let nodes = self.foreigners().filter(|(_, harmless)| !harmless);
        let nodes: Vec<usize> = nodes.map(|(node, _)| node).collect();
        let error = |node: usize| match self.get(node) {
            State::Foreign(foreign) => {
                let error = NodeError::new(NodeErrorKind::Foreign, foreign.reason);
                Some((node, error))
            }
            _ => None,
        };
        nodes.into_iter().filter_map(error).collect()
    }
}
