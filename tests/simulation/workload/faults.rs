//! The faults of a plan.

use std::collections::btree_map::Entry;
use std::sync::Arc;

use tokio::time::sleep;

use super::history::What;
use super::ms;
use super::scene::{Lost, Scene, Shop, Still};
use super::watch::marker;
use crate::plan::{Class, Seen};
use tower_redlock_simulated::world::{Fault, Memory, Turn};

/// A step of an episode, unless that is put off.
pub(super) fn apply(scene: &Arc<Scene>, episode: usize, step: usize) {
    if may_happen(scene, episode) {
        happens(scene, episode, step);
    }
}

fn happens(scene: &Arc<Scene>, episode: usize, step: usize) {
    let about = &scene.plan.episodes[episode];
    let fault = as_late(scene, &about.steps[step].1);
    if let Fault::Failover { group, to, .. } = fault
        && !scene.world.is_up(to)
    {
        // Sentinels choose a server that answers.
        let text = format_args!("nobody fails over to {to}");
        scene.world.record(None, text);
        scene.state().lost.remove(&group);
        return;
    }
    before(scene, &fault);
    let has = |scene: &Scene| match fault {
        Fault::Evict { host, .. } => scene.world.keys(host).len(),
        _ => 0,
    };
    let had = has(scene);
    scene.world.apply(&fault);
    let kept = has(scene);
    if let Some((group, _)) = about.loses
        && loses(&fault)
    {
        let mut more = about.steps[step + 1..].iter();
        let is_last = !more.any(|(_, fault)| loses(fault));
        if let Some(lost) = scene.state().lost.get_mut(&group) {
            lost.evicted += had.saturating_sub(kept);
        }
        forgets(scene, group, &fault, is_last);
    }
}

/// A failover that was put off has the number of its time, and ends with the plan.
fn as_late(scene: &Scene, fault: &Fault) -> Fault {
    let mut fault = *fault;
    if let Fault::Failover {
        epoch,
        learn_ms,
        demote_ms,
        ..
    } = &mut fault
    {
        let now = scene.world.millis();
        let left = scene.plan.length.saturating_sub(now);
        (*epoch, *learn_ms, *demote_ms) = (now, left.min(*learn_ms), left.min(*demote_ms));
    }
    fault
}

/// Whether what an episode loses may be lost now: decided once, at its beginning. If not, it is put off.
fn may_happen(scene: &Scene, episode: usize) -> bool {
    let about = &scene.plan.episodes[episode];
    let Some((group, Seen::Yes)) = about.loses else {
        return true;
    };
    if scene.plan.class == Class::Beyond {
        return true;
    }
    let mut state = scene.state();
    if state.put_off.contains(&episode) {
        return false;
    }
    if !state.begun.insert(episode) {
        return true;
    }
    // Whatever the others have lost, but not what it is about to get back.
    if let Entry::Vacant(none) = state.lost.entry(group) {
        none.insert(Lost::default());
        return true;
    }
    state.put_off.insert(episode);
    state.waiting.push_back(episode);
    drop(state);
    let text = format_args!(
        "`{}` of g{group} is put off: it has lost something and does not vote yet",
        about.name
    );
    scene.world.record(None, text);
    false
}

/// A group votes again: what was put off may happen.
pub(super) fn votes_again(scene: &Arc<Scene>, group: u32) {
    let text = format_args!("g{group} votes again");
    scene.world.record(None, text);
    let mut state = scene.state();
    let at = scene.world.millis();
    let lost = state.lost.remove(&group);
    if lost.is_some_and(|lost| lost.is_replaced) {
        // What the old master was told meanwhile is not there, whether or not it has been demoted by now.
        state.history.push(at, What::Forgot { group });
    }
    let of = |episode: usize| scene.plan.episodes[episode].loses.map(|(group, _)| group);
    let may = |episode: &usize| of(*episode).is_some_and(|of| !state.lost.contains_key(&of));
    let index = state.waiting.iter().position(may);
    let Some(episode) = index.and_then(|index| state.waiting.remove(index)) else {
        return;
    };
    // From now on, so that nothing else is lost before.
    let lost = of(episode).map(|of| (of, Lost::default()));
    state.lost.extend(lost);
    drop(state);
    let own = Arc::clone(scene);
    tokio::spawn(async move {
        let steps = &own.plan.episodes[episode].steps;
        let planned = steps.first().map_or(0, |(at, _)| *at);
        // Soon, but not always at once.
        let begin = at + planned % 400;
        for (step, (at, _)) in steps.iter().enumerate() {
            let due = begin + at - planned;
            sleep(ms(due.saturating_sub(own.world.millis()))).await;
            if own.world.millis() >= own.plan.length || own.state().is_healed {
                return;
            }
            happens(&own, episode, step);
        }
    });
}

