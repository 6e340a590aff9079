//! One scene from the first grant to the verdict.

use std::time::{Duration, Instant};

use super::ALONE;
use super::counters::Count;
use super::scene::Scene;
use super::site::{Faults, Site};
use crate::checker::{Overlap, disorder, overlaps};
use crate::run::{least, lines, time};

/// What was seen.
struct Outcome {
    holds: usize,
    faults: Faults,
    overlaps: Vec<Overlap>,
    /// What is wrong with the fencing tokens.
    disorder: Vec<String>,
    fenced: Count,
    unfenced: Count,
}

/// Runs a scene for that long, and longer until it `is_enough`. Returns what was seen, and the same as a text.
async fn run(
    scene: Scene,
    guarded: bool,
    time: Duration,
    is_enough: impl Fn(&Site) -> bool,
) -> (Outcome, String) {
    let _alone = ALONE.lock().await;
    let mut site = Site::open(scene, guarded).await;
    let begin = Instant::now();
    site.torment(time, is_enough).await;
    let took = begin.elapsed();
    site.close().await;
    let intervals = site.records.all();
    let outcome = Outcome {
        holds: intervals.len(),
        faults: site.faults,
        overlaps: overlaps(&intervals),
        disorder: disorder(&intervals),
        fenced: site.counters.fenced(),
        unfenced: site.counters.unfenced(),
    };
    let mode = if guarded { "guarded" } else { "unguarded" };
    let report = report(&format!("{scene:?}, {mode}, {took:.1?}"), &outcome);
    println!("{report}");
    // Whatever happens to holders: that is what it is for.
    assert_eq!(outcome.fenced.lost, 0, "lost behind the fence: {report}");
    (outcome, report)
}

fn report(what: &str, outcome: &Outcome) -> String {
    let Outcome {
        holds,
        faults:
            Faults {
                stops,
                kills,
                cuts,
                steps,
                restarts,
            },
        overlaps,
        disorder,
        fenced,
        unfenced,
    } = outcome;
    format!(
        "{what}: {holds} holds, {stops} stops, {kills} kills, {cuts} cuts, {steps} steps, {restarts} restarts, {} overlaps, {} fencing tokens out of order; of {} fenced writes {} lost and {} more refused, of {} unfenced {} lost{}{}",
        overlaps.len(),
        disorder.len(),
        fenced.writes,
        fenced.lost,
        fenced.refused,
        unfenced.writes,
        unfenced.lost,
        lines(overlaps),
        lines(disorder),
    )
}

fn assert_excluded(outcome: &Outcome, report: &str) {
    assert!(
        outcome.holds > least() && outcome.fenced.writes > 0,
        "hardly any work was done: {report}"
    );
    assert!(outcome.overlaps.is_empty(), "two holders at once: {report}");
    assert!(outcome.disorder.is_empty(), "out of order: {report}");
}

/// That holders exclude each other, and all of them go on.
pub(crate) async fn assert_no_overlap(scene: Scene) {
    // A slow machine takes longer for the same work.
    let is_enough = |site: &Site| site.records.count() > least();
    let (outcome, report) = run(scene, true, time(), is_enough).await;
    assert_excluded(&outcome, &report);
}

/// The same, and that nevertheless some act late: updates are lost where nothing is fenced.
pub(crate) async fn assert_only_the_fence_stops_the_late(scene: Scene) {
    let is_enough = |site: &Site| {
        let late = site.counters.unfenced().lost > 0 && site.counters.fenced().refused > 0;
        late && site.records.count() > least()
    };
    let (outcome, report) = run(scene, true, time(), is_enough).await;
    assert_excluded(&outcome, &report);
    assert!(outcome.unfenced.lost > 0, "nobody was late: {report}");
    assert!(outcome.fenced.refused > 0, "nobody was refused: {report}");
}

/// That holders overlap without the guard. The run ends as soon as that is seen.
pub(crate) async fn assert_overlaps_are_found(scene: Scene) {
    let is_enough = |site: &Site| !overlaps(&site.records.all()).is_empty();
    let (outcome, report) = run(scene, false, Duration::ZERO, is_enough).await;
    assert!(
        !outcome.overlaps.is_empty(),
        "shows nothing without the guard, so it says nothing about the guard: {report}"
    );
}
