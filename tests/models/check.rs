//! Running the checker, and judging what it has found.

use std::fmt::Debug;
use std::hash::Hash;
use std::time::{Duration, Instant};

use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::moment::Moment;
use crate::protocol::quorum::{Drift, Quorum, quarantine};

/// Visits every state of `model`: what must always hold does, and what must be possible is.
pub(crate) fn assert_holds<M>(name: &str, model: M)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq + Send + Sync,
{
    let began = Instant::now();
    let checker = model.checker().threads(1).spawn_bfs().join();
    let (states, steps) = (checker.unique_state_count(), checker.state_count());
    let (depth, time) = (checker.max_depth(), began.elapsed());
    println!("{name}: {states} states, {steps} steps, depth {depth}, {time:.1?}");
    checker.assert_properties();
}

/// Searches `model`, from which one rule was left out, until `promise` is broken.
pub(crate) fn assert_refuted<M>(name: &str, model: M, promise: &'static str)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq + Send + Sync,
{
    let began = Instant::now();
    let checker = model.checker().threads(1);
    let checker = checker.finish_when(HasDiscoveries::AnyOf([promise].into()));
    let checker = checker.spawn_bfs().join();
    let (states, time) = (checker.unique_state_count(), began.elapsed());
    println!("{name}: {states} states, {time:.1?}");
    println!("refuted: {}", checker.assert_any_discovery(promise));
}

/// What must be possible: under which condition, its name, and whether a state shows it.
type Reached<M> = (bool, &'static str, fn(&M, &<M as Model>::State) -> bool);

/// The properties of what must be possible.
pub(crate) fn reached<M: Model>(all: &[Reached<M>]) -> impl Iterator<Item = Property<M>> {
    let able = all.iter().filter(|(is_able, ..)| *is_able);
    able.map(|(_, name, is_so)| Property::sometimes(name, *is_so))
}

/// Whether `goal` is reached from `state` within so many steps if all goes well from here on: of the steps that are
/// possible, the one with the least `rank` is taken each time, and those without a rank never.
pub(crate) fn leads_to<M: Model>(
    model: &M,
    state: M::State,
    steps: usize,
    rank: impl Fn(&M::State, &M::Action) -> Option<u8>,
    goal: impl Fn(&M::State) -> bool,
) -> bool {
    let mut state = state;
    for _ in 0..steps {
        if goal(&state) {
            return true;
        }
        let mut actions = Vec::new();
        model.actions(&state, &mut actions);
        let ranked = actions.into_iter().filter_map(|action| {
            let rank = rank(&state, &action)?;
            Some((rank, action))
        });
        let next = ranked.min_by_key(|(rank, _)| *rank);
        match next.and_then(|(_, action)| model.next_state(&state, action)) {
            Some(next) => state = next,
            None => return false,
        }
    }
    goal(&state)
}

/// The present of every model: its states hold ages and remaining times, so that there is no end of time.
pub(crate) const NOW: Moment = Moment::from_nanos(1_000_000_000_000);

/// One step of time.
pub(crate) const TICK: Duration = Duration::from_secs(1);

/// So many ticks before now.
pub(crate) fn ago(ticks: u8) -> Moment {
    NOW.saturating_sub(TICK * u32::from(ticks))
}

/// So many ticks.
pub(crate) fn ticks(ticks: u8) -> Duration {
    TICK * u32::from(ticks)
}

/// How many of so many nodes are a quorum, if none of them forgets unseen.
pub(crate) fn quorum(nodes: usize) -> usize {
    Quorum::masking(nodes, 0).unwrap().needed()
}

/// How many ticks a quarantine lasts, if servers that were replaced count for another `within`. In whole ticks: without
/// the two milliseconds of drift.
pub(crate) fn wait(ttl: u8, within: u8) -> u8 {
    let drift = Drift::new(0.0).unwrap();
    quarantine(ticks(ttl), ticks(within), drift).as_secs() as u8
}
