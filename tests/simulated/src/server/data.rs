//! The keys of a server, and the log of their changes.
//!
//! Nothing changes a key but a [`Change`]. So replicas get all of it, and the data of any earlier time can be told.

use std::collections::BTreeMap;

/// A key's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Text(Vec<u8>),
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
}

/// A key's value and when it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub value: Value,
    /// In milliseconds since 1970. At that time it is still there.
    pub until: Option<i64>,
}

impl Entry {
    pub(super) fn has_expired(&self, now: i64) -> bool {
        self.until.is_some_and(|until| now > until)
    }
}

pub type Keys = BTreeMap<Vec<u8>, Entry>;

/// When a key ends, and how a master tells that to its replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// In milliseconds since 1970.
    pub until: Option<i64>,
    pub told: Told,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// As a time.
    Time,
    /// As a span, which each of them counts from when it hears of it.
    Span,
}

/// What happens on a server, as masters tell it to their replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Key(Vec<u8>, KeyChange),
    RemoveAll,
    /// No change of keys: replicas have subscribers, too.
    Publish {
        channel: Vec<u8>,
        message: Vec<u8>,
    },
}

/// What happens to a key, with its time where that matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyChange {
    Set(Vec<u8>, End),
    SetFields(Vec<(Vec<u8>, Vec<u8>)>),
    /// A hash without fields ends.
    RemoveFields(Vec<Vec<u8>>),
    Remove,
    Expire(End),
}

impl Change {
    /// About how many bytes tell it.
    fn size(&self) -> usize {
        let sum = match self {
            Self::Key(key, change) => key.len() + change.size(),
            Self::RemoveAll => 0,
            Self::Publish { channel, message } => channel.len() + message.len(),
        };
        30 + sum
    }

    /// As a replica has it whose clock shows so many milliseconds more than that of its master did.
    pub(super) fn later_by(mut self, millis: i64) -> Self {
        if let Self::Key(_, KeyChange::Set(_, end) | KeyChange::Expire(end)) = &mut self
            && end.told == Told::Span
        {
            end.until = end.until.map(|until| until.saturating_add(millis));
        }
        self
    }

    fn apply(&self, keys: &mut Keys) {
        match self {
            Self::Key(key, change) => change.apply(keys, key),
            Self::RemoveAll => keys.clear(),
            Self::Publish { .. } => {}
        }
    }
}

impl KeyChange {
    fn size(&self) -> usize {
        match self {
            Self::Set(value, _) => value.len(),
            Self::SetFields(fields) => fields.iter().map(|(name, it)| name.len() + it.len()).sum(),
            Self::RemoveFields(fields) => fields.iter().map(Vec::len).sum(),
            Self::Remove | Self::Expire(_) => 0,
        }
    }

    fn apply(&self, keys: &mut Keys, key: &[u8]) {
        match self {
            Self::Set(text, end) => {
                let entry = Entry {
                    value: Value::Text(text.clone()),
                    until: end.until,
                };
                keys.insert(key.to_vec(), entry);
            }
            Self::SetFields(fields) => {
                let entry = keys.entry(key.to_vec()).or_insert(Entry {
                    value: Value::Hash(BTreeMap::new()),
                    until: None,
                });
                if let Value::Hash(hash) = &mut entry.value {
                    hash.extend(fields.iter().cloned());
                }
            }
            Self::RemoveFields(fields) => {
                if let Some(Value::Hash(hash)) = keys.get_mut(key).map(|entry| &mut entry.value) {
                    hash.retain(|field, _| !fields.contains(field));
                    if hash.is_empty() {
                        keys.remove(key);
                    }
                }
            }
            Self::Remove => drop(keys.remove(key)),
            Self::Expire(end) => {
                if let Some(entry) = keys.get_mut(key) {
                    entry.until = end.until;
                }
            }
        }
    }
}

/// A change with its place in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logged {
    /// The offset after it.
    pub end: u64,
    /// When it was made, by the clock of the server that has this log.
    pub at: u64,
    pub change: Change,
}

/// The keys of a server.
#[derive(Clone, Debug, Default)]
pub(super) struct Data {
    keys: Keys,
    /// The data before the log, and their offset.
    first: (Keys, u64),
    log: Vec<Logged>,
}

impl Data {
    /// Such data, with an empty log that begins at `offset`.
    pub(super) fn new(keys: Keys, offset: u64) -> Self {
        Self {
            first: (keys.clone(), offset),
            keys,
            log: Vec::new(),
        }
    }

    pub(super) const fn keys(&self) -> &Keys {
        &self.keys
    }

    /// How much has been changed.
    pub(super) fn offset(&self) -> u64 {
        self.log.last().map_or(self.first.1, |last| last.end)
    }

    /// Makes a change at `at`.
    pub(super) fn change(&mut self, change: Change, at: u64) {
        let end = self.offset() + change.size() as u64;
        self.append(Logged { end, at, change });
    }

    /// Makes a change that has its place in the log already.
    pub(super) fn append(&mut self, logged: Logged) {
        logged.change.apply(&mut self.keys);
        self.log.push(logged);
    }

    /// The changes after `offset`; `None` if the log does not go back so far, or is not there yet.
    pub(super) fn changes_after(&self, offset: u64) -> Option<impl Iterator<Item = &Logged>> {
        if offset < self.first.1 || offset > self.offset() {
            return None;
        }
        let known = self.log.partition_point(|logged| logged.end <= offset);
        Some(self.log[known..].iter())
    }

    /// The data as they were before the first change that was made after `moment`, and their offset.
    pub(super) fn before(&self, moment: u64) -> (Keys, u64) {
        let (mut keys, mut offset) = self.first.clone();
        for logged in self.log.iter().take_while(|logged| logged.at <= moment) {
            logged.change.apply(&mut keys);
            offset = logged.end;
        }
        (keys, offset)
    }
}
