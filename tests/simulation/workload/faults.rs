//! The faults of a plan, and how much may be lost at a time.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::history::What;
use super::scene::{Lost, Scene, Shop};
use super::watch::marker;
use crate::plan::{Class, Seen};
use crate::world::{Fault, Memory, ProcessId};

/// A step of an episode, unless that is left out.
pub(super) fn apply(scene: &Arc<Scene>, episode: usize, step: usize) {
    let about = &scene.plan.episodes[episode];
    if !may_happen(scene, episode) {
        return;
    }
    let fault = &about.steps[step].1;
    before(scene, fault);
    scene.world.apply(fault);
    if let Some((group, seen)) = about.loses
        && loses(fault)
    {
        forgets(scene, group, seen == Seen::Yes, fault);
    }
}

/// Whether what an episode loses may be lost now: decided once, at its beginning.
fn may_happen(scene: &Scene, episode: usize) -> bool {
    let about = &scene.plan.episodes[episode];
    let mut state = scene.state();
    if state.left_out.contains(&episode) {
        return false;
    }
    let Some((group, Seen::Yes)) = about.loses else {
        return true;
    };
    if scene.plan.class == Class::Beyond || !state.begun.insert(episode) {
        return true;
    }
    let settings = scene.plan.all_settings();
    let spare = settings
        .map(crate::plan::Settings::spare)
        .min()
        .unwrap_or(0);
    if state.lost.contains_key(&group) || state.lost.len() >= spare {
        state.left_out.insert(episode);
        drop(state);
        let text = format_args!(
            "`{}` of g{group} is left out: too much is lost already",
            about.name
        );
        scene.world.record(None, text);
        return false;
    }
    // From now on, so that nothing else is lost while this goes on.
    let lost = Lost {
        marker: None,
        was_bare: false,
        is_lost: false,
    };
    state.lost.insert(group, lost);
    true
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
fn forgets(scene: &Arc<Scene>, group: u32, seen: bool, fault: &Fault) {
    scene.note(What::Forgot { group, seen });
    if let Fault::Failover { to, demote_ms, .. } = *fault {
        scene.state().mains.insert(group, to);
        // The old master goes on until it is demoted, and loses what it was told meanwhile.
        let later = Arc::clone(scene);
        tokio::spawn(async move {
            sleep(Duration::from_millis(demote_ms)).await;
            later.note(What::Forgot { group, seen });
        });
    }
    let main = scene.state().mains[&group];
    let known = scene.world.is_up(main).then(|| marker(scene, main));
    let was_bare = known == Some(None);
    let mut state = scene.state();
    if let Some(lost) = state.lost.get_mut(&group) {
        *lost = Lost {
            marker: known,
            was_bare,
            is_lost: true,
        };
    }
}

/// What is to be known before a fault happens.
fn before(scene: &Scene, fault: &Fault) {
    match *fault {
        Fault::ProcessStep { process, ms } => {
            *scene.state().dates.entry(process).or_default() += ms;
        }
        Fault::Pause { process } if scene.world.living(process).is_some() => {
            scene.state().paused.insert(process);
            scene.note(What::Paused { place: process });
        }
        Fault::Resume { process } if scene.state().paused.contains(&process) => {
            scene.state().paused.remove(&process);
            scene.note(What::Resumed { place: process });
        }
        Fault::Suspend { ms } => scene.note(What::Suspended { ms }),
        Fault::Kill { process } => dies(scene, process),
        _ => {}
    }
}

/// The process in a place is about to die.
fn dies(scene: &Scene, place: u32) {
    let Some(process) = scene.world.living(place) else {
        return;
    };
    if scene.state().paused.remove(&place) {
        scene.note(What::Resumed { place });
    }
    scene.note(What::Died { process });
    close(scene, process);
}

/// What a process worked with goes.
pub(super) fn close(scene: &Scene, process: ProcessId) {
    let shop: Option<Shop> = scene.state().shops.remove(&process);
    scene.world.inside(process, || drop(shop));
}

/// A process in a place ends.
pub(super) fn kill(scene: &Scene, place: u32) {
    dies(scene, place);
    scene.world.apply(&Fault::Kill { process: place });
}

/// A process starts in a place, unless one lives there.
pub(super) fn start(scene: &Scene, place: u32) {
    scene.world.apply(&Fault::Start { process: place });
}

/// Everything works again.
pub(super) fn heal(scene: &Scene) {
    let misled = scene.world.misled();
    scene.world.apply(&Fault::HealAll);
    for group in misled {
        scene.note(What::Forgot { group, seen: true });
    }
    let paused = std::mem::take(&mut scene.state().paused);
    for place in paused {
        scene.note(What::Resumed { place });
    }
    scene.note(What::Healed);
}

/// By how much a fault sets the clock of a server back.
pub(super) fn set_back(fault: &Fault) -> u64 {
    match fault {
        Fault::HostStep { ms, .. } if *ms < 0 => ms.unsigned_abs(),
        _ => 0,
    }
}
