//! Whether two contenders held one key at the same time.

use std::fmt;
use std::time::Duration;

use crate::order::{Acquisition, violations};

/// What one contender tells of one time that it held a key: from when it was told so until it began the release or lost
/// the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interval {
    pub(crate) client: usize,
    /// As one of several readers.
    pub(crate) reads: bool,
    pub(crate) lock: Acquisition,
}

/// Two that held the same key at the same time; the first one got it earlier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Overlap(Interval, Interval);

impl Overlap {
    /// For how long.
    pub(crate) fn length(&self) -> Duration {
        let Self(first, second) = self;
        Duration::from_nanos(first.lock.end.min(second.lock.end) - second.lock.start)
    }
}

/// What was seen of the holders in a run.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) holds: usize,
    pub(crate) overlaps: Vec<Overlap>,
    /// What is wrong with the fencing tokens.
    pub(crate) disorder: Vec<String>,
}

impl Seen {
    pub(crate) fn of(intervals: &[Interval]) -> Self {
        Self {
            holds: intervals.len(),
            overlaps: overlaps(intervals),
            disorder: disorder(intervals),
        }
    }

    #[track_caller]
    pub(crate) fn assert_excluded(&self, report: &str) {
        assert!(self.overlaps.is_empty(), "two holders at once: {report}");
        assert!(self.disorder.is_empty(), "out of order: {report}");
    }
}

/// Counts, and a line for each of the first of what is wrong.
impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            holds,
            overlaps,
            disorder,
        } = self;
        let (two, wrong) = (overlaps.len(), disorder.len());
        write!(
            f,
            "{holds} holds, {two} overlaps, {wrong} fencing tokens out of order"
        )?;
        let together = |pair: &Overlap| format!("both for {:?}: {pair:?}", pair.length());
        let overlaps = overlaps.iter().take(5).map(together);
        let mut lines = overlaps.chain(disorder.iter().take(5).cloned());
        lines.try_for_each(|line| write!(f, "\n  {line}"))
    }
}

/// Every pair that overlaps, in order of the later grant.
pub(crate) fn overlaps(intervals: &[Interval]) -> Vec<Overlap> {
    let real = intervals.iter().filter(|one| one.lock.start < one.lock.end);
    let mut sorted: Vec<&Interval> = real.collect();
    sorted.sort_unstable_by_key(|one| (one.lock.start, one.lock.end));
    let mut found = Vec::new();
    let mut open: Vec<&Interval> = Vec::new();
    for interval in sorted {
        open.retain(|earlier| earlier.lock.end > interval.lock.start);
        let same_key = open.iter().filter(|earlier| {
            earlier.lock.key == interval.lock.key && !(earlier.reads && interval.reads)
        });
        found.extend(same_key.map(|earlier| Overlap((*earlier).clone(), interval.clone())));
        open.push(interval);
    }
    found
}

/// What is wrong with the fencing tokens: they must grow in the order of the grants, key by key; those of readers are above
/// those of writers before them, and below those of writers after them.
pub(crate) fn disorder(intervals: &[Interval]) -> Vec<String> {
    let writers = intervals.iter().filter(|interval| !interval.reads);
    let all = writers.map(|interval| Acquisition {
        // Whether two held it at once is looked for elsewhere.
        held: false,
        ..interval.lock.clone()
    });
    let mut found = disorder_of_readers(intervals);
    found.extend(violations(&all.collect::<Vec<_>>()));
    found
}

