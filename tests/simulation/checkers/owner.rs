//! Only the owner releases: a lock does not go from a node before its time, unless the node forgets or its holder has
//! begun to release it. A node that waits for replicas in vain has not granted it, and is released at once.

use std::collections::{BTreeMap, BTreeSet};

use super::{Found, History, Terms, losses, named};
use crate::workload::history::{Event, Sample, What};

/// Times on nodes are whole milliseconds, and clocks may run apart.
const GRAIN: i64 = 20;

pub(super) fn check(history: &History, terms: &Terms) -> Found {
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
        let holder = &history.holders[sample.holder];
        if ended.contains(&holder.owner) {
            continue;
        }
        let Some((before, earlier)) = last.insert(sample.holder, (*at, sample)) else {
            continue;
        };
        if suspended >= before {
            continue;
        }
        for group in gone(earlier, sample, (*at - before) as i64) {
            // From replicas, the loss of which is no other, it goes some time later.
            let since = match terms.copied.contains(&group) {
                true => holder.granted,
                false => before,
            };
            let forgot = |(when, of): &(u64, u32)| *of == group && (since..=*at).contains(when);
            if !terms.may_go.contains(&group) && !losses.iter().any(forgot) {
                let named = named(history, sample.holder);
                found.push((
                    *at,
                    format!(
                        "{named}, and it is gone from g{group}, which has not forgotten, before its holder let go"
                    ),
                ));
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
            nodes: [(0, Some(900)), (1, kept)].into(),
        })
    }

    fn count(events: &[(u64, What)], terms: &Terms) -> usize {
        check(&history(&[holder(0, "a", 1, 10)], events), terms).len()
    }

    #[test]
    fn a_lock_that_goes_before_its_time_is_found() {
        for (kept, found) in [(Some(900), 1), (Some(30), 0), (None, 0)] {
            let events = [(20, sample(kept)), (40, sample(None))];
            assert_eq!(count(&events, &Terms::strict()), found);
        }
    }

    #[test]
    fn what_a_master_forgets_goes_from_its_replicas_later() {
        let forgot = What::Forgot { group: 1 };
        let events = [(20, forgot), (21, sample(Some(900))), (40, sample(None))];
        let copied = |group| Terms::but(|terms| terms.copied = [group].into());
        assert_eq!(count(&events, &copied(1)), 0);
        assert_eq!(count(&events, &copied(0)), 1);
        assert_eq!(count(&events[1..], &copied(1)), 1);
    }

    #[test]
    fn a_lock_may_go_early_only_from_nodes_whose_replicas_differ() {
        let gone = |group| {
            let terms = Terms::but(|terms| terms.may_go = [group].into());
            count(&[(20, sample(Some(900))), (40, sample(None))], &terms)
        };
        assert_eq!((gone(1), gone(0)), (0, 1));
    }

    #[test]
    fn what_the_node_forgets_or_the_holder_releases_is_no_theft() {
        for what in [
            What::Forgot { group: 1 },
            What::Ended { holder: 0 },
            What::Suspended { ms: 5_000 },
        ] {
            let events = [(20, sample(Some(900))), (30, what), (40, sample(None))];
            assert_eq!(count(&events, &Terms::strict()), 0, "{events:?}");
        }
    }
}
