//! Validity: no holder counts on its lock for longer than a quorum of the nodes keeps it for, and by less than that by
//! what clocks may drift.
//!
//! A node that lost something since the lock was granted is not asked: that is what the rest of the quorum is for. Nor
//! is one that is down. Of a group of servers, any one may have it.

use std::collections::BTreeSet;

use super::{History, Terms, Violation, losses, named};
use crate::workload::history::{Event, Sample, What};

const PROMISE: &str = "no validity beyond what nodes grant";
/// Times on nodes are whole milliseconds.
const GRAIN: i64 = 1_500;

pub(super) fn check(history: &History, terms: &Terms) -> Vec<Violation> {
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
            .filter(|(when, ..)| (since..=*at).contains(when));
        let lost: BTreeSet<u32> = lost.map(|(_, group, _)| *group).collect();
        if !is_backed(sample, &lost, terms) && told.insert(sample.holder) {
            let (left, nodes) = (sample.left, &sample.nodes);
            let who = named(history, sample.holder);
            found.push(Violation {
                promise: PROMISE,
                at_ms: *at,
                text: format!(
                    "{who} counts on {left} µs, the nodes have it for {nodes:?} ms, {lost:?} forgot"
                ),
            });
        }
    }
    found
}

/// Whether enough nodes have it for long enough, or cannot be expected to.
fn is_backed(sample: &Sample, lost: &BTreeSet<u32>, terms: &Terms) -> bool {
    let left = i64::try_from(sample.left).unwrap_or(i64::MAX);
    // Clocks that differ by what drift allows for may have used it up.
    let drift = if terms.exact { sample.drift as i64 } else { 0 };
    let least = left.saturating_add(drift) - GRAIN;
    let excused = sample.nodes.iter().filter(|(group, kept)| match kept {
        _ if lost.contains(group) => true,
        Some(kept) => kept.saturating_mul(1_000) >= least,
        None => false,
    });
    excused.count() >= sample.quorum
}

#[cfg(test)]
mod tests {
    use super::super::hand::{history, holder};
    use super::*;

    fn count(nodes: &[(u32, Option<i64>)], forgot: Option<(u64, u32)>) -> usize {
        let sample = What::Sample(Sample {
            holder: 0,
            left: 500_000,
            quorum: 2,
            nodes: nodes.iter().copied().collect(),
            may_go: false,
            copied: BTreeSet::new(),
            drift: 12_000,
        });
        let mut events = vec![(100, sample)];
        if let Some((at, group)) = forgot {
            events.insert(0, (at, What::Forgot { group, seen: true }));
        }
        let history = history(&[holder(0, "a", 1, 10)], &events);
        check(&history, &Terms::strict()).len()
    }

    #[test]
    fn a_lock_that_too_few_nodes_have_is_found() {
        assert_eq!(count(&[(0, Some(600)), (1, Some(600)), (2, None)], None), 0);
        assert_eq!(count(&[(0, Some(600)), (1, None), (2, None)], None), 1);
        assert_eq!(count(&[(0, Some(600)), (1, Some(505)), (2, None)], None), 1);
        assert_eq!(count(&[(0, Some(600)), (1, Some(511)), (2, None)], None), 0);
    }

    #[test]
    fn nodes_that_forgot_since_are_excused() {
        let nodes = [(0, Some(600)), (1, None), (2, None)];
        assert_eq!(count(&nodes, Some((50, 2))), 0);
        assert_eq!(count(&nodes, Some((5, 2))), 1);
    }
}
