//! One acquire round, as a fold over the nodes' replies.

use std::time::Duration;

use smallvec::{SmallVec, smallvec};

use super::quorum::Quorum;
use crate::token::FencingToken;

/// The holder of a key on one node, as another contender may know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_structs,
    reason = "of this crate, and tests make some"
)]
pub struct Holder {
    /// Tells holders apart without naming their tokens: equal tokens give equal tags.
    pub tag: u64,
    /// How long the node will keep the key unless it is extended or released; `None` for a key without expiry.
    pub remaining: Option<Duration>,
    /// In reply to an acquire: the index of the held key among the requested ones; `None` if the node does not tell.
    /// While the caller waits for that key, its process lets other callers have the rest.
    pub key: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vote {
    /// The node holds our token now, with this fencing token.
    Granted(Option<FencingToken>),
    /// The node holds another token.
    Refused(Holder),
    /// The node grants nothing, though the lock may be free: it has something else in its place.
    #[cfg_attr(
        not(feature = "idempotency"),
        expect(dead_code, reason = "only records take a lock's place")
    )]
    Withheld,
    Failed {
        /// Whether it may hold our token all the same: the request may have taken effect, or may yet do so.
        owed: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Granted,
    /// A quorum replied and cannot grant: another owner holds the lock.
    Contended {
        /// After how long enough nodes will be free if nobody extends or releases; `None` if never.
        remaining: Option<Duration>,
    },
    /// A quorum replied, and several contenders share the nodes: perhaps nobody holds the lock.
    Split {
        /// How many contenders are known of, this one included.
        contenders: usize,
        /// As for [`Verdict::Contended`].
        remaining: Option<Duration>,
    },
    NoQuorum,
}

/// One acquire round. Votes may come in any order, and also after the verdict.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    quorum: Quorum,
    votes: SmallVec<[Option<Vote>; 1]>,
}

impl Round {
    pub(crate) fn new(quorum: Quorum) -> Self {
        Self {
            quorum,
            votes: smallvec![None; quorum.nodes()],
        }
    }

    pub(crate) fn record(&mut self, node: usize, vote: Vote) {
        if let Some(slot @ None) = self.votes.get_mut(node) {
            *slot = Some(vote);
        }
    }

    /// Takes back the vote of a node whose grant is given back.
    pub(crate) fn withdraw(&mut self, node: usize) {
        if let Some(slot) = self.votes.get_mut(node) {
            *slot = Some(Vote::Failed { owed: false });
        }
    }

    pub(crate) fn time_out(&mut self) {
        for slot in self.votes.iter_mut().filter(|slot| slot.is_none()) {
            *slot = Some(Vote::Failed { owed: true });
        }
    }

    /// The verdict, as soon as no missing vote can change whether the lock is ours, and a quorum has replied or can no
    /// longer do so.
    pub(crate) fn verdict(&self) -> Option<Verdict> {
        let granted = self.granted();
        let withheld = self.count(|vote| matches!(vote, Vote::Withheld));
        let refused = self.count(|vote| matches!(vote, Vote::Refused(_)));
        let failed = self.count(|vote| matches!(vote, Vote::Failed { .. }));
        let needed = self.quorum.needed();

        if granted >= needed {
            Some(Verdict::Granted)
        } else if failed > self.quorum.spare() {
            Some(Verdict::NoQuorum)
        } else if granted + withheld + refused >= needed && refused + failed > self.quorum.spare() {
            // Nodes that withhold it would grant to a caller that asks for the lock in any case.
            Some(self.lost(granted + withheld))
        } else {
            None
        }
    }

    /// The verdict where each node grants one of several keys, and the key with the most votes has `best`.
    pub(crate) fn verdict_of_any(&self, best: usize) -> Option<Verdict> {
        let needed = self.quorum.needed();
        if best >= needed {
            return Some(Verdict::Granted);
        }
        let missing = self.votes.iter().filter(|vote| vote.is_none()).count();
        Some(match self.verdict()? {
            Verdict::Granted if best + missing >= needed => return None,
            // Others took some of the keys at the same time, each at other nodes.
            Verdict::Granted => Verdict::Split {
                contenders: 2,
                remaining: Some(Duration::ZERO),
            },
            // Each node names the key that ends first there, and they may name different ones.
            Verdict::Split { remaining, .. } if self.granted() == 0 => {
                Verdict::Contended { remaining }
            }
            verdict => verdict,
        })
    }

