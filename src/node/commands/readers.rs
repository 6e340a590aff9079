//! Readers: owners that share a lock, each until its own end. To other owners, a shared lock has a single owner,
//! because the key holds [`OwnerToken::readers`], followed by the owner token and the end of each reader.
//!
//! A waiting writer sets another key next to the lock. Several writers share that key in the same way. While it exists,
//! new readers are refused, but present readers can renew. It is only a hint with a short life, and never votes.

use crate::moment::Moment;
use crate::namespace::NodeKey;
use crate::node::memory::keyed::make_room;
use crate::node::memory::store::{Entry, Reader, Store};
use crate::token::Holder;
use crate::token::OwnerToken;

impl Store {
    pub(crate) fn is_reader(&self, key: &NodeKey, token: &OwnerToken, now: Moment) -> bool {
        matches!(self.readers(key, token, now), Ok((_, true)))
    }

    /// The other readers of the key, and whether `token` is a reader. Fails with the holder if readers do not have the
    /// key.
    pub(crate) fn readers(
        &self,
        key: &NodeKey,
        token: &OwnerToken,
        now: Moment,
    ) -> Result<(Vec<Reader>, bool), Holder> {
        let Some(entry) = self.live(key, now) else {
            return Ok((Vec::new(), false));
        };
        if entry.token != key.owners() {
            return Err(entry.holder(now));
        }
        let live = entry.readers.iter().filter(|(_, ends)| *ends > now);
        let (ours, others): (Vec<_>, Vec<_>) =
            live.copied().partition(|(reader, _)| reader == token);
        Ok((others, !ours.is_empty()))
    }

    pub(crate) fn set_readers(
        &mut self,
        key: &NodeKey,
        mut readers: Vec<Reader>,
        one: Option<Reader>,
        now: Moment,
    ) {
        readers.extend(one);
        let entries = &mut self.data.entries;
        let Some(expires) = readers.iter().map(|(_, ends)| *ends).max() else {
            entries.remove(key);
            return;
        };
        make_room(entries, |entry| entry.expires > now);
        let entry = Entry {
            token: key.owners(),
            expires,
            readers,
        };
        entries.insert(key.clone(), entry);
    }
}
