//! A failing plan with fewer faults, calls and processes, and as short as may be, that still breaks the same promise.

use crate::checkers::Violation;
use crate::plan::{Cut, Plan};
use tower_redlock_simulated::world::{Fault, Named};

/// How many plans are tried at most.
const MOST_RUNS: usize = 250;

/// The smallest plan found that breaks `promise`, as `run` tells.
pub(crate) fn shrink(
    plan: Plan,
    promise: &str,
    run: &mut dyn FnMut(&Plan) -> Vec<Violation>,
) -> Plan {
    let mut shrinking = Shrinking {
        plan,
        promise,
        run,
        left: MOST_RUNS,
    };
    shrinking.shorten();
    loop {
        let before = shrinking.size();
        shrinking.halves(
            |plan| plan.episodes.len(),
            |plan, from, to| drop(plan.episodes.drain(from..to)),
        );
        shrinking.halves(
            |plan| plan.calls.len(),
            |plan, from, to| drop(plan.calls.drain(from..to)),
        );
        shrinking.steps();
        shrinking.cuts();
        if shrinking.size() == before || shrinking.left == 0 {
            break;
        }
    }
    shrinking.places();
    shrinking.shorten();
    shrinking.plan
}

struct Shrinking<'a> {
    plan: Plan,
    promise: &'a str,
    run: &'a mut dyn FnMut(&Plan) -> Vec<Violation>,
    left: usize,
}

impl Shrinking<'_> {
    fn size(&self) -> usize {
        self.plan.faults().count() + self.plan.calls.len()
    }

    /// Keeps a smaller plan if it still fails.
    fn try_it(&mut self, smaller: Plan) -> Option<()> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        self.fails(&smaller)?;
        self.plan = smaller;
        Some(())
    }

    /// When a plan breaks the promise.
    fn fails(&mut self, plan: &Plan) -> Option<u64> {
        let found = (self.run)(plan).into_iter();
        let mut found = found.filter(|violation| violation.promise == self.promise);
        found.next().map(|first| first.at_ms)
    }

    /// Takes parts out of a list: halves, quarters, and so on down to single ones.
    fn halves(&mut self, len: fn(&Plan) -> usize, take: fn(&mut Plan, usize, usize)) {
        let mut part = len(&self.plan).div_ceil(2);
        while part > 0 {
            let mut from = 0;
            while from < len(&self.plan) {
                let mut smaller = self.plan.clone();
                take(&mut smaller, from, (from + part).min(len(&self.plan)));
                if self.try_it(smaller).is_none() {
                    from += part;
                }
            }
            part = if part == 1 { 0 } else { part.div_ceil(2) };
        }
    }

    /// Takes single steps out of episodes.
    fn steps(&mut self) {
        for episode in 0..self.plan.episodes.len() {
            let mut step = 0;
            while step < self.plan.episodes[episode].steps.len() {
                let mut smaller = self.plan.clone();
                smaller.episodes[episode].steps.remove(step);
                if self.try_it(smaller).is_none() {
                    step += 1;
                }
            }
        }
    }

    /// Lets calls go on that were dropped half-way.
    fn cuts(&mut self) {
        for call in 0..self.plan.calls.len() {
            if self.plan.calls[call].cut != Cut::Never {
                let mut simpler = self.plan.clone();
                simpler.calls[call].cut = Cut::Never;
                self.try_it(simpler);
            }
        }
    }

    /// Takes the last processes away, as long as no call is in them, and with them the faults that are about them.
    fn places(&mut self) {
        while self.plan.processes.len() > 1 {
            let last = self.plan.processes.len() as u32 - 1;
            if self.plan.calls.iter().any(|call| call.place == last) {
                return;
            }
            let mut smaller = self.plan.clone();
            smaller.processes.pop();
            let named = (Named::Process, last.into());
            retain_steps(&mut smaller, |_, fault| !fault.names().contains(&named));
            if self.try_it(smaller).is_none() {
                return;
            }
        }
    }

    /// Ends the plan soon after it fails.
    fn shorten(&mut self) {
        let mut smaller = self.plan.clone();
        let Some(at) = self.fails(&smaller) else {
            return;
        };
        let end = at + 50;
        if end < smaller.length {
            smaller.length = end;
            smaller.calls.retain(|call| call.at <= end);
            retain_steps(&mut smaller, |at, _| at <= end);
            self.try_it(smaller);
        }
    }
}

/// Takes the other steps out of the episodes, and those of these that have none left.
fn retain_steps(plan: &mut Plan, stays: impl Fn(u64, &Fault) -> bool) {
    for episode in &mut plan.episodes {
        episode.steps.retain(|(at, fault)| stays(*at, fault));
    }
    plan.episodes.retain(|episode| !episode.steps.is_empty());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails as long as one call of the first place is left in it.
    #[test]
    fn what_does_not_matter_is_taken_away() {
        let mut plans = (0..).map(Plan::generate);
        let plan = plans.find(|plan| plan.calls.len() > 20).unwrap();
        let at = plan.calls[3].at;
        let mut run = |plan: &Plan| {
            let calls = plan.calls.iter().filter(|call| call.at == at).take(1);
            let violations = calls.map(|call| Violation {
                promise: "p",
                at_ms: call.at,
                text: String::new(),
            });
            violations.collect()
        };
        let small = shrink(plan, "p", &mut run);
        assert!(small.episodes.is_empty(), "{small}");
        assert!(small.calls.iter().all(|call| call.at == at), "{small}");
    }
}
