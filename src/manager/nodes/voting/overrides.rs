//! An operator's overrides: nodes are trusted to have nothing to forget, or taken over from other processes.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::manager::nodes::voting::state::{Quarantine, State};
use crate::manager::nodes::voting::statuses::{Slot, VotingStatuses};
use crate::moment::Moment;

/// While it lives, nodes are trusted to have nothing to forget, or are taken over from others.
#[must_use = "the override ends when this is dropped"]
pub(crate) struct Override<'a> {
    voting: &'a VotingStatuses,
    flag: fn(&Slot) -> &AtomicBool,
}

impl Drop for Override<'_> {
    fn drop(&mut self) {
        for slot in &self.voting.slots {
            (self.flag)(slot).store(false, Ordering::Release);
        }
    }
}

/// While it lives, nodes are taken over from others, and the list counts as accepted once a quorum has accepted it.
#[must_use = "the override ends when this is dropped"]
pub(crate) struct Adoption<'a> {
    _override: Override<'a>,
    voting: &'a VotingStatuses,
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
    /// Sets whether nodes that are seen for the first time are trusted to have nothing to forget.
    pub(crate) fn trust_new(&self, trusted: bool) {
        self.trusts_new.store(trusted, Ordering::Release);
    }

    /// Trusts all nodes to have nothing to forget, until this is dropped.
    pub(crate) fn trust_all(&self) -> Override<'_> {
        self.override_all(|slot| &slot.trusted)
    }

    /// Takes all nodes that answer over from processes with another config, until this is dropped.
    pub(crate) fn adopt_all(&self, now: Moment) -> Adoption<'_> {
        let mut list = self.list();
        let (since, calls) = list.adopting.unwrap_or((now, 0));
        list.adopting = Some((since, calls + 1));
        drop(list);
        Adoption {
            _override: self.override_all(|slot| &slot.adopt),
            voting: self,
        }
    }

    fn override_all(&self, flag: fn(&Slot) -> &AtomicBool) -> Override<'_> {
        for slot in &self.slots {
            flag(slot).store(true, Ordering::Release);
        }
        self.recheck_all();
        Override { voting: self, flag }
    }

    pub(crate) fn is_trusted(&self, node: usize, quarantine: &Quarantine) -> bool {
        let slot = self.slots.get(node);
        let trusted = slot.is_some_and(|slot| slot.trusted.load(Ordering::Acquire));
        trusted || quarantine.first && self.trusts_new.load(Ordering::Acquire)
    }

    pub(crate) fn is_adopted(&self, node: usize) -> bool {
        let slot = self.slots.get(node);
        slot.is_some_and(|slot| slot.adopt.load(Ordering::Acquire))
    }

    /// Ends one override for `node`.
    pub(crate) fn done(&self, node: usize, adopted: bool) {
        if let Some(slot) = self.slots.get(node) {
            let flag = if adopted { &slot.adopt } else { &slot.trusted };
            flag.store(false, Ordering::Release);
        }
    }

    /// Whether an override has yet to be applied to a node.
    pub(crate) fn is_pending(&self) -> bool {
        let wanted = |flag: &AtomicBool| flag.load(Ordering::Acquire);
        let mut slots = self.slots.iter();
        slots.any(|slot| wanted(&slot.adopt) || wanted(&slot.trusted))
    }

    /// Whether the quarantine of `node` is about to end, because it need not wait.
    pub(crate) fn is_exempt(&self, node: usize, state: &State) -> bool {
        match state {
            State::Quarantined(quarantine) => {
                (quarantine.unused && self.is_intact() || self.is_trusted(node, quarantine))
                    && self.complete_since().is_some()
            }
            _ => false,
        }
    }
}
