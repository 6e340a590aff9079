//! Every waiter is answered within its bound: the time that it waits, and what the nodes may take to reply. So is every
//! shutdown, and no call hangs.
//!
//! The time for which the process stood still does not count.

use std::collections::BTreeMap;

use super::{History, Terms, Violation};
use crate::workload::history::{Event, What};
use tower_redlock_simulated::world::ProcessId;

const PROMISE: &str = "every waiter is answered";

pub(super) fn check(history: &History, terms: &Terms) -> Vec<Violation> {
    let pauses = pauses(history);
    let mut open: BTreeMap<usize, (u64, ProcessId, u64)> = BTreeMap::new();
    let mut found = Vec::new();
    let mut object = |at_ms, text| {
        found.push(Violation {
            promise: PROMISE,
            at_ms,
            text,
        });
    };
    let allowed = |process: ProcessId, from: u64, to: u64, bound: u64| {
        let paused: u64 = pauses
            .iter()
            .filter(|(place, ..)| *place == process.place)
            .map(|(_, since, until)| to.min(*until).saturating_sub(from.max(*since)))
            .sum();
        let late = if terms.jitter.contains(&process.place) {
            bound + 500
        } else {
            0
        };
        bound + paused + late
    };
    for Event { at, what } in &history.events {
        match what {
            What::Called {
                call,
                process,
                bound,
            } => {
                open.insert(*call, (*at, *process, *bound));
            }
            What::Answered { call, outcome } => {
                let Some((from, process, bound)) = open.remove(call) else {
                    continue;
                };
                let (took, most) = (at - from, allowed(process, from, *at, bound));
                if took > most {
                    let told =
                        format!("{process} (call {call}) is told after {took} ms: {outcome}");
                    object(*at, format!("{told}; allowed are at most {most} ms"));
                }
            }
            What::Shut {
                process,
                took,
                bound,
                ..
            } => {
                let from = at.saturating_sub(*took);
                let most = allowed(*process, from, *at, *bound);
                if *took > most {
                    let shut = format!("the shutdown of {process} took {took} ms");
                    object(*at, format!("{shut}; allowed are at most {most} ms"));
                }
            }
            What::Hangs { call } => object(
                *at,
                format!("call {call} has not ended, though everything else has"),
            ),
            _ => {}
        }
    }
    found
}

/// The place, the beginning and the end of each pause.
fn pauses(history: &History) -> Vec<(u32, u64, u64)> {
    let mut pauses: Vec<(u32, u64, u64)> = Vec::new();
    for Event { at, what } in &history.events {
        match what {
            What::Paused { place } => pauses.push((*place, *at, u64::MAX)),
            What::Resumed { place } => {
                let open = pauses
                    .iter_mut()
                    .filter(|pause| pause.0 == *place && pause.2 == u64::MAX);
                open.for_each(|pause| pause.2 = *at);
            }
            _ => {}
        }
    }
    pauses
}

#[cfg(test)]
mod tests {
    use super::super::hand::{history, process};
    use super::*;

    fn count(events: &[(u64, What)]) -> usize {
        let called = What::Called {
            call: 3,
            process: process(0),
            bound: 100,
        };
        let events: Vec<_> = std::iter::once((10, called))
            .chain(events.iter().cloned())
            .collect();
        check(&history(&[], &events), &Terms::strict()).len()
    }

    fn answered() -> What {
        What::Answered {
            call: 3,
            outcome: "granted".to_owned(),
        }
    }

    #[test]
    fn whoever_waits_too_long_is_found() {
        assert_eq!(count(&[(110, answered())]), 0);
        assert_eq!(count(&[(111, answered())]), 1);
        assert_eq!(count(&[(50, What::Hangs { call: 3 })]), 1);
    }

    #[test]
    fn a_process_that_stood_still_is_excused() {
        let pause = [
            (50, What::Paused { place: 0 }),
            (80, What::Resumed { place: 0 }),
        ];
        assert_eq!(count(&[&pause[..], &[(140, answered())]].concat()), 0);
        assert_eq!(count(&[&pause[..], &[(141, answered())]].concat()), 1);
        let elsewhere = (50, What::Paused { place: 1 });
        assert_eq!(count(&[elsewhere, (140, answered())]), 1);
    }

    #[test]
    fn a_shutdown_that_takes_too_long_is_found() {
        let shut = |took| What::Shut {
            process: process(0),
            took,
            bound: 500,
            clean: true,
        };
        assert_eq!(count(&[(900, shut(500))]), 0);
        assert_eq!(count(&[(900, shut(501))]), 1);
    }
}
