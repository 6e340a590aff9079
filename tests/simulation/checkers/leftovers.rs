//! No key is left after an orderly end, none beyond its ttl otherwise, and none without an expiry but the marker.
//!
//! What arrives a second time, and old data, bring back what was released: such a key lives for its ttl. So there is
//! nothing to be found right after a shutdown only where neither can be. What was under way when a connection was given
//! up is void when it arrives, but may have been granted before that: a lock that nobody has is looked for only where
//! that cannot be. And nobody waits for what was held up for longer than a lock lives: if it arrives in the end, its
//! node keeps it for a ttl.

use super::{Found, History, Terms, each_event};
use crate::workload::history::{Stage, What};

pub(super) fn check(history: &History, terms: &Terms) -> Found {
    each_event(history, |what| match what {
        What::Orphan {
            host,
            key,
            age,
            bound,
        } if terms.tidy && terms.prompt && age > bound => Some(format!(
            "h{host} has {key} though nobody has held it for {age} ms; allowed are at most {bound} ms"
        )),
        What::Left { host, key, when } => {
            let when = match when {
                Stage::Shutdown if !terms.once => return None,
                Stage::Shutdown => "after a shutdown that said that nothing is left",
                Stage::Ttl => "after the longest ttl",
                Stage::Forever => "without an expiry",
                Stage::TooLong => "for longer than any process keeps counters",
            };
            Some(format!("h{host} has {key} {when}"))
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::hand::history;
    use super::*;

    fn count(when: Stage, terms: &Terms) -> usize {
        let key = "lk:order:1".to_owned();
        let left = What::Left { host: 0, key, when };
        check(&history(&[], &[(10, left)]), terms).len()
    }

    #[test]
    fn what_is_left_is_found() {
        let strict = Terms::strict();
        for when in [Stage::Shutdown, Stage::Ttl, Stage::Forever, Stage::TooLong] {
            assert_eq!(count(when, &strict), 1);
        }
        let late = Terms::but(|terms| terms.once = false);
        assert_eq!(count(Stage::Shutdown, &late), 0);
        assert_eq!(count(Stage::Ttl, &late), 1);
    }

    #[test]
    fn a_lock_that_nobody_holds_is_found() {
        let count = |age, terms: &Terms| {
            let key = "lk:order:1".to_owned();
            let orphan = What::Orphan {
                host: 0,
                key,
                age,
                bound: 100,
            };
            check(&history(&[], &[(10, orphan)]), terms).len()
        };
        let strict = Terms::strict();
        assert_eq!(count(100, &strict), 0);
        assert_eq!(count(101, &strict), 1);
        let slow = Terms::but(|terms| terms.prompt = false);
        assert_eq!(count(101, &slow), 0);
    }
}
