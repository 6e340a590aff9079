//! Exclusion: two holders of one key are never both within their validity, unless both are readers.
//!
//! A holder's validity is one span from the moment it was told to the end: a lock that is lost never comes back. So two
//! spans overlap only if at the moment when the later holder is told, the earlier one is still within its validity. It
//! is enough to look at those moments.
//!
//! Two to whom one lock was handed in turn are two: they have one owner token and two fencing tokens.

use super::strangers::are_strangers;
use super::{Found, History, Terms, both};
use crate::workload::history::{Event, Holder, What};

pub(super) fn check(history: &History, terms: &Terms) -> Found {
    let mut found = Vec::new();
    for Event { at, what } in &history.events {
        let What::Granted { holder, valid } = what else {
            continue;
        };
        if !terms.within || !valid.contains(holder) {
            continue;
        }
        let new = &history.holders[*holder];
        for other in valid.iter().filter(|other| *other != holder) {
            let old = &history.holders[*other];
            if exclude(new, old) && !are_strangers(history, new, old) {
                let both = both(history, *other, *holder);
                found.push((*at, format!("{both}, both within their validity")));
            }
        }
    }
    found
}

/// Whether these two must not hold at the same time.
fn exclude(one: &Holder, two: &Holder) -> bool {
    let both_read = one.is_reader && two.is_reader;
    if both_read || !one.keys.iter().any(|key| two.keys.contains(key)) {
        return false;
    }
    one.owner != two.owner || one.fence != two.fence
}

#[cfg(test)]
mod tests {
    use super::super::hand::{connected, history, holder};
    use super::*;

    fn granted(holder: usize, valid: &[usize]) -> What {
        let valid = valid.to_vec();
        What::Granted { holder, valid }
    }

    fn count(holders: &[Holder], events: &[(u64, What)]) -> usize {
        check(&history(holders, events), &Terms::strict()).len()
    }

    #[test]
    fn a_second_holder_while_the_first_is_valid_is_found() {
        let holders = [holder(0, "a", 1, 0), holder(1, "b", 2, 50)];
        let overlap = [(0, granted(0, &[0])), (50, granted(1, &[0, 1]))];
        assert_eq!(count(&holders, &overlap), 1);
        let apart = [(0, granted(0, &[0])), (50, granted(1, &[1]))];
        assert_eq!(count(&holders, &apart), 0);
        // One that is told too late has nothing.
        let late = [(0, granted(0, &[0])), (50, granted(1, &[0]))];
        assert_eq!(count(&holders, &late), 0);
    }

    #[test]
    fn a_lock_that_was_handed_on_has_one_holder() {
        let holders = [holder(0, "a", 1, 0), holder(0, "a", 2, 50)];
        let events = [(0, granted(0, &[0])), (50, granted(1, &[0, 1]))];
        assert_eq!(count(&holders, &events), 1);
    }

    #[test]
    fn readers_may_hold_together_and_nobody_beside_them() {
        let mut holders = [holder(0, "a", 1, 0), holder(1, "b", 2, 50)];
        let events = [(0, granted(0, &[0])), (50, granted(1, &[0, 1]))];
        for (first, second, found) in [(true, true, 0), (true, false, 1), (false, true, 1)] {
            (holders[0].is_reader, holders[1].is_reader) = (first, second);
            assert_eq!(count(&holders, &events), found);
        }
    }

    #[test]
    fn other_keys_are_another_matter() {
        let mut holders = [holder(0, "a", 1, 0), holder(1, "b", 2, 50)];
        let events = [(0, granted(0, &[0])), (50, granted(1, &[0, 1]))];
        holders[1].keys = vec!["lk:order:2".to_owned()];
        assert_eq!(count(&holders, &events), 0);
        holders[1].keys.push("lk:order:1".to_owned());
        assert_eq!(count(&holders, &events), 1);
    }

    #[test]
    fn whoever_connects_while_a_shared_node_is_empty_knows_of_nobody() {
        let found_at = |emptied: u64, connects: u64, groups: [u32; 3], held: u64, asked: u64| {
            let events = [
                (0, connected(0, [0, 1, 2])),
                (emptied, What::Forgot { group: 2 }),
                (connects, connected(1, groups)),
                (held, granted(0, &[0])),
                (9_500, granted(1, &[0, 1])),
            ];
            let mut new = holder(1, "b", 2, 9_500);
            new.started = asked;
            count(&[holder(0, "a", 1, held), new], &events)
        };
        let found = |emptied, connects, groups, held| {
            found_at(emptied, connects, groups, held, connects + 2_000)
        };
        let other = [2, 3, 4];
        assert_eq!(found(5_000, 5_040, other, 5_100), 0);
        // It was there before, or came when all must have seen it.
        assert_eq!(found(5_000, 4_990, other, 5_100), 1);
        assert_eq!(found(5_000, 7_001, other, 5_100), 1);
        // Granted after that by those who must have seen it.
        assert_eq!(found(5_000, 5_040, other, 7_001), 1);
        // Asked for after that.
        assert_eq!(found_at(5_000, 5_040, other, 5_100, 7_041), 1);
        // One list; or no node in common that was emptied.
        assert_eq!(found(5_000, 5_040, [0, 1, 2], 5_100), 1);
        assert_eq!(found(5_000, 5_040, [0, 3, 4], 5_100), 1);
    }
}
