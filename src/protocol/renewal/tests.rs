use super::*;
use crate::protocol::on_nodes::{Keys, Landed};

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

/// A lease that these nodes have granted, and the plan of its renewals.
fn granted_on(granted: impl IntoIterator<Item = usize>) -> (OnNodes, Renewal) {
    let terms = terms();
    let mut nodes = OnNodes::new(terms.quorum, Keys::All, terms.validity());
    confirm(&mut nodes, granted, 0);
    (nodes, Renewal::new(terms, at(0)))
}

fn confirm(nodes: &mut OnNodes, confirmed: impl IntoIterator<Item = usize>, millis: u64) {
    let (fence, key) = (None, 0);
    for node in confirmed {
        nodes.land(node, at(millis), Landed::Ours { fence, key });
    }
}

const GRID: Duration = Duration::from_nanos(10_000_000_000 / 64);

#[test]
fn a_ttl_shorter_than_the_drift_gives_no_validity_and_does_not_wrap() {
    let ttl = Duration::from_millis(1);
    assert_eq!(Terms { ttl, ..terms() }.validity(), Duration::ZERO);
}

#[test]
fn it_renews_at_a_third_and_then_waits_for_the_answers() {
    let (mut nodes, mut renewal) = granted_on(0..5);
    assert_eq!(renewal.step(&nodes, at(0)), Step::Wait);
    let due = renewal.due(&nodes);
    assert!(due >= at(3_333) && due <= at(3_334) + GRID, "{due:?}");
    assert_eq!(renewal.step(&nodes, at(3_400)), Step::Renew);
    confirm(&mut nodes, 0..3, 3_400);
    assert_eq!(renewal.deadline(&nodes), at(3_400 + 9_898));
    assert_eq!(renewal.step(&nodes, at(3_800)), Step::Wait);
    let due = renewal.due(&nodes);
    assert!(due > at(6_700) && due < at(6_734) + GRID, "{due:?}");
}

#[test]
fn locks_that_are_due_together_share_a_moment() {
    let due = |sent| {
        let (mut nodes, _) = granted_on([]);
        confirm(&mut nodes, 0..3, sent);
        Renewal::new(terms(), at(sent)).due(&nodes)
    };
    let moments: std::collections::BTreeSet<_> = (0..1_000).map(due).collect();
    assert!(moments.len() <= 8, "{}", moments.len());
}

#[test]
fn a_renewal_without_a_quorum_is_repeated_and_moves_nothing() {
    let (mut nodes, mut renewal) = granted_on(0..5);
    assert_eq!(renewal.step(&nodes, at(3_400)), Step::Renew);
    assert!(renewal.due(&nodes) <= at(3_800) + GRID);
    confirm(&mut nodes, 0..2, 3_400);
    nodes.land(2, at(3_400), Landed::Abandoned);
    assert_eq!(renewal.deadline(&nodes), at(9_898));
    assert!(nodes.is_ours(2), "a failed renewal gives nothing up");
    assert_eq!(renewal.step(&nodes, at(3_500)), Step::Wait);
    assert_eq!(renewal.step(&nodes, at(3_800)), Step::Renew);
}

#[test]
fn the_end_is_announced_early() {
    let (nodes, mut renewal) = granted_on(0..3);
    assert_eq!(renewal.step(&nodes, at(9_800)), Step::Renew);
    assert_eq!(renewal.due(&nodes), at(9_893));
    assert_eq!(renewal.step(&nodes, at(9_893)), Step::Ending);
    // By a fiftieth of a short ttl.
    let ttl = Duration::from_millis(100);
    let capped = Terms {
        max_hold: ttl,
        ttl,
        ..terms()
    };
    let capped = Renewal::new(capped, at(9_700));
    assert!(capped.is_capped(&nodes));
    assert_eq!(capped.due(&nodes), at(9_798));
}

#[test]
fn max_hold_ends_renewal() {
    let (mut nodes, mut renewal) = granted_on(0..5);
    confirm(&mut nodes, 0..5, 55_000);
    assert!(renewal.is_capped(&nodes));
    assert_eq!(renewal.deadline(&nodes), at(60_000));
    assert_eq!(renewal.step(&nodes, at(59_000)), Step::Wait);
    assert_eq!(renewal.due(&nodes), at(59_995));
    assert_eq!(renewal.step(&nodes, at(59_996)), Step::Ending);
}

#[test]
fn a_missing_node_is_topped_up_once() {
    let (mut nodes, mut renewal) = granted_on(0..4);
    renewal.plan_top_up(at(100));
    assert_eq!(renewal.step(&nodes, at(0)), Step::Wait);
    assert_eq!(renewal.due(&nodes), at(100));
    assert_eq!(renewal.step(&nodes, at(100)), Step::TopUp);
    confirm(&mut nodes, [4], 100);
    assert_eq!(renewal.step(&nodes, at(200)), Step::Wait);
}
