//! Validity: no holder counts on its lock for longer than a quorum of the nodes keeps it for, and by less than that by
//! what clocks may drift.
//!
//! A node that lost something since the lock was granted is not asked: that is what the rest of the quorum is for. Nor
//! is one that is down. Of a group of servers, any one may have it.

use std::collections::BTreeSet;

use super::{History, Terms, Violation, lock, losses};
use crate::workload::history::{Event, Holder, Sample, What};

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
            let Holder { process, call, .. } = holder;
            let lock = lock(history, sample.holder);
            let (left, most) = (millis(sample.left as i64), allowed(sample, &lost, terms));
            let nodes = kept(sample, &lost);
            found.push(Violation {
                promise: PROMISE,
                at_ms: *at,
                text: format!(
                    "{process} (call {call}) believes to hold {lock} for {left} ms more; allowed {most}: {nodes}"
                ),
            });
        }
    }
    found
}

/// What clocks may drift, in microseconds. Those that differ by what drift allows for may have used it up.
const fn drift(sample: &Sample, terms: &Terms) -> i64 {
    if terms.exact { sample.drift as i64 } else { 0 }
}

/// Whether enough nodes have it for long enough, or cannot be expected to.
fn is_backed(sample: &Sample, lost: &BTreeSet<u32>, terms: &Terms) -> bool {
    let left = i64::try_from(sample.left).unwrap_or(i64::MAX);
    let least = left.saturating_add(drift(sample, terms)) - GRAIN;
    let excused = sample.nodes.iter().filter(|(group, kept)| match kept {
        _ if lost.contains(group) => true,
        Some(kept) => kept.saturating_mul(1_000) >= least,
        None => false,
    });
    excused.count() >= sample.quorum
}

/// The longest time for which the holder may count on its lock, in words.
fn allowed(sample: &Sample, lost: &BTreeSet<u32>, terms: &Terms) -> String {
    let kept = sample.nodes.iter().filter_map(|(group, kept)| {
        let kept = kept.map(|kept| kept.saturating_mul(1_000));
        if lost.contains(group) {
            Some(i64::MAX)
        } else {
            kept
        }
    });
    let mut kept: Vec<i64> = kept.collect();
    kept.sort_unstable_by(|one, two| two.cmp(one));
    let quorum = sample.quorum;
    match kept.get(quorum.saturating_sub(1)) {
        Some(kept) => {
            let most = millis((kept - drift(sample, terms) + GRAIN).max(0));
            let (drift, grain) = (millis(drift(sample, terms)), millis(GRAIN));
            format!(
                "are at most {most} ms (what {quorum} nodes keep it for, less {drift} ms of drift, and {grain} ms as times are rounded)"
            )
        }
        None => format!("is nothing, as it takes {quorum} nodes that have it"),
    }
}

/// For how long each node keeps the lock, in words.
fn kept(sample: &Sample, lost: &BTreeSet<u32>) -> String {
    let nodes = sample.nodes.iter().map(|(group, kept)| match kept {
        Some(kept) => format!("g{group} {kept} ms"),
        None => format!("g{group} has it not"),
    });
    let nodes: Vec<String> = nodes.collect();
    let forgot: Vec<String> = lost.iter().map(|group| format!("g{group}")).collect();
    let forgot = match forgot.is_empty() {
        true => "none".to_owned(),
        false => forgot.join(", "),
    };
    let nodes = nodes.join(", ");
    format!("{nodes}; nodes that forgot: {forgot}")
}

/// Microseconds as milliseconds, with a decimal where that is needed.
fn millis(micros: i64) -> String {
    let (whole, rest) = (micros / 1_000, micros % 1_000 / 100);
    match rest {
        0 => whole.to_string(),
        _ => format!("{whole}.{rest}"),
    }
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
            may_go: BTreeSet::new(),
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
    fn what_is_found_says_what_is_allowed() {
        let sample = What::Sample(Sample {
            holder: 0,
            left: 379_000,
            quorum: 2,
            nodes: [(0, Some(379)), (1, Some(380)), (2, None)].into(),
            may_go: BTreeSet::new(),
            copied: BTreeSet::new(),
            drift: 6_000,
        });
        let history = history(&[holder(0, "a", 1, 10)], &[(100, sample)]);
        let found = check(&history, &Terms::strict());
        assert_eq!(
            found[0].text,
            "p0 (call 0) believes to hold lk:order:1 (fencing token 1) for 379 ms more; allowed are at most 374.5 ms \
             (what 2 nodes keep it for, less 6 ms of drift, and 1.5 ms as times are rounded): \
             g0 379 ms, g1 380 ms, g2 has it not; nodes that forgot: none"
        );
    }

    #[test]
    fn nodes_that_forgot_since_are_excused() {
        let nodes = [(0, Some(600)), (1, None), (2, None)];
        assert_eq!(count(&nodes, Some((50, 2))), 0);
        assert_eq!(count(&nodes, Some((5, 2))), 1);
    }
}
