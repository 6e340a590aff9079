//! What the suites with servers take a machine for that stands still: `tests/support/stalls.rs`.

use std::cell::Cell;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;

use super::support::stalls::{Watch, undisturbed_by};

const MS: Duration = Duration::from_millis(1);

#[test]
fn a_watch_that_is_late_has_seen_a_pause() {
    let begin = Instant::now();
    let watch = Watch::new(begin);
    for looks in 1..=100 {
        watch.beat(begin + looks * 6 * MS);
    }
    let now = begin + 600 * MS;
    assert_eq!(watch.stalled(now + 10 * MS), Duration::ZERO, "as always");
    // It goes on; it has been seen; and another one.
    assert_eq!(watch.stalled(now + 305 * MS), 300 * MS);
    watch.beat(now + 405 * MS);
    assert_eq!(watch.stalled(now + 406 * MS), 400 * MS);
    watch.beat(now + 505 * MS);
    assert_eq!(watch.stalled(now + 506 * MS), 495 * MS);
}

/// How often a scene is begun that fails so many times while the machine stands still for so long, and whether it
/// passes in the end.
async fn begun(failures: u32, stalled: Duration) -> (u32, bool) {
    let times = Cell::new(0);
    let scene = async || {
        times.set(times.get() + 1);
        assert!(times.get() > failures, "it fails");
    };
    let run = undisturbed_by(|| stalled, scene);
    let passes = AssertUnwindSafe(run).catch_unwind().await.is_ok();
    (times.get(), passes)
}

#[tokio::test]
async fn a_scene_is_run_again_only_if_the_machine_stood_still_and_not_for_ever() {
    assert_eq!(begun(0, 500 * MS).await, (1, true));
    assert_eq!(begun(2, 500 * MS).await, (3, true));
    assert_eq!(begun(2, Duration::ZERO).await, (1, false));
    assert_eq!(begun(2, 20 * MS).await, (1, false));
    assert_eq!(begun(9, 500 * MS).await, (5, false));
}
