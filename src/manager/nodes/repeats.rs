//! [`Repeats`]: a fault is logged at once the first time, and then once a minute with its count.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::moment::Moment;
use crate::node::NodeErrorKind;

const EVERY: Duration = Duration::from_secs(60);
/// How often the text of such a line is written anew: that is more work than to count.
const WORDS: Duration = Duration::from_secs(1);
/// For how long no call may have failed before a quorum counts as back.
const CALM: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    Refused(usize, &'static str, NodeErrorKind),
    /// Locks are left to their ttl, for this reason.
    Left(&'static str),
    NoQuorum,
}

#[derive(Debug)]
struct Entry {
    trouble: Trouble,
    text: String,
    began: Moment,
    last: Moment,
    worded: Moment,
    told: Moment,
    /// It did not go on for a minute, so the next is told at once.
    paused: bool,
    times: u64,
    untold: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) trouble: Trouble,
    pub(crate) text: String,
    pub(crate) times: u64,
    /// How long ago it happened last, in whole seconds, unless that is now.
    pub(crate) ago: Option<Duration>,
}

#[derive(Debug, Default)]
pub(crate) struct Repeats {
    entries: Mutex<Vec<Entry>>,
    // As in `entries`, for calls that succeed and have no time for a mutex.
    are_some: AtomicBool,
}

impl Repeats {
    /// Counts one more of `trouble`. Returns whether it is the first, to be told at once.
    pub(crate) fn is_first(&self, trouble: Trouble, text: &dyn Display, now: Moment) -> bool {
        let mut entries = self.entries();
        if let Some(known) = entries.iter_mut().find(|known| known.trouble == trouble) {
            known.last = now;
            known.times += 1;
            if std::mem::take(&mut known.paused) {
                known.told = now;
                return true;
            }
            known.untold += 1;
            // Not the words of the beginning: meanwhile nodes may have come back in another state.
            if known.untold == 1 || now.since(known.worded) >= WORDS {
                known.text = text.to_string();
                known.worded = now;
            }
            return false;
        }
        self.are_some.store(true, Ordering::Relaxed);
        entries.push(Entry {
            trouble,
            text: String::new(),
            began: now,
            last: now,
            worded: now,
            told: now,
            paused: false,
            times: 1,
            untold: 0,
        });
        true
    }

    /// The counts to be logged now, because a fault went on for a minute. One that did not is logged at once the next
    /// time; a missing quorum lasts until calls succeed.
    pub(crate) fn due(&self, now: Moment) -> Vec<Count> {
        let mut due = Vec::new();
        let mut entries = self.entries();
        entries.retain_mut(|entry| {
            if now.since(entry.told) < EVERY {
                return true;
            }
            if entry.untold == 0 {
                // A node refuses a command until it runs one.
                entry.paused = matches!(entry.trouble, Trouble::Refused(..));
                return !matches!(entry.trouble, Trouble::Left(_));
            }
            due.push(Count {
                trouble: entry.trouble,
                text: entry.text.clone(),
                times: std::mem::take(&mut entry.untold),
                ago: Some(Duration::from_secs(now.since(entry.last).as_secs()))
                    .filter(|ago| *ago > Duration::ZERO),
            });
            entry.told = now;
            true
        });
        self.are_some.store(!entries.is_empty(), Ordering::Relaxed);
        due
    }

    pub(crate) fn are_some(&self) -> bool {
        self.are_some.load(Ordering::Relaxed)
    }

    /// A call for a lock succeeded. If that ends a lack of a quorum: how many calls had failed, and how long after the
    /// first the last of them.
    pub(crate) fn is_back(&self, now: Moment) -> Option<(u64, Duration)> {
        let is_it = |trouble| trouble == Trouble::NoQuorum;
        let (times, began, last) = self.end(is_it, now)?;
        Some((times, last.since(began)))
    }

    /// `node` ran `command`. If that ends its refusals: how many, and how long ago they began.
    pub(crate) fn is_run(
        &self,
        node: usize,
        command: &'static str,
        now: Moment,
    ) -> Option<(u64, Duration)> {
        let is_it = |trouble| matches!(trouble, Trouble::Refused(of, what, _) if of == node && what == command);
        let (times, began, _) = self.end(is_it, now)?;
        Some((times, now.since(began)))
    }

    /// Ends the faults that are meant, unless one of them was a moment ago: how many, and the times of the first and
    /// the last.
    fn end(&self, is_it: impl Fn(Trouble) -> bool, now: Moment) -> Option<(u64, Moment, Moment)> {
        let mut entries = self.entries();
        let meant = || entries.iter().filter(|entry| is_it(entry.trouble));
        let began = meant().map(|entry| entry.began).min()?;
        let last = meant().map(|entry| entry.last).max()?;
        if now.since(last) < CALM {
            return None;
        }
        let times = meant().map(|entry| entry.times).sum();
        entries.retain(|entry| !is_it(entry.trouble));
        self.are_some.store(!entries.is_empty(), Ordering::Relaxed);
        Some((times, began, last))
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
            ago: Some(Duration::from_secs(2)),
        };
        assert_eq!(repeats.due(at(61)), [count]);
        assert!(repeats.is_first(other, &"b", at(61)), "it did not go on");
        assert!(!repeats.is_first(trouble, &"d", at(121)), "it did");
        assert_eq!(repeats.due(at(121))[0].ago, None, "it does");
        assert_eq!(repeats.due(at(200)), []);
        assert!(repeats.is_first(trouble, &"e", at(200)));
    }

    #[test]
    fn a_command_is_refused_until_it_has_run_for_a_moment() {
        let repeats = Repeats::default();
        let refused = |node, kind| Trouble::Refused(node, "extend", kind);
        let trouble = refused(1, NodeErrorKind::Rejected);
        assert_eq!(repeats.is_run(1, "extend", at(1)), None);
        assert!(repeats.is_first(trouble, &"a", at(10)));
        assert!(repeats.is_first(refused(1, NodeErrorKind::Foreign), &"b", at(11)));
        assert!(repeats.is_first(refused(2, NodeErrorKind::Rejected), &"c", at(11)));
        assert_eq!(
            repeats.is_run(1, "extend", at(15)),
            None,
            "it may come and go"
        );
        assert_eq!(repeats.is_run(1, "release", at(600)), None);
        assert_eq!(repeats.due(at(600)), []);
        assert!(repeats.is_first(trouble, &"a", at(601)), "it did not go on");
        assert!(!repeats.is_first(trouble, &"a", at(602)), "it does");
        let run = repeats.is_run(1, "extend", at(610));
        assert_eq!(run, Some((4, Duration::from_secs(600))));
        assert_eq!(repeats.is_run(1, "extend", at(611)), None);
        assert!(repeats.is_first(trouble, &"a", at(612)));
        assert!(repeats.is_run(2, "extend", at(700)).is_some());
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
        assert_eq!(back, Some((3, Duration::from_secs(691))));
        assert_eq!(repeats.is_back(at(707)), None);
        assert!(repeats.is_first(Trouble::NoQuorum, &"a", at(708)));
    }
}
