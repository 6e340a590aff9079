//! Who held what when, as processes tell while they go on.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::contender::TASKS;
use super::part::KEYS;
use crate::checker::Interval;
use crate::order::Acquisition;
use crate::support::clocks::raw_now;

/// What processes have told so far.
#[derive(Debug)]
pub(crate) struct Records {
    intervals: Mutex<Vec<Interval>>,
    /// The same moment by two clocks.
    origin: (Instant, u64),
}

impl Records {
    pub(crate) fn new() -> Self {
        Self {
            intervals: Mutex::default(),
            origin: (Instant::now(), raw_now()),
        }
    }

    /// Notes what a process tells of one time that a task of it held a lock.
    pub(crate) fn add(&self, process: usize, task: usize, held: Acquisition) {
        let Acquisition {
            key,
            fence,
            start,
            end,
            ..
        } = held;
        let interval = Interval {
            key: KEYS.into_iter().find(|known| *known == key).unwrap(),
            client: process * TASKS + task,
            fence,
            reads: false,
            start: self.instant(start),
            end: self.instant(end),
        };
        self.intervals.lock().unwrap().push(interval);
    }

    fn instant(&self, nanos: u64) -> Instant {
        let (instant, origin) = self.origin;
        instant + Duration::from_nanos(nanos - origin)
    }

    pub(crate) fn all(&self) -> Vec<Interval> {
        self.intervals.lock().unwrap().clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.intervals.lock().unwrap().len()
    }

    /// Whether the process has got a lock after that.
    pub(crate) fn is_later(&self, process: usize, than: Instant) -> bool {
        let intervals = self.intervals.lock().unwrap();
        let mut own = intervals.iter().filter(|one| one.client / TASKS == process);
        own.any(|one| one.start > than)
    }
}
