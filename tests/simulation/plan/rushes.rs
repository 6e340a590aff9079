//! Rushes: clients are at their busiest when something goes wrong, all about the same lock.

use super::rolls::Rolls;
use super::settings::Shape;
use super::{Action, Call, Cut, Episode, Lock};

/// How many rushes a plan has at most.
const MOST: u64 = 4;

/// The calls of clients that ask for one lock again and again while some of the faults happen.
pub(super) fn rushes(seed: u64, shape: &Shape, keys: u32, episodes: &[Episode]) -> Vec<Call> {
    let mut rolls = Rolls::new(seed, "rushes");
    let count = rolls.weighted(&[(1, 0), (1, 1), (2, MOST)]);
    let faults: Vec<&Episode> = episodes.iter().filter(|one| begins(one) > 0).collect();
    let mut kinds: Vec<&str> = faults.iter().map(|one| &*one.name).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let mut calls = Vec::new();
    for _ in 0..count {
        // Each kind is as likely as the others, however many there are of it.
        let from = match kinds.is_empty() {
            true => rolls.range(100, shape.length),
            false => {
                let kind = rolls.pick(&kinds);
                let mut those = faults.clone();
                those.retain(|one| one.name == kind);
                let one = rolls.pick(&those);
                match kind {
                    // A new master does not vote before some time has passed.
                    "divide" => rolls.range(begins(one), ends(one)),
                    _ => begins(one).saturating_sub(rolls.wide(1, 2_000)),
                }
            }
        };
        let key = rolls.below(u64::from(keys)) as u32;
        rush(shape, &mut rolls, (key, keys), from, &mut calls);
    }
    calls
}

/// When the first of its faults begins.
fn begins(episode: &Episode) -> u64 {
    episode.steps.first().map_or(0, |(at, _)| *at)
}

/// When the last of its faults ends.
fn ends(episode: &Episode) -> u64 {
    episode.steps.last().map_or(0, |(at, _)| *at)
}

/// Calls about one key, and now and then about another one beside it or instead of it.
fn rush(
    shape: &Shape,
    rolls: &mut Rolls,
    (key, keys): (u32, u32),
    from: u64,
    calls: &mut Vec<Call>,
) {
    let (gap, most) = (rolls.wide(15, 500), rolls.range(10, 40));
    let time = rolls.range(500, 7_000).min(gap * most);
    let (short, long) = (rolls.range(1, 100), rolls.range(300, 4_000));
    let is_long = rolls.pick(&[0, 10, 40]);
    let waits = rolls.pick(&[10, 40, 80]);
    let other = (key + 1) % (keys + 1);
    let alone = rolls.pick(&[100, 50]);
    let mut places = rolls.some(&shape.places(), 80);
    places.push(rolls.pick(&shape.places()));
    for index in 0..time / gap {
        let at = from + index * gap + rolls.below(gap);
        let hold = match rolls.percent(is_long) {
            true => rolls.range(long / 2, long),
            false => rolls.range(1, short),
        };
        let wait = match rolls.percent(waits) {
            true => rolls.wide(50, 2_500),
            false => 0,
        };
        let those = match rolls.percent(alone) {
            true => vec![key],
            false => rolls.pick(&[vec![key, other], vec![other]]),
        };
        let lock = Lock::new(those, wait, hold, rolls.percent(20));
        calls.push(Call {
            at: at.clamp(50, shape.length - 200),
            place: rolls.pick(&places),
            cut: Cut::Never,
            action: Action::Lock(lock),
        });
    }
}
