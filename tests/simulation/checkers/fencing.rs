//! Fencing tokens: those of a key grow strictly in the order of its grants, and no two grants have the same, but of readers
//! at the same time.
//!
//! One grant is before another if its holder was told before the other's winning round began: then it was decided
//! before. Two that were decided at the same time, as seen from here, have no order. Of a lock that is handed on inside
//! a process, the later holder is the one that was told later.
//!
//! Where so much is lost that nobody remembers how high the tokens have come, they go on from the dates of the
//! processes. So these must agree as the processes were told; if they do not, the order is promised until something is
//! lost.

use std::collections::{BTreeMap, BTreeSet};

use super::strangers::{are_strangers, was_forgotten};
use super::{Found, History, Terms, both, losses};
use crate::workload::history::Holder;

pub(super) fn check(history: &History, terms: &Terms) -> Found {
    if !terms.within && !terms.agreed {
        return Vec::new();
    }
    let until = match losses(history).map(|(at, _)| at).min() {
        Some(first) if !terms.ordered_dates => first,
        _ => u64::MAX,
    };
    let mut keys: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, holder) in history.holders.iter().enumerate() {
        if holder.fence.is_some() && holder.granted < until {
            for key in &holder.keys {
                keys.entry(key).or_default().push(index);
            }
        }
    }
    let pairs = keys
        .values()
        .flat_map(|of_key| disorder(history, terms, of_key));
    let mut seen = BTreeSet::new();
    let found = pairs
        .filter(|pair| seen.insert(*pair))
        .map(|(later, earlier)| {
            let both = both(history, earlier, later);
            let text = format!("{both}: the later token must be the higher one");
            (history.holders[later].granted, text)
        });
    found.collect()
}

/// The holders of one key whose token is not above that of one before them of whom they could know, each with the worst
/// of those.
fn disorder(history: &History, terms: &Terms, of_key: &[usize]) -> Vec<(usize, usize)> {
    let holder = |index: usize| &history.holders[index];
    let mut found = Vec::new();
    for later in of_key {
        let could_know = |one: &&usize| {
            !are_strangers(history, holder(*later), holder(**one))
                && !was_forgotten(history, holder(**one), holder(*later), terms.ahead)
        };
        let before = of_key
            .iter()
            .filter(|one| is_before(holder(**one), holder(*later)));
        let highest = before
            .filter(could_know)
            .max_by_key(|one| holder(**one).fence);
        let highest = highest.filter(|one| holder(**one).fence >= holder(*later).fence);
        found.extend(highest.map(|highest| (*later, *highest)));
        let mut same = of_key.iter().filter(|one| {
            let both_read = holder(**one).is_reader && holder(*later).is_reader;
            **one < *later
                && !both_read
                && holder(**one).fence == holder(*later).fence
                && holder(**one).owner != holder(*later).owner
        });
        found.extend(same.find(could_know).map(|same| (*later, *same)));
    }
    found
}

/// Whether one grant was decided before another.
fn is_before(one: &Holder, two: &Holder) -> bool {
    if one.owner == two.owner {
        return one.granted < two.granted && one.fence != two.fence;
    }
    one.granted < two.started
}

#[cfg(test)]
mod tests {
    use super::super::hand::{connected, history, holder};
    use super::*;
    use crate::workload::history::What;

    fn count(holders: &[Holder]) -> usize {
        check(&history(holders, &[]), &Terms::strict()).len()
    }

    #[test]
    fn a_token_that_falls_back_is_found() {
        assert_eq!(count(&[holder(0, "a", 5, 0), holder(1, "b", 6, 50)]), 0);
        assert_eq!(count(&[holder(0, "a", 5, 0), holder(1, "b", 4, 50)]), 1);
        // Not only beside its neighbour.
        let three = [
            holder(0, "a", 9, 0),
            holder(1, "b", 4, 50),
            holder(0, "c", 6, 90),
        ];
        assert_eq!(count(&three), 2);
        // Whoever is handed a lock later has the higher token.
        assert_eq!(count(&[holder(0, "a", 5, 20), holder(0, "a", 4, 50)]), 1);
        // Grants at the same time have no order.
        let mut two = [holder(0, "a", 5, 20), holder(1, "b", 4, 50)];
        two[1].started = 10;
        assert_eq!(count(&two), 0);
    }

    #[test]
    fn a_token_that_two_have_is_found_whatever_their_order() {
        let mut two = [holder(0, "a", 5, 0), holder(1, "b", 5, 50)];
        two[1].started = 0;
        assert_eq!(count(&two), 1);
        two[1].is_reader = true;
        assert_eq!(count(&two), 1);
        two[0].is_reader = true;
        assert_eq!(count(&two), 0);
        two[1].started = 50;
        assert_eq!(count(&two), 1, "one after the other");
        (two[0].is_reader, two[1].is_reader) = (false, false);
        two[1].owner = "a".to_owned();
        assert_eq!(count(&two), 0);
    }

    #[test]
    fn a_stranger_hides_nobody() {
        let events = [
            (0, connected(0, [2, 3, 4])),
            (0, connected(1, [0, 1, 2])),
            (5_000, What::Forgot { group: 2 }),
            (5_040, connected(2, [0, 1, 2])),
        ];
        // The last two are of one list, to which the first is a stranger.
        let all = [
            holder(0, "a", 9, 5_100),
            holder(1, "b", 7, 5_200),
            holder(2, "c", 5, 5_900),
        ];
        let count = |holders: &[Holder]| check(&history(holders, &events), &Terms::strict()).len();
        assert_eq!(count(&all[1..]), 1);
        // Of the two that did know of each other, and not of the stranger and its later one.
        assert_eq!(count(&[all[0].clone(), all[2].clone()]), 0);
        assert_eq!(count(&all), 2);
    }

    #[test]
    fn lists_whose_common_node_forgot_go_on_from_dates_that_may_differ() {
        let count = |group, later, ahead| {
            let events = [
                (0, connected(0, [2, 3, 4])),
                (0, connected(1, [0, 1, 2])),
                (8_000, What::Forgot { group }),
            ];
            let terms = Terms::but(|terms| terms.ahead = ahead);
            let two = [holder(0, "a", 9, 7_000), holder(1, "b", 7, later)];
            check(&history(&two, &events), &terms).len()
        };
        assert_eq!(count(2, 10_000, 4_000), 0);
        assert_eq!(count(2, 10_000, 0), 1);
        assert_eq!(count(2, 11_000, 4_000), 1, "dates have passed it");
        assert_eq!(count(3, 10_000, 4_000), 1, "the common node remembers");
    }

    #[test]
    fn with_wild_dates_the_order_lasts_until_something_is_lost() {
        let wild = Terms::but(|terms| terms.ordered_dates = false);
        let two = [holder(0, "a", 5, 0), holder(1, "b", 4, 50)];
        let count = |events: &[(u64, What)]| check(&history(&two, events), &wild).len();
        assert_eq!(count(&[]), 1);
        assert_eq!(count(&[(20, What::Forgot { group: 0 })]), 0);
    }
}
