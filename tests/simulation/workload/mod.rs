//! What happens in a world: processes start, clients call, faults come and go; then all is healed, and everything
//! must work, end, and leave nothing behind.

mod calls;
mod faults;
mod finish;
pub(crate) mod history;
mod http;
mod once;
mod process;
mod scene;
mod servers;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::checkers::{Terms, Violation, check};
use crate::plan::Plan;
use tower_redlock_simulated::world::{Fault, World};

use self::scene::Scene;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Something of a plan, at its time.
enum Entry {
    /// A step of an episode.
    Step(usize, usize),
    Start(u32),
    Call(usize),
}

/// Lets a plan happen. What of it breaks a promise?
pub(crate) async fn run(world: World, plan: Plan) -> Vec<Violation> {
    let terms = Terms::of(&plan);
    let scene = Arc::new(Scene::new(world.clone(), plan));
    let own = Arc::clone(&scene);
    world.set_program(move |_, id| Box::pin(process::program(Arc::clone(&own), id)));
    let watch = tokio::spawn(watch::watch(Arc::clone(&scene)));
    for (at, entry) in timeline(&scene.plan) {
        sleep(ms(at.saturating_sub(world.millis()))).await;
        match entry {
            Entry::Step(episode, step) => faults::apply(&scene, episode, step),
            Entry::Start(place) => world.apply(&Fault::Start { process: place }),
            Entry::Call(index) => calls::begin(&scene, index),
        }
    }
    sleep(ms(scene.plan.length.saturating_sub(world.millis()))).await;
    finish::finish(&scene).await;
    watch.abort();
    let history = std::mem::take(&mut scene.state().history);
    check(&history, &terms)
}

/// Everything in the order of time. At one time, faults come first.
fn timeline(plan: &Plan) -> Vec<(u64, Entry)> {
    let mut all = Vec::new();
    for (index, episode) in plan.episodes.iter().enumerate() {
        let steps = episode.steps.iter().enumerate();
        all.extend(steps.map(|(step, (at, _))| (*at, Entry::Step(index, step))));
    }
    for (place, settings) in plan.processes.iter().enumerate() {
        all.push((settings.start, Entry::Start(place as u32)));
    }
    let calls = plan.calls.iter().enumerate();
    all.extend(calls.map(|(index, call)| (call.at, Entry::Call(index))));
    all.sort_by_key(|(at, _)| *at);
    all
}
