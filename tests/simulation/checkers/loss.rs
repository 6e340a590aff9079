//! A loss is told before validity ends: `lost` fires while some of it is left.
//!
//! That is, where the process runs and polls: one that stands still, or keeps a call unpolled, is told nothing, and finds
//! its lock lost afterwards. Nor is
//! it promised where clocks do not run alike or tasks are put off. A lock that others have taken, or that a shutdown
//! ends, is lost at once.

use super::{History, Terms, Violation, named};
use crate::workload::history::{Event, Holder, What};

const PROMISE: &str = "a loss is told before validity ends";
/// How long before it a pause may excuse a late notice, in milliseconds.
const AFTER: u64 = 100;
/// How long timers may sleep after a host was suspended, in milliseconds: they do not count that time, and the watchdog
/// looks at the clock once a second.
const LOOK: u64 = 1_000;

pub(super) fn check(history: &History, terms: &Terms) -> Vec<Violation> {
    if !terms.exact {
        return Vec::new();
    }
    let mut stood_still: Vec<(Option<u32>, u64)> = Vec::new();
    let mut found = Vec::new();
    for Event { at, what } in &history.events {
        match what {
            What::Resumed { place } => stood_still.push((Some(*place), *at)),
            What::Suspended { .. } => stood_still.push((None, *at)),
            What::Told {
                holder,
                reason,
                left: 0,
            } => {
                let Holder { process, call, .. } = &history.holders[*holder];
                let place = process.place;
                let excused = stood_still.iter().any(|(which, until)| match which {
                    Some(which) => *which == place && *until + AFTER >= *at,
                    None => *until + LOOK + AFTER >= *at,
                });
                let is_timed = reason == "Expired" || reason == "MaxHold";
                let excused = excused || terms.keeps.contains(call);
                if is_timed && !excused && !terms.jitter.contains(&place) {
                    found.push(Violation {
                        promise: PROMISE,
                        at_ms: *at,
                        text: format!(
                            "{}, and was told of the loss ({reason}) when nothing of its validity was left",
                            named(history, *holder)
                        ),
                    });
                }
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::hand::{history, holder};
    use super::*;

    fn count(events: &[(u64, What)], terms: &Terms) -> usize {
        check(&history(&[holder(0, "a", 1, 10)], events), terms).len()
    }

    fn told(reason: &str, left: u64) -> What {
        let reason = reason.to_owned();
        What::Told {
            holder: 0,
            reason,
            left,
        }
    }

    #[test]
    fn a_loss_that_is_told_too_late_is_found() {
        let strict = Terms::strict();
        assert_eq!(count(&[(90, told("Expired", 0))], &strict), 1);
        assert_eq!(count(&[(90, told("Expired", 4_000))], &strict), 0);
        assert_eq!(count(&[(90, told("Taken", 0))], &strict), 0);
        let resumed = (80, What::Resumed { place: 0 });
        assert_eq!(count(&[resumed, (90, told("Expired", 0))], &strict), 0);
        let resumed = (80, What::Resumed { place: 0 });
        assert_eq!(count(&[resumed, (181, told("Expired", 0))], &strict), 1);
        let suspended = || (80, What::Suspended { ms: 500 });
        let late = |at| count(&[suspended(), (at, told("Expired", 0))], &strict);
        assert_eq!((late(1_180), late(1_181)), (0, 1));
        let other = (80, What::Resumed { place: 1 });
        assert_eq!(count(&[other, (90, told("Expired", 0))], &strict), 1);
    }

    #[test]
    fn a_call_that_is_kept_unpolled_is_told_when_it_is_polled() {
        let late = [(90, told("MaxHold", 0))];
        assert_eq!(count(&late, &Terms::strict()), 1);
        let call = holder(0, "a", 1, 10).call;
        let keeps = [call].into_iter().collect();
        let kept = Terms {
            keeps,
            ..Terms::strict()
        };
        assert_eq!(count(&late, &kept), 0);
    }
}
