use proptest::prelude::*;

use super::*;

const FIVE: Quorum = match Quorum::masking(5, 0) {
    Some(quorum) => quorum,
    None => unreachable!(),
};

const VALIDITY: Duration = Duration::from_millis(9_898);

fn at(millis: u64) -> Moment {
    Moment::ORIGIN + Duration::from_millis(1_000_000 + millis)
}

fn held(tag: u64, millis: u64) -> Landed {
    Landed::Anothers(Holder {
        tag,
        remaining: Some(Duration::from_millis(millis)),
        key: None,
    })
}

const fn slot(key: usize) -> Landed {
    Landed::Ours { fence: None, key }
}

/// A round that has just been sent to all nodes.
fn asked(quorum: Quorum, keys: Keys) -> OnNodes {
    let mut nodes = OnNodes::new(quorum, keys, VALIDITY);
    (0..quorum.nodes()).for_each(|node| nodes.send(node));
    nodes
}

fn answered(keys: Keys, answers: &[Landed]) -> OnNodes {
    let mut nodes = asked(FIVE, keys);
    for (node, answer) in answers.iter().enumerate() {
        nodes.land(node, at(0), *answer);
    }
    nodes
}

fn verdict(answers: &[Landed]) -> Option<Verdict> {
    answered(Keys::All, answers).verdict()
}

fn verdict_of_any(answers: &[Landed]) -> Option<Verdict> {
    answered(Keys::Any, answers).verdict()
}

/// A lease that these nodes have granted.
fn granted_on(granted: impl IntoIterator<Item = usize>) -> OnNodes {
    let mut nodes = OnNodes::new(FIVE, Keys::All, VALIDITY);
    for node in granted {
        nodes.land(node, at(0), GRANTED);
    }
    nodes
}

#[test]
fn of_any_keys_one_needs_a_quorum_of_votes() {
    let split = Some(Verdict::Split {
        contenders: 2,
        remaining: Some(Duration::ZERO),
    });
    let slots = [0, 1, 2, 3, 1].map(slot);
    assert_eq!(verdict_of_any(&[slot(4); 3]), Some(Verdict::Granted));
    assert_eq!(verdict_of_any(&slots[..3]), None, "two may be for it");
    assert_eq!(verdict_of_any(&slots[..4]), split);
    assert_eq!(verdict_of_any(&slots), split);
    assert_eq!(verdict_of_any(&[slot(0), slot(1), DOWN, DOWN]), None);
    let down = [slot(0), slot(0), DOWN, DOWN, LATE];
    assert_eq!(verdict_of_any(&down), Some(Verdict::NoQuorum));
}

#[test]
fn of_any_keys_the_ones_that_end_first_may_differ_between_nodes() {
    let contended = Some(Verdict::Contended {
        remaining: Some(Duration::from_millis(30)),
    });
    let held = [held(1, 10), held(2, 30), held(3, 20)];
    assert!(matches!(verdict(&held), Some(Verdict::Split { .. })));
    assert_eq!(verdict_of_any(&held), contended);
    let one = [GRANTED, held[0], held[1], held[2]];
    assert!(matches!(verdict_of_any(&one), Some(Verdict::Split { .. })));
}

#[test]
fn of_any_keys_the_one_with_a_quorum_stays_and_the_strays_are_named() {
    let answers = [slot(7), slot(2), slot(7), slot(3), slot(7)];
    let mut nodes = answered(Keys::Any, &answers);
    assert_eq!(nodes.best_key(), Some(7));
    assert_eq!(nodes.keep_only(7).as_slice(), [(1, 2), (3, 3)]);
    assert_eq!(nodes.count_ours(), 3);
    assert_eq!(nodes.to_be_released().collect::<Vec<_>>(), [0, 2, 4]);
    assert_eq!(nodes.verdict(), Some(Verdict::Granted));
}

const GRANTED: Landed = slot(0);
const DOWN: Landed = Landed::NoEffect;
const LATE: Landed = Landed::Abandoned;

