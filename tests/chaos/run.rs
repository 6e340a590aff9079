//! One scene from the first grant to the verdict.

use std::env;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use tower_redlock::Settings;

use crate::checker::{Interval, Seen, disorder, overlaps};
use crate::clients::{COUNT, Clients, Work};
use crate::cluster::Cluster;
use crate::scene::Scene;

/// For how long the whole binary torments servers, in seconds.
const SECONDS: &str = "REDLOCK_SOAK_SECONDS";
/// Eight scenes, each with the guard and without, one in which nothing happens, and one with threads that are blocked;
/// and of the five scenes with processes those with the guard, and about one more for those without, which end soon.
const RUNS: u32 = 24;
/// For how long a run goes on for what it has not seen yet.
pub(crate) const BOUND: Duration = Duration::from_secs(40);

/// What a contender is made with.
type Mode = fn(Settings) -> Settings;

/// How long one run takes.
pub(crate) fn time() -> Duration {
    let seconds = env::var(SECONDS).map_or(80, |text| {
        let seconds = text.parse();
        seconds.unwrap_or_else(|_| panic!("{SECONDS} is `{text}`, not a number of seconds"))
    });
    Duration::from_secs(seconds) / RUNS
}

/// Two such runs at once would be in each other's way, and fewer overlaps found.
static ALONE: Mutex<()> = Mutex::const_new(());

/// Runs a scene for that long, and longer until it `is_enough`. Returns what was seen, and that and what was done as a
/// text.
async fn run(
    scene: Scene,
    mode: Mode,
    guarded: bool,
    time: Duration,
    is_enough: impl Fn(&Work) -> bool + Send + 'static,
) -> (Seen, String) {
    let _alone = ALONE.lock().await;
    let mut cluster = Cluster::start(scene, COUNT).await;
    let clients = Clients::start(&cluster, mode).await;
    let work = clients.work();
    let begin = Instant::now();
    let torment = tokio::task::spawn_blocking(move || {
        let faults = cluster.torment(time, guarded, || is_enough(&work));
        (faults, cluster)
    });
    let (faults, _cluster) = torment.await.unwrap();
    let took = begin.elapsed();
    let seen = Seen::of(&clients.stop().await);
    let report = format!("{scene:?}, guarded: {guarded}, {took:.1?}, {faults:?}: {seen}");
    println!("{report}");
    (seen, report)
}

/// How many locks are held in a run at least.
pub(crate) fn least() -> usize {
    4 * usize::try_from(time().as_secs()).unwrap()
}

/// That nobody notices what the nodes forget.
pub(crate) async fn assert_no_overlap(scene: Scene, mode: Mode) {
    // A slow machine takes longer for the same work.
    let is_enough = |work: &Work| work.holds() > least();
    let (seen, report) = run(scene, mode, true, time(), is_enough).await;
    // A harness in which nobody holds anything finds nothing.
    let is_done = seen.holds > least();
    assert!(is_done, "hardly anything was done: {report}");
    seen.assert_excluded(&report);
}

/// That what the nodes forget is noticed: by two holders, or, where old data comes back, by fencing tokens. The run
/// ends as soon as that is seen.
pub(crate) async fn assert_overlaps_are_found(scene: Scene, mode: Mode) {
    let shows = move |intervals: &[Interval]| {
        let falls_back = scene.has_old_data() && !disorder(intervals).is_empty();
        falls_back || !overlaps(intervals).is_empty()
    };
    let is_enough = move |work: &Work| shows(&work.intervals());
    let (seen, report) = run(scene, mode, false, Duration::ZERO, is_enough).await;
    let falls_back = scene.has_old_data() && !seen.disorder.is_empty();
    assert!(
        falls_back || !seen.overlaps.is_empty(),
        "shows nothing without the guard, so it says nothing about the guard: {report}"
    );
}
