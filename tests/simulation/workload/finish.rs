//! The end of a world: all is healed, every process makes progress, comes to rest, and is shut down; then nothing is
//! left.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::calls::names;
use super::history::{Stage, What};
use super::scene::{Scene, Shop};
use super::servers::{Stored, is_lock, locks, stored};
use super::{faults, ms};
use crate::plan::{Action, Call, PERMITS, Settings, USUAL_KEEP};
use tower_redlock_simulated::world::{Fault, HostId, ProcessId};

pub(super) async fn finish(scene: &Arc<Scene>) {
    faults::heal(scene);
    let places = 0..scene.plan.processes.len() as u32;
    for process in places.clone() {
        scene.world.apply(&Fault::Start { process });
    }
    progress(scene).await;
    for call in hanging(scene).await {
        scene.note(What::Hangs { call });
    }
    // Cooldowns, late replies and releases that are tried again.
    let longest = most(scene, |all| all.max_ttl);
    sleep(ms(longest + 500)).await;
    look_at_rest(scene);
    scene.end();
    shut_all(scene).await;
    for place in places {
        faults::kill(scene, place);
    }
    // What arrives late arrives by then, and clocks that were set back have caught up.
    sleep(ms(longest + 15_000)).await;
    inspect(scene);
}

/// The longest of a time of all processes.
fn most(scene: &Scene, time: impl Fn(&Settings) -> u64) -> u64 {
    scene.plan.all_settings().map(time).max().unwrap_or(0)
}

/// How long it may take until a process acquires a lock when everything works again: connections that failed are tried
/// again after 2 s at most, and may time out once more; nodes are asked every second; then the longest quarantine, the
/// rest of a lock that somebody left, and the time until clocks that were set back have caught up.
fn bound(scene: &Scene) -> u64 {
    let longest = most(scene, |all| all.max_ttl);
    let skew = most(scene, |all| all.skew.unwrap_or(0));
    let confirm = most(scene, |all| all.confirm);
    let back = scene.plan.faults().map(|fault| match fault {
        Fault::HostStep { ms: step, .. } if *step < 0 => step.unsigned_abs(),
        _ => 0,
    });
    // A cluster may have to vote twice before that.
    let elect = scene.plan.topology.cluster;
    let elect = elect.map_or(0, |timeout| 10_000 + 10 * timeout);
    let quarantine = longest + 2 * skew + confirm + elect;
    quarantine + quarantine / 50 + longest + back.sum::<u64>() + 12_000
}

/// Every process acquires every key.
async fn progress(scene: &Arc<Scene>) {
    let (start, bound) = (Instant::now(), bound(scene));
    let mut tasks = JoinSet::new();
    for place in 0..scene.plan.processes.len() as u32 {
        let scene = Arc::clone(scene);
        tasks.spawn(async move {
            for key in 0..scene.plan.keys {
                acquires(&scene, place, key, start, bound).await;
            }
        });
    }
    while tasks.join_next().await.is_some() {}
}

async fn acquires(scene: &Arc<Scene>, place: u32, key: u32, start: Instant, bound: u64) {
    let mut took = None;
    let (agrees, overlaps) = (scene.plan.agrees(), scene.plan.overlaps_once());
    // Processes that are at odds never will; of two lists that overlap, one does.
    let is_awaited = |waited: u64| {
        let is_first = overlaps && !scene.state().progressed.contains(&key);
        waited < 3_000 || waited < bound + 2_000 && (agrees || is_first)
    };
    while took.is_none() && is_awaited(millis_since(start)) {
        let living = scene.world.living(place);
        if living.is_none() {
            scene.world.apply(&Fault::Start { process: place });
        }
        let got = match living.and_then(|process| Some((process, scene.shop(process)?))) {
            Some((process, shop)) => acquires_once(scene, process, shop, key).await,
            None => false,
        };
        match got {
            true => {
                took = Some(millis_since(start));
                scene.state().progressed.insert(key);
            }
            false => sleep(ms(50)).await,
        }
    }
    let process = scene.world.living(place);
    scene.note(What::Progress {
        process: process.unwrap_or(ProcessId { place, life: 0 }),
        key: format!("order:{key}"),
        took,
        bound,
    });
}

/// Whether a process acquires a key within a second.
async fn acquires_once(scene: &Arc<Scene>, process: ProcessId, shop: Shop, key: u32) -> bool {
    let own = Arc::clone(scene);
    let attempt = scene.world.spawn_in(process, async move {
        let locks = shop.locks.with_max_wait(ms(1_000));
        let Ok(guard) = locks.acquire(names(&[key])).await else {
            return false;
        };
        let text = format!("acquires {key} in the end");
        own.world.record(Some(process), text);
        let _ = guard.release().await;
        true
    });
    matches!(attempt.await, Ok(Some(true)))
}

/// The calls that do not end.
async fn hanging(scene: &Scene) -> Vec<usize> {
    let start = Instant::now();
    loop {
        let open: Vec<usize> = {
            let state = scene.state();
            let open = state.open.iter().filter(|(_, count)| **count > 0);
            open.map(|(call, _)| *call).collect()
        };
        if open.is_empty() || millis_since(start) > 30_000 {
            return open;
        }
        sleep(ms(50)).await;
    }
}

/// Looks at what processes have that have nothing to do.
fn look_at_rest(scene: &Scene) {
    let shops = scene.state().shops.clone();
    for (process, shop) in shops {
        if scene.world.is_alive(process) {
            let snapshot = shop.locks.snapshot();
            scene.note(What::Rest {
                process,
                held: snapshot.held,
                keys: snapshot.keys,
                waiting: snapshot.waiting,
            });
        }
        scene.world.inside(process, || drop(shop));
    }
}

