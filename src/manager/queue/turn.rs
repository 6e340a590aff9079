//! [`Turn`]: what a caller has that goes for one key, or for several.

use std::fmt;
use std::mem;
use std::slice;
use std::sync::Arc;

use super::passing::After;
use super::{Baton, Name, Queue, State};

/// The right of one caller to go for a key, or for several, and to hold them. Dropped, it passes to the next.
pub(in super::super) struct Turn<B: Baton> {
    queue: Arc<Queue<B>>,
    names: Names,
}

/// The names of one or several keys. One takes no more room than its name.
enum Names {
    One(Name),
    Several(Vec<Name>),
}

impl Names {
    fn as_slice(&self) -> &[Name] {
        match self {
            Self::One(name) => slice::from_ref(name),
            Self::Several(names) => names,
        }
    }
}

impl From<&[Name]> for Names {
    fn from(names: &[Name]) -> Self {
        match names {
            [name] => Self::One(Name::clone(name)),
            names => Self::Several(names.to_vec()),
        }
    }
}

impl<B: Baton> Turn<B> {
    pub(super) fn new(queue: Arc<Queue<B>>, names: &[Name]) -> Self {
        Self {
            queue,
            names: names.into(),
        }
    }

    /// Whether it is for one key, and the lock of that would be taken as it is.
    pub(in super::super) fn is_waited_for(&self) -> bool {
        match &self.names {
            Names::One(name) => self.queue.state().lines.has_heir(name),
            Names::Several(_) => false,
        }
    }

    /// What those who do not wait are told from now on.
    pub(in super::super) fn note(&self, note: &B::Note) {
        let mut state = self.queue.state();
        let names = self.names.as_slice().iter();
        let before: Vec<_> = names
            .map(|name| state.lines.set_note(name, Some(note.clone())))
            .collect();
        drop(state);
        drop(before);
    }

    /// Whether the keys may be about to come free: who does not wait may wait for that, and is told when they are not.
    pub(in super::super) fn set_leaving(&self, leaving: bool) {
        let mut after = After::new();
        let mut state = self.queue.state();
        for name in self.names.as_slice() {
            state.lines.set_leaving(name, leaving, &mut after);
        }
        drop(state);
        after.run();
    }

    /// The turn of `name` alone; those of the other keys end.
    pub(in super::super) fn keep_only(mut self, name: &str) -> Option<Self> {
        let is_kept = |other: &&Name| ***other == *name;
        let kept = self
            .names
            .as_slice()
            .iter()
            .find(is_kept)
            .map(Name::clone)?;
        let names = mem::replace(&mut self.names, Names::One(kept));
        let mut others = names.as_slice().to_vec();
        others.retain(|other| **other != *name);
        self.queue.pass(&others);
        Some(self)
    }

    /// The turn of `names`, which are several, this one's among them, if none of the others is in use.
    pub(in super::super) fn widen(mut self, names: &[Name]) -> Option<Self> {
        let ours = self.names.as_slice();
        let mut others = names.to_vec();
        others.retain(|other| !ours.contains(other));
        if self.queue.state().take(&others) {
            self.names = names.into();
            return Some(self);
        }
        None
    }
}

impl<B: Baton> State<B> {
    fn take(&mut self, names: &[Name]) -> bool {
        !self.closed && self.lines.take_free(names)
    }
}

impl<B: Baton> Drop for Turn<B> {
    fn drop(&mut self) {
        self.queue.pass(self.names.as_slice());
    }
}

impl<B: Baton> fmt::Debug for Turn<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Turn").field(&self.names.as_slice()).finish()
    }
}