#[test]
fn three_of_five_grant() {
    assert_eq!(verdict(&[GRANTED, GRANTED]), None);
    assert_eq!(
        verdict(&[GRANTED, DOWN, GRANTED, LATE, GRANTED]),
        Some(Verdict::Granted)
    );
}

#[test]
fn three_refusals_by_one_holder_are_contended() {
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
fn a_split_counts_the_contenders_and_us_if_a_node_is_ours() {
    let contenders = |answers: &[Landed]| match verdict(answers) {
        Some(Verdict::Split { contenders, .. }) => contenders,
        other => panic!("{other:?}"),
    };
    let [one, two, three] = [1, 2, 3].map(|tag| held(tag, 10));
    assert_eq!(contenders(&[one, two, three]), 3);
    assert_eq!(contenders(&[GRANTED, GRANTED, one, one, DOWN]), 2);
    assert_eq!(contenders(&[GRANTED, one, two, two]), 3);
}

#[test]
fn a_verdict_tells_how_long_others_hold_the_lock() {
    let held = [held(1, 30), held(2, 10), held(1, 20)];
    let remaining = |answers: &[Landed]| verdict(answers).unwrap().remaining();
    assert_eq!(remaining(&held), Some(Duration::from_millis(30)));
    assert_eq!(remaining(&[held[0]; 3]), Some(Duration::from_millis(30)));
    assert_eq!(remaining(&[GRANTED; 3]), None);
    assert_eq!(remaining(&[DOWN; 3]), None);
}

#[test]
fn a_vote_is_missed_if_its_node_forgot_after_it_was_sent() {
    let mut nodes = granted_on([0]);
    assert!(!nodes.is_missed(0) && nodes.is_missed(1));
    nodes.doubt(0, at(0), at(0));
    assert!(
        !nodes.is_missed(0),
        "it was sent when the node had forgotten"
    );
    nodes.doubt(0, at(1), at(1));
    assert!(nodes.is_missed(0));
}

#[test]
fn an_owner_refuses_us_if_it_holds_the_blocking_key() {
    let holds = |tag, key| {
        Landed::Anothers(Holder {
            tag,
            remaining: None,
            key: Some(key),
        })
    };
    let nodes = answered(Keys::All, &[holds(7, 1), holds(8, 1), holds(9, 0)]);
    assert!(nodes.is_refused_by(7) && nodes.is_refused_by(8));
    assert!(
        !nodes.is_refused_by(9),
        "it holds a key that fewer nodes tell of"
    );
    assert!(!nodes.is_refused_by(6));
}

#[test]
fn the_key_in_the_way_is_the_one_that_most_nodes_tell_of() {
    let of_key = |key| {
        Landed::Anothers(Holder {
            tag: 1,
            remaining: None,
            key: Some(key),
        })
    };
    let in_the_way = |answers: &[Landed]| answered(Keys::All, answers).blocking_key();
    assert_eq!(in_the_way(&[GRANTED, DOWN, held(1, 5)]), None);
    assert_eq!(in_the_way(&[GRANTED, of_key(3)]), Some(3));
    let votes = [of_key(0), of_key(2), held(1, 5), of_key(2), GRANTED];
    assert_eq!(in_the_way(&votes), Some(2));
}

#[test]
fn a_key_without_expiry_never_frees() {
    let forever = Landed::Anothers(Holder {
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
    // After two failures and one refusal there can be no grant, but the verdict still depends on two more answers.
    assert_eq!(verdict(&[DOWN, DOWN, held(1, 5)]), None);
    assert_eq!(
        verdict(&[DOWN, DOWN, held(1, 5), DOWN]),
        Some(Verdict::NoQuorum)
    );
}

#[test]
fn a_late_answer_changes_what_is_released_and_not_the_verdict() {
    let mut nodes = answered(Keys::All, &[held(1, 5), held(1, 5), held(1, 5)]);
    let before = nodes.verdict();
    nodes.land(3, at(0), GRANTED);
    nodes.land(4, at(0), DOWN);
    assert_eq!(nodes.verdict(), before);
    assert_eq!(nodes.to_be_released().collect::<Vec<_>>(), [3]);
}

#[test]
fn a_node_in_quarantine_counts_while_the_vote_before_does() {
    let valid = 9_898;
    for (node, now, counts) in [
        (2, 3_500, true),
        (2, valid - 1, true),
        // Our vote has ended, so the node may have granted the lock to another owner since.
        (2, valid, false),
        // The node never granted our token.
        (3, 3_500, false),
    ] {
        let mut nodes = granted_on(0..3);
        for other in 0..2 {
            nodes.land(other, at(3_400), GRANTED);
        }
        nodes.land(node, at(3_400), Landed::InQuarantine(at(now)));
        let sent = if counts { 3_400 } else { 0 };
        assert_eq!(nodes.deadline(), at(sent + valid), "{node} {now}");
        // A node is released even if it does not count.
        assert!(nodes.is_to_be_released(node));
    }
    // A node does not count if it last answered that another owner has its vote.
    let mut nodes = granted_on(0..3);
    nodes.land(2, at(1_000), held(1, 1));
    nodes.land(2, at(3_400), Landed::InQuarantine(at(3_500)));
    assert!(!nodes.is_ours(2));
}

#[test]
fn an_abandoned_command_may_run_after_whatever_the_node_has_answered() {
    for answer in [held(1, 1), Landed::Absent] {
        let mut nodes = granted_on(0..4);
        for node in [3, 4] {
            nodes.land(node, at(3_400), LATE);
            nodes.land(node, at(3_500), answer);
            assert!(nodes.is_to_be_released(node) && !nodes.is_ours(node));
        }
        assert_eq!(nodes.count_free(), 0);
        nodes.land(4, at(3_600), GRANTED);
        nodes.land(4, at(3_700), answer);
        assert!(nodes.is_to_be_released(4) && nodes.may_still_run(4));
        nodes.land(2, at(3_700), answer);
        assert!(!nodes.is_to_be_released(2));
    }
}

#[test]
fn more_nodes_with_another_owner_than_can_be_spared_are_a_loss() {
    for anothers in [held(1, 1), Landed::Partly] {
        let mut nodes = granted_on(0..5);
        nodes.land(0, at(1), anothers);
        nodes.land(1, at(1), anothers);
        assert!(!nodes.is_taken());
        nodes.land(2, at(1), anothers);
        assert!(nodes.is_taken());
        assert_eq!(nodes.deadline(), Moment::ORIGIN);
    }
}

#[test]
fn of_several_keys_a_node_may_have_the_others() {
    let mut nodes = granted_on(0..5);
    nodes.land(0, at(1), Landed::Partly);
    nodes.land(1, at(1), held(1, 1));
    assert!(nodes.is_to_be_released(0) && !nodes.is_to_be_released(1));
}

#[test]
fn an_answer_that_was_overtaken_changes_nothing() {
    let mut nodes = granted_on(0..3);
    nodes.land(0, at(3_400), GRANTED);
    nodes.land(0, at(0), held(1, 1));
    nodes.land(0, at(0), Landed::Absent);
    assert!(nodes.is_to_be_released(0) && nodes.is_ours(0));
    nodes.land(0, at(3_500), held(1, 1));
    assert!(!nodes.is_to_be_released(0));
}

#[test]
fn a_command_is_in_flight_from_the_decision_to_send_it() {
    let mut nodes = granted_on(0..3);
    nodes.send(3);
    nodes.send(3);
    nodes.land(3, at(0), DOWN);
    assert!(nodes.is_in_flight(3) && !nodes.is_in_flight(2));
    assert!(nodes.is_to_be_released(3), "it may set the token yet");
    nodes.land(3, at(0), DOWN);
    nodes.land(3, at(0), DOWN);
    assert!(!nodes.is_in_flight(3) && !nodes.is_to_be_released(3));
    nodes.send(3);
    nodes.abandon_all();
    assert!(!nodes.is_in_flight(3) && nodes.may_still_run(3) && !nodes.may_still_run(0));
}

#[test]
fn a_node_that_refuses_the_release_is_not_asked_again_and_not_free() {
    let mut nodes = granted_on(0..2);
    nodes.refuses_release(0);
    nodes.free(1);
    assert_eq!(nodes.to_be_released().count(), 0);
    assert!(!nodes.is_free_everywhere());
    nodes.free(0);
    assert!(nodes.is_free_everywhere());
    assert_eq!(nodes.count_free(), 5);
}

fn any_answer() -> impl Strategy<Value = Landed> {
    prop_oneof![
        3 => Just(GRANTED),
        3 => (0_u64..3, 0_u64..50).prop_map(|(tag, ms)| held(tag, ms)),
        1 => Just(DOWN),
        1 => Just(LATE),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, ..ProptestConfig::default() })]

    /// For any quorum and any answers in any order: the verdict comes, is right about winning, is not later than
    /// needed, and every node that may hold our token is to be released.
    #[test]
    fn every_order_of_replies_gives_one_sound_verdict(
        (quorum, answers, order) in (1_usize..8, 0_usize..3)
            .prop_filter_map("masking", |(n, f)| Quorum::masking(n, f))
            .prop_flat_map(|q| (
                Just(q),
                prop::collection::vec(any_answer(), q.nodes()),
                Just((0..q.nodes()).collect::<Vec<_>>()).prop_shuffle(),
            ))
    ) {
        let grants = answers.iter().filter(|it| **it == GRANTED).count();
        let failures = answers.iter().filter(|it| [DOWN, LATE].contains(it)).count();
        let mut nodes = asked(quorum, Keys::All);
        let mut seen = 0;
        let mut first: Option<Verdict> = None;
        for node in order {
            prop_assert!(nodes.is_to_be_released(node), "its command is in flight");
            nodes.land(node, at(0), answers[node]);
            seen += usize::from(answers[node] == GRANTED);
            match (first, nodes.verdict()) {
                (None, Some(verdict)) => {
                    prop_assert_eq!(verdict == Verdict::Granted, seen >= quorum.needed());
                    first = Some(verdict);
                }
                (None, None) => prop_assert!(seen < quorum.needed(), "a quorum is seen immediately"),
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
        for (node, answer) in answers.iter().enumerate() {
            let may_hold = [GRANTED, LATE].contains(answer);
            prop_assert_eq!(nodes.is_to_be_released(node), may_hold);
        }
    }

    #[test]
    fn a_time_out_always_brings_a_verdict(
        answers in prop::collection::vec(prop::option::of(any_answer()), 5)
    ) {
        let mut nodes = asked(FIVE, Keys::All);
        for (node, answer) in answers.iter().enumerate() {
            nodes.land(node, at(0), answer.unwrap_or(LATE));
        }
        prop_assert!(nodes.verdict().is_some());
        for (node, answer) in answers.iter().enumerate() {
            prop_assert!(answer.is_some() || nodes.is_to_be_released(node));
        }
    }

    /// The deadline never exceeds what a quorum confirmed, and every node that may hold our token is to be released.
    #[test]
    fn the_deadline_is_always_backed_by_a_quorum(
        events in prop::collection::vec((0_usize..5, 0_u8..5, 0_u64..70_000), 0..60)
    ) {
        let mut nodes = granted_on(0..3);
        let mut last = [Some(0), Some(0), Some(0), None, None];
        let mut may_still_run = [false; 5];
        for (node, kind, millis) in events {
            let answer = match kind {
                0 | 1 => GRANTED,
                2 => held(1, 1),
                3 => Landed::Absent,
                _ => LATE,
            };
            nodes.land(node, at(millis), answer);
            match kind {
                0 | 1 => last[node] = Some(last[node].unwrap_or(0).max(millis)),
                2 | 3 => last[node] = last[node].filter(|sent| *sent > millis),
                _ => may_still_run[node] = true,
            }
            let end = nodes.deadline();
            if end > Moment::ORIGIN {
                let backing = last.iter().flatten()
                    .filter(|&&sent| at(sent) + Duration::from_secs(10) > end)
                    .count();
                prop_assert!(backing >= 3);
            }
            for n in 0..5 {
                let may_hold = last[n].is_some() || may_still_run[n];
                prop_assert_eq!(nodes.is_to_be_released(n), may_hold);
            }
        }
    }
}
