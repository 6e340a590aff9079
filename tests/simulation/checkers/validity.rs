//! Validity: no holder counts on its lock for longer than a quorum of the nodes keeps it for, and by less than that by
//! what clocks may drift.
//!
//! A node that lost something since the lock was granted is not asked: that is what the rest of the quorum is for. Nor
//! is one that is down. Of a group of servers, any one may have it.

use std::collections::BTreeSet;

use super::{Found, History, Terms, lock, losses};
use crate::workload::history::{Event, Holder, Sample, What};

/// Times on nodes are whole milliseconds.
const GRAIN: i64 = 1_500;

pub(super) fn check(history: &History, terms: &Terms) -> Found {
    let losses: Vec<_> = losses(history).collect();
    let mut told = BTreeSet::new();
    let mut found = Vec::new();
    for Event { at, what } in &history.events {
        let What::Sample(sample) = what else {
            continue;
        };
        let holder = &history.holders[sample.holder];
        let since = holder.started.saturating_sub(1);
        let lost = losses
            .iter()
            .filter(|(when, _)| (since..=*at).contains(when));
        let lost: BTreeSet<u32> = lost.map(|(_, group)| *group).collect();
        // Clocks that differ by what drift allows for may have used it up.
        let drift = match terms.exact {
            true => holder.ttl as i64 * 10 + 2_000,
            false => 0,
        };
        let most = longest(sample, &lost).map(|kept| kept.saturating_sub(drift) + GRAIN);
        let left = i64::try_from(sample.left).unwrap_or(i64::MAX);
        if most.is_none_or(|most| left > most) && told.insert(sample.holder) {
            let Holder { process, call, .. } = holder;
            let lock = lock(history, sample.holder);
            found.push((
                *at,
                format!(
                    "{process} (call {call}) believes to hold {lock} for too long; allowed are {most:?} us, with \
                     {drift} us of drift: {sample:?}; nodes that forgot: {lost:?}"
                ),
            ));
        }
    }
    found
}

/// For how many microseconds a quorum has it, or cannot be expected to: none, if it has not.
fn longest(sample: &Sample, lost: &BTreeSet<u32>) -> Option<i64> {
    let kept = sample.nodes.iter().filter_map(|(group, kept)| match kept {
        _ if lost.contains(group) => Some(i64::MAX - GRAIN),
        kept => kept.map(|kept| kept.saturating_mul(1_000).min(i64::MAX - GRAIN)),
    });
    let mut kept: Vec<i64> = kept.collect();
    kept.sort_unstable();
    match sample.quorum {
        0 => Some(i64::MAX - GRAIN),
        quorum => kept.iter().nth_back(quorum - 1).copied(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::hand::{history, holder};
    use super::*;

    /// What is found if a lock of a second, of which so many microseconds are left, is on these nodes.
    fn found(left: u64, nodes: [Option<i64>; 3], forgot: Option<(u64, u32)>) -> Found {
        let sample = Sample {
            holder: 0,
            left,
            quorum: 2,
            nodes: (0..).zip(nodes).collect(),
        };
        let forgot = forgot.map(|(at, group)| (at, What::Forgot { group }));
        let mut events: Vec<_> = forgot.into_iter().collect();
        events.push((100, What::Sample(sample)));
        let history = history(&[holder(0, "a", 1, 10)], &events);
        check(&history, &Terms::strict())
    }

    #[test]
    fn a_lock_that_too_few_nodes_have_is_found() {
        for (nodes, count) in [
            ([Some(600), Some(600), None], 0),
            ([Some(600), None, None], 1),
            ([Some(600), Some(505), None], 1),
            ([Some(600), Some(511), None], 0),
        ] {
            assert_eq!(found(500_000, nodes, None).len(), count, "{nodes:?}");
        }
    }

    #[test]
    fn nodes_that_forgot_since_are_excused() {
        let nodes = [Some(600), None, None];
        assert_eq!(found(500_000, nodes, Some((50, 2))).len(), 0);
        assert_eq!(found(500_000, nodes, Some((5, 2))).len(), 1);
    }
}
