//! Readers: owners that have a lock together, each until an end of its own. On a node they are one owner to everybody else:
//! the key holds [`OwnerToken::readers`], and behind it the owner token and the end of each. So an acquire for one owner
//! knows nothing of them, nor does another program.
//!
//! A writer that waits sets a key beside the lock, which it shares with other writers in the same way. New readers are
//! refused while it is there; those that have the lock renew it all the same. It is a hint, has a short life of its own,
//! and never votes.

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

    /// The readers that have the key, without `token`, and whether that is one of them, too; or who has it instead.
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
