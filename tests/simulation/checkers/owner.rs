//! Only the owner releases: a lock does not go from a node before its time, unless the node forgets or its holder has
//! begun to release it.

use std::collections::BTreeMap;

use super::{History, Terms, Violation, losses, named};
use crate::workload::history::{Event, Sample, What};

const PROMISE: &str = "only the owner releases";
/// Times on nodes are whole milliseconds, and clocks may run apart.
const GRAIN: i64 = 20;

pub(super) fn check(history: &History, _: &Terms) -> Vec<Violation> {
    let losses: Vec<_> = losses(history).collect();
    let mut last: BTreeMap<usize, (u64, &Sample)> = BTreeMap::new();
    let mut suspended = 0;
    let mut found = Vec::new();
    for Event { at, what } in &history.events {
        let sample = match what {
            What::Sample(sample) => sample,
            What::Suspended { .. } => {
                suspended = *at;
                continue;
            }
            What::Ended { holder } => {
                last.remove(holder);
                continue;
            }
            _ => continue,
        };
        if let Some((before, earlier)) = last.insert(sample.holder, (*at, sample)) {
            if suspended >= before {
                continue;
            }
            for group in gone(earlier, sample, (*at - before) as i64) {
                let forgot = |(when, which, _): &(u64, u32, bool)| {
                    *which == group && (before..=*at).contains(when)
                };
                if !losses.iter().any(forgot) {
                    found.push(Violation {
                        promise: PROMISE,
                        at_ms: *at,
                        text: format!("{} is gone from g{group}", named(history, sample.holder)),
                    });
                }
            }
        }
    }
    found
}

/// The nodes that had it for longer than the time that has passed, and have it no more.
fn gone(before: &Sample, after: &Sample, passed: i64) -> Vec<u32> {
    let had = before.nodes.iter().filter(|(group, kept)| {
        kept.is_some_and(|kept| kept > passed + GRAIN) && after.nodes.get(group) == Some(&None)
    });
    had.map(|(group, _)| *group).collect()
}

#[cfg(test)]
mod tests {
    use super::super::hand::{history, holder};
    use super::*;

    fn sample(kept: Option<i64>) -> What {
        What::Sample(Sample {
            holder: 0,
            left: 500_000,
            quorum: 2,
            nodes: [(0, Some(900)), (1, kept)].into_iter().collect(),
            drift: 0,
        })
    }

    fn count(events: &[(u64, What)]) -> usize {
        let history = history(&[holder(0, "a", 1, 10)], events);
        check(&history, &Terms::strict()).len()
    }

    #[test]
    fn a_lock_that_goes_before_its_time_is_found() {
        assert_eq!(count(&[(20, sample(Some(900))), (40, sample(None))]), 1);
        assert_eq!(count(&[(20, sample(Some(30))), (40, sample(None))]), 0);
        assert_eq!(count(&[(20, sample(None)), (40, sample(None))]), 0);
    }

    #[test]
    fn what_the_node_forgets_or_the_holder_releases_is_no_theft() {
        let forgot = What::Forgot {
            group: 1,
            seen: true,
        };
        let events = [(20, sample(Some(900))), (30, forgot), (40, sample(None))];
        assert_eq!(count(&events), 0);
        let ended = What::Ended { holder: 0 };
        let events = [(20, sample(Some(900))), (30, ended), (40, sample(None))];
        assert_eq!(count(&events), 0);
        let suspended = What::Suspended { ms: 5_000 };
        let events = [(20, sample(Some(900))), (30, suspended), (40, sample(None))];
        assert_eq!(count(&events), 0);
    }
}
