//! What an operator knows better than the nodes: that none has anything to forget, or that they are to be taken over.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::manager::nodes::voting::state::{Quarantine, State};
use crate::manager::nodes::voting::statuses::{Slot, VotingStatuses};
use crate::moment::Moment;

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
    /// Whether nodes that are seen for the first time are trusted to have nothing to forget.
    pub(in crate::manager) fn vouch(&self, vouched: bool) {
        self.vouched.store(vouched, Ordering::Release);
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
}
