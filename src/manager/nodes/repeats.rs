//! [`Repeats`]: what goes wrong again and again is told at once the first time, and then once a minute how often.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::moment::Moment;
use crate::node::NodeErrorKind;

/// How often it is told how often.
const EVERY: Duration = Duration::from_secs(60);
/// For how long the text of a line with a count may have been overtaken.
const WORDS: Duration = Duration::from_secs(1);
/// For how long no call may have failed before a quorum counts as back. One that comes and goes would be told of each
/// time otherwise.
const CALM: Duration = Duration::from_secs(5);

/// What goes wrong. There are few of these: each is told of by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// A node refuses a command.
    Refused(usize, &'static str, NodeErrorKind),
    /// Locks are left to their ttl, for this reason.
    Left(&'static str),
    /// Too few nodes answer calls for locks.
    NoQuorum,
}

/// One trouble since it began.
#[derive(Debug)]
struct Entry {
    trouble: Trouble,
    /// The text of the latest, for the line with the count.
    text: String,
    began: Moment,
    last: Moment,
    worded: Moment,
    told: Moment,
    /// How often in all, and how often since it was told.
    times: u64,
    untold: u64,
}

/// Something to be told now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) trouble: Trouble,
    pub(crate) text: String,
    pub(crate) times: u64,
}

/// What goes wrong at present.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    entries: Mutex<Vec<Entry>>,
    /// Whether calls for locks found no quorum. Calls that succeed look at this alone.
    is_out: AtomicBool,
}

impl Repeats {
    /// Counts one more of `trouble`. Returns whether it is the first, to be told at once.
    pub(crate) fn is_first(&self, trouble: Trouble, text: &dyn Display, now: Moment) -> bool {
        let mut entries = self.entries();
        if let Some(known) = entries.iter_mut().find(|known| known.trouble == trouble) {
            known.last = now;
            known.times += 1;
            known.untold += 1;
            // Not the words of the beginning: meanwhile nodes may have come back in another state.
            if known.untold == 1 || now.since(known.worded) >= WORDS {
                known.text = text.to_string();
                known.worded = now;
            }
            return false;
        }
        if trouble == Trouble::NoQuorum {
            self.is_out.store(true, Ordering::Relaxed);
        }
        entries.push(Entry {
            trouble,
            text: String::new(),
            began: now,
            last: now,
            worded: now,
            told: now,
            times: 1,
            untold: 0,
        });
        true
    }

    /// What is to be told now, because it went on for a minute. What did not go on is forgotten, so that it is told at
    /// once the next time; that there is no quorum is true until calls succeed.
    pub(crate) fn due(&self, now: Moment) -> Vec<Count> {
        let mut due = Vec::new();
        self.entries().retain_mut(|entry| {
            if now.since(entry.told) < EVERY {
                return true;
            }
            if entry.untold == 0 {
                return entry.trouble == Trouble::NoQuorum;
            }
            due.push(Count {
                trouble: entry.trouble,
                text: entry.text.clone(),
                times: std::mem::take(&mut entry.untold),
            });
            entry.told = now;
            true
        });
        due
    }

    /// A call for a lock succeeded. Returns how many did not since a quorum was lost, and how long ago that was, if
    /// this is the end of it.
    pub(crate) fn is_back(&self, now: Moment) -> Option<(u64, Duration)> {
        if !self.is_out.load(Ordering::Relaxed) {
            return None;
        }
        let mut entries = self.entries();
        let is_over =
            |entry: &Entry| entry.trouble == Trouble::NoQuorum && now.since(entry.last) >= CALM;
        let index = entries.iter().position(is_over)?;
        let entry = entries.swap_remove(index);
        self.is_out.store(false, Ordering::Relaxed);
        Some((entry.times, now.since(entry.began)))
    }

    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn at(second: u64) -> Moment {
        Moment::from_nanos(second * SECOND)
    }

    #[test]
    fn the_first_is_told_at_once_and_the_others_are_counted_each_minute() {
        let repeats = Repeats::default();
        let trouble = Trouble::Refused(1, "extend", NodeErrorKind::Rejected);
        assert!(repeats.is_first(trouble, &"a", at(1)));
        let other = Trouble::Refused(2, "extend", NodeErrorKind::Rejected);
        assert!(repeats.is_first(other, &"b", at(1)));
        for second in 2..60 {
            assert!(!repeats.is_first(trouble, &format!("c{second}"), at(second)));
            assert_eq!(repeats.due(at(second)), []);
        }
        let count = Count {
            trouble,
            text: "c59".to_owned(),
            times: 58,
        };
        assert_eq!(repeats.due(at(61)), [count]);
        assert!(repeats.is_first(other, &"b", at(61)), "it did not go on");
        assert!(!repeats.is_first(trouble, &"d", at(62)), "it did");
        assert_eq!(repeats.due(at(121)).len(), 1);
        assert_eq!(repeats.due(at(200)), []);
        assert!(repeats.is_first(trouble, &"e", at(200)));
    }

    #[test]
    fn a_quorum_is_lost_until_calls_have_succeeded_for_a_moment() {
        let repeats = Repeats::default();
        assert_eq!(repeats.is_back(at(1)), None);
        assert!(repeats.is_first(Trouble::NoQuorum, &"a", at(10)));
        assert!(!repeats.is_first(Trouble::NoQuorum, &"a", at(20)));
        assert_eq!(repeats.is_back(at(24)), None, "it may come and go");
        assert_eq!(repeats.due(at(70)).len(), 1);
        assert_eq!(repeats.due(at(700)), []);
        assert!(!repeats.is_first(Trouble::NoQuorum, &"a", at(701)));
        let back = repeats.is_back(at(706));
        assert_eq!(back, Some((3, Duration::from_secs(696))));
        assert_eq!(repeats.is_back(at(707)), None);
        assert!(repeats.is_first(Trouble::NoQuorum, &"a", at(708)));
    }
}
