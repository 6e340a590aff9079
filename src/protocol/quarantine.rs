//! How long a node that may have lost locks must not vote.
//!
//! A process that watches the quarantine knows only its own ttl; it learns the leases of others from the other nodes.
//! The difficulty are missing replies: the one node that knows of a longer lease may be the one that cannot be reached.
//! So a vote counts only if the node knows of leases that long (the nodes check that), and:
//!
//! | replies of the other nodes | the wait |
//! |---|---|
//! | a quorum votes | the longest lease that is known: every held lock has a node in common with that quorum |
//! | some vote, fewer than a quorum | the longest lease that is agreed on |
//! | none votes, and all reply | the longest lease that is known: no lock rests on nodes that were not asked |
//! | none votes, and more reply than can be spared | the longest lease that is agreed on |
//! | fewer | no end yet |
//!
//! No vote counts that comes later than [`latest_vote`] after its round began, and no quarantine is shorter than that.
//! Otherwise a round could get its first vote from a node before that loses its data, and its last vote after other
//! nodes have learnt of its lease, too late for a process that asked them before.
//!
//! This holds while no more nodes than can be spared have lost data and do not vote yet.

use std::time::Duration;

use super::quorum::Quorum;
use super::validity::Drift;
use crate::mutant::{self, Mutant};

/// How long after the beginning of a round a vote may count, if no lease is longer than `max_ttl`.
pub(crate) fn latest_vote(max_ttl: Duration) -> Duration {
    (max_ttl / 10).max(max_ttl.min(Duration::from_secs(1)))
}

/// What all processes that share the nodes agree on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    pub(crate) quorum: Quorum,
    /// No lease is longer.
    pub(crate) max_ttl: Duration,
    pub(crate) drift: Drift,
    /// By how much the clocks of two processes differ at most.
    pub(crate) skew: Duration,
}

/// What is known when the other nodes have been asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Census {
    /// How many of the other nodes vote.
    pub(crate) intact: usize,
    /// How many nodes replied, the one in question included.
    pub(crate) answered: usize,
    /// The longest lease that any of these, or this process, knows of.
    pub(crate) known: Duration,
}

/// How long the quarantine of a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    pub(crate) time: Duration,
    /// Whether a quorum remembers the highest fencing token. If not, the clock decides how they go on.
    pub(crate) remembered: bool,
}

impl Rule {
    /// The longest that any node waits.
    pub(crate) fn longest(&self) -> Duration {
        let (none, all) = (0, self.quorum.nodes());
        let known = self.max_ttl;
        let few = Census {
            intact: none,
            answered: all,
            known,
        };
        let some = Census {
            intact: 1,
            answered: all,
            known,
        };
        let waits =
            [few, some].map(|census| self.wait(census).map_or(Duration::ZERO, |it| it.time));
        waits.into_iter().max().unwrap_or_default()
    }

