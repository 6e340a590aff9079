//! Every waiter is answered within its bound: the time that it waits, and what the nodes may take to reply. So is every
//! shutdown, and no call hangs.
//!
//! The time for which the process stood still does not count.

use super::{Found, History, Terms, each_event};
use crate::workload::history::{Event, What};

pub(super) fn check(history: &History, terms: &Terms) -> Found {
    let pauses = pauses(history);
    let mut found = each_event(history, |what| match what {
        What::Hangs { call } => Some(format!(
            "call {call} has not ended, though everything else has"
        )),
        _ => None,
    });
    for Event { at, what } in &history.events {
        let What::Took {
            process,
            text,
            took,
            bound,
        } = what
        else {
            continue;
        };
        let from = at.saturating_sub(*took);
        let own = pauses.iter().filter(|(place, ..)| *place == process.place);
        let spans = own.map(|(_, since, until)| at.min(until).saturating_sub(from.max(*since)));
        let late = match terms.jitter.contains(&process.place) {
            true => bound + 500,
            false => 0,
        };
        let most = bound + spans.sum::<u64>() + late;
        if *took > most {
            let text = format!("{process} {text} after {took} ms; allowed are at most {most} ms");
            found.push((*at, text));
        }
    }
    found
}

/// The place, the beginning and the end of each pause.
pub(super) fn pauses(history: &History) -> Vec<(u32, u64, u64)> {
    let mut pauses: Vec<(u32, u64, u64)> = Vec::new();
    for Event { at, what } in &history.events {
        match what {
            What::Paused { place } => pauses.push((*place, *at, u64::MAX)),
            What::Resumed { place } => {
                for (of, _, until) in &mut pauses {
                    if of == place {
                        *until = *at.min(until);
                    }
                }
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

    /// What is found if a client waits from 10 ms on, which may take 100 ms, until `at`.
    fn found(before: &[(u64, What)], at: u64) -> usize {
        let took = What::Took {
            process: process(0),
            text: "(call 3) is told: granted".to_owned(),
            took: at - 10,
            bound: 100,
        };
        let events = [before, &[(at, took)]].concat();
        check(&history(&[], &events), &Terms::strict()).len()
    }

    #[test]
    fn whoever_waits_too_long_is_found() {
        assert_eq!((found(&[], 110), found(&[], 111)), (0, 1));
        assert_eq!(found(&[(50, What::Hangs { call: 3 })], 60), 1);
    }

    #[test]
    fn a_process_that_stood_still_is_excused() {
        let pause = [
            (50, What::Paused { place: 0 }),
            (80, What::Resumed { place: 0 }),
        ];
        assert_eq!((found(&pause, 140), found(&pause, 141)), (0, 1));
        let elsewhere = [(50, What::Paused { place: 1 })];
        assert_eq!(found(&elsewhere, 140), 1);
    }
}
