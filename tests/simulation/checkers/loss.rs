//! A loss is told before validity ends: `lost` fires while some of it is left.
//!
//! That is, where the process runs and polls: one that stands still, or keeps a call unpolled, is told nothing, and finds
//! its lock lost afterwards. Nor is
//! it promised where clocks do not run alike or tasks are put off. A lock that others have taken, or that a shutdown
//! ends, is lost at once.

use super::{Found, History, Terms, named};
use crate::workload::history::{Event, Holder, What};

/// How long before it a pause may excuse a late notice, in milliseconds.
const AFTER: u64 = 100;
/// How long timers may sleep after a host was suspended, in milliseconds: they do not count that time, and the watchdog
/// looks at the clock once a second.
const LOOK: u64 = 1_000;

pub(super) fn check(history: &History, terms: &Terms) -> Found {
    // Which place was paused, or all; and until when that excuses a late notice.
    let mut excuses: Vec<(Option<u32>, u64)> = Vec::new();
    let mut found = Vec::new();
    for Event { at, what } in &history.events {
        match what {
            What::Resumed { place } => excuses.push((Some(*place), at + AFTER)),
            What::Suspended { .. } => excuses.push((None, at + LOOK + AFTER)),
            What::Told {
                holder,
                reason,
                left: 0,
            } if terms.exact => {
                let Holder { process, call, .. } = &history.holders[*holder];
                let place = process.place;
                let mut excuses = excuses.iter();
                let excused =
                    excuses.any(|(of, until)| of.is_none_or(|of| of == place) && until >= at);
                let is_timed = reason == "Expired" || reason == "MaxHold";
                let is_late = terms.keeps.contains(call) || terms.jitter.contains(&place);
                if is_timed && !excused && !is_late {
                    let named = named(history, *holder);
                    found.push((*at, format!("{named}, and was told of the loss ({reason}) when nothing of its validity was left")));
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
        let after = |pause: What, at| count(&[(80, pause), (at, told("Expired", 0))], &strict);
        let resumed = |place| What::Resumed { place };
        let suspended = || What::Suspended { ms: 500 };
        assert_eq!((after(resumed(0), 180), after(resumed(0), 181)), (0, 1));
        assert_eq!(
            (after(suspended(), 1_180), after(suspended(), 1_181)),
            (0, 1)
        );
        assert_eq!(after(resumed(1), 90), 1);
    }

    #[test]
    fn a_call_that_is_kept_unpolled_is_told_when_it_is_polled() {
        let late = [(90, told("MaxHold", 0))];
        assert_eq!(count(&late, &Terms::strict()), 1);
        let call = holder(0, "a", 1, 10).call;
        let kept = Terms::but(|terms| terms.keeps = [call].into());
        assert_eq!(count(&late, &kept), 0);
    }
}
