//! [`Repeats`] logs a trouble immediately the first time, and then at most once a minute, with its count.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::moment::Moment;

const EVERY: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    Refused(usize, &'static str),
    NoQuorum,
    /// No success ends this trouble.
    #[cfg(feature = "idempotency")]
    WithoutRecord,
    /// No success ends this trouble.
    Left(&'static str),
}

#[derive(Debug)]
struct Entry {
    trouble: Trouble,
    logged: Moment,
    last: Moment,
    // How often the trouble happened since it was logged.
    unlogged: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Repeats {
    entries: Mutex<Vec<Entry>>,
    // Whether a success may end an entry. If not, a success need not lock the mutex.
    may_end: AtomicBool,
}

impl Repeats {
    /// If `trouble` is to be logged now, returns how often it happened since it was last logged.
    pub(crate) fn count(&self, trouble: Trouble, now: Moment) -> Option<u64> {
        let mut entries = self.entries();
        if let Some(known) = entries.iter_mut().find(|known| known.trouble == trouble) {
            known.last = now;
            known.unlogged += 1;
            let is_due = now.since(known.logged) >= EVERY;
            return is_due.then(|| {
                known.logged = now;
                std::mem::take(&mut known.unlogged)
            });
        }
        entries.push(Entry {
            trouble,
            logged: now,
            last: now,
            unlogged: 0,
        });
        self.changed(&entries);
        Some(1)
    }

    /// Ends `trouble` after a success, unless it happened within the last minute, because then only some calls succeed.
    /// Returns how often it happened since it was last logged.
    pub(crate) fn end(&self, trouble: Trouble, now: impl FnOnce() -> Moment) -> Option<u64> {
        if !self.may_end.load(Ordering::Relaxed) {
            return None;
        }
        let now = now();
        let mut entries = self.entries();
        let is_over = |entry: &Entry| entry.trouble == trouble && now.since(entry.last) >= EVERY;
        let ended = entries.iter().position(is_over)?;
        let ended = entries.swap_remove(ended);
        self.changed(&entries);
        Some(ended.unlogged)
    }

    fn changed(&self, entries: &[Entry]) {
        let may_end =
            |entry: &Entry| matches!(entry.trouble, Trouble::Refused(..) | Trouble::NoQuorum);
        let any = entries.iter().any(may_end);
        self.may_end.store(any, Ordering::Relaxed);
    }

    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFUSED: Trouble = Trouble::Refused(1, "extend");

    fn at(second: u64) -> Moment {
        Moment::from_nanos(second * 1_000_000_000)
    }

    fn end(repeats: &Repeats, trouble: Trouble, second: u64) -> Option<u64> {
        repeats.end(trouble, || at(second))
    }

    #[test]
    fn the_first_is_logged_immediately_and_the_others_once_a_minute() {
        let repeats = Repeats::default();
        assert_eq!(repeats.count(REFUSED, at(1)), Some(1));
        for other in [Trouble::Refused(2, "extend"), Trouble::NoQuorum] {
            assert_eq!(repeats.count(other, at(1)), Some(1));
        }
        for second in 2..61 {
            assert_eq!(repeats.count(REFUSED, at(second)), None);
        }
        assert_eq!(repeats.count(REFUSED, at(61)), Some(60));
        assert_eq!(repeats.count(REFUSED, at(62)), None);
        assert_eq!(repeats.count(REFUSED, at(600)), Some(2));
    }

    #[test]
    fn a_success_ends_what_did_not_happen_for_a_minute() {
        let repeats = Repeats::default();
        assert_eq!(end(&repeats, REFUSED, 1), None);
        for second in [10, 20] {
            repeats.count(REFUSED, at(second));
            repeats.count(Trouble::NoQuorum, at(second));
        }
        assert_eq!(end(&repeats, REFUSED, 79), None);
        assert_eq!(end(&repeats, Trouble::Refused(1, "release"), 80), None);
        assert_eq!(end(&repeats, REFUSED, 80), Some(1));
        assert_eq!(end(&repeats, REFUSED, 81), None);
        assert_eq!(repeats.count(REFUSED, at(82)), Some(1), "another one");
        assert_eq!(end(&repeats, Trouble::NoQuorum, 83), Some(1));
    }

    #[test]
    fn a_success_takes_no_time_unless_it_may_end_something() {
        let repeats = Repeats::default();
        let succeed = || repeats.end(REFUSED, || panic!("there is nothing to end"));
        assert_eq!(succeed(), None);
        repeats.count(Trouble::Left("no room"), at(1));
        assert_eq!(succeed(), None);
        repeats.count(REFUSED, at(1));
        assert_eq!(end(&repeats, REFUSED, 100), Some(0));
        assert_eq!(succeed(), None);
        assert_eq!(repeats.count(Trouble::Left("no room"), at(2)), None);
    }
}
