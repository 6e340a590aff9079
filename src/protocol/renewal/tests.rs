use super::*;
use proptest::prelude::*;

fn terms() -> Terms {
    Terms {
        quorum: Quorum::masking(5, 0).unwrap(),
        ttl: Duration::from_secs(10),
        drift: Drift::default(),
        retry: Duration::from_millis(400),
        max_hold: Duration::from_secs(60),
    }
}

fn at(millis: u64) -> Moment {
    Moment::ORIGIN + Duration::from_millis(1_000_000 + millis)
}

fn granted_on(nodes: impl IntoIterator<Item = usize>) -> LeaseNodes {
    let mut lease = LeaseNodes::new(terms(), at(0));
    for node in nodes {
        lease.confirm(node, at(0));
    }
    lease
}

const GRID: Duration = Duration::from_nanos(10_000_000_000 / 64);

#[test]
fn it_renews_at_a_third_and_then_waits_for_the_answers() {
    let mut lease = granted_on(0..5);
    assert_eq!(lease.step(at(0)), Step::Wait);
    let due = lease.due();
    assert!(due >= at(3_333) && due <= at(3_334) + GRID, "{due:?}");
    assert_eq!(lease.step(at(3_400)), Step::Renew);
    for node in 0..3 {
        lease.confirm(node, at(3_400));
    }
    assert_eq!(lease.deadline(), at(3_400 + 9_898));
    assert_eq!(lease.step(at(3_800)), Step::Wait);
    let due = lease.due();
    assert!(due > at(6_700) && due < at(6_734) + GRID, "{due:?}");
}

#[test]
fn locks_that_are_due_together_share_a_moment() {
    let due = |sent| {
        let mut lease = LeaseNodes::new(terms(), at(sent));
        (0..3).for_each(|node| lease.confirm(node, at(sent)));
        lease.due()
    };
    let moments: std::collections::BTreeSet<_> = (0..1_000).map(due).collect();
    assert!(moments.len() <= 8, "{}", moments.len());
}

#[test]
fn a_node_in_quarantine_counts_while_the_vote_before_does() {
    let valid = 10_000 - 102;
    for (node, now, counts) in [
        (2, 3_500, true),
        (2, valid - 1, true),
        // By then another owner may have been granted the lock by it.
        (2, valid, false),
        // It never granted ours.
        (3, 3_500, false),
    ] {
        let mut lease = granted_on(0..3);
        for other in 0..2 {
            lease.confirm(other, at(3_400));
        }
        lease.keep(node, at(3_400), at(now));
        let sent = if counts { 3_400 } else { 0 };
        assert_eq!(lease.deadline(), at(sent + valid), "{node} {now}");
        // What does not count is to be released all the same.
        assert!(lease.owes(node));
    }
    // Nor does a node whose last word was that it has another's.
    let mut lease = granted_on(0..3);
    lease.foreign(2, at(1_000));
    lease.keep(2, at(3_400), at(3_500));
    assert!(!lease.holds(2));
}

#[test]
fn a_renewal_without_a_quorum_is_repeated_and_moves_nothing() {
    let mut lease = granted_on(0..5);
    assert_eq!(lease.step(at(3_400)), Step::Renew);
    assert!(lease.due() <= at(3_800) + GRID);
    lease.confirm(0, at(3_400));
    lease.confirm(1, at(3_400));
    lease.unknown(2);
    assert_eq!(lease.deadline(), at(9_898));
    assert!(lease.owes(2), "a failed renewal gives nothing up");
    assert_eq!(lease.step(at(3_500)), Step::Wait);
    assert_eq!(lease.step(at(3_800)), Step::Renew);
}

#[test]
fn what_was_not_answered_is_owed_for_until_the_end() {
    // It may run after whatever else the node has answered.
    for answer in [LeaseNodes::foreign, LeaseNodes::absent] {
        let mut lease = granted_on(0..4);
        for node in [3, 4] {
            lease.unknown(node);
            answer(&mut lease, node, at(3_500));
            assert!(lease.owes(node) && !lease.holds(node) && !lease.is_clear(node));
        }
        lease.confirm(4, at(3_600));
        answer(&mut lease, 4, at(3_700));
        assert!(lease.owes(4));
        answer(&mut lease, 2, at(3_700));
        assert!(!lease.owes(2));
    }
}

