//! The end of a world: all is healed, every process makes progress, comes to rest, and is shut down; then nothing is
//! left.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::calls::{millis_since, names};
use super::faults;
use super::history::{Stage, What};
use super::scene::{Scene, Shop};
use super::servers::{Stored, hash, is_lock, stored};
use crate::plan::{Action, Call, PERMITS, USUAL_KEEP};
use tower_redlock_simulated::world::{Fault, HostId, ProcessId};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(super) async fn finish(scene: &Arc<Scene>) {
    faults::heal(scene);
    let places = 0..scene.plan.processes.len() as u32;
    for place in places.clone() {
        faults::start(scene, place);
    }
    progress(scene).await;
    let hanging = ended(scene).await;
    for call in hanging {
        scene.note(What::Hangs { call });
    }
    rest(scene).await;
    scene.end();
    shut_all(scene).await;
    for place in places {
        faults::kill(scene, place);
    }
    // What arrives late arrives by then, and clocks that were set back have caught up.
    let longest = scene
        .plan
        .all_settings()
        .map(|all| all.max_ttl)
        .max()
        .unwrap_or(0);
    sleep(ms(longest + 15_000)).await;
    inspect(scene);
}

/// How long it may take until a process acquires a lock when everything works again: connections that failed are tried
/// again after 2 s at most, and may time out once more; nodes are asked every second; then the longest quarantine, the
/// rest of a lock that somebody left, and the time until clocks that were set back have caught up.
fn bound(scene: &Scene) -> u64 {
    let all = || scene.plan.all_settings();
    let longest = all().map(|all| all.max_ttl).max().unwrap_or(0);
    let skew = all().filter_map(|all| all.skew).max().unwrap_or(0);
    let confirm = all().map(|all| all.confirm).max().unwrap_or(0);
    let back: u64 = scene.plan.faults().map(faults::set_back).sum();
    // A cluster may have to vote twice before that.
    let elect = scene.plan.topology.cluster;
    let elect = elect.map_or(0, |timeout| 10_000 + 10 * timeout);
    let quarantine = longest + 2 * skew + confirm + elect;
    quarantine + quarantine / 50 + longest + back + 12_000
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
        let Some(process) = scene.world.living(place) else {
            faults::start(scene, place);
            sleep(ms(50)).await;
            continue;
        };
        let Some(shop) = scene.shop(process) else {
            sleep(ms(50)).await;
            continue;
        };
        let own = Arc::clone(scene);
        let attempt = scene.world.spawn_in(process, async move {
            let Ok(guard) = shop
                .locks
                .with_max_wait(ms(1_000))
                .acquire(names(&[key]))
                .await
            else {
                return false;
            };
            own.world
                .record(Some(process), format_args!("acquires {key} in the end"));
            let _ = guard.release().await;
            true
        });
        match attempt.await {
            Ok(Some(true)) => {
                took = Some(millis_since(start));
                scene.state().progressed.insert(key);
            }
            _ => sleep(ms(50)).await,
        }
    }
    let process = scene
        .world
        .living(place)
        .unwrap_or(ProcessId { place, life: 0 });
    let key = format!("order:{key}");
    scene.note(What::Progress {
        process,
        key,
        took,
        bound,
    });
}

