//! Beside clients of other libraries, which ask again and again after a delay and are told of nothing.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tower_redlock::LockManager;
use tower_redlock::config::HandOff;

use super::{MS, Nodes, TTL, assert_idle, wait_for};

const PAUSE: Duration = Duration::from_millis(250);
const LENGTH: Duration = Duration::from_secs(20);
/// A gap that is more than bad luck: who asks at random moments has one of 2 s now and then, and of 5 s in a hundred
/// runs.
const STARVED: Duration = Duration::from_secs(10);

/// A manager as one process has it beside pollers.
fn mixed(nodes: &Nodes) -> LockManager {
    manager(nodes, HandOff::default().with_pause_for_pollers(PAUSE))
}

fn manager(nodes: &Nodes, hand_off: HandOff) -> LockManager {
    let builder = nodes.builder().max_wait(6 * TTL).hand_off(hand_off);
    builder.lazy().unwrap()
}

/// What one process did: how many sections, and the longest time without one.
#[derive(Clone, Copy, Debug)]
struct Share {
    sections: u32,
    gap: Duration,
}

/// Sections of 1 ms, one after the other, each entered when `enter` has the lock.
async fn sections<G>(mut enter: impl AsyncFnMut() -> Option<G>, away: Duration) -> Share {
    let (start, mut last) = (Instant::now(), Instant::now());
    let mut share = Share {
        sections: 0,
        gap: Duration::ZERO,
    };
    while start.elapsed() < LENGTH {
        let Some(guard) = enter().await else { continue };
        share.gap = share.gap.max(last.elapsed());
        sleep(MS).await;
        share.sections += 1;
        drop(guard);
        last = Instant::now();
        sleep(away).await;
    }
    share.gap = share.gap.max(last.elapsed());
    share
}

/// A process of ours whose sixteen callers want the lock all the time.
async fn crowd(locks: LockManager) -> Share {
    let mut callers = JoinSet::new();
    for _ in 0..16 {
        let locks = locks.clone();
        let enter = async move || locks.acquire("order:1").await.ok();
        callers.spawn(sections(enter, Duration::ZERO));
    }
    let shares = callers.join_all().await;
    Share {
        sections: shares.iter().map(|share| share.sections).sum(),
        // Each waits for the fifteen others, too, which hardly counts beside a pause.
        gap: shares.iter().map(|share| share.gap).max().unwrap(),
    }
}

/// A process with another library, which takes what it finds free, and is away for a round trip after its release.
async fn poller(nodes: &Nodes, number: u32) -> Share {
    let locks = manager(nodes, HandOff::OFF);
    let mut tries = number;
    let enter = async move || {
        let guard = locks.try_acquire("order:1").await.ok();
        if guard.is_none() {
            // From 0 to 199 ms, each once.
            tries = (tries + 77) % 200;
            sleep(tries * MS).await;
        }
        guard
    };
    // Timers count milliseconds: there is one in which others find the lock free.
    sections(enter, 2 * MS).await
}

/// What a poller has of a lock that another of its kind wants as much.
async fn among_its_like() -> Share {
    let nodes = Nodes::five();
    tokio::join!(poller(&nodes, 1), poller(&nodes, 2)).0
}

