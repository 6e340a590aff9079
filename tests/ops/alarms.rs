//! The alarms: which fire for which fault.

use std::collections::BTreeSet;

use serde_json::json;

use super::scrape::{SECONDS, Scrapes};
use super::{alarms, documented, metrics_in, ops, promtool, scenes};

#[test]
fn promtool_takes_the_alarms_and_their_own_tests() {
    promtool::run(&["check", "rules"], &promtool::path("alerts.yml"));
    promtool::run(&["test", "rules"], &promtool::path("alerts_test.yml"));
}

/// Nothing fires before the last scrape, and these do after it, and no others.
#[track_caller]
fn fire(scrapes: &Scrapes, expected: &[&str]) {
    let fired =
        |alarm: &&str| json!({ "labels": format!("{{alertname=\"{alarm}\"}}"), "value": 1 });
    let expected: Vec<_> = expected.iter().map(fired).collect();
    let at = |seconds: usize, samples: &[serde_json::Value]| {
        json!({
            "expr": "max by (alertname) (max_over_time(ALERTS{alertstate=\"firing\"}[30m]))",
            "eval_time": format!("{seconds}s"),
            "exp_samples": samples,
        })
    };
    let claims = [
        at(scrapes.last() - SECONDS, &[]),
        at(scrapes.end(), &expected),
    ];
    promtool::test(&[promtool::path("alerts.yml")], scrapes, &claims);
}

/// A test of what fires, for a scene; and the names of all that some scene makes fire.
macro_rules! fires {
    ($($scene:ident: $($alarm:literal),*;)+) => {
        $(#[tokio::test]
        async fn $scene() {
            fire(&scenes::$scene().await, &[$($alarm),*]);
        })+

        const FIRED: &[&str] = &[$($($alarm),*),+];
    };
}

fires! {
    a_node_is_dead: "RedlockNodeDown";
    a_quorum_is_lost: "RedlockNoQuorum", "RedlockNodeDown", "RedlockQuorumLost";
    a_quorum_that_masks_a_loss_is_lost: "RedlockNoQuorum", "RedlockNodeDown", "RedlockQuorumLost";
    a_lock_is_lost: "RedlockLockLost";
    a_node_is_quarantined: "RedlockNodeNotVoting";
    a_clock_is_set: "RedlockClockSkew";
    a_node_fills_up: "RedlockNodeFillsUp";
    credentials_cannot_be_renewed: "RedlockCredentialsStale";
    a_queue_is_full_and_a_release_is_late: "RedlockQueueFull", "RedlockReleaseUnconfirmed";
}

#[tokio::test]
async fn nothing_fires_while_all_is_well() {
    fire(&scenes::all_is_well().await, &[]);
}

#[test]
fn some_scene_makes_each_alarm_fire() {
    let fired: BTreeSet<_> = FIRED.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(fired, alarms());
}

#[test]
fn the_guide_has_a_row_for_each_alarm() {
    let guide = include_str!("../../src/docs/operating.md").lines();
    let named = guide.filter_map(|line| line.strip_prefix("| `Redlock"));
    let named = named.map(|rest| format!("Redlock{}", rest.split('`').next().unwrap()));
    assert_eq!(named.collect::<BTreeSet<_>>(), alarms());
}

#[test]
fn alarms_name_metrics_that_there_are() {
    let text = ops("alerts.yml");
    let expressions = text
        .lines()
        .filter(|line| line.trim().starts_with("expr: "));
    let named: BTreeSet<_> = expressions.flat_map(metrics_in).collect();
    assert!(named.len() > 4, "{named:?}");
    let unknown: Vec<_> = named.difference(&documented()).cloned().collect();
    assert_eq!(unknown, [""; 0]);
}