async fn shut_all(scene: &Arc<Scene>) {
    let shops = scene.state().shops.clone();
    let mut tasks = JoinSet::new();
    for (process, shop) in shops {
        let scene = Arc::clone(scene);
        tasks.spawn(async move { shut(&scene, process, shop, ms(1_000)).await });
    }
    while tasks.join_next().await.is_some() {}
}

/// How long something took.
fn millis_since(start: Instant) -> u64 {
    start.elapsed().as_millis() as u64
}

/// Shuts a process down in an orderly way, and looks at what it left.
pub(super) async fn shut(scene: &Arc<Scene>, process: ProcessId, shop: Shop, grace: Duration) {
    let start = Instant::now();
    let text = format!("is to shut down within {grace:?}");
    scene.world.record(Some(process), text);
    let shutdown = async move { shop.locks.shutdown(grace).await };
    let Ok(Some(report)) = scene.world.spawn_in(process, shutdown).await else {
        return;
    };
    let last = (2 * scene.settings(process).node_timeout).max(250);
    let grace = grace.as_millis() as u64;
    let shut = What::Took {
        process,
        text: "is shut down".to_owned(),
        took: millis_since(start),
        bound: grace + grace / 50 + last + 500 + 50,
    };
    scene.tell(process, format_args!("is shut down: {report:?}"), shut);
    if report.is_all_released() {
        look_for_owned(scene, process);
    } else {
        let longest = most(scene, |all| all.ttl.max(all.max_ttl));
        let until = scene.world.millis() + longest + longest / 50 + 100;
        scene.state().left_until = until;
    }
}

/// Whether servers have locks of a process that says that it has none.
fn look_for_owned(scene: &Scene, process: ProcessId) {
    let owners: BTreeSet<String> = {
        let state = scene.state();
        let holders = state.history.holders.iter();
        let own = holders.filter(|holder| holder.process == process);
        own.map(|holder| holder.owner.clone()).collect()
    };
    // Of a process that was alone, every lock is its own.
    let is_last = scene.is_over() && scene.state().shops.len() == 1;
    // A replica learns of a release a moment after its master.
    let mains: Vec<HostId> = scene.state().mains.values().copied().collect();
    // What was under way for longer than a lock lives is not waited for.
    let ttl = scene.settings(process).ttl;
    for host in mains {
        if !scene.world.is_up(host) || scene.world.was_late(process, host, ttl) {
            continue;
        }
        for lock in locks(scene, host) {
            if is_last || owners.contains(&lock.owner()) {
                left(scene, host, lock.key, Stage::Shutdown);
            }
        }
    }
}

fn left(scene: &Scene, host: HostId, key: String, when: Stage) {
    let text = format_args!("{host} has {key}: {when:?}");
    scene.world.record(None, text);
    let host = host.0;
    scene.note(What::Left { host, key, when });
}

/// Whether it is what another client wrote over a counter.
fn is_nonsense(stored: &Stored) -> bool {
    stored.key.contains("!fence:") && stored.text.is_none()
}

/// By how much the masters of a group may have been ahead of their replicas, which keep what they were told to until
/// the same date by their own clocks.
fn ahead(scene: &Scene, group: usize) -> i64 {
    let topology = scene.world.topology();
    let hosts = topology.hosts();
    let steps = scene.plan.faults().map(|fault| match fault {
        Fault::HostStep { host, ms } if hosts[host.0 as usize].1 == group => (*ms).max(0),
        _ => 0,
    });
    match topology.groups[group].replicas {
        0 => 0,
        _ => steps.sum(),
    }
}

/// Looks at what servers have when all locks have ended.
fn inspect(scene: &Scene) {
    // Each call may have one of its own; a key is on the nodes even if it never came to a run.
    let is_work = |call: &&Call| matches!(call.action, Action::Once(_) | Action::Request(_));
    let works = scene.plan.calls.iter().filter(is_work).count();
    let spaces = scene.plan.all_settings().map(|all| &all.namespace);
    let spaces = spaces.collect::<BTreeSet<_>>().len();
    // Of each key its counter and its record, of each namespace its marker.
    let keys = scene.plan.keys as usize + 1;
    // And a counter of each permit.
    let permits = keys * PERMITS as usize;
    let allowed = spaces * (keys + permits + 1) + 4 * works + 4;
    // Idempotency keys have counters even where locks have no fencing tokens.
    let longest = most(scene, |all| all.keep.unwrap_or(USUAL_KEEP.max(all.ttl))) as i64;
    // Those of a run live as long as it may last.
    let run = most(scene, |all| all.max_hold + all.max_ttl) as i64 + 1;
    for (host, group, _) in scene.world.topology().hosts() {
        let all = stored(scene, host);
        // Tombstones go by themselves, a minute after a connection was given up.
        let keys = all.iter().filter(|stored| !stored.key.contains("!dead:"));
        scene.note(What::Size {
            host: host.0,
            keys: keys.count(),
            most: allowed,
        });
        for stored in all {
            let lives = match stored.key.contains("!idem!") {
                true => longest.max(run),
                false => longest,
            };
            let latest = lives + ahead(scene, group);
            let is_counter = stored.key.contains("!fence:");
            let when = match stored.ends {
                _ if is_lock(&stored.key) => Stage::Ttl,
                Some(ends) if is_counter && ends > latest => Stage::TooLong,
                None if !stored.key.ends_with("!node") && !is_nonsense(&stored) => Stage::Forever,
                _ => continue,
            };
            left(scene, host, stored.key, when);
        }
    }
}