#[tokio::test(start_paused = true)]
async fn a_poller_hardly_ever_finds_a_lock_free_that_passes_from_caller_to_caller() {
    let nodes = Nodes::five();
    let usual = among_its_like().await;
    let ours = crowd(manager(&nodes, HandOff::default()));
    let (ours, theirs) = tokio::join!(ours, poller(&nodes, 1));
    assert!(ours.sections > 19_000, "{ours:?}");
    assert!(
        theirs.sections < usual.sections / 20,
        "{theirs:?}, {usual:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn with_a_pause_a_poller_has_a_quarter_of_what_it_has_among_its_like_and_more() {
    let nodes = Nodes::five();
    let usual = among_its_like().await;
    let (ours, theirs) = tokio::join!(crowd(mixed(&nodes)), poller(&nodes, 1));
    assert!(
        theirs.sections >= usual.sections / 4,
        "{theirs:?}, {usual:?}"
    );
    // A pause that it slept through, at most.
    assert!(theirs.gap < 2 * (PAUSE + 250 * MS), "{theirs:?}");
    assert!(ours.sections > 5_000, "{ours:?}");
    assert!(ours.gap < Duration::from_secs(4), "{ours:?}");
}

/// The gap that half of the processes have at most.
fn usual_gap(shares: &[Share]) -> Duration {
    let mut gaps: Vec<_> = shares.iter().map(|share| share.gap).collect();
    gaps.sort();
    gaps[gaps.len() / 2]
}

#[tokio::test(start_paused = true)]
async fn several_processes_with_a_pause_do_not_close_a_circle_around_pollers() {
    let usual = among_its_like().await;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    // Who comes next is a matter of luck, so one run says little of gaps.
    for _ in 0..3 {
        let nodes = Nodes::five();
        let (first, second, third, one, other) = tokio::join!(
            crowd(mixed(&nodes)),
            crowd(mixed(&nodes)),
            crowd(mixed(&nodes)),
            poller(&nodes, 1),
            poller(&nodes, 2)
        );
        ours.extend([first, second, third]);
        theirs.extend([one, other]);
    }
    for share in &theirs {
        // Of five, in place of two.
        assert!(
            share.sections >= usual.sections / 10,
            "{share:?}, {usual:?}"
        );
        assert!(share.gap < STARVED, "{share:?}");
    }
    for share in &ours {
        assert!(share.sections > 1_000, "{share:?}");
        assert!(share.gap < STARVED, "{share:?}");
    }
    for shares in [&ours, &theirs] {
        assert!(
            usual_gap(shares) < Duration::from_secs(4),
            "{ours:?}, {theirs:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_nobody_uses_costs_its_part_of_the_time_and_no_more() {
    let nodes = Nodes::five();
    let ours = crowd(mixed(&nodes)).await;
    // 250 ms of 500, and what the last section runs over.
    assert!((9_500..10_500).contains(&ours.sections), "{ours:?}");
    assert!(ours.gap < PAUSE + 50 * MS, "{ours:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_wanted_now_and_then_is_never_paused_for() {
    let nodes = Nodes::five();
    let locks = mixed(&nodes);
    for _ in 0..50 {
        let before = Instant::now();
        for _ in 0..10 {
            let guard = locks.acquire("order:1").await.unwrap();
            let next = wait_for(&locks, "order:1").await;
            guard.release().await.unwrap();
            drop(next.await.unwrap().unwrap());
        }
        assert_eq!(before.elapsed(), Duration::ZERO);
        // Away for as long as a pause.
        sleep(PAUSE).await;
    }
    assert_idle(&locks).await;
}

#[tokio::test(start_paused = true)]
async fn the_pause_is_for_callers_who_wait() {
    let nodes = Nodes::five();
    let locks = manager(&nodes, HandOff::OFF.with_pause_for_pollers(PAUSE));
    let before = Instant::now();
    drop(locks.acquire("order:1").await.unwrap());
    nodes.settle_free("order:1").await;
    let start = Instant::now();
    locks
        .try_acquire("order:1")
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO, "it does not wait");
    drop(locks.acquire("order:1").await.unwrap());
    assert!(before.elapsed() >= PAUSE);
}

#[tokio::test(start_paused = true)]
async fn who_pauses_for_pollers_waits_as_they_do() {
    let nodes = Nodes::five();
    let (a, b) = (mixed(&nodes), mixed(&nodes));
    let guard = a.try_acquire("order:1").await.unwrap();
    let other = wait_for(&b, "order:1").await;
    sleep(Duration::from_secs(1)).await;
    let before = Instant::now();
    drop(guard);
    drop(other.await.unwrap().unwrap());
    assert!(
        before.elapsed() > Duration::ZERO,
        "it was told of the release"
    );
    assert!(before.elapsed() <= PAUSE, "{:?}", before.elapsed());
}
