//! Progress: when everything works again, every process acquires every key within the stated bound: the longest
//! quarantine, and what it takes to connect anew.
//!
//! Processes that do not agree on their nodes are stopped on purpose; but of two lists with one node in common, one
//! goes on.

use std::collections::BTreeMap;

use super::{History, Terms, Violation};
use crate::workload::history::{Event, What};

const PROMISE: &str = "progress after healing";

pub(super) fn check(history: &History, terms: &Terms) -> Vec<Violation> {
    if terms.overlapping {
        return nobody(history);
    }
    if !terms.agreed {
        return Vec::new();
    }
    let mut found = Vec::new();
    for Event { at, what } in &history.events {
        if let What::Progress {
            process,
            key,
            took,
            bound,
        } = what
            && took.is_none_or(|took| took > *bound)
        {
            let what = match took {
                Some(took) => format!("acquired {key} only {took} ms after"),
                None => format!("did not acquire {key} after"),
            };
            found.push(Violation {
                promise: PROMISE,
                at_ms: *at,
                text: format!(
                    "{process} {what} everything worked again; allowed are at most {bound} ms"
                ),
            });
        }
    }
    found
}

/// The keys that no process acquired in time.
fn nobody(history: &History) -> Vec<Violation> {
    let mut keys: BTreeMap<&str, (u64, bool)> = BTreeMap::new();
    for Event { at, what } in &history.events {
        if let What::Progress {
            key, took, bound, ..
        } = what
        {
            let (last, in_time) = keys.entry(key).or_default();
            *last = *at;
            *in_time |= took.is_some_and(|took| took <= *bound);
        }
    }
    let missing = keys.into_iter().filter(|(_, (_, in_time))| !in_time);
    let violation = |(key, (at_ms, _)): (&str, (u64, bool))| Violation {
        promise: PROMISE,
        at_ms,
        text: format!("of two lists that share a node neither acquired {key} in time"),
    };
    missing.map(violation).collect()
}

#[cfg(test)]
mod tests {
    use super::super::hand::{history, process};
    use super::*;

    #[test]
    fn whoever_gets_no_lock_is_found() {
        let count = |took, terms: &Terms| {
            let (process, key) = (process(0), "order:1".to_owned());
            let progress = What::Progress {
                process,
                key,
                took,
                bound: 100,
            };
            check(&history(&[], &[(10, progress)]), terms).len()
        };
        let strict = Terms::strict();
        assert_eq!(count(Some(100), &strict), 0);
        assert_eq!(count(Some(101), &strict), 1);
        assert_eq!(count(None, &strict), 1);
        let apart = Terms {
            agreed: false,
            ..strict
        };
        assert_eq!(count(None, &apart), 0);
    }

    #[test]
    fn two_lists_that_share_a_node_and_stop_each_other_are_found() {
        let count = |tooks: [Option<u64>; 2]| {
            let event = |(place, took)| {
                let (process, key) = (process(place), "order:1".to_owned());
                let progress = What::Progress {
                    process,
                    key,
                    took,
                    bound: 100,
                };
                (10, progress)
            };
            let events: Vec<_> = (0..).zip(tooks).map(event).collect();
            let terms = Terms {
                agreed: false,
                overlapping: true,
                ..Terms::strict()
            };
            check(&history(&[], &events), &terms).len()
        };
        assert_eq!(count([Some(100), None]), 0);
        assert_eq!(count([None, Some(1)]), 0);
        assert_eq!(count([None, None]), 1);
        assert_eq!(count([Some(101), None]), 1);
    }
}
