//! [`Skew`]: how far a server's clock is from ours, by the time in its replies to `INFO`.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::moment::Moment;

/// A reply that took longer says too little: the server read its clock at any time in between.
const SLOW: Duration = Duration::from_millis(500);
/// A clock that goes on by so much more or less than ours, besides what the replies took, was set.
const STEP: Duration = Duration::from_millis(250);
/// By how much the rates of two clocks may differ in addition, as one part of this many.
const RATE: u32 = 1_000;

/// What a server's reply says about its clock.
#[derive(Clone, Debug)]
pub(super) struct Reading<'a> {
    /// The server process.
    pub(super) run_id: &'a str,
    /// Microseconds since 1970, by the server.
    pub(super) server: u64,
    /// The same by this process, when the reply came.
    pub(super) ours: u64,
    pub(super) asked: Moment,
    pub(super) answered: Moment,
}

/// What follows from it, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Found {
    /// By how much the server's clock is ahead of ours.
    pub(super) ahead: f64,
    /// By how much it was set since the last reading, if it was.
    pub(super) step: Option<f64>,
}

/// The last reading of a node's clock.
#[derive(Debug, Default)]
pub(super) struct Skew(Mutex<Option<Last>>);

#[derive(Debug)]
struct Last {
    run_id: String,
    server: u64,
    at: Moment,
    took: Duration,
}

impl Skew {
    /// Takes a reading; `None` if it says too little.
    ///
    /// A step is measured by our clock that nobody sets, so that a step of our own is not taken for the server's.
    pub(super) fn found(&self, reading: &Reading<'_>) -> Option<Found> {
        let took = reading.answered.since(reading.asked);
        if took > SLOW {
            return None;
        }
        let half = took / 2;
        let at = reading.asked + half;
        let ahead = seconds(reading.server, reading.ours) + half.as_secs_f64();
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let step = (last.as_ref())
            .filter(|last| last.run_id == reading.run_id && at > last.at)
            .and_then(|last| {
                let passed = at.since(last.at);
                let step = seconds(reading.server, last.server) - passed.as_secs_f64();
                let vague = STEP + half + last.took / 2 + passed / RATE;
                (step.abs() > vague.as_secs_f64()).then_some(step)
            });
        *last = Some(Last {
            run_id: reading.run_id.to_owned(),
            server: reading.server,
            at,
            took,
        });
        Some(Found { ahead, step })
    }
}

/// From `earlier` to `later`, both in microseconds, in seconds.
fn seconds(later: u64, earlier: u64) -> f64 {
    let span = Duration::from_micros(later.abs_diff(earlier)).as_secs_f64();
    if later < earlier { -span } else { span }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;
    const NOW: u64 = 1_700_000_000 * SECOND;

    /// A server so many microseconds ahead, asked at this second, which took so many milliseconds.
    fn reading(ahead: i64, second: u64, took: u64) -> Reading<'static> {
        let asked = Moment::ORIGIN + Duration::from_secs(second);
        let true_time = NOW + second * SECOND;
        Reading {
            run_id: "a",
            server: (true_time + took * 500).checked_add_signed(ahead).unwrap(),
            ours: true_time + took * 1_000,
            asked,
            answered: asked + Duration::from_millis(took),
        }
    }

    fn near(found: Option<f64>, wanted: Option<f64>) {
        let near = match (found, wanted) {
            (Some(found), Some(wanted)) => (found - wanted).abs() < 1e-5,
            (None, None) => true,
            _ => false,
        };
        assert!(near, "{found:?} instead of {wanted:?}");
    }

    #[test]
    fn the_way_there_and_back_is_not_skew() {
        let skew = Skew::default();
        for (second, ahead) in [(1, 0), (2, 200_000), (3, -50_000)] {
            let found = skew.found(&reading(ahead, second, 80)).unwrap();
            near(
                Some(found.ahead),
                Some(seconds((NOW as i64 + ahead) as u64, NOW)),
            );
            near(found.step, None);
        }
        assert_eq!(skew.found(&reading(0, 4, 501)), None, "too slow to say");
    }

    #[test]
    fn a_clock_that_was_set_is_found_once_and_one_that_runs_a_little_fast_never() {
        let skew = Skew::default();
        let step = |ahead, second| skew.found(&reading(ahead, second, 2)).unwrap().step;
        near(step(0, 1), None);
        near(step(3_600_000_000, 2), Some(3_600.0));
        near(step(3_600_000_000, 3), None);
        near(step(-1_000_000, 4), Some(-3_601.0));
        // Not looked at for an hour, in which it gained two seconds.
        near(step(1_000_000, 3_604), None);
    }

    #[test]
    fn another_server_has_another_clock() {
        let skew = Skew::default();
        skew.found(&reading(0, 1, 2)).unwrap();
        let other = Reading {
            run_id: "b",
            ..reading(7_000_000, 2, 2)
        };
        let found = skew.found(&other).unwrap();
        near(Some(found.ahead), Some(7.0));
        near(found.step, None);
    }

    #[test]
    fn our_own_step_is_skew_but_not_the_servers_step() {
        let skew = Skew::default();
        skew.found(&reading(0, 1, 2)).unwrap();
        let mut set = reading(0, 2, 2);
        set.ours -= 60 * SECOND;
        let found = skew.found(&set).unwrap();
        near(Some(found.ahead), Some(60.0));
        near(found.step, None);
    }
}