#[test]
fn the_end_is_announced_early() {
    let mut lease = granted_on(0..3);
    assert_eq!(lease.step(at(9_800)), Step::Renew);
    assert_eq!(lease.due(), at(9_893));
    assert_eq!(lease.step(at(9_893)), Step::Ending);
}

#[test]
fn max_hold_ends_renewal() {
    let mut lease = granted_on(0..5);
    for node in 0..5 {
        lease.confirm(node, at(55_000));
    }
    assert!(lease.capped());
    assert_eq!(lease.deadline(), at(60_000));
    assert_eq!(lease.step(at(59_000)), Step::Wait);
    assert_eq!(lease.due(), at(59_995));
    assert_eq!(lease.step(at(59_996)), Step::Ending);
}

#[test]
fn more_foreign_nodes_than_can_be_spared_are_a_loss() {
    let mut lease = granted_on(0..5);
    lease.foreign(0, at(1));
    lease.foreign(1, at(1));
    assert!(!lease.taken());
    lease.foreign(2, at(1));
    assert!(lease.taken());
    assert_eq!(lease.deadline(), Moment::ORIGIN);
}

#[test]
fn an_answer_that_was_overtaken_changes_nothing() {
    let mut lease = granted_on(0..3);
    lease.confirm(0, at(3_400));
    lease.foreign(0, at(0));
    lease.absent(0, at(0));
    assert!(lease.owes(0) && lease.holds(0));
    lease.foreign(0, at(3_500));
    assert!(!lease.owes(0));
}

#[test]
fn a_missing_node_is_topped_up_once() {
    let mut lease = granted_on(0..4);
    assert_eq!(lease.missing(), 1);
    lease.plan_top_up(at(100));
    assert_eq!(lease.step(at(0)), Step::Wait);
    assert_eq!(lease.due(), at(100));
    assert_eq!(lease.step(at(100)), Step::TopUp);
    lease.confirm(4, at(100));
    assert_eq!(lease.missing(), 0);
    assert_eq!(lease.step(at(200)), Step::Wait);
}

#[test]
fn nodes_with_commands_under_way_are_busy() {
    let mut lease = granted_on(0..3);
    lease.begin(3);
    lease.begin(3);
    lease.end(3);
    assert!(lease.busy(3) && !lease.busy(2));
    lease.end(3);
    lease.end(3);
    assert!(!lease.busy(3));
    assert!(!lease.owes(3));
    lease.unknown(3);
    assert!(lease.owes(3));
}

proptest! {
    /// Whatever the nodes answer and in whatever order: the deadline never exceeds what a quorum confirmed,
    /// nor the cap, and every node that may hold our token is owed a release.
    #[test]
    fn the_deadline_is_always_backed_by_a_quorum(
        events in prop::collection::vec((0_usize..5, 0_u8..5, 0_u64..70_000), 0..60)
    ) {
        let mut lease = granted_on(0..3);
        let mut last = [Some(0), Some(0), Some(0), None, None];
        let mut may_hold = [true, true, true, false, false];
        let mut doubtful = [false; 5];
        for (node, kind, millis) in events {
            match kind {
                0 | 1 => {
                    lease.confirm(node, at(millis));
                    last[node] = Some(last[node].unwrap_or(0).max(millis));
                    may_hold[node] = true;
                }
                2 => {
                    lease.foreign(node, at(millis));
                    if last[node].is_none_or(|sent| sent <= millis) {
                        last[node] = None;
                        may_hold[node] = false;
                    }
                }
                3 => {
                    lease.absent(node, at(millis));
                    if last[node].is_none_or(|sent| sent <= millis) {
                        last[node] = None;
                        may_hold[node] = false;
                    }
                }
                _ => {
                    lease.unknown(node);
                    doubtful[node] = true;
                }
            }
            let end = lease.deadline();
            prop_assert!(end <= at(60_000));
            if end > Moment::ORIGIN {
                let backing = last.iter().flatten()
                    .filter(|&&sent| at(sent) + Duration::from_secs(10) > end)
                    .count();
                prop_assert!(backing >= 3);
            }
            for (n, may_hold) in may_hold.iter().enumerate() {
                prop_assert_eq!(lease.owes(n), *may_hold || doubtful[n]);
            }
        }
    }
}
