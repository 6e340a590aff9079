use super::on_nodes::{OnNodes, Verdict};
use super::quorum::Quorum;
use crate::token::FencingToken;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recalled {
    /// The verdict on the lock, because no record decides the round.
    Lock(Verdict),
    /// A quorum has the record of this ballot, so it never changes.
    Replay(FencingToken),
    /// Some nodes have a record that a quorum may have had, so a record must be brought to a quorum.
    Adopt,
}

/// The result of a round, as soon as it is certain. `ballots` are the ballots of the nodes that withheld the lock
/// because they have a record.
pub(crate) fn recalled(
    nodes: &OnNodes,
    quorum: Quorum,
    ballots: &(impl Iterator<Item = FencingToken> + Clone),
) -> Option<Recalled> {
    let same = |ballot| ballots.clone().filter(|other| *other == ballot).count();
    let counted = ballots.clone().map(|ballot| (ballot, same(ballot)));
    if let Some((ballot, same)) = counted.max_by_key(|(_, count)| *count) {
        let recorded = ballots.clone().count();
        let silent = nodes.count_in_flight();
        if same >= quorum.needed() {
            return Some(Recalled::Replay(ballot));
        } else if same + silent >= quorum.needed() {
            // A quorum may still turn out to have the record, and then nothing needs to be written.
            return None;
        } else if nodes.count_ours() + recorded >= quorum.needed() {
            return Some(Recalled::Adopt);
        }
    }
    nodes.verdict().map(Recalled::Lock)
}

/// The state of a record that some nodes have. A node treats the record as absent once its own clock reaches the end.
/// It returns its time with every grant, so a caller knows on which nodes the record has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// A quorum can still have it.
    Kept,
    Over,
    /// More replies are needed.
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

/// The median of several clocks, or the later of the two in the middle.
pub(crate) fn time_by(mut clocks: Vec<u64>) -> u64 {
    clocks.sort_unstable();
    clocks.get(clocks.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::moment::Moment;
    use crate::protocol::on_nodes::{Keys, Landed};
    use crate::token::Holder;

    const FIVE: Quorum = match Quorum::masking(5, 0) {
        Some(quorum) => quorum,
        None => unreachable!(),
    };

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Answer {
        Lock(Landed),
        Record(FencingToken),
    }

    fn held(tag: u64, millis: u64) -> Answer {
        let holder = Holder {
            tag,
            remaining: Some(Duration::from_millis(millis)),
            key: None,
        };
        Answer::Lock(Landed::Anothers(holder))
    }

    fn record(number: u64) -> Answer {
        Answer::Record(FencingToken::new(number).unwrap())
    }

    const GRANTED: Answer = Answer::Lock(Landed::Ours {
        fence: None,
        key: 0,
    });
    const DOWN: Answer = Answer::Lock(Landed::NoEffect);
    const LATE: Answer = Answer::Lock(Landed::Abandoned);

    struct Recall(OnNodes, Vec<FencingToken>);

    impl Recall {
        fn new() -> Self {
            let mut nodes = OnNodes::new(FIVE, Keys::All, Duration::ZERO);
            (0..FIVE.nodes()).for_each(|node| nodes.send(node));
            Self(nodes, Vec::new())
        }

        fn hear(&mut self, node: usize, answer: Answer) {
            match answer {
                Answer::Lock(landed) => self.0.land(node, Moment::ORIGIN, landed),
                Answer::Record(ballot) => {
                    self.0.land(node, Moment::ORIGIN, Landed::Withheld);
                    self.1.push(ballot);
                }
            }
        }

        fn verdict(&self) -> Option<Recalled> {
            recalled(&self.0, FIVE, &self.1.iter().copied())
        }
    }

    fn verdict(answers: &[Answer]) -> Option<Recalled> {
        let mut recall = Recall::new();
        for (node, answer) in answers.iter().enumerate() {
            recall.hear(node, *answer);
        }
        recall.verdict()
    }

    #[test]
    fn one_record_on_a_quorum_is_replayed_and_what_is_open_is_adopted() {
        let ballot = FencingToken::new(7).unwrap();
        let replay = Some(Recalled::Replay(ballot));
        assert_eq!(verdict(&[record(7), record(7), record(7)]), replay);
        assert_eq!(
            verdict(&[GRANTED, record(7), record(5), record(7), record(7)]),
            replay
        );
        // The two missing nodes may have the record.
        assert_eq!(verdict(&[GRANTED, GRANTED, record(7)]), None);
        assert_eq!(
            verdict(&[GRANTED, GRANTED, record(7), GRANTED]),
            Some(Recalled::Adopt)
        );
        assert_eq!(
            verdict(&[record(7), record(5), record(7), DOWN, record(5)]),
            Some(Recalled::Adopt),
            "who is down may have the third"
        );
        assert_eq!(
            verdict(&[record(7), DOWN, LATE, DOWN]),
            Some(Recalled::Lock(Verdict::NoQuorum))
        );
        assert!(matches!(
            verdict(&[record(7), held(1, 5), held(1, 5), held(1, 5)]),
            Some(Recalled::Lock(Verdict::Contended { .. }))
        ));
    }

    fn any_answer() -> impl Strategy<Value = Answer> {
        prop_oneof![
            6 => (1_u64..3).prop_map(record),
            3 => Just(GRANTED),
            3 => (0_u64..3, 0_u64..50).prop_map(|(tag, ms)| held(tag, ms)),
            1 => Just(DOWN),
            1 => Just(LATE),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4096, ..ProptestConfig::default() })]

        #[test]
        fn records_are_never_passed_over(
            answers in prop::collection::vec(any_answer(), 5),
            order in Just((0..5).collect::<Vec<usize>>()).prop_shuffle(),
        ) {
            let mut recall = Recall::new();
            let mut first = None;
            let mut seen = false;
            for node in order {
                if first.is_none() {
                    seen |= matches!(answers[node], Answer::Record(_));
                    recall.hear(node, answers[node]);
                    first = recall.verdict();
                }
            }
            let verdict = first.expect("every full round has a verdict");
            let granted = Recalled::Lock(Verdict::Granted);
            prop_assert!(!(seen && verdict == granted), "{answers:?}");
            for ballot in 1..3 {
                let chosen = answers.iter().filter(|it| **it == record(ballot)).count() >= 3;
                prop_assert!(!chosen || ![granted, Recalled::Adopt].contains(&verdict), "{answers:?}");
            }
        }

        #[test]
        fn a_time_out_always_brings_a_verdict(
            answers in prop::collection::vec(prop::option::of(any_answer()), 5)
        ) {
            let mut recall = Recall::new();
            for (node, answer) in answers.iter().enumerate() {
                if let Some(answer) = answer {
                    recall.hear(node, *answer);
                }
            }
            recall.0.abandon_all();
            prop_assert!(recall.verdict().is_some());
        }
    }

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
                // A record that was found over stays over when it ends on more nodes.
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
