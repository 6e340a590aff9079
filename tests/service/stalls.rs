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
    let pauses = |since: u32, now: u32| watch.pauses(begin + since * MS, begin + now * MS);
    // Ten times as late as it should be, again and again, as on a busy machine.
    for looks in 1..=10 {
        watch.beat(begin + looks * 50 * MS);
    }
    assert_eq!(pauses(0, 550), [], "as always");
    // It goes on, of which the beginning was before; it has been seen; and another one.
    assert_eq!(pauses(0, 805), [300 * MS]);
    assert_eq!(pauses(705, 805), [100 * MS]);
    watch.beat(begin + 905 * MS);
    assert_eq!(pauses(0, 906), [400 * MS]);
    watch.beat(begin + 1_005 * MS);
    assert_eq!(pauses(0, 1_006), [400 * MS, 95 * MS]);
    assert_eq!(pauses(900, 1_006), [5 * MS, 95 * MS]);
    assert_eq!(pauses(1_005, 1_006), []);
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
    assert_eq!(begun(2, 99 * MS).await, (1, false));
    assert_eq!(begun(9, 500 * MS).await, (3, false));
}
