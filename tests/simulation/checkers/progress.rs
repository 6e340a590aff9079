//! Progress: when everything works again, every process acquires every key within the stated bound: the longest
//! quarantine, and what it takes to connect anew.
//!
//! Processes that do not agree on their nodes are stopped on purpose.

use super::{History, Terms, Violation};
use crate::workload::history::{Event, What};

const PROMISE: &str = "progress after healing";

pub(super) fn check(history: &History, terms: &Terms) -> Vec<Violation> {
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
}