    pub(crate) fn granted(&self) -> usize {
        self.count(|vote| matches!(vote, Vote::Granted(_)))
    }

    fn count(&self, wanted: fn(&Vote) -> bool) -> usize {
        let votes = self.votes.iter().flatten();
        votes.filter(|vote| wanted(vote)).count()
    }

    pub(crate) fn vote(&self, node: usize) -> Option<Vote> {
        self.votes.get(node).copied().flatten()
    }

    /// Whether a node has refused it in favour of the owner with this `tag`.
    pub(crate) fn is_refused_by(&self, tag: u64) -> bool {
        let key = self.in_the_way();
        let is_of =
            |vote: &Vote| matches!(vote, Vote::Refused(it) if it.tag == tag && it.key == key);
        self.votes.iter().flatten().any(is_of)
    }

    /// Which of the requested keys another owner holds, according to most nodes.
    pub(crate) fn in_the_way(&self) -> Option<usize> {
        let keys = || {
            self.votes.iter().filter_map(|vote| match vote {
                Some(Vote::Refused(holder)) => holder.key,
                _ => None,
            })
        };
        keys().max_by_key(|key| keys().filter(|other| other == key).count())
    }

    pub(crate) fn fences(&self) -> impl Iterator<Item = (usize, FencingToken)> + Clone {
        let votes = self.votes.iter().enumerate();
        votes.filter_map(|(node, vote)| match vote {
            Some(Vote::Granted(Some(fence))) => Some((node, *fence)),
            _ => None,
        })
    }

    /// Whether `node` must get a release if we do not take the lock: it granted, may have, or has not replied yet.
    pub(crate) fn owes(&self, node: usize) -> bool {
        match self.vote(node) {
            Some(Vote::Granted(_)) | None => node < self.votes.len(),
            Some(Vote::Failed { owed }) => owed,
            Some(Vote::Refused(_) | Vote::Withheld) => false,
        }
    }

