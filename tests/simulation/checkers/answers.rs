//! Every waiter is answered within its bound: the time that it waits, and what the nodes may take to reply. So is every
//! shutdown, and no call hangs.
//!
//! The time for which the process stood still does not count.

use std::collections::BTreeMap;

use super::{Found, History, Terms, each_event};
use crate::workload::history::{Event, What};
use tower_redlock_simulated::world::ProcessId;

pub(super) fn check(history: &History, terms: &Terms) -> Found {
    let pauses = pauses(history);
    let mut open: BTreeMap<usize, (u64, ProcessId, u64)> = BTreeMap::new();
    let mut found = Vec::new();
    // Objects if something took longer than its bound, which is extended by pauses.
    let mut judge = |process: ProcessId, at: u64, took: u64, bound: u64, text: String| {
        let from = at.saturating_sub(took);
        let own = pauses.iter().filter(|(place, ..)| *place == process.place);
        let spans = own.map(|(_, since, until)| at.min(*until).saturating_sub(from.max(*since)));
        let late = match terms.jitter.contains(&process.place) {
            true => bound + 500,
            false => 0,
        };
        let most = bound + spans.sum::<u64>() + late;
        if took > most {
            found.push((at, format!("{text}; allowed are at most {most} ms")));
        }
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
                if let Some((from, process, bound)) = open.remove(call) {
                    let took = at - from;
                    let text =
                        format!("{process} (call {call}) is told after {took} ms: {outcome}");
                    judge(process, *at, took, bound, text);
                }
            }
            What::Shut {
                process,
                took,
                bound,
            } => {
                let text = format!("the shutdown of {process} took {took} ms");
                judge(*process, *at, *took, *bound, text);
            }
            _ => {}
        }
    }
    found.extend(each_event(history, |what| match what {
        What::Hangs { call } => Some(format!(
            "call {call} has not ended, though everything else has"
        )),
        _ => None,
    }));
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
        let events = [&[(10, called)], events].concat();
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
        };
        assert_eq!(count(&[(900, shut(500))]), 0);
        assert_eq!(count(&[(900, shut(501))]), 1);
    }
}
