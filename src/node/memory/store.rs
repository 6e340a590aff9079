//! The keys of one memory node, and what the commands do to them.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use super::super::{
    AcquireReply, AcquireRequest, ExtendReply, ExtendRequest, Holder, ReleaseReply, ReleaseRequest,
};
use super::listeners::Listeners;
use crate::moment::Moment;
use crate::namespace::NodeKey;
use crate::token::OwnerToken;

/// The keys of one node.
#[derive(Default)]
pub(super) struct Store {
    pub(super) entries: HashMap<NodeKey, Entry>,
    // Sweep when the map has grown to this.
    sweep_at: usize,
    pub(super) listeners: Listeners,
    #[cfg(feature = "test-util")]
    pub(super) commands: u64,
}

/// One held key.
pub(super) struct Entry {
    pub(super) token: OwnerToken,
    pub(super) expires: Moment,
}

impl Entry {
    fn holder(&self, now: Moment) -> Holder {
        let mut hasher = DefaultHasher::new();
        self.token.hash(&mut hasher);
        Holder::new(hasher.finish(), Some(self.expires.since(now)))
    }
}

impl Store {
    fn live(&mut self, key: &NodeKey, now: Moment) -> Option<&mut Entry> {
        self.entries
            .get_mut(key)
            .filter(|entry| entry.expires > now)
    }

    fn set(&mut self, key: NodeKey, token: OwnerToken, ttl: Duration, now: Moment) {
        if self.entries.len() >= self.sweep_at.max(64) {
            self.entries.retain(|_, entry| entry.expires > now);
            // Twice what is live: each sweep is paid for by as many inserts.
            self.sweep_at = self.entries.len().saturating_mul(2);
        }
        let expires = now + ttl;
        self.entries.insert(key, Entry { token, expires });
    }

    pub(super) fn acquire(&mut self, request: &AcquireRequest, now: Moment) -> AcquireReply {
        if let Some(entry) = self.live(&request.key, now)
            && entry.token != request.token
        {
            return AcquireReply::Held(entry.holder(now));
        }
        self.set(request.key.clone(), request.token, request.ttl, now);
        AcquireReply::Granted
    }

    pub(super) fn extend(&mut self, request: &ExtendRequest, now: Moment) -> ExtendReply {
        match self.live(&request.key, now) {
            Some(entry) if entry.token == request.token => {
                entry.expires = now + request.ttl;
                ExtendReply::Extended
            }
            Some(entry) => ExtendReply::Held(entry.holder(now)),
            None if request.refill => {
                self.set(request.key.clone(), request.token, request.ttl, now);
                ExtendReply::Refilled
            }
            None => ExtendReply::Absent,
        }
    }

    pub(super) fn release(&mut self, request: &ReleaseRequest, now: Moment) -> ReleaseReply {
        let ours = self
            .live(&request.key, now)
            .is_some_and(|entry| entry.token == request.token);
        if !ours {
            return ReleaseReply::NotOwner;
        }
        self.entries.remove(&request.key);
        ReleaseReply::Released {
            listeners: if request.announce {
                self.listeners.announce(&request.key)
            } else {
                0
            },
        }
    }

    #[cfg(feature = "test-util")]
    pub(super) fn count_command(&mut self) {
        self.commands += 1;
    }

    #[cfg(not(feature = "test-util"))]
    #[expect(clippy::unused_self, reason = "the same signature as with test-util")]
    pub(super) fn count_command(&self) {}
}