/// Whether a server loses something by it.
fn loses(fault: &Fault) -> bool {
    match fault {
        Fault::Crash { memory, .. } => *memory != Memory::All,
        Fault::Flush { .. }
        | Fault::Evict { .. }
        | Fault::Demote { .. }
        | Fault::Promote { .. }
        | Fault::Failover { .. } => true,
        Fault::HostStep { ms, .. } => *ms > 0,
        _ => false,
    }
}

/// A server has lost something.
fn forgets(scene: &Arc<Scene>, group: u32, fault: &Fault, is_last: bool) {
    scene.note(What::Forgot { group });
    if let Fault::Failover { to, demote_ms, .. } = *fault {
        scene.state().mains.insert(group, to);
        // The old master goes on until it is demoted, and loses what it was told meanwhile.
        let until = scene.world.millis() + demote_ms;
        scene.note(What::Replaced { group, until });
        let later = Arc::clone(scene);
        tokio::spawn(async move {
            sleep(ms(demote_ms)).await;
            later.note(What::Forgot { group });
        });
    }
    let main = scene.state().mains[&group];
    let known = scene.world.is_up(main).then(|| marker(scene, main));
    let mut state = scene.state();
    if let Some(lost) = state.lost.get_mut(&group) {
        lost.was_bare |= known == Some(None);
        lost.marker = known;
        lost.is_lost = is_last;
        lost.evicts = matches!(fault, Fault::Evict { .. });
        lost.is_replaced = matches!(fault, Fault::Failover { .. });
    }
}

/// A server of a cluster has become the master of its slots, or a replica: what it was told lately is lost.
pub(super) fn take_turns(scene: &Scene) {
    for (host, turn) in scene.world.take_turns() {
        let (_, group, _) = scene.world.topology().hosts()[host.0 as usize];
        let group = group as u32;
        scene.note(What::Forgot { group });
        if turn == Turn::Master {
            let known = marker(scene, host);
            let mut state = scene.state();
            state.mains.insert(group, host);
            let lost = Lost {
                was_bare: known.is_none(),
                marker: Some(known),
                is_lost: true,
                is_replaced: true,
                ..Lost::default()
            };
            state.lost.insert(group, lost);
        }
    }
}

/// What is to be known before a fault happens.
fn before(scene: &Scene, fault: &Fault) {
    match *fault {
        Fault::ProcessStep { process, ms } => {
            *scene.state().dates.entry(process).or_default() += ms;
        }
        Fault::Pause { process } => stands_still(scene, process, Still::Paused),
        Fault::Block { process } => stands_still(scene, process, Still::Blocked),
        Fault::Resume { process } => goes_on(scene, process, &[Still::Paused]),
        Fault::Unblock { process } => goes_on(scene, process, &[Still::Blocked]),
        Fault::Suspend { ms } => scene.note(What::Suspended { ms }),
        Fault::Kill { process } => dies(scene, process),
        _ => {}
    }
}

/// The callers of a process stand still, for one more reason.
fn stands_still(scene: &Scene, place: u32, why: Still) {
    if scene.world.living(place).is_none() {
        return;
    }
    let ran = !stands(scene, place);
    scene.state().still.insert((place, why));
    if ran {
        scene.note(What::Paused { place });
    }
}

/// Reasons end for which a process stands still.
fn goes_on(scene: &Scene, place: u32, all: &[Still]) {
    let stood = stands(scene, place);
    let ended = |(of, why): &(u32, Still)| *of == place && all.contains(why);
    scene.state().still.retain(|one| !ended(one));
    if stood && !stands(scene, place) {
        scene.note(What::Resumed { place });
    }
}

fn stands(scene: &Scene, place: u32) -> bool {
    scene.state().still.iter().any(|(of, _)| *of == place)
}

/// The process in a place is about to die.
fn dies(scene: &Scene, place: u32) {
    let Some(process) = scene.world.living(place) else {
        return;
    };
    goes_on(scene, place, &Still::ALL);
    // What it worked with goes.
    let shop: Option<Shop> = scene.state().shops.remove(&process);
    scene.world.inside(process, || drop(shop));
}

/// A process in a place ends.
pub(super) fn kill(scene: &Scene, place: u32) {
    dies(scene, place);
    scene.world.apply(&Fault::Kill { process: place });
}

/// Everything works again.
pub(super) fn heal(scene: &Scene) {
    scene.state().is_healed = true;
    let misled = scene.world.misled();
    scene.world.apply(&Fault::HealAll);
    for group in misled {
        scene.note(What::Forgot { group });
    }
    let still = scene.state().still.clone();
    for (place, _) in still {
        goes_on(scene, place, &Still::ALL);
    }
}