/// Waits until all calls have ended. Which have not?
async fn ended(scene: &Scene) -> Vec<usize> {
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
async fn rest(scene: &Scene) {
    // Cooldowns, late replies and releases that are tried again.
    let longest = scene
        .plan
        .all_settings()
        .map(|all| all.max_ttl)
        .max()
        .unwrap_or(0);
    sleep(ms(longest + 500)).await;
    let shops: Vec<(ProcessId, Shop)> = {
        let state = scene.state();
        state
            .shops
            .iter()
            .map(|(id, shop)| (*id, shop.clone()))
            .collect()
    };
    for (process, shop) in shops {
        if scene.world.is_alive(process) {
            let snapshot = shop.locks.snapshot();
            let (held, keys, waiting) = (snapshot.held, snapshot.keys, snapshot.waiting);
            scene.note(What::Rest {
                process,
                held,
                keys,
                waiting,
            });
        }
        scene.world.inside(process, || drop(shop));
    }
}

async fn shut_all(scene: &Arc<Scene>) {
    let shops: Vec<(ProcessId, Shop)> = {
        let state = scene.state();
        state
            .shops
            .iter()
            .map(|(id, shop)| (*id, shop.clone()))
            .collect()
    };
    let mut tasks = JoinSet::new();
    for (process, shop) in shops {
        let scene = Arc::clone(scene);
        tasks.spawn(async move { shut(&scene, process, shop, ms(1_000)).await });
    }
    while tasks.join_next().await.is_some() {}
}

/// Shuts a process down in an orderly way, and looks at what it left.
pub(super) async fn shut(scene: &Arc<Scene>, process: ProcessId, shop: Shop, grace: Duration) {
    let start = Instant::now();
    scene.world.record(
        Some(process),
        format_args!("is to shut down within {grace:?}"),
    );
    let report = scene
        .world
        .spawn_in(process, async move { shop.locks.shutdown(grace).await });
    let Ok(Some(report)) = report.await else {
        return;
    };
    let took = millis_since(start);
    let settings = scene.settings(process);
    let last = (2 * settings.node_timeout).max(250);
    let grace = grace.as_millis() as u64;
    let bound = grace + grace / 50 + last + 500 + 50;
    let clean = report.is_all_released();
    let text = format!("is shut down: {report:?}");
    scene.tell(
        process,
        text,
        What::Shut {
            process,
            took,
            bound,
            clean,
        },
    );
    if clean {
        look_for_owned(scene, process);
    } else {
        let all = scene.plan.all_settings();
        let longest = all.map(|all| all.ttl.max(all.max_ttl)).max().unwrap_or(0);
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
        for key in stored(scene, host)
            .into_iter()
            .filter(|stored| is_lock(&stored.key))
        {
            let owner = key.text.as_deref().map(hash).unwrap_or_default();
            if is_last || owners.contains(&owner) {
                left(scene, host, key.key, Stage::Shutdown);
            }
        }
    }
}

fn left(scene: &Scene, host: HostId, key: String, when: Stage) {
    let text = format_args!("h{} has {key}: {when:?}", host.0);
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
    if topology.groups[group].replicas == 0 {
        return 0;
    }
    let hosts = topology.hosts();
    let is_of = |host: HostId| (hosts.iter()).any(|(id, of, _)| *id == host && *of == group);
    let steps = scene.plan.faults().map(|fault| match fault {
        Fault::HostStep { host, ms } if is_of(*host) => (*ms).max(0),
        _ => 0,
    });
    steps.sum()
}

/// Looks at what servers have when all locks have ended.
fn inspect(scene: &Scene) {
    let calls = &scene.plan.calls;
    // Each may have one of its own; a key is on the nodes even if it never came to a run.
    let is_work =
        |call: &&Call| matches!(call.action, Action::Once { .. } | Action::Request { .. });
    let works = calls.iter().filter(is_work).count();
    let spaces: BTreeSet<&String> = scene
        .plan
        .all_settings()
        .map(|all| &all.namespace)
        .collect();
    // Of each key its counter and its record, of each namespace its marker.
    let keys = scene.plan.keys as usize + 1;
    // And a counter of each permit.
    let permits = keys * PERMITS as usize;
    let most = spaces.len() * (keys + permits + 1) + 4 * works + 4;
    // Idempotency keys have counters even where locks have no fencing tokens.
    let kept = scene
        .plan
        .all_settings()
        .map(|all| all.keep.unwrap_or(USUAL_KEEP.max(all.ttl)));
    let longest = kept.max().unwrap_or(0) as i64;
    // Those of a run live as long as it may last.
    let runs = (scene.plan.all_settings()).map(|all| all.max_hold + all.max_ttl);
    let longest_of_runs = longest.max(runs.max().unwrap_or(0) as i64 + 1);
    for (host, group, _) in scene.world.topology().hosts() {
        let all = stored(scene, host);
        // Tombstones go by themselves, a minute after a connection was given up.
        let keys = all
            .iter()
            .filter(|stored| !stored.key.contains("!dead:"))
            .count();
        scene.note(What::Size {
            host: host.0,
            keys,
            most,
        });
        for stored in all {
            if is_lock(&stored.key) {
                left(scene, host, stored.key, Stage::Ttl);
            } else if stored.key.contains("!fence:")
                && stored.ends.is_some_and(|ends| {
                    let is_of_run = stored.key.contains("!idem!");
                    let longest = if is_of_run { longest_of_runs } else { longest };
                    ends > longest + ahead(scene, group)
                })
            {
                left(scene, host, stored.key, Stage::TooLong);
            } else if stored.ends.is_none()
                && !stored.key.ends_with("!node")
                && !is_nonsense(&stored)
            {
                left(scene, host, stored.key, Stage::Forever);
            }
        }
    }
}
