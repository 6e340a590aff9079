//! Bounded memory: a process that has nothing to do keeps nothing, and a node has no more than a few keys for each lock
//! and each idempotency key that is in use.

use super::{Found, History, Terms, each_event};
use crate::workload::history::What;

pub(super) fn check(history: &History, _: &Terms) -> Found {
    each_event(history, |what| match what {
        What::Rest {
            process,
            held,
            keys,
            waiting,
        } if held + keys + waiting > 0 => Some(format!(
            "{process} at rest has {held} locks, {keys} keys in its queue and {waiting} waiters; allowed are none"
        )),
        What::Size { host, keys, most } if keys > most => Some(format!(
            "h{host} has {keys} keys; allowed are at most {most}, for what is in use"
        )),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::hand::{history, process};
    use super::*;

    #[test]
    fn whatever_is_kept_too_long_is_found() {
        let count = |what| check(&history(&[], &[(10, what)]), &Terms::strict()).len();
        let rest = |held, keys, waiting| What::Rest {
            process: process(0),
            held,
            keys,
            waiting,
        };
        assert_eq!(count(rest(0, 0, 0)), 0);
        assert_eq!(count(rest(1, 0, 0)), 1);
        assert_eq!(count(rest(0, 1, 0)), 1);
        assert_eq!(count(rest(0, 0, 1)), 1);
        let size = |keys| What::Size {
            host: 0,
            keys,
            most: 9,
        };
        assert_eq!(count(size(9)), 0);
        assert_eq!(count(size(10)), 1);
    }
}