fn disorder_of_readers(intervals: &[Interval]) -> Vec<String> {
    let mut sorted = intervals.to_vec();
    sorted.sort_unstable_by(|one, other| {
        (&one.lock.key, one.lock.start).cmp(&(&other.lock.key, other.lock.start))
    });
    let mut found = Vec::new();
    for of_key in sorted.chunk_by(|one, other| one.lock.key == other.lock.key) {
        let (mut writers, mut readers) = (0, 0);
        for Interval { reads, lock, .. } in of_key {
            let (highest, before, this, those) = match reads {
                true => (&mut readers, writers, "reader", "writer"),
                false => (&mut writers, readers, "writer", "reader"),
            };
            *highest = lock.fence.max(*highest);
            if lock.fence <= before {
                found.push(format!(
                    "after a {those} with the token {before}, a {this}: {lock:?}"
                ));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One interval per key, client, first and last millisecond.
    fn intervals(all: &[(&str, usize, u64, u64)]) -> Vec<Interval> {
        let all = all.iter().map(|&(key, client, start, end)| Interval {
            client,
            reads: false,
            lock: Acquisition {
                key: key.to_owned(),
                fence: 1_000 + start,
                start: start * 1_000_000,
                end: end * 1_000_000,
                held: true,
            },
        });
        all.collect()
    }

    #[test]
    fn overlaps_are_found_in_whatever_order_they_are_recorded_and_nothing_else_is() {
        let long = [
            ("a", 1, 0, 100),
            ("b", 9, 15, 95),
            ("a", 2, 10, 20),
            ("a", 3, 30, 40),
            ("a", 4, 35, 120),
            ("a", 5, 120, 130),
        ];
        for (case, all, expected) in [
            ("nothing", &[][..], &[][..]),
            (
                "they touch or lie apart",
                &[("a", 1, 0, 10), ("a", 2, 10, 20), ("a", 3, 25, 30)],
                &[],
            ),
            ("another key", &[("a", 1, 0, 10), ("b", 2, 5, 15)], &[]),
            (
                "grants lost at once",
                &[("a", 1, 0, 10), ("a", 2, 5, 5), ("a", 3, 7, 6)],
                &[],
            ),
            ("neighbours", &[("a", 1, 0, 10), ("a", 2, 9, 20)], &[(1, 2)]),
            (
                "one that has many in it",
                &long,
                &[(1, 2), (1, 3), (1, 4), (3, 4)],
            ),
        ] {
            let mut all = intervals(all);
            for _ in 0..2 {
                let found = overlaps(&all);
                let found: Vec<_> = found.iter().map(|o| (o.0.client, o.1.client)).collect();
                assert_eq!(found, expected, "{case}");
                all.reverse();
            }
        }
        let alike = overlaps(&intervals(&[("a", 1, 0, 10), ("a", 2, 0, 10)]));
        assert_eq!(alike.len(), 1);
    }

    #[test]
    fn the_length_is_what_both_have_in_common() {
        let length = |all: &[_]| overlaps(&intervals(all))[0].length();
        let partly = [("a", 1, 0, 10), ("a", 2, 7, 20)];
        assert_eq!(length(&partly), Duration::from_millis(3));
        let inside = [("a", 1, 0, 100), ("a", 2, 10, 20)];
        assert_eq!(length(&inside), Duration::from_millis(10));
    }

    #[test]
    fn readers_overlap_with_writers_alone_and_count_between_them() {
        let mut all = intervals(&[("a", 1, 0, 10), ("a", 2, 5, 15), ("a", 3, 20, 30)]);
        (all[0].reads, all[1].reads) = (true, true);
        assert!(overlaps(&all).is_empty() && disorder(&all).is_empty());
        // Two that read at once have no order.
        all[0].lock.fence = 1_010;
        assert!(disorder(&all).is_empty(), "{:?}", disorder(&all));
        all[0].lock.fence = 1_020;
        assert_eq!(disorder(&all).len(), 1, "not below the writer");
        (all[0].reads, all[0].lock.fence) = (false, 1_015);
        assert_eq!(overlaps(&all).len(), 1);
        assert_eq!(disorder(&all).len(), 1, "not above the writer");
    }

    #[test]
    fn a_fencing_token_that_falls_back_is_found() {
        let mut all = intervals(&[("a", 1, 0, 10), ("b", 2, 5, 8), ("a", 3, 20, 30)]);
        assert!(disorder(&all).is_empty(), "{:?}", disorder(&all));
        all[2].lock.fence = 900;
        assert_eq!(disorder(&all).len(), 1);
        assert!(disorder(&[]).is_empty());
    }
}
