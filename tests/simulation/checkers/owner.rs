//! Only the owner releases: a lock does not go from a node before its time, unless the node forgets or its holder has
//! begun to release it. A node that waits for replicas in vain has not granted it, and is released at once.

use std::collections::{BTreeMap, BTreeSet};

use super::{History, Terms, Violation, losses, named};
use crate::workload::history::{Event, Sample, What};

const PROMISE: &str = "only the owner releases";
/// Times on nodes are whole milliseconds, and clocks may run apart.
const GRAIN: i64 = 20;

pub(super) fn check(history: &History, _: &Terms) -> Vec<Violation> {
    let losses: Vec<_> = losses(history).collect();
    let mut last: BTreeMap<usize, (u64, &Sample)> = BTreeMap::new();
    // Of a lock that was handed on, all tenants have one owner token.
    let mut ended: BTreeSet<&String> = BTreeSet::new();
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
                ended.insert(&history.holders[*holder].owner);
                continue;
            }
            _ => continue,
        };
        if ended.contains(&history.holders[sample.holder].owner) {
            continue;
        }
        if let Some((before, earlier)) = last.insert(sample.holder, (*at, sample)) {
            if suspended >= before {
                continue;
            }
            for group in gone(earlier, sample, (*at - before) as i64) {
                if sample.may_go.contains(&group) {
                    continue;
                }
                // From replicas, the loss of which is no other, it goes some time later.
                let since = match sample.copied.contains(&group) {
                    true => history.holders[sample.holder].granted,
                    false => before,
                };
                let forgot = |(when, which, _): &(u64, u32, bool)| {
                    *which == group && (since..=*at).contains(when)
                };
                if !losses.iter().any(forgot) {
                    found.push(Violation {
                        promise: PROMISE,
                        at_ms: *at,
                        text: format!(
                            "{}, and it is gone from g{group}, which has not forgotten, before its holder let go",
                            named(history, sample.holder)
                        ),
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
        sample_of(kept, &[])
    }

    fn sample_of(kept: Option<i64>, copied: &[u32]) -> What {
        What::Sample(Sample {
            holder: 0,
            left: 500_000,
            quorum: 2,
            nodes: [(0, Some(900)), (1, kept)].into_iter().collect(),
            may_go: BTreeSet::new(),
            copied: copied.iter().copied().collect(),
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
    fn what_a_master_forgets_goes_from_its_replicas_later() {
        let lost = |copied: &[u32]| {
            let forgot = What::Forgot {
                group: 1,
                seen: true,
            };
            let kept = sample_of(Some(900), copied);
            let gone = sample_of(None, copied);
            count(&[(20, forgot), (21, kept), (40, gone)])
        };
        assert_eq!(lost(&[1]), 0);
        assert_eq!(lost(&[0]), 1);
        let stolen = [
            (21, sample_of(Some(900), &[1])),
            (40, sample_of(None, &[1])),
        ];
        assert_eq!(count(&stolen), 1);
    }

    #[test]
    fn a_lock_may_go_early_only_from_nodes_whose_replicas_differ() {
        let gone = |may_go: u32| {
            let sample = |kept| match sample(kept) {
                What::Sample(sample) => What::Sample(Sample {
                    may_go: [may_go].into(),
                    ..sample
                }),
                other => other,
            };
            count(&[(20, sample(Some(900))), (40, sample(None))])
        };
        assert_eq!((gone(1), gone(0)), (0, 1));
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
