//! Looks again and again at who holds what, and at which servers vote again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::faults::{take_turns, votes_again};
use super::history::{Sample, What};
use super::process::CONNECT_TIMEOUT;
use super::scene::{Lost, Scene, State};
use super::servers::{Stored, backing, is_lock, locks, stored, untagged};
use crate::checkers::Terms;
use crate::plan::Action;
use tower_redlock_simulated::world::{Fault, HostId};

/// How often.
const PAUSE: Duration = Duration::from_millis(25);
/// How many round trips it takes to make a connection.
const CONNECTING: u64 = 3;

pub(super) async fn watch(scene: Arc<Scene>) {
    let terms = Terms::of(&scene.plan);
    let is_tidy = terms.tidy && terms.prompt;
    let mut orphans = BTreeMap::new();
    while !scene.is_over() {
        take_turns(&scene);
        look_at_holders(&scene);
        look_at_markers(&scene);
        if terms.calm {
            look_at_locks(&scene);
        }
        if is_tidy {
            look_for_orphans(&scene, &mut orphans);
        }
        sleep(PAUSE).await;
    }
}

fn look_at_holders(scene: &Scene) {
    let at = scene.world.millis();
    let mut state = scene.state();
    state.forget_lost(at);
    let State { history, live, .. } = &mut *state;
    let mut seen: BTreeMap<HostId, Vec<Stored>> = BTreeMap::new();
    for live in live {
        let holder = &history.holders[live.holder];
        let settings = scene.settings(holder.process);
        let nodes = backing(scene, holder, &mut seen);
        let sample = Sample {
            holder: live.holder,
            left: live.handle.remaining().as_micros() as u64,
            // Those that are down count as if they had it.
            quorum: (settings.quorum() + nodes.len()).saturating_sub(settings.nodes.len()),
            nodes,
        };
        history.push(at, What::Sample(sample));
    }
}

/// Notes which locks servers have.
fn look_at_locks(scene: &Scene) {
    let at = scene.world.millis();
    for (host, ..) in scene.world.topology().hosts() {
        let keys = stored(scene, host).into_iter().map(|stored| stored.key);
        let seen = keys.filter(|key| is_lock(key) || key.contains("!writer:"));
        let seen = seen.map(|key| (key, at));
        scene.state().seen.extend(seen);
    }
}

/// Locks that nobody holds, each with its owner, and since when.
type Orphans = BTreeMap<(HostId, String, String), u64>;

/// Looks for locks on servers that no holder has, except those that were lost while an inner one is held, and those of a
/// shutdown that could not wait for them.
fn look_for_orphans(scene: &Scene, orphans: &mut Orphans) {
    let now = scene.world.millis();
    if now < scene.state().left_until {
        orphans.clear();
        return;
    }
    let held: BTreeSet<String> = {
        let state = scene.state();
        let holders = &state.history.holders;
        let live = state.live.iter().filter(|live| !live.handle.is_lost());
        let live = live.map(|live| holders[live.holder].owner.clone());
        let is_open = |call: usize| state.open.get(&call).is_some_and(|count| *count > 0);
        let is_left = |holder: usize, call: usize| match scene.plan.calls[call].action {
            // Who has lost the outer lock and not the inner one goes on.
            Action::Nested { .. } => is_open(call) && !state.let_go.contains(&holder),
            _ => false,
        };
        let left = holders.iter().enumerate();
        let left = left.filter(|(index, holder)| is_left(*index, holder.call));
        let left = left.map(|(_, holder)| holder.owner.clone());
        live.chain(left).collect()
    };
    let mut seen = Orphans::new();
    for (host, ..) in scene.world.topology().hosts() {
        for lock in locks(scene, host) {
            let owner = lock.owner();
            if !held.contains(&owner) {
                let lock = (host, lock.key, owner);
                let since = orphans.get(&lock).copied().unwrap_or(now);
                seen.insert(lock, since);
            }
        }
    }
    for ((host, key, _), since) in &seen {
        let Some(bound) = release_bound(scene, *host) else {
            continue;
        };
        let age = now - since;
        if age > bound && age <= bound + PAUSE.as_millis() as u64 {
            let text = format_args!("nobody holds {key} on {host}");
            scene.world.record(None, text);
            scene.note(What::Orphan {
                host: host.0,
                key: key.clone(),
                age,
                bound,
            });
        }
    }
    *orphans = seen;
}

/// How long it may take until a lock that nobody holds is released: the attempt that it is of has to end, its replies
/// to arrive, and the release to arrive after them. Where the replies of a host are so late that no new connection to
/// it is made in time, there is no telling for that host and the others of its group.
fn release_bound(scene: &Scene, of: HostId) -> Option<u64> {
    let hosts = scene.world.topology().hosts();
    let group = |host: HostId| hosts[host.0 as usize].1;
    let delays = scene.plan.faults().filter_map(|fault| match fault {
        Fault::Delay { host, max_ms, .. } => Some((*host, *max_ms)),
        _ => None,
    });
    let is_too_late = |delay: u64| 2 * CONNECTING * delay > CONNECT_TIMEOUT;
    let mut longest = 0;
    for (host, delay) in delays {
        if group(host) == group(of) && is_too_late(delay) {
            return None;
        }
        longest = longest.max(delay);
    }
    let timeouts = scene.plan.all_settings().map(|all| all.node_timeout);
    Some(3 * longest + 6 * timeouts.max().unwrap_or(0) + 300)
}

/// What the marker of a group's master says of its identity.
pub(super) fn marker(scene: &Scene, host: HostId) -> Option<String> {
    let namespace = &scene.plan.processes[0].lives[0].namespace;
    let marker = format!("{namespace}!node");
    let mut keys = scene.world.keys(host).into_iter().map(|stored| stored.key);
    let key = keys.find_map(|key| {
        let key = String::from_utf8(key).ok()?;
        (untagged(&key) == marker).then_some(key)
    })?;
    scene.world.field(host, &key, "identity")
}

fn look_at_markers(scene: &Arc<Scene>) {
    let lost: Vec<(u32, HostId, Lost)> = {
        let state = scene.state();
        let lost = state.lost.iter().filter(|(_, lost)| lost.is_lost);
        lost.map(|(group, lost)| (*group, state.mains[group], lost.clone()))
            .collect()
    };
    for (group, host, mut lost) in lost {
        if !scene.world.is_up(host) {
            continue;
        }
        let now = marker(scene, host);
        let before = lost.marker.get_or_insert_with(|| now.clone()).clone();
        lost.was_bare |= now.is_none();
        let is_new = now.is_some() && (now != before || lost.was_bare);
        let is_known = match (&now, lost.evicts) {
            // Nobody looks at how much was evicted but its processes.
            (_, true) => lost.evicted == 0,
            (Some(now), false) => scene.world.is_called(host, now),
            (None, false) => false,
        };
        if is_new || is_known {
            votes_again(scene, group);
        } else if let Some(known) = scene.state().lost.get_mut(&group) {
            known.was_bare = lost.was_bare;
            known.marker = lost.marker;
        }
    }
}
