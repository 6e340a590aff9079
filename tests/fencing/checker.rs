//! Whether the numbers of holders order them as they came.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One time that a lock was held. The clock is one of the machine, so that processes can be compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Acquisition {
    pub(crate) key: String,
    pub(crate) fence: u64,
    /// Nanoseconds, taken after the grant.
    pub(crate) start: u64,
    /// Nanoseconds, taken before the release.
    pub(crate) end: u64,
    /// Whether it was still held at the end.
    pub(crate) held: bool,
}

/// What is wrong with `all`, in whatever order they are recorded:
///
/// * a key's number that two holders had,
/// * a holder with a number that is not above that of each holder of the key who had ended before it started,
/// * a holder that started before another had ended who held the key all the time.
pub(crate) fn violations(all: &[Acquisition]) -> Vec<String> {
    let mut keys: BTreeMap<&str, Vec<&Acquisition>> = BTreeMap::new();
    for acquisition in all {
        keys.entry(&acquisition.key).or_default().push(acquisition);
    }
    let mut found = Vec::new();
    for of_key in keys.values_mut() {
        repeated(of_key, &mut found);
        out_of_order(of_key, &mut found);
        together(of_key, &mut found);
    }
    found
}

fn repeated(all: &mut [&Acquisition], found: &mut Vec<String>) {
    all.sort_unstable_by_key(|one| (one.fence, one.start));
    for pair in all.windows(2) {
        if pair[0].fence == pair[1].fence {
            found.push(format!("one number twice: {pair:?}"));
        }
    }
}

fn out_of_order(all: &mut [&Acquisition], found: &mut Vec<String>) {
    let mut ended = all.to_vec();
    ended.sort_unstable_by_key(|one| one.end);
    let mut ended = ended.into_iter().peekable();
    let mut highest: Option<&Acquisition> = None;
    all.sort_unstable_by_key(|one| one.start);
    for one in all.iter() {
        while let Some(earlier) = ended.next_if(|earlier| earlier.end <= one.start) {
            // One of no length may stand among those that have ended itself.
            if earlier != *one && highest.is_none_or(|highest| highest.fence < earlier.fence) {
                highest = Some(earlier);
            }
        }
        if let Some(earlier) = highest
            && earlier.fence >= one.fence
        {
            found.push(format!("not above one before: {earlier:?}, {one:?}"));
        }
    }
}

fn together(all: &mut [&Acquisition], found: &mut Vec<String>) {
    all.sort_unstable_by_key(|one| one.start);
    let mut latest: Option<&Acquisition> = None;
    for one in all.iter().filter(|one| one.held) {
        if let Some(earlier) = latest
            && earlier.end > one.start
        {
            found.push(format!("two holders: {earlier:?}, {one:?}"));
        }
        if latest.is_none_or(|latest| latest.end < one.end) {
            latest = Some(one);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Turns of a key in short: its number, from when to when it was held, and whether it was until then.
    type Turn = (u64, u64, u64, bool);

    fn turns(key: &str, all: &[Turn]) -> Vec<Acquisition> {
        let turn = |&(fence, start, end, held): &Turn| {
            let key = key.to_owned();
            Acquisition {
                key,
                fence,
                start,
                end,
                held,
            }
        };
        all.iter().map(turn).collect()
    }

    /// In the order given and in the other.
    #[track_caller]
    fn assert_found(all: &[Acquisition], expected: &[&str], case: &str) {
        let reversed: Vec<_> = all.iter().rev().cloned().collect();
        for all in [all, &reversed] {
            let found = violations(all);
            let kinds = found.iter().map(|text| text.split(':').next().unwrap());
            let mut kinds: Vec<_> = kinds.collect();
            kinds.sort_unstable();
            assert_eq!(kinds, expected, "{case}: {found:#?}");
        }
    }

    const ORDER: &str = "not above one before";
    const TWICE: &str = "one number twice";
    const TWO: &str = "two holders";

    #[test]
    fn what_is_wrong_is_found_and_nothing_else() {
        let cases: &[(&str, &[Turn], &[&str])] = &[
            ("nothing", &[], &[]),
            (
                "numbers grow, of turns that touch or have no length, too",
                &[
                    (5, 0, 10, true),
                    (6, 10, 20, true),
                    (99, 25, 25, true),
                    (100, 25, 30, true),
                ],
                &[],
            ),
            (
                "one falls back",
                &[(5, 0, 10, true), (7, 20, 30, true), (6, 40, 50, true)],
                &[ORDER],
            ),
            (
                "not only beside its neighbour",
                &[(9, 0, 10, true), (7, 20, 30, true), (8, 40, 50, true)],
                &[ORDER, ORDER],
            ),
            (
                "one number twice",
                &[(5, 0, 10, true), (5, 20, 30, true)],
                &[ORDER, TWICE],
            ),
            (
                "the same together",
                &[(5, 0, 10, true), (5, 5, 30, false)],
                &[TWICE],
            ),
            (
                "who lost it may overlap",
                &[(5, 0, 100, false), (9, 50, 60, true)],
                &[],
            ),
            (
                "and is in no order meanwhile",
                &[(9, 0, 100, false), (5, 50, 60, true)],
                &[],
            ),
            (
                "but afterwards",
                &[(9, 0, 100, false), (5, 100, 160, true)],
                &[ORDER],
            ),
            (
                "two at once",
                &[(5, 0, 100, true), (6, 99, 120, true)],
                &[TWO],
            ),
            (
                "one that has two in it",
                &[(5, 0, 100, true), (6, 10, 20, true), (7, 30, 40, true)],
                &[TWO, TWO],
            ),
        ];
        for (case, all, expected) in cases {
            assert_found(&turns("a", all), expected, case);
        }
    }

    #[test]
    fn keys_are_numbered_each_by_itself() {
        for other in [(4, 20, 30, true), (5, 5, 6, true)] {
            let all = [turns("a", &[(5, 0, 10, true)]), turns("b", &[other])];
            assert_found(&all.concat(), &[], "another key");
        }
    }
}
