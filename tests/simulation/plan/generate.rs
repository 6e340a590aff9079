//! A plan from a seed.

use super::episodes::Kind;
use super::rolls::Rolls;
use super::settings::{Shape, shape};
use super::{Action, Call, Class, Episode, Plan};
use tower_redlock_simulated::world::Fault;

/// When faults may begin: by then the first processes have connected, and their word that no lock is held counts no
/// more.
pub(super) const QUIET: u64 = 1_500;

impl Plan {
    /// The plan of a seed.
    pub(crate) fn generate(seed: u64) -> Self {
        let mut rolls = Rolls::new(seed, "plan");
        let class = rolls.weighted(&[(85, Class::Within), (15, Class::Beyond)]);
        let length = rolls.range(8_000, 14_000);
        let shape = shape(seed, class, length);
        let episodes = episodes(seed, &shape);
        let keys = Rolls::new(seed, "keys").weighted(&[(4, 1), (4, 2), (2, 3)]);
        let mut calls: Vec<Call> = super::calls::calls(seed, &shape, keys);
        calls.extend(super::rushes::rushes(seed, &shape, keys, &episodes));
        ttls(seed, &shape, &mut calls);
        calls.sort_by_key(|call| call.at);
        Self {
            seed,
            class,
            topology: shape.topology,
            processes: shape.places,
            episodes,
            calls,
            keys,
            length,
        }
    }
}

/// Has some calls acquire with a ttl of their own, in every third plan: often one that is longer than any that the
/// process had before, so that the nodes learn of it then.
fn ttls(seed: u64, shape: &Shape, calls: &mut [Call]) {
    let mut rolls = Rolls::new(seed, "ttls");
    if !rolls.percent(33) {
        return;
    }
    let share = rolls.pick(&[5, 30, 60]);
    let longest = rolls.pick(&[30, 70, 100]);
    for call in calls {
        if let Action::Lock(lock) = &mut call.action
            && rolls.percent(share)
        {
            let most = shape.places[call.place as usize].settings(0).max_ttl;
            lock.ttl = Some(match rolls.percent(longest) {
                true => most,
                false => rolls.pick(&[300, 700]),
            });
        }
    }
}

/// The faults of a plan: of a random subset of all kinds, each some times.
fn episodes(seed: u64, shape: &Shape) -> Vec<Episode> {
    let mut rolls = Rolls::new(seed, "kinds");
    let mut kinds = Vec::new();
    // One plan in nine has no faults at all, or only callers that block: then everything must be right to the letter.
    if rolls.percent(11) {
        if Rolls::new(seed, "blocks alone").percent(50) {
            kinds.push((Kind::Block, 5));
        }
    } else {
        // Where everything goes wrong at once, nobody gets far enough to do harm.
        let share = rolls.pick(&[2, 10, 20, 35]);
        let mut newer = Rolls::new(seed, "newer kinds");
        for (kind, most) in Kind::ALL {
            let rolls = match kind {
                // Since there are these, the plans are what they were before, and more.
                Kind::Block | Kind::Refuses | Kind::Divide | Kind::TakeOver => &mut newer,
                _ => &mut rolls,
            };
            let chance = match kind {
                // Without them such a shape is that of plain nodes.
                Kind::FailoverAndBack | Kind::Failover | Kind::Divide => 80,
                _ if kind.is_important(shape) => share * 2 + 10,
                _ => share,
            };
            if kind.may_be(shape) && rolls.percent(chance) {
                kinds.push((kind, most));
            }
        }
    }
    let mut late_ones = Vec::new();
    let mut all = shape.dates.clone();
    for (kind, most) in kinds {
        let mut rolls = Rolls::new(seed, &kind.name());
        for _ in 0..rolls.range(1, most) {
            let at = rolls.range(QUIET, shape.length.saturating_sub(700));
            all.extend(kind.episode(shape, &mut rolls, at));
        }
    }
    let together = super::episodes::together(shape, &mut Rolls::new(seed, "together"), &all);
    all.extend(together);
    for episode in &mut all {
        // Everything ends with the plan.
        for (at, fault) in &mut episode.steps {
            *at = (*at).min(shape.length);
            if let Fault::Failover {
                learn_ms,
                demote_ms,
                ..
            } = fault
            {
                let left = shape.length - *at;
                *learn_ms = (*learn_ms).min(left);
                *demote_ms = (*demote_ms).min(left);
            }
        }
        episode.steps.sort_by_key(|(at, _)| *at);
    }
    if !shape.common.is_empty() {
        late_ones = match rolls.below(5) {
            0 => super::episodes::late(shape, &mut rolls),
            1..=3 => super::episodes::common(shape, &mut rolls),
            _ => Vec::new(),
        };
    }
    all.retain(|episode| shape.class == Class::Beyond || shape.covers(episode));
    all.extend(late_ones);
    all.sort_by_key(|episode| episode.steps.first().map(|(at, _)| *at));
    all
}
