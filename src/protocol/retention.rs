//! When a record ends: its end is set once, and checked by the clock of each node.
//!
//! From its end on, by its own clock, each node treats a record as absent, and it returns the time of that clock with
//! every grant. So a caller near the end can tell a node where the record has ended from one that never had it. If the
//! record has ended on so many nodes that no quorum remains, it is over for good: no quorum will ever have it again. If
//! a quorum remains, the record may be brought to it. Both cannot be true at once, whatever the clocks show.

use super::quorum::Quorum;

/// The state of a record that some nodes have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// It has not ended on a quorum of nodes: a quorum can have it.
    Kept,
    /// No quorum has it, and none ever will.
    Over,
    /// Too few clocks are known to tell.
    Open,
}

/// The state of a record that ends at `until`, by the clocks of the nodes that replied.
pub(crate) fn life(until: u64, clocks: &[u64], quorum: Quorum) -> Life {
    let over = clocks.iter().filter(|now| until <= **now).count();
    if over > quorum.spare() {
        Life::Over
    } else if clocks.len() - over >= quorum.needed() {
        Life::Kept
    } else {
        Life::Open
    }
}

/// The time by several clocks, any minority of which may be wrong: the middle one, or the later of the two in the
/// middle.
pub(crate) fn time_by(mut clocks: Vec<u64>) -> u64 {
    clocks.sort_unstable();
    clocks.get(clocks.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minority_of_clocks_does_not_matter() {
        assert_eq!(time_by(vec![]), 0);
        assert_eq!(time_by(vec![7]), 7);
        assert_eq!(time_by(vec![9, 7]), 9);
        for wrong in [0, u64::MAX] {
            assert_eq!(time_by(vec![wrong, 70, 70]), 70);
            assert_eq!(
                time_by(vec![70, 71, wrong, 70]).abs_diff(70),
                u64::from(wrong > 0)
            );
            assert_eq!(time_by(vec![70, wrong, 70, wrong, 70]), 70);
        }
    }

    /// For every quorum and every number of nodes on which it has ended, all who hear enough to tell tell the same, and
    /// those who hear all can tell.
    #[test]
    fn nobody_finds_a_record_kept_that_another_found_over() {
        for nodes in 1..8 {
            for masked in 0..nodes {
                let quorum = Quorum::masking(nodes, masked).unwrap();
                for ended in 0..=nodes {
                    let clocks: Vec<u64> = (0..nodes).map(|n| 99 + u64::from(n < ended)).collect();
                    let mut lives = Vec::new();
                    for heard in 0..1_u32 << nodes {
                        let heard = (0..nodes).filter(|n| heard & 1 << n != 0);
                        let heard: Vec<u64> = heard.map(|n| clocks[n]).collect();
                        lives.push(life(100, &heard, quorum));
                    }
                    // The last one hears all.
                    let all = lives[lives.len() - 1];
                    assert_ne!(all, Life::Open, "{nodes} {masked} {ended}");
                    let differs = lives.iter().any(|life| *life != all && *life != Life::Open);
                    assert!(!differs, "{nodes} {masked} {ended}: {lives:?}");
                }
                // Nor once more of them have ended: those who found it over are right for ever.
                for later in quorum.spare() + 1..=nodes {
                    assert!(nodes - later < quorum.needed());
                }
            }
        }
    }

    #[test]
    fn one_wrong_clock_of_three_neither_ends_a_record_nor_keeps_it() {
        let quorum = Quorum::masking(3, 0).unwrap();
        for (clocks, expected) in [
            (&[999, 50, 50][..], Life::Kept),
            (&[999, 50], Life::Open),
            (&[50, 50], Life::Kept),
            (&[0, 150, 150], Life::Over),
            (&[0, 150], Life::Open),
            (&[150, 150], Life::Over),
            (&[100, 100], Life::Over),
            (&[], Life::Open),
        ] {
            assert_eq!(life(100, clocks, quorum), expected, "{clocks:?}");
        }
    }
}