    /// How long a node waits; `None`: too few nodes reply to tell.
    pub(crate) fn wait(&self, census: Census) -> Option<Wait> {
        let with_drift = |lease: Duration| lease.saturating_add(self.drift.of(lease));
        let least = latest_vote(self.max_ttl);
        let known = with_drift(census.known.max(least));
        let agreed = with_drift(self.max_ttl.max(census.known));
        // Fencing tokens made from the clock must exceed all earlier ones.
        let apart = known.saturating_add(self.skew.saturating_mul(2));
        let remembered = census.intact >= self.quorum.needed();
        let all = census.answered >= self.quorum.nodes();
        let few = mutant::is(Mutant::QuarantineTrustsTheFew);
        let time = if remembered {
            known
        } else if few || census.intact == 0 && all {
            apart
        } else if census.intact > 0 || census.answered > self.quorum.spare() {
            agreed.max(apart)
        } else {
            return None;
        };
        Some(Wait { time, remembered })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const B: Duration = Duration::from_secs(60);
    const MS: Duration = Duration::from_millis(1);

    fn rule(nodes: usize, masked: usize) -> Rule {
        Rule {
            quorum: Quorum::masking(nodes, masked).unwrap(),
            max_ttl: B,
            drift: Drift::default(),
            skew: Duration::from_secs(1),
        }
    }

    /// In milliseconds, of one of three nodes.
    fn wait(intact: usize, answered: usize, known: u64) -> Option<(u128, bool)> {
        let census = Census {
            intact,
            answered,
            known: Duration::from_millis(known),
        };
        let wait = rule(3, 0).wait(census)?;
        Some((wait.time.as_millis(), wait.remembered))
    }

    #[test]
    fn votes_count_for_a_tenth_of_the_longest_lease_or_a_second() {
        let latest = |millis| latest_vote(Duration::from_millis(millis)).as_millis();
        let table = [(60_000, 6_000), (10_000, 1_000), (4_000, 1_000), (500, 500)];
        for (longest, vote) in table {
            assert_eq!(latest(longest), vote);
        }
        assert_eq!(latest(86_400_000), 8_640_000);
    }

    #[test]
    fn the_table_of_waits_of_one_of_three_nodes() {
        // A quorum votes: what is known.
        assert_eq!(wait(2, 3, 10_000), Some((10_102, true)));
        // One does: what is agreed on, whether or not the other answers.
        assert_eq!(wait(1, 3, 10_000), Some((60_602, false)));
        assert_eq!(wait(1, 2, 10_000), Some((60_602, false)));
        // None does.
        assert_eq!(wait(0, 3, 10_000), Some((12_102, false)));
        assert_eq!(wait(0, 2, 10_000), Some((60_602, false)));
        assert_eq!(wait(0, 1, 10_000), None);
    }

    #[test]
    fn no_wait_is_shorter_than_a_vote_may_count() {
        assert_eq!(wait(2, 3, 50), Some((6_062, true)));
        assert_eq!(wait(0, 3, 50), Some((8_062, false)));
    }

    #[test]
    fn what_is_made_of_the_clock_is_past_what_was_made_before() {
        assert_eq!(wait(1, 3, 60_000), Some((62_602, false)));
        assert_eq!(wait(0, 2, 59_000), Some((61_592, false)));
    }

    #[test]
    fn a_single_node_waits_for_what_it_was_told() {
        let alone = Census {
            intact: 0,
            answered: 1,
            known: Duration::from_secs(10),
        };
        let wait = rule(1, 0).wait(alone).unwrap();
        assert_eq!(wait.time, 12_102 * MS);
    }

    /// Which of so many nodes.
    fn some(nodes: usize) -> impl Strategy<Value = Vec<bool>> {
        prop::collection::vec(any::<bool>(), nodes)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 8192, ..ProptestConfig::default() })]

        /// A lock was granted by a quorum of nodes that knew of its lease, and no more of them have lost data than can
        /// be spared: whichever nodes can be asked, none that granted it votes again before it has ended.
        #[test]
        fn no_missing_answer_makes_the_wait_shorter_than_a_lease(
            (quorum, order, spared, reached, known, lease) in (2_usize..8, 0_usize..3)
                .prop_filter_map("one to spare", |(n, f)| Quorum::masking(n, f).filter(|q| q.spare() > 0))
                .prop_flat_map(|q| (
                    Just(q), Just((0..q.nodes()).collect::<Vec<_>>()).prop_shuffle(), 1..=q.spare(), some(q.nodes()),
                    prop::collection::vec(0_u64..60_000, q.nodes()), 0_u64..60_000,
                ))
        ) {
            // Who granted it and who forgot since lie anywhere beside each other.
            let granted: Vec<bool> = (0..quorum.nodes()).map(|n| n < quorum.needed()).collect();
            let mut forgot = vec![false; quorum.nodes()];
            order.iter().take(spared).for_each(|n| forgot[*n] = true);
            let node = order[0];
            // What each node knows: those that granted, and still remember, at least of this lease.
            let knows = |n: usize| match (granted[n], forgot[n]) {
                (_, true) => 0,
                (true, false) => known[n].max(lease),
                (false, false) => known[n],
            };
            let others = || (0..quorum.nodes()).filter(|n| *n != node && reached[*n]);
            let census = Census {
                intact: others().filter(|n| !forgot[*n]).count(),
                answered: 1 + others().count(),
                known: Duration::from_millis(others().map(knows).max().unwrap_or(0)),
            };
            let rule = Rule { quorum, ..rule(1, 0) };
            if let Some(wait) = rule.wait(census) {
                prop_assert!(wait.time >= latest_vote(B));
                prop_assert!(wait.time >= Duration::from_millis(lease));
            }
        }

        /// To know of a longer lease, or to hear of it from one more node that does not vote, never ends it sooner.
        #[test]
        fn what_more_is_known_never_ends_a_quarantine_sooner(
            nodes in 1_usize..8, intact in 0_usize..8, answered in 0_usize..8,
            known in 0_u64..60_000, more in 0_u64..9_000,
        ) {
            let answered = answered.min(nodes - 1) + 1;
            let census = |known| Census {
                intact: intact.min(answered - 1),
                answered,
                known: Duration::from_millis(known),
            };
            let rule = rule(nodes, 0);
            match (rule.wait(census(known)), rule.wait(census(known + more))) {
                (Some(less), Some(more)) => prop_assert!(less.time <= more.time),
                (less, more) => prop_assert_eq!(less, more),
            }
        }
    }
}
