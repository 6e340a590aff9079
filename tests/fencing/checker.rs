//! Whether the numbers of holders order them as they came.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// One time that a lock was held. The clock is one of the machine, so that processes can be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
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

impl fmt::Display for Acquisition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            key,
            fence,
            start,
            end,
            held,
        } = self;
        write!(f, "{key} {fence} {start} {end} {held}")
    }
}

impl FromStr for Acquisition {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let parts: Vec<&str> = line.split(' ').collect();
        let [key, fence, start, end, held] = parts[..] else {
            return Err(format!("not five parts: {line}"));
        };
        let number = |text: &str| text.parse().map_err(|_| format!("no number: {line}"));
        Ok(Self {
            key: key.to_owned(),
            fence: number(fence)?,
            start: number(start)?,
            end: number(end)?,
            held: held == "true",
        })
    }
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
            found.push(format!("one number twice: [{}], [{}]", pair[0], pair[1]));
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
            found.push(format!("not above one before: [{earlier}], [{one}]"));
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
            found.push(format!("two holders: [{earlier}], [{one}]"));
        }
        if latest.is_none_or(|latest| latest.end < one.end) {
            latest = Some(one);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(key: &str, fence: u64, start: u64, end: u64) -> Acquisition {
        let key = key.to_owned();
        Acquisition {
            key,
            fence,
            start,
            end,
            held: true,
        }
    }

    fn lost(key: &str, fence: u64, start: u64, end: u64) -> Acquisition {
        Acquisition {
            held: false,
            ..held(key, fence, start, end)
        }
    }

    /// In the order given and in the other.
    #[track_caller]
    fn assert_found(all: &[Acquisition], expected: &[&str]) {
        let reversed: Vec<_> = all.iter().rev().cloned().collect();
        for all in [all, &reversed] {
            let found = violations(all);
            let mut kinds: Vec<_> = found
                .iter()
                .map(|text| text.split(':').next().unwrap())
                .collect();
            kinds.sort_unstable();
            assert_eq!(kinds, expected, "{found:#?}");
        }
    }

    #[test]
    fn turns_with_growing_tokens_are_right() {
        assert_found(&[], &[]);
        let turns = [
            held("a", 5, 0, 10),
            held("a", 6, 10, 20),
            held("a", 99, 25, 25),
            held("a", 100, 25, 30),
        ];
        assert_found(&turns, &[]);
    }

    #[test]
    fn keys_are_numbered_each_by_itself() {
        let turns = [held("a", 5, 0, 10), held("b", 4, 20, 30)];
        assert_found(&turns, &[]);
        assert_found(&[held("a", 5, 0, 10), held("b", 5, 5, 6)], &[]);
    }

    #[test]
    fn a_number_that_falls_back_is_found() {
        let turns = [
            held("a", 5, 0, 10),
            held("a", 7, 20, 30),
            held("a", 6, 40, 50),
        ];
        assert_found(&turns, &["not above one before"]);
        // Not only beside its neighbour.
        let turns = [
            held("a", 9, 0, 10),
            held("a", 7, 20, 30),
            held("a", 8, 40, 50),
        ];
        assert_found(&turns, &["not above one before", "not above one before"]);
    }

    #[test]
    fn a_number_that_is_given_twice_is_found() {
        let both = ["not above one before", "one number twice"];
        assert_found(&[held("a", 5, 0, 10), held("a", 5, 20, 30)], &both);
        let together = [held("a", 5, 0, 10), lost("a", 5, 5, 30)];
        assert_found(&together, &["one number twice"]);
    }

    #[test]
    fn a_holder_that_lost_the_lock_may_overlap_and_is_in_no_order_meanwhile() {
        let turns = [lost("a", 5, 0, 100), held("a", 9, 50, 60)];
        assert_found(&turns, &[]);
        assert_found(&[lost("a", 9, 0, 100), held("a", 5, 50, 60)], &[]);
        let after = [lost("a", 9, 0, 100), held("a", 5, 100, 160)];
        assert_found(&after, &["not above one before"]);
    }

    #[test]
    fn two_holders_at_once_are_found() {
        let turns = [held("a", 5, 0, 100), held("a", 6, 99, 120)];
        assert_found(&turns, &["two holders"]);
        let inside = [
            held("a", 5, 0, 100),
            held("a", 6, 10, 20),
            held("a", 7, 30, 40),
        ];
        assert_found(&inside, &["two holders", "two holders"]);
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let one = lost("own:1:2", 1_800_000_000_000_000_001, 3, 4);
        assert_eq!(one.to_string().parse(), Ok(one));
        for bad in ["", "a 1 2 3", "a 1 2 x true", "a 1 2 3 true more"] {
            assert!(bad.parse::<Acquisition>().is_err(), "{bad}");
        }
    }
}
