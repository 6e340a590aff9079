//! One scene from the first grant to the verdict.

use std::time::{Duration, Instant};

use super::ALONE;
use super::counters::Count;
use super::scene::Scene;
use super::site::Site;
use crate::checker::{Seen, overlaps};
use crate::run::{least, time};

/// What was seen, as a text, too.
struct Outcome {
    seen: Seen,
    unfenced: Count,
    fenced: Count,
    report: String,
}

/// Runs a scene for that long, and longer until it `is_enough`.
async fn run(
    scene: Scene,
    guarded: bool,
    time: Duration,
    is_enough: impl Fn(&Site) -> bool,
) -> Outcome {
    let _alone = ALONE.lock().await;
    let mut site = Site::open(scene, guarded).await;
    let begin = Instant::now();
    site.torment(time, is_enough).await;
    let took = begin.elapsed();
    site.close().await;
    let (seen, faults) = (Seen::of(&site.records.all()), site.faults);
    let (fenced, unfenced) = (site.counters.fenced(), site.counters.unfenced());
    let report = format!(
        "{scene:?}, guarded: {guarded}, {took:.1?}, {faults:?}, fenced: {fenced:?}, unfenced: {unfenced:?}: {seen}"
    );
    println!("{report}");
    // Whatever happens to holders: that is what it is for.
    assert_eq!(fenced.lost, 0, "lost behind the fence: {report}");
    Outcome {
        seen,
        unfenced,
        fenced,
        report,
    }
}

fn assert_excluded(outcome: &Outcome) {
    let report = &outcome.report;
    let is_done = outcome.seen.holds > least() && outcome.fenced.writes > 0;
    assert!(is_done, "hardly any work was done: {report}");
    outcome.seen.assert_excluded(report);
}

/// That holders exclude each other, and all of them go on.
pub(crate) async fn assert_no_overlap(scene: Scene) {
    // A slow machine takes longer for the same work.
    let is_enough = |site: &Site| site.records.count() > least();
    assert_excluded(&run(scene, true, time(), is_enough).await);
}

/// The same, and that nevertheless some act late: updates are lost where nothing is fenced.
pub(crate) async fn assert_only_the_fence_stops_the_late(scene: Scene) {
    let is_enough = |site: &Site| {
        let late = site.counters.unfenced().lost > 0 && site.counters.fenced().refused > 0;
        late && site.records.count() > least()
    };
    let outcome = run(scene, true, time(), is_enough).await;
    assert_excluded(&outcome);
    let report = &outcome.report;
    assert!(outcome.unfenced.lost > 0, "nobody was late: {report}");
    assert!(outcome.fenced.refused > 0, "nobody was refused: {report}");
}

/// That holders overlap without the guard. The run ends as soon as that is seen.
pub(crate) async fn assert_overlaps_are_found(scene: Scene) {
    let is_enough = |site: &Site| !overlaps(&site.records.all()).is_empty();
    let outcome = run(scene, false, Duration::ZERO, is_enough).await;
    assert!(
        !outcome.seen.overlaps.is_empty(),
        "shows nothing without the guard, so it says nothing about the guard: {}",
        outcome.report
    );
}
