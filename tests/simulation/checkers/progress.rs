//! Progress: when everything works again, every process acquires every key within the stated bound: the longest
//! quarantine, and what it takes to connect anew.
//!
//! Processes that do not agree on their nodes are stopped on purpose; but of two lists with one node in common, one
//! goes on.

use std::collections::BTreeMap;

use super::{Found, History, Terms, each_event};
use crate::workload::history::{Event, What};

pub(super) fn check(history: &History, terms: &Terms) -> Found {
    if terms.overlapping {
        return nobody(history);
    }
    each_event(history, |what| {
        let What::Progress {
            process,
            key,
            took,
            bound,
        } = what
        else {
            return None;
        };
        let what = match took {
            _ if !terms.agreed => return None,
            Some(took) if took <= bound => return None,
            Some(took) => format!("acquired {key} only {took} ms after"),
            None => format!("did not acquire {key} after"),
        };
        Some(format!(
            "{process} {what} everything worked again; allowed are at most {bound} ms"
        ))
    })
}

/// The keys that no process acquired in time.
fn nobody(history: &History) -> Found {
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
    keys.retain(|_, (_, in_time)| !*in_time);
    let text = |key| format!("of two lists that share a node neither acquired {key} in time");
    let missing = keys.into_iter();
    missing.map(|(key, (at, _))| (at, text(key))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::hand::{history, process};
    use super::*;

    /// What is found if processes acquire a key so late.
    fn count(tooks: &[Option<u64>], terms: &Terms) -> usize {
        let progress = |(place, took): (u32, &Option<u64>)| What::Progress {
            process: process(place),
            key: "order:1".to_owned(),
            took: *took,
            bound: 100,
        };
        let events = (0..).zip(tooks).map(|one| (10, progress(one)));
        check(&history(&[], &events.collect::<Vec<_>>()), terms).len()
    }

    #[test]
    fn whoever_gets_no_lock_is_found() {
        let strict = Terms::strict();
        assert_eq!(count(&[Some(100)], &strict), 0);
        assert_eq!(count(&[Some(101)], &strict), 1);
        assert_eq!(count(&[None], &strict), 1);
        let apart = Terms::but(|terms| terms.agreed = false);
        assert_eq!(count(&[None], &apart), 0);
    }

    #[test]
    fn two_lists_that_share_a_node_and_stop_each_other_are_found() {
        let overlapping = Terms {
            agreed: false,
            overlapping: true,
            ..Terms::strict()
        };
        assert_eq!(count(&[Some(100), None], &overlapping), 0);
        assert_eq!(count(&[None, Some(1)], &overlapping), 0);
        assert_eq!(count(&[None, None], &overlapping), 1);
        assert_eq!(count(&[Some(101), None], &overlapping), 1);
    }
}