    /// Contended or split: contended if one holder has a quorum, or if, by the replies so far, it is the only contender
    /// and may have one.
    fn lost(&self, granted: usize) -> Verdict {
        let mut holders: Vec<(u64, usize)> = Vec::new();
        let mut waits: Vec<Option<Duration>> = vec![Some(Duration::ZERO); granted];
        for vote in self.votes.iter().flatten() {
            if let Vote::Refused(holder) = vote {
                waits.push(holder.remaining);
                match holders.iter_mut().find(|(tag, _)| *tag == holder.tag) {
                    Some((_, nodes)) => *nodes += 1,
                    None => holders.push((holder.tag, 1)),
                }
            }
        }
        // A key without expiry comes last.
        waits.sort_unstable_by_key(|wait| wait.unwrap_or(Duration::MAX));
        let remaining = waits.get(self.quorum.needed() - 1).copied().flatten();

        let most = holders.iter().map(|(_, nodes)| *nodes).max().unwrap_or(0);
        let contenders = holders.len() + usize::from(granted > 0);
        if most >= self.quorum.needed() || contenders < 2 {
            Verdict::Contended { remaining }
        } else {
            Verdict::Split {
                contenders,
                remaining,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FIVE: Quorum = match Quorum::masking(5, 0) {
        Some(quorum) => quorum,
        None => unreachable!(),
    };

    fn held(tag: u64, millis: u64) -> Vote {
        Vote::Refused(Holder {
            tag,
            remaining: Some(Duration::from_millis(millis)),
            key: None,
        })
    }

    fn verdict(votes: &[Vote]) -> Option<Verdict> {
        let mut round = Round::new(FIVE);
        for (node, vote) in votes.iter().enumerate() {
            round.record(node, *vote);
        }
        round.verdict()
    }

    fn verdict_of_any(votes: &[Vote], best: usize) -> Option<Verdict> {
        let mut round = Round::new(FIVE);
        for (node, vote) in votes.iter().enumerate() {
            round.record(node, *vote);
        }
        round.verdict_of_any(best)
    }

    #[test]
    fn of_any_keys_one_needs_a_quorum_of_votes() {
        let split = Some(Verdict::Split {
            contenders: 2,
            remaining: Some(Duration::ZERO),
        });
        assert_eq!(verdict_of_any(&[GRANTED; 3], 3), Some(Verdict::Granted));
        assert_eq!(verdict_of_any(&[GRANTED; 3], 1), None, "two may be for it");
        assert_eq!(verdict_of_any(&[GRANTED; 4], 1), split);
        assert_eq!(verdict_of_any(&[GRANTED; 5], 2), split);
        assert_eq!(verdict_of_any(&[GRANTED, GRANTED, DOWN, DOWN], 1), None);
        let down = [GRANTED, GRANTED, DOWN, DOWN, LATE];
        assert_eq!(verdict_of_any(&down, 2), Some(Verdict::NoQuorum));
    }

    #[test]
    fn of_any_keys_the_ones_that_end_first_may_differ_between_nodes() {
        let contended = Some(Verdict::Contended {
            remaining: Some(Duration::from_millis(30)),
        });
        let held = [held(1, 10), held(2, 30), held(3, 20)];
        assert!(matches!(verdict(&held), Some(Verdict::Split { .. })));
        assert_eq!(verdict_of_any(&held, 0), contended);
        let one = [GRANTED, held[0], held[1], held[2]];
        assert!(matches!(
            verdict_of_any(&one, 1),
            Some(Verdict::Split { .. })
        ));
    }

    const GRANTED: Vote = Vote::Granted(None);
    const DOWN: Vote = Vote::Failed { owed: false };
    const LATE: Vote = Vote::Failed { owed: true };

    #[test]
    fn three_of_five_grant() {
        assert_eq!(verdict(&[GRANTED, GRANTED]), None);
        assert_eq!(
            verdict(&[GRANTED, DOWN, GRANTED, LATE, GRANTED]),
            Some(Verdict::Granted)
        );
    }

    #[test]
    fn three_refusals_by_one_holder_are_contended_at_once() {
        assert_eq!(
            verdict(&[held(1, 30), held(1, 10), held(1, 20)]),
            Some(Verdict::Contended {
                remaining: Some(Duration::from_millis(30))
            })
        );
    }

    #[test]
    fn the_remaining_time_is_when_a_quorum_is_free() {
        let verdict = verdict(&[
            held(1, 50),
            held(1, 10),
            held(1, 40),
            held(1, 20),
            held(1, 30),
        ]);
        assert_eq!(
            verdict,
            Some(Verdict::Contended {
                remaining: Some(Duration::from_millis(30))
            })
        );
    }

    #[test]
    fn the_key_in_the_way_is_the_one_that_most_nodes_tell_of() {
        let of_key = |key| {
            Vote::Refused(Holder {
                tag: 1,
                remaining: None,
                key: Some(key),
            })
        };
        let in_the_way = |votes: &[Vote]| {
            let mut round = Round::new(FIVE);
            for (node, vote) in votes.iter().enumerate() {
                round.record(node, *vote);
            }
            round.in_the_way()
        };
        assert_eq!(in_the_way(&[GRANTED, DOWN, held(1, 5)]), None);
        assert_eq!(in_the_way(&[GRANTED, of_key(3)]), Some(3));
        let votes = [of_key(0), of_key(2), held(1, 5), of_key(2), GRANTED];
        assert_eq!(in_the_way(&votes), Some(2));
    }

    #[test]
    fn a_key_without_expiry_never_frees() {
        let forever = Vote::Refused(Holder {
            tag: 1,
            remaining: None,
            key: None,
        });
        assert_eq!(
            verdict(&[forever, forever, forever]),
            Some(Verdict::Contended { remaining: None })
        );
    }

    #[test]
    fn two_two_one_is_a_split() {
        assert_eq!(
            verdict(&[GRANTED, GRANTED, held(7, 9), held(7, 8), held(8, 7)]),
            Some(Verdict::Split {
                contenders: 3,
                remaining: Some(Duration::from_millis(7))
            })
        );
    }

    #[test]
    fn a_holder_with_a_quorum_is_contention_even_if_others_try() {
        assert!(matches!(
            verdict(&[GRANTED, held(2, 1), held(1, 5), held(1, 5), held(1, 5)]),
            Some(Verdict::Contended { .. })
        ));
    }

    #[test]
    fn too_many_failures_are_no_quorum_whatever_the_rest_says() {
        assert_eq!(verdict(&[DOWN, LATE, DOWN]), Some(Verdict::NoQuorum));
        assert_eq!(
            verdict(&[GRANTED, GRANTED, DOWN, DOWN, DOWN]),
            Some(Verdict::NoQuorum)
        );
    }

    #[test]
    fn losing_is_not_reported_before_it_is_known_why() {
        // Two down and one refusal: the lock is out of reach, but two more answers tell contended from no quorum.
        assert_eq!(verdict(&[DOWN, DOWN, held(1, 5)]), None);
        assert_eq!(
            verdict(&[DOWN, DOWN, held(1, 5), DOWN]),
            Some(Verdict::NoQuorum)
        );
    }

    #[test]
    fn a_late_vote_changes_what_is_owed_and_not_the_verdict() {
        let mut round = Round::new(FIVE);
        for node in 0..3 {
            round.record(node, held(1, 5));
        }
        let before = round.verdict();
        round.record(3, GRANTED);
        round.record(4, DOWN);
        assert_eq!(round.verdict(), before);
        assert_eq!(
            (0..5).map(|n| round.owes(n)).collect::<Vec<_>>(),
            [false, false, false, true, false]
        );
    }

    fn any_vote() -> impl Strategy<Value = Vote> {
        prop_oneof![
            3 => Just(GRANTED),
            3 => (0_u64..3, 0_u64..50).prop_map(|(tag, ms)| held(tag, ms)),
            1 => Just(DOWN),
            1 => Just(LATE),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4096, ..ProptestConfig::default() })]

        /// For any quorum, any votes in any order: the verdict comes, never changes between won and lost, is
        /// right about winning, is not later than needed, and every node that may hold our token is owed for.
        #[test]
        fn every_order_of_replies_gives_one_sound_verdict(
            (quorum, votes, order) in (1_usize..8, 0_usize..3)
                .prop_filter_map("masking", |(n, f)| Quorum::masking(n, f))
                .prop_flat_map(|q| (
                    Just(q),
                    prop::collection::vec(any_vote(), q.nodes()),
                    Just((0..q.nodes()).collect::<Vec<_>>()).prop_shuffle(),
                ))
        ) {
            let grants = votes.iter().filter(|v| **v == GRANTED).count();
            let failures = votes.iter().filter(|v| matches!(v, Vote::Failed { .. })).count();
            let mut round = Round::new(quorum);
            let mut seen = 0;
            let mut first: Option<Verdict> = None;
            for node in order {
                prop_assert!(round.owes(node), "a pending node is owed for");
                round.record(node, votes[node]);
                seen += usize::from(votes[node] == GRANTED);
                match (first, round.verdict()) {
                    (None, Some(verdict)) => {
                        prop_assert_eq!(verdict == Verdict::Granted, seen >= quorum.needed());
                        first = Some(verdict);
                    }
                    (None, None) => prop_assert!(seen < quorum.needed(), "a quorum is seen at once"),
                    (Some(before), after) => {
                        let won = before == Verdict::Granted;
                        prop_assert_eq!(won, after == Some(Verdict::Granted), "final");
                    }
                }
            }
            let verdict = first.expect("every full round has a verdict");
            prop_assert_eq!(verdict == Verdict::Granted, grants >= quorum.needed());
            if verdict == Verdict::NoQuorum {
                prop_assert!(failures > quorum.spare());
            }
            for (node, vote) in votes.iter().enumerate() {
                let may_hold = matches!(vote, Vote::Granted(_) | Vote::Failed { owed: true });
                prop_assert_eq!(round.owes(node), may_hold);
            }
        }

        #[test]
        fn a_time_out_always_brings_a_verdict(
            votes in prop::collection::vec(prop::option::of(any_vote()), 5)
        ) {
            let mut round = Round::new(FIVE);
            for (node, vote) in votes.iter().enumerate() {
                if let Some(vote) = vote {
                    round.record(node, *vote);
                }
            }
            round.time_out();
            prop_assert!(round.verdict().is_some());
            for (node, vote) in votes.iter().enumerate() {
                prop_assert!(vote.is_some() || round.owes(node));
            }
        }
    }
}
